"""Fleet files: what they may say, and what is said about those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from timely_bridge.fleet import load_bridge_fleet, parse_bridge_fleet

from timely.core.errors import InvalidInput

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
