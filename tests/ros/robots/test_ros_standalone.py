"""Measuring robots: `lrtrace record` with the real drivers, in accelerated time."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from emulated_robots import emulated_tello, own_host
from timely_robots.segments import Motion, SegmentOrder
from timely_robots.standalone import open_standalone_robot

from lrtrace.cli import run_lrtrace_command
from lrtrace.record.samples import read_recorded_samples
from lrtrace.robot_profile import Geofence
from timely.emulators.tello_motions import TelloPhysics

pytestmark = [pytest.mark.process]
PHYSICS = Path(__file__).parents[3] / "examples" / "robots" / "physics.yaml"


def samples_of(grid: str, folder: Path, *arguments: str) -> list[Any]:
    (folder / "grid.yaml").write_text(grid)
    out = folder / "robot.samples.jsonl"
    assert (
        run_lrtrace_command(["record", "--grid", str(folder / "grid.yaml"), "-o", str(out), *arguments]) == 0
    )
    return list(read_recorded_samples(out))


def test_a_physics_robot_takes_as_long_at_any_speed(tmp_path: Path) -> None:
    grid = """runs: [{do: ["pick('cup')", "place('cup spot')"]}]"""
    times = {}
    for speed in ("8", "30"):
        folder = tmp_path / speed
        folder.mkdir()
        samples = samples_of(grid, folder, "--fleet", str(PHYSICS), "--robot", "arm1", "--speed", speed)
        assert [sample.skill for sample in samples] == ["pick", "place"]
        times[speed] = [sample.elapsed_s for sample in samples]
    assert times["8"] == pytest.approx(times["30"], rel=0.03)
    assert times["8"][0] > 1.5, "of the robot's time, not of ours"


def test_an_emulated_drone_is_measured_in_its_own_time(tmp_path: Path) -> None:
    physics = TelloPhysics(noise=0.01)
    with emulated_tello(own_host(95), speed=3.0, physics=physics) as drone:
        settings = {"host": drone.address[0], "command_port": 18889, "things": ["cat:0:200"]}
        robots = {
            "drone1": {"driver": "tello", "profile": "tello", "skill_set": "drone", "parameters": settings}
        }
        fleet = tmp_path / "fleet.yaml"
        fleet.write_text(json.dumps({"robots": robots}))
        grid = """
begin: mu(20);
repetitions: 2
runs: [{do: ["mf({cm})", "mb({cm})"], with: {cm: [100]}}]
"""
        samples = samples_of(grid, tmp_path, "--fleet", str(fleet), "--speed", "3")
    # Reaction, 1 m/s with 1.5 m/s^2, settling: by the emulator's own physics, and the driver's own overhead. On a busy
    # machine some runs take longer; none of them a third of it, which is what our clock says.
    expected_s = physics.reaction_s + 1.0 / 1.5 + 1.0 + physics.settle_s
    assert statistics.median(sample.elapsed_s for sample in samples) == pytest.approx(expected_s, rel=0.25)
    assert min(sample.elapsed_s for sample in samples) > 0.9 * expected_s


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"driver": "submarine"}, "unknown robot driver"),
        ({"driver": "sim", "wheels": 4}, "unknown key 'wheels'"),
        (
            {"driver": "sim", "profile": "sim-arm", "parameters": {"wheels": 4}},
            "unknown parameter 'wheels'",
        ),
        (
            {"driver": "sim", "profile": "sim-arm", "parameters": {"speed": "fast"}},
            "speed: must be of type float",
        ),
        (
            {"driver": "sim", "profile": "sim-arm", "parameters": {"speed": 0.0}},
            "speed: must be 0.01 to 1000",
        ),
        (
            {"driver": "sim", "profile": "sim-arm", "parameters": {"connect_timeout_s": "soon"}},
            "connect_timeout_s: must be of type float",
        ),
        (
            {"driver": "sim", "profile": "sim-arm", "parameters": {"queue_limit": 0}},
            "queue_limit: must be 1 to 10000",
        ),
        ({"driver": "sim", "profile": "sim-arm", "parameters": ["speed"]}, "parameters: must be a mapping"),
        ({"driver": "sim", "profile": "no-such", "skill_set": "drone"}, "unknown robot profile 'no-such'"),
        ({"driver": "mujoco", "profile": "mujoco-arm", "parameters": {"body": "horse"}}, "body: 'horse'"),
        ({"driver": "mujoco", "profile": "mujoco-arm", "parameters": {"things": ["cup"]}}, "'cup' is not"),
        ({"driver": "mujoco", "profile": "mujoco-arm", "parameters": {"things": ["cup:9,9"]}}, "geofence"),
    ],
)
def test_a_robot_that_cannot_be_opened(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=reason):
        open_standalone_robot("robot1", settings)


def test_a_fleet_file_for_drivers_opens_a_robot_alone() -> None:
    parameters = {"speed": 100.0, "queue_limit": 8, "principals": "p.yaml", "qos_overrides./tf.depth": 3}
    robot = open_standalone_robot(
        "robot1", {"profile": "sim-arm", "skill_set": "arm", "parameters": parameters}
    )
    try:
        assert robot.robot.settings["speed"] == 100.0
    finally:
        robot.close()
    parameters["proximity_stop_m"] = 0.5
    with pytest.raises(ValueError, match="proximity_stop_m"):
        open_standalone_robot("robot1", {"profile": "sim-arm", "parameters": parameters})


def test_a_physics_robot_keeps_to_its_fence_and_its_floor(domain_id: int, tmp_path: Path) -> None:
    (tmp_path / "yard.yaml").write_text(
        "name: yard\nextends: mujoco-quadrotor\ngeofence: {radius_m: 1.0, z_m: [0, 2]}\n"
    )
    settings = {"driver": "mujoco", "profile": str(tmp_path / "yard.yaml"), "skill_set": "drone"}
    robot = open_standalone_robot("robot1", {**settings, "parameters": {"body": "quadrotor"}}, speed=30.0)
    try:
        assert robot.execute("mf(90)", 30.0).outcome == "done"
        for text, reason in [
            ("mf(50)", "geofence"),
            ("md(80)", "ground"),
            ("mu(200)", "geofence"),
            ("mf(501)", "500"),
        ]:
            ran = robot.execute(text, 30.0)
            assert ran.outcome in ("failed", "refused")
            assert reason in ran.message
        assert robot.execute("mb(90)", 30.0).outcome == "done"
        fence = Geofence(z_m=(0.0, 0.1))
        robot.robot.profile = robot.profile.model_copy(update={"geofence": fence})  # as after a gust
        listener: Any = SimpleNamespace(on_progress=lambda *_: None)
        robot.robot.failsafe("land", Motion(SegmentOrder("", 0, "", ""), listener, robot.robot.clock, 1.0))
        assert robot.robot.status().detail == "on the ground"
    finally:
        robot.close()


def test_a_failure_is_an_outcome_and_the_next_plan_goes_on() -> None:
    settings = {"driver": "sim", "profile": "sim-arm", "skill_set": "arm", "parameters": {"speed": 50.0}}
    robot = open_standalone_robot("robot1", settings)
    try:
        assert robot.execute("pick('cup')", 10.0).outcome == "done"
        assert robot.execute("pick('cup')", 10.0).outcome == "failed"
        assert robot.execute("drop('bin')", 10.0).outcome == "done"
        assert robot.execute("fly()", 10.0).outcome == "refused"
    finally:
        robot.close()


def test_a_robot_is_measured_without_ros() -> None:
    """A measuring process loads no ROS 2 package, whichever robot it drives."""
    program = """
import sys
from timely_robots.registry import ROBOTS, robot_class
from timely_robots.standalone import open_standalone_robot
for kind in ROBOTS:
    robot_class(kind)
robot = open_standalone_robot("r", {"profile": "sim-arm", "skill_set": "arm", "parameters": {"speed": 100.0}})
assert robot.execute("home()", 10.0).outcome == "done"
robot.close()
ros = [name for name in sys.modules if name.partition(".")[0] in ("rclpy", "timely_interfaces", "std_srvs")]
assert not ros, ros
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
