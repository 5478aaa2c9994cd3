"""One owner of a driver at a time: leases, their lapse and renewal, and an operator that takes over."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from driver_bench import driver_bench
from ros_harness import AT_ONCE_S, eventually
from timely_interfaces.msg import Lease, RobotState
from timely_interfaces.srv import AcquireLease
from timely_robots.error_codes import ErrorCode

pytestmark = [pytest.mark.ros]


def test_two_clients_do_not_drive_one_robot(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path, lease_lapse_s=60.0) as bench:
        first = bench.call(AcquireLease, "acquire_lease", owner="a")
        assert (first.granted, first.owner) == (True, "a")
        second = bench.call(AcquireLease, "acquire_lease", owner="b")
        assert (second.granted, second.owner) == (False, "a")
        assert second.error_code == ErrorCode.LEASE_DENIED
        results = [
            bench.send("d(0.1);", "A", 0, owner="a", epoch=first.epoch).result(),
            bench.send("d(0.1);", "B", 0, owner="b", epoch=first.epoch).result(),
            bench.send("d(0.1);", "A", 1, owner="a", epoch=first.epoch).result(),
            bench.send("d(0.1);", "C", 0).result(),
        ]
        codes = [result.error_code for result in results]
        assert codes == [ErrorCode.NONE, ErrorCode.NOT_OWNER, ErrorCode.NONE, ErrorCode.NOT_OWNER]
        assert bench.until(lambda s: s.lease_owner == "a").lease_epoch == first.epoch


def test_an_operator_takes_over_and_the_segments_of_the_old_owner_end(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path, lease_lapse_s=60.0, speed=1.0) as bench:
        first = bench.call(AcquireLease, "acquire_lease", owner="a")
        moving = bench.send("d(60);", "A", 0, owner="a", epoch=first.epoch)
        waiting = bench.send("d(1);", "A", 1, owner="a", epoch=first.epoch)
        bench.until(lambda s: s.mode == RobotState.EXECUTING and s.queued == 1)
        second = bench.call(AcquireLease, "acquire_lease", owner="operator", take_over=True)
        assert second.granted
        assert second.epoch > first.epoch
        for goal in (moving, waiting):
            assert goal.result().error_code == ErrorCode.NOT_OWNER
        late = bench.send("d(0.1);", "A2", 0, owner="a", epoch=first.epoch).result()
        assert late.error_code == ErrorCode.NOT_OWNER


def test_epochs_rise_over_a_restart(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path) as bench:
        first = bench.call(AcquireLease, "acquire_lease", owner="a").epoch
    with driver_bench(domain_id, tmp_path) as bench:
        assert (
            bench.send("d(0.1);", "A", 0, owner="a", epoch=first).result().error_code == ErrorCode.NOT_OWNER
        )
        assert bench.call(AcquireLease, "acquire_lease", owner="a").epoch > first


def test_a_lapsed_lease_ends_a_loop_between_its_rounds(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path, lease_lapse_s=60.0, speed=1.0) as bench:
        lease = bench.call(AcquireLease, "acquire_lease", owner="a")
        loop = bench.send("50{d(0.2);d(0.1);}", "A", 0, owner="a", epoch=lease.epoch)
        eventually(lambda: len(bench.robot.performed) >= 2, "it never began")
        bench.age_lease(61.0)
        result = loop.result()
        assert result.error_code == ErrorCode.NOT_OWNER
        assert 2 <= len(bench.robot.performed) < 100
        assert bench.call(AcquireLease, "acquire_lease", owner="b").granted


def test_a_renewed_lease_holds(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path, lease_lapse_s=600.0, speed=1.0) as bench:
        lease = bench.call(AcquireLease, "acquire_lease", owner="a")
        goal = bench.send("6{d(0.2);}", "A", 0, owner="a", epoch=lease.epoch)
        for _ in range(3):
            aged_s = bench.age_lease(400.0)
            bench.publish(Lease, "lease", Lease(owner="a", epoch=lease.epoch))
            eventually(lambda: bench.driver._safety.lease._renewed_s > aged_s)  # noqa: B023
        assert goal.result().outcome == "done"
        bench.publish(Lease, "lease", Lease(owner="a", epoch=lease.epoch, released=True))
        bench.until(lambda s: s.lease_owner == "")


def test_a_segment_renews_the_lease_of_its_owner(domain_id: int, tmp_path: Path) -> None:
    """After a network cut it may come before the owner's next renewal."""
    with driver_bench(domain_id, tmp_path) as bench:
        first = bench.call(AcquireLease, "acquire_lease", owner="a").epoch
        bench.age_lease(60.0)
        assert bench.send("d(0.1);", "A", 0, owner="a", epoch=first).result().outcome == "done"
        bench.age_lease(60.0)
        assert bench.call(AcquireLease, "acquire_lease", owner="b").granted
        late = bench.send("d(0.1);", "A", 1, owner="a", epoch=first).result()
        assert late.error_code == ErrorCode.NOT_OWNER


def test_a_take_over_answers_and_ends_the_motion_while_the_executor_is_held_up(
    domain_id: int, tmp_path: Path
) -> None:
    with driver_bench(domain_id, tmp_path) as bench:
        lease = bench.call(AcquireLease, "acquire_lease", owner="bridge")
        motion = bench.send("mf(500);", owner="bridge", epoch=lease.epoch)
        # The state may say so before the robot moves.
        eventually(lambda: bench.robot.performed, "it never moved")
        with bench.busy():
            began_s, halts = time.monotonic(), len(bench.robot.halts)
            assert bench.call(AcquireLease, "acquire_lease", owner="operator", take_over=True).granted
            assert time.monotonic() - began_s < AT_ONCE_S
            eventually(lambda: len(bench.robot.halts) > halts, "the motion goes on")
        assert motion.result().error_code == ErrorCode.NOT_OWNER
        bench.until(lambda state: state.lease_owner == "operator")


def test_a_take_over_that_the_network_delays_ends_no_later_lease(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path) as bench:
        first = bench.call(AcquireLease, "acquire_lease", owner="bridge")
        take_over = {"take_over": True, "ends_epoch": first.epoch}
        assert bench.call(AcquireLease, "acquire_lease", owner="ann", **take_over).granted
        late = bench.call(AcquireLease, "acquire_lease", owner="bob", **take_over)
        assert (late.granted, late.owner, late.error_code) == (False, "ann", ErrorCode.LEASE_DENIED)
