"""What a driver keeps on its disk: each segment at most once over restarts, and a disk that refuses or hangs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from driver_bench import driver_bench
from ros_harness import LIMIT_S, eventually
from std_srvs.srv import Trigger
from timely_interfaces.msg import RobotState
from timely_interfaces.srv import AcquireLease, ResetStop
from timely_robots import driver_store
from timely_robots.error_codes import ErrorCode
from timely_robots.ros import safety_services

pytestmark = [pytest.mark.ros]


def test_segment_0_does_not_run_again_after_a_restart(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path) as bench:
        assert bench.send("mf(20);", "mine").result().outcome == "done"
    with driver_bench(domain_id, tmp_path) as bench:
        assert bench.send("mf(20);", "mine").result().error_code == ErrorCode.DUPLICATE
        assert bench.send("mf(20);", "mine", 1).result().error_code == ErrorCode.DRIVER_LOST
        assert bench.robot.performed == []
        assert bench.send("mf(20);", "other").result().outcome == "done"


def test_segment_0_does_not_run_again_after_deactivation(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path) as bench:
        assert bench.send("mf(20);", "mine").result().outcome == "done"
        bench.transition("deactivate", "activate")
        assert bench.send("mf(20);", "mine").result().error_code == ErrorCode.DUPLICATE


def test_a_stop_that_the_disk_refuses_holds_and_says_so(domain_id: int, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    with driver_bench(domain_id, folder) as bench:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        answer = bench.call(Trigger, "stop")
        assert not answer.success
        assert "cannot write" in answer.message
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED
        folder.mkdir()


def test_a_stop_of_a_driver_whose_disk_hangs_is_a_success_and_says_so(
    domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The robot is halted, and nothing moves until a reset."""
    back = threading.Event()

    def hang(*_: object) -> None:
        assert back.wait(LIMIT_S)

    with driver_bench(domain_id, tmp_path) as bench:
        motion = bench.send("mf(500);")
        bench.until(lambda state: state.mode == RobotState.EXECUTING)
        with monkeypatch.context() as disk:
            disk.setattr(driver_store, "core_write_file", hang)
            disk.setattr(safety_services, "ANSWER_S", LIMIT_S)  # a busy machine needs more than is left of it
            try:
                answers = [bench.call(Trigger, "stop") for _ in range(10)]
                assert all(answer.success for answer in answers), (
                    "a stop that hangs must not exhaust the next"
                )
                assert "the disk does not have the stop yet" in answers[0].message
                assert motion.result().error_code == ErrorCode.DRIVER_STOPPED
                bench.until(lambda state: state.halted)
                states = len(bench.states)
                reset = bench.call(ResetStop, "reset")
                lease = bench.call(AcquireLease, "acquire_lease", owner="a")
                assert (reset.success, lease.granted, lease.error_code) == (
                    False,
                    False,
                    ErrorCode.STORAGE_FAILED,
                )
                assert "the disk has not answered" in reset.message
                assert "the disk has not answered" in lease.message
                eventually(lambda: len(bench.states) > states + 3, "its state is silent")
            finally:
                back.set()
        eventually(lambda: not bench.driver._store.stop_unsaved, "the stop is not saved")
    with driver_bench(domain_id, tmp_path) as bench:
        assert bench.until(lambda state: state.mode == RobotState.STOPPED), "a late reset is none"
        assert bench.call(ResetStop, "reset").success


def test_a_reset_that_the_disk_refuses_leaves_the_stop_and_says_so(domain_id: int, tmp_path: Path) -> None:
    """No task could begin after it, and a restart would bring the stop back."""
    folder = tmp_path / "gone"
    with driver_bench(domain_id, folder) as bench:
        assert bench.call(Trigger, "stop").success
        folder.rename(tmp_path / "kept")
        answer = bench.call(ResetStop, "reset")
        assert not answer.success
        assert "cannot write" in answer.message
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED
        (tmp_path / "kept").rename(folder)
        assert bench.call(ResetStop, "reset").success
        assert bench.send("mf(20);", "later").result().outcome == "done"


def test_a_lease_and_a_task_that_the_disk_refuses_say_so(domain_id: int, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    with driver_bench(domain_id, folder) as bench:
        folder.rename(tmp_path / "kept")
        answer = bench.call(AcquireLease, "acquire_lease", owner="a")
        assert (answer.granted, answer.error_code) == (False, ErrorCode.STORAGE_FAILED)
        assert "cannot write" in answer.message
        result = bench.send("mf(20);").result()
        assert (result.outcome, result.error_code) == ("failed", ErrorCode.STORAGE_FAILED)
        assert bench.robot.performed == []
        (tmp_path / "kept").rename(folder)
        assert bench.send("mf(20);", "later").result().outcome == "done"
        assert bench.call(AcquireLease, "acquire_lease", owner="a").error_code == ErrorCode.NONE
