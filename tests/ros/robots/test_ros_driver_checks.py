"""What a driver checks before and in a motion: the goal's fields, obstacles, and an operator's confirmation."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from driver_bench import driver_bench
from rclpy.qos import qos_profile_sensor_data
from ros_harness import AT_ONCE_S, LIMIT_S, eventually
from std_msgs.msg import Float32
from timely_interfaces.msg import RobotState
from timely_interfaces.srv import ConfirmSkill
from timely_robots import safety
from timely_robots.error_codes import ErrorCode

pytestmark = [pytest.mark.ros]
CONFIRMED_SKILLS = """
name: guarded
language: calls
profile: sim-arm
skills:
  - {name: home}
  - {name: open, confirm: true}
"""


@pytest.mark.parametrize("name", ["/dev/zero", "../../etc/passwd", "FIFO", "drone.yaml"])
def test_a_skill_set_of_a_goal_is_a_name_only(name: str, domain_id: int, tmp_path: Path) -> None:
    if name == "FIFO":
        name = str(tmp_path / "pipe.yaml")
        os.mkfifo(name)
    with driver_bench(domain_id, tmp_path / "state") as bench:
        begin_s = time.monotonic()
        result = bench.send("mf(20);", skill_set=name).result()
        assert result.error_code == ErrorCode.UNKNOWN_NAME
        assert time.monotonic() - begin_s < AT_ONCE_S
        assert bench.send("mf(20);", "t2").result().outcome == "done"


def test_a_segment_that_is_too_long_is_refused_unparsed(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path) as bench:
        assert bench.send("mf(20);" * 14_000).result().error_code == ErrorCode.TOO_LARGE
        assert bench.send("mf(20);", "x" * 100_000).result().error_code == ErrorCode.TOO_LARGE


def test_a_sensor_that_repeats_nothing_is_heard(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path, proximity_stop_m=0.5) as bench:
        bench.publish(Float32, "proximity", Float32(data=5.0), qos_profile_sensor_data)
        eventually(lambda: not bench.driver._safety.proximity.problem(time.monotonic()))


@pytest.mark.parametrize("distance", [0.2, math.nan])
def test_an_obstacle_stops_a_motion_and_the_next(
    distance: float, domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safety, "MAX_PROXIMITY_AGE_S", LIMIT_S)
    with driver_bench(domain_id, tmp_path, proximity_stop_m=0.5, proximity_slow_m=2.0, speed=1.0) as bench:
        assert bench.send("d(1);", "blind").result().error_code == ErrorCode.OBSTACLE, (
            "without any measurement"
        )
        bench.publish(Float32, "proximity", Float32(data=5.0))
        eventually(lambda: not bench.driver._safety.proximity.problem(time.monotonic()))
        assert bench.robot.speed_share == 1.0
        moving = bench.send("d(60);", "near")
        bench.until(lambda s: s.mode == RobotState.EXECUTING)
        bench.publish(Float32, "proximity", Float32(data=1.25))
        eventually(lambda: bench.robot.speed_share == pytest.approx(0.5))
        bench.publish(Float32, "proximity", Float32(data=distance))
        assert moving.result().error_code == ErrorCode.OBSTACLE
        assert bench.robot.halts


def test_a_simulated_drone_stops_before_a_thing_with_a_place(domain_id: int, tmp_path: Path) -> None:
    things = {"things": ["chair:4,0,0"], "speed": 1.0}
    with driver_bench(domain_id, tmp_path, proximity_stop_m=2.5, proximity_slow_m=3.0, **things) as bench:
        eventually(lambda: not bench.driver._safety.proximity.problem(time.monotonic()))
        assert bench.send("mf(300);", "near").result().error_code == ErrorCode.OBSTACLE
        assert 1.0 < bench.robot._world.position[0] < 3.0
        assert bench.robot.speed_share < 1.0
        assert bench.send("mf(50);", "nearer").result().error_code == ErrorCode.OBSTACLE


def test_a_gate_without_measurements_stops_a_motion(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path, proximity_stop_m=0.5, speed=1.0) as bench:
        bench.publish(Float32, "proximity", Float32(data=5.0))
        eventually(lambda: not bench.driver._safety.proximity.problem(time.monotonic()))
        assert bench.send("d(60);", "silent").result().error_code == ErrorCode.OBSTACLE


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (tmp_path / "guarded.yaml").write_text(CONFIRMED_SKILLS)
    monkeypatch.setenv("TIMELY_SKILLS_PATH", str(tmp_path))
    return {"profile": "sim-arm", "skill_set": "guarded", "speed": 50.0}


@pytest.mark.parametrize(("allow", "skill_set"), [(True, ""), (False, ""), (False, "arm")])
def test_a_skill_waits_for_its_operator(
    allow: bool, skill_set: str, guarded: dict[str, Any], domain_id: int, tmp_path: Path
) -> None:
    with driver_bench(domain_id, tmp_path / "s", **guarded) as bench:
        goal = bench.send("home();open();", "mine", skill_set=skill_set)
        state = bench.until(lambda s: s.awaiting == "open()")
        other = bench.call(ConfirmSkill, "confirm", task_id="mine", segment=0, call="close()", allow=True)
        assert not other.success
        answer = bench.call(
            ConfirmSkill, "confirm", task_id=state.task_id, segment=0, call="open()", allow=allow
        )
        assert answer.success
        result = goal.result()
        assert result.error_code == (ErrorCode.NONE if allow else ErrorCode.NOT_CONFIRMED)
        assert bench.robot.performed == (["home()", "open()"] if allow else ["home()"])


def test_a_second_click_does_not_confirm_the_next_equal_call(
    guarded: dict[str, Any], domain_id: int, tmp_path: Path
) -> None:
    with driver_bench(domain_id, tmp_path / "s", **guarded) as bench:
        goal = bench.send("open();open();", "mine")

        def confirm(call: str) -> Any:
            return bench.call(ConfirmSkill, "confirm", task_id="mine", segment=0, call=call, allow=True)

        bench.until(lambda state: state.awaiting == "open()")
        assert confirm("open()").success
        bench.until(lambda state: state.awaiting == "open() #2")
        second_click = confirm("open()")
        assert not second_click.success
        assert "open() #2" in second_click.message
        assert bench.robot.performed == ["open()"]
        assert confirm("open() #2").success
        assert goal.result().error_code == ErrorCode.NONE
        assert bench.robot.performed == ["open()", "open()"]


def test_a_skill_without_an_answer_is_refused_in_time(
    guarded: dict[str, Any], domain_id: int, tmp_path: Path
) -> None:
    with driver_bench(domain_id, tmp_path / "s", confirm_timeout_s=0.3, **guarded) as bench:
        assert bench.send("open();", "mine").result().error_code == ErrorCode.NOT_CONFIRMED
        assert bench.robot.performed == []
