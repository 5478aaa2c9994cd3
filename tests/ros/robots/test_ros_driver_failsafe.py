"""The failsafe of a driver: its bridge is silent, its battery is low, its task is over or its state unreadable."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from driver_bench import driver_bench
from ros_harness import eventually
from std_srvs.srv import Trigger
from timely_interfaces.msg import RobotState, Task
from timely_robots.error_codes import ErrorCode

pytestmark = [pytest.mark.ros]
FAILSAFE_PROFILE = """
name: careful
extends: sim-drone
failsafe: {hold_s: 0.3, then: land, battery_reserve: 0.2, land_while_stopped: true}
"""


@pytest.fixture
def careful(tmp_path: Path) -> str:
    (tmp_path / "careful.yaml").write_text(FAILSAFE_PROFILE)
    return str(tmp_path / "careful.yaml")


def test_a_loop_ends_soon_after_its_bridge_died(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path, task_silence_s=0.5, speed=1.0) as bench:
        bench.publish(Task, "task", Task(task_id="mine", phase=Task.PLANNING))
        result = bench.send("50{d(0.2);}", "mine").result()
        assert result.error_code == ErrorCode.SEGMENT_CANCELLED
        assert "no message of the task" in result.error_msg
        assert len(bench.robot.performed) < 15


def test_without_its_bridge_a_drone_holds_and_then_lands(
    domain_id: int, tmp_path: Path, careful: str
) -> None:
    with driver_bench(domain_id, tmp_path / "s", profile=careful, task_silence_s=600.0) as bench:
        bench.publish(Task, "task", Task(task_id="mine", phase=Task.PLANNED, segments=1))
        eventually(lambda: bench.driver._watchdog.any_alive(time.monotonic()))
        assert bench.send("mu(50);", "mine").result().outcome == "done"
        bench.driver._watchdog.silence_s = 0.0
        held = eventually(lambda: next((s for s in bench.states if s.failsafe == "hold"), None), "no hold")
        assert held.pose.position.z > 0.0
        later = bench.states.index(held)
        eventually(
            lambda: any(s.pose.position.z == 0.0 and not s.failsafe for s in bench.states[later:]),
            "it did not land",
        )


def test_a_landing_that_a_deactivation_interrupts_is_begun_again(
    domain_id: int, tmp_path: Path, careful: str
) -> None:
    with driver_bench(domain_id, tmp_path / "s", profile=careful) as bench:
        bench.robot.endless = 1
        assert bench.send("mu(50);", "mine").result().outcome == "done"
        bench.robot.battery = 0.1
        eventually(lambda: not bench.robot.endless, "it did not begin to land")
        bench.transition("deactivate")
        eventually(lambda: bench.states[-1].pose.position.z == 0.0, "it hovers until its battery is empty")


def test_a_drone_whose_state_cannot_be_read_lands(
    domain_id: int, tmp_path: Path, careful: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status() -> None:
        raise RuntimeError("the library is broken")

    with driver_bench(domain_id, tmp_path / "s", profile=careful, task_silence_s=600.0) as bench:
        bench.publish(Task, "task", Task(task_id="next", phase=Task.PLANNING))
        eventually(lambda: bench.driver._watchdog.any_alive(time.monotonic()))
        assert bench.send("mu(50);", "mine").result().outcome == "done"
        eventually(lambda: bench.states[-1].pose.position.z > 0.0, "it never flew")
        with monkeypatch.context() as broken:
            broken.setattr(bench.robot, "status", status)
            bench.until(lambda state: "cannot be read" in state.detail)
            eventually(lambda: not bench.robot._world.away, "it hovers until it falls")


@pytest.mark.parametrize("stopped", [False, True])
def test_a_drone_that_hovers_lands_when_its_battery_is_low(
    stopped: bool, domain_id: int, tmp_path: Path, careful: str
) -> None:
    with driver_bench(domain_id, tmp_path / "s", profile=careful, task_silence_s=600.0) as bench:
        bench.publish(Task, "task", Task(task_id="next", phase=Task.PLANNING))
        eventually(lambda: bench.driver._watchdog.any_alive(time.monotonic()))
        assert bench.send("mu(50);", "mine").result().outcome == "done"
        eventually(lambda: bench.states[-1].pose.position.z > 0.0, "it does not hover")
        assert not bench.states[-1].failsafe, "its next task is being planned"
        if stopped:
            assert bench.call(Trigger, "stop").success
        bench.robot.failures = 1  # the first landing fails, and is tried again
        bench.robot.battery = 0.1
        eventually(lambda: not bench.robot.failures, "it did not try to land")
        eventually(lambda: bench.states[-1].pose.position.z == 0.0, "it hovers until it falls")
        assert (bench.states[-1].mode == RobotState.STOPPED) == stopped


@pytest.mark.parametrize("announced", [True, False])
def test_a_drone_lands_when_its_task_is_over(
    announced: bool, domain_id: int, tmp_path: Path, careful: str
) -> None:
    with driver_bench(domain_id, tmp_path / "s", profile=careful, task_silence_s=600.0) as bench:
        if announced:
            bench.publish(Task, "task", Task(task_id="mine", phase=Task.PLANNING))
            eventually(lambda: bench.driver._watchdog.any_alive(time.monotonic()))
        assert bench.send("mu(50);", "mine").result().outcome == "done"
        if announced:
            bench.publish(Task, "task", Task(task_id="mine", phase=Task.ENDED))
        eventually(lambda: any(s.pose.position.z > 0.0 for s in bench.states), "it never flew")
        eventually(lambda: bench.states[-1].pose.position.z == 0.0, "it hovers until its battery is empty")


@pytest.mark.parametrize(("hold_s", "battery"), [(0.1, 1.0), (3600.0, 0.1)])
def test_a_drone_that_is_deactivated_in_the_air_lands(
    hold_s: float, battery: float, domain_id: int, tmp_path: Path
) -> None:
    profile = tmp_path / "careful.yaml"
    profile.write_text(FAILSAFE_PROFILE.replace("hold_s: 0.3", f"hold_s: {hold_s}"))
    with driver_bench(domain_id, tmp_path / "s", profile=str(profile), task_silence_s=600.0) as bench:
        bench.publish(Task, "task", Task(task_id="mine", phase=Task.PLANNED, segments=1))
        eventually(lambda: bench.driver._watchdog.any_alive(time.monotonic()))
        assert bench.send("mu(50);", "mine").result().outcome == "done"
        eventually(lambda: bench.states[-1].pose.position.z > 0.0, "it never flew")
        bench.transition("deactivate")
        bench.publish(Task, "task", Task(task_id="mine", phase=Task.ENDED))
        bench.robot.battery = battery
        eventually(lambda: bench.states[-1].pose.position.z == 0.0, "it hovers until its battery is empty")
        assert bench.states[-1].mode == RobotState.UNCONFIGURED


@pytest.mark.parametrize("battery", [0.1, math.nan])
def test_no_motion_with_a_low_or_unknown_battery(
    battery: float, domain_id: int, tmp_path: Path, careful: str
) -> None:
    with driver_bench(domain_id, tmp_path / "s", profile=careful) as bench:
        bench.robot.battery = battery
        result = bench.send("mu(50);", "mine").result()
        assert (result.outcome, result.error_code) == ("failed", ErrorCode.FAILSAFE)
        assert bench.robot.performed == []
