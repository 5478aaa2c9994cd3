"""Fleet files: what they may say, and what is said about those that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from timely_bridge import node
from timely_bridge.driver_processes import BridgeDriverProcesses
from timely_bridge.fleet import check_bridge_server_url, load_bridge_fleet, parse_bridge_fleet
from timely_bridge.run_fleet import start_bridge_fleet
from timely_bridge.task_player import _read_player_script
from timely_robots.ros import driver_node
from timely_robots.ros.spinner import isolated_ros_context
from timely_robots.sim.robot import SimRobot

from timely.core.errors import InvalidInput, UnknownName

ROBOT = {"profile": "sim-drone", "skill_set": "drone"}
SHIPPED = Path(__file__).parents[3] / "ros2_ws/src/timely_bringup/config/fleet.yaml"


def test_a_fleet_becomes_parameters() -> None:
    fleet = parse_bridge_fleet(
        {
            "server_url": "http://host:1",
            "bridge": {"on_busy": "preempt"},
            "robots": {
                "drone1": {**ROBOT, "parameters": {"seed": 3}},
                "arm1": {"profile": "sim-arm", "skill_set": "arm"},
            },
        }
    )
    assert fleet.bridge_parameters() == {
        "on_busy": "preempt",
        "robots": ["drone1", "arm1"],
        "drone1.profile": "sim-drone",
        "drone1.skill_set": "drone",
        "arm1.profile": "sim-arm",
        "arm1.skill_set": "arm",
        "server_url": "http://host:1",
    }
    assert [robot.driver for robot in fleet.robots] == ["sim", "sim"]
    assert fleet.driver_parameters(fleet.robots[0]) == {
        "seed": 3,
        "profile": "sim-drone",
        "skill_set": "drone",
    }


def refuse_threads(*_: object, **__: object) -> None:
    raise AssertionError("a thread would start")


def test_a_misspelt_parameter_is_refused(
    domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be ignored: the robot would move as if the line were not there.

    It is refused before a thread starts. Such a thread could not end while rclpy destroys the node: 5 s each.
    """
    misspelt = parse_bridge_fleet({"robots": {"drone1": {**ROBOT, "parameters": {"seeed": 3}}}})
    with pytest.raises(
        UnknownName, match=r"^fleet\.robots\.drone1\.parameters: .*'seeed'; known: .*\bseed\b"
    ):
        BridgeDriverProcesses(misspelt, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(driver_node, "RosSafetyServices", refuse_threads)
        with pytest.raises(UnknownName, match="seeed"):
            start_bridge_fleet(misspelt, domain_id=domain_id)
    wrong_type = parse_bridge_fleet({"robots": {"drone1": {**ROBOT, "parameters": {"seed": "3"}}}})
    with pytest.raises(
        InvalidInput, match=r"^fleet\.robots\.drone1\.parameters\.seed: must be of type int, got '3'"
    ):
        BridgeDriverProcesses(wrong_type, tmp_path)
    bridge = parse_bridge_fleet({"robots": {"drone1": ROBOT}, "bridge": {"on_bsuy": "reject"}})
    monkeypatch.setattr(node, "BridgeFleetStop", refuse_threads)
    with pytest.raises(UnknownName, match=r"unknown parameter 'on_bsuy'; known: .*\bon_busy\b"):
        start_bridge_fleet(bridge, domain_id=domain_id)
    wrong_type = parse_bridge_fleet({"robots": {"drone1": ROBOT}, "bridge": {"heartbeat_misses": "two"}})
    with pytest.raises(InvalidInput, match=r"parameters of /timely_bridge: .*heartbeat_misses"):
        start_bridge_fleet(wrong_type, domain_id=domain_id)
    spelt = {"seed": 3, "task_silence_s": 2.0, "wake_latency_us": 5, "use_sim_time": False}
    BridgeDriverProcesses(
        parse_bridge_fleet({"robots": {"drone1": {**ROBOT, "parameters": spelt}}}), tmp_path
    )


def test_a_whole_number_is_taken_for_one_with_a_fraction(domain_id: int) -> None:
    """YAML reads ``speed: 2`` as an integer."""
    fleet = parse_bridge_fleet(
        {
            "robots": {"drone1": {**ROBOT, "parameters": {"speed": 20, "task_silence_s": 2}}},
            "bridge": {"segment_timeout_s": 30},
        }
    )
    context = isolated_ros_context(domain_id, ["--ros-args", "-p", "connect_timeout_s:=5"])
    bridge = node.BridgeNode(context=context, overrides=fleet.bridge_parameters())
    driver = driver_node.DriverNode(
        SimRobot(), context=context, overrides=fleet.driver_parameters(fleet.robots[0])
    )
    try:
        assert bridge.value("segment_timeout_s") == 30.0
        assert (driver.value("task_silence_s"), driver.value("connect_timeout_s")) == (2.0, 5.0)
        assert driver.robot.settings["speed"] == 20.0
    finally:
        driver.destroy_node()
        bridge.destroy_node()
        context.try_shutdown()


@pytest.mark.parametrize(
    ("key", "name", "variable"),
    [("profile", "kitchen", "LRTRACE_PROFILES_PATH"), ("skill_set", "rover", "TIMELY_SKILLS_PATH")],
)
def test_a_file_in_place_of_a_name_is_told_where_it_belongs(key: str, name: str, variable: str) -> None:
    """The server takes names only, so the first task would be refused."""
    with pytest.raises(InvalidInput, match=f"give its name, {name}, and its folder in {variable}"):
        parse_bridge_fleet({"robots": {"drone1": {**ROBOT, key: f"my/{name}.yaml"}}})


def test_the_shipped_fleet_loads() -> None:
    assert [robot.name for robot in load_bridge_fleet(SHIPPED).robots] == ["drone1", "drone2", "arm1"]


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ([], "fleet"),
        ({}, "fleet"),
        ({"robots": []}, "fleet.robots"),
        ({"robots": {}, "extra": 1}, "fleet"),
        ({"robots": {"drone-1": ROBOT}}, "fleet.robots.drone-1"),
        ({"robots": {"a/b": ROBOT}}, "fleet.robots.a/b"),
        ({"robots": {1: ROBOT}}, "fleet.robots.1"),
        ({"robots": {"drone1": {"skill_set": "drone"}}}, "fleet.robots.drone1.profile"),
        ({"robots": {"drone1": {**ROBOT, "skill_set": "../x"}}}, "fleet.robots.drone1.skill_set"),
        ({"robots": {"drone1": {**ROBOT, "colour": "red"}}}, "fleet.robots.drone1"),
        (
            {"robots": {"drone1": {**ROBOT, "parameters": {"a": {"b": 1}}}}},
            "fleet.robots.drone1.parameters.a",
        ),
        ({"robots": {"drone1": ROBOT}, "server_url": 7}, "fleet.server_url"),
        ({"robots": {"drone1": ROBOT}, "bridge": [1]}, "fleet.bridge"),
    ],
)
def test_what_cannot_be_used_is_named(data: object, where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_bridge_fleet(data)
    assert caught.value.where == where


@pytest.mark.parametrize("text", ["robots: [", "robots: \x00", "", "[" * 5000, "&a [*a]"])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=r"fleet\.yaml") as caught:
        load_bridge_fleet(file)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        load_bridge_fleet(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "url",
    ["nope", "http://", "ftp://robot", "http://[::1", "http://robot:99999", "http://robot:0", 8000, None],
)
def test_a_server_that_can_be_nowhere_is_refused(url: object) -> None:
    with pytest.raises(InvalidInput, match="must be like") as caught:
        check_bridge_server_url(url, "--server-url")
    assert caught.value.where == "--server-url"


@pytest.mark.parametrize("number", ["-1", "233", "9" * 5000, "x", "1.5", "nan"])
def test_a_domain_that_does_not_exist_is_refused(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", number)
    with pytest.raises(InvalidInput, match="0 to 232"):
        isolated_ros_context()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[" * 100_000, ""),
        ("\x00", ""),
        ("[]", ""),
        ('{"tasks": [3]}', ", task 0"),
        ('{"tasks": [{"at_s": "x", "robot": "r", "task": "t"}]}', ", task 0, at_s"),
        ('{"tasks": [{"at_s": 1e999, "robot": "r", "task": "t"}]}', ", task 0, at_s"),
        ('{"tasks": [{"at_s": NaN, "robot": "r", "task": "t"}]}', ""),
        ('{"tasks": [{"at_s": 1, "robot": "r", "robot": "s", "task": "t"}]}', ""),
        ('{"tasks": [{"at_s": 1, "robot": "r/!", "task": "t"}]}', ", task 0, robot"),
        ('{"tasks": [{"at_s": 1, "robot": [1], "task": "t"}]}', ", task 0, robot"),
        ('{"tasks": [{"at_s": 1, "robot": "r", "task": "t", "scene": null}]}', ", task 0, scene"),
        ('{"tasks": [{"at_s": 1, "robot": "r", "task": "t", "urgency": 300}]}', ", task 0, urgency"),
        ('{"tasks": [{"at_s": 1, "robot": "r", "task": "t", "tuf": 3}]}', ", task 0, tuf"),
        ('{"tasks": [{"at_s": 1, "robot": "r", "task": "t", "tuf": {"ert_s": "x"}}]}', ", task 0, ert_s"),
        ('{"tasks": [{"at_s": 1, "robot": "r", "task": "t", "tuf": {"ert": 1}}]}', ", task 0, tuf"),
    ],
)
def test_a_broken_script_of_tasks_is_named(tmp_path: Path, text: str, where: str) -> None:
    script = tmp_path / "script.json"
    script.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        _read_player_script(script)
    assert caught.value.where == f"{script}{where}"


def test_a_script_of_tasks_is_read(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    task = {"at_s": 1, "robot": "hall/r", "task": "t", "urgency": 2, "tuf": {"ert_s": 1, "cutoff_s": 2.0}}
    script.write_text(json.dumps({"tasks": [task], "until_s": 3}))
    assert _read_player_script(script) == ([task], 3.0)
