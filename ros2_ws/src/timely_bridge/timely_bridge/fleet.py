"""The fleet file: YAML that the launch files and ``run_fleet`` read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timely_robots.robot_names import check_robot_names

from lrtrace.errors import BadInput
from lrtrace.yaml_file import read_plain_yaml
from timely.core.errors import InvalidInput
from timely.core.http_url import check_http_url
from timely_bridge.goals import NAME

NAMES = {"profile": "LRTRACE_PROFILES_PATH", "skill_set": "TIMELY_SKILLS_PATH"}
"""Key of a robot -> the variable with the folders of such files, which server and drivers read."""
ROBOT_KEYS = ("driver", "profile", "skill_set", "parameters")
FLEET_KEYS = ("server_url", "bridge", "robots")
Scalar = (bool, int, float, str)


@dataclass(frozen=True, slots=True)
class BridgeFleetRobot:
    """One robot: its kind of driver, profile, plan language, and parameters of that driver; ``where`` it is given."""

    name: str
    driver: str
    profile: str
    skill_set: str
    parameters: Mapping[str, Any]
    where: str


@dataclass(frozen=True, slots=True)
class BridgeFleet:
    """Robots, parameters of the bridge, and the server if the file names one."""

    robots: tuple[BridgeFleetRobot, ...]
    bridge: Mapping[str, Any] = field(default_factory=dict)
    server_url: str = ""

    def bridge_parameters(self) -> dict[str, Any]:
        values: dict[str, Any] = dict(self.bridge)
        values["robots"] = [robot.name for robot in self.robots]
        for robot in self.robots:
            values[f"{robot.name}.profile"] = robot.profile
            values[f"{robot.name}.skill_set"] = robot.skill_set
        if self.server_url:
            values["server_url"] = self.server_url
        return values

    def driver_parameters(self, robot: BridgeFleetRobot) -> dict[str, Any]:
        return {**robot.parameters, "profile": robot.profile, "skill_set": robot.skill_set}


def parse_bridge_fleet(data: object, where: str = "fleet") -> BridgeFleet:
    """A fleet from plain data, as the YAML file has it.

    Raises:
        InvalidInput: says what and where.
    """
    top = _bridge_fleet_mapping(data, where, FLEET_KEYS)
    robots = _bridge_fleet_mapping(top.get("robots"), f"{where}.robots")
    if not robots:
        raise InvalidInput("has no robots", where=where)
    specs = []
    for name, entry in robots.items():
        at = f"{where}.robots.{name}"
        check_robot_names([name], at)
        values = _bridge_fleet_mapping(entry, at, ROBOT_KEYS)
        for key, variable in NAMES.items():
            value = values.get(key)
            if isinstance(value, str) and value.endswith((".yaml", ".yml")):  # the server takes names only
                message = f"give its name, {Path(value).stem}, and its folder in {variable}"
                raise InvalidInput(message, where=f"{at}.{key}")
            if not (isinstance(value, str) and NAME.fullmatch(value)):
                raise InvalidInput("is missing, or no name", where=f"{at}.{key}")
        specs.append(
            BridgeFleetRobot(
                name,
                str(values.get("driver", "sim")),
                values["profile"],
                values["skill_set"],
                _bridge_driver_parameters(values.get("parameters"), f"{at}.parameters"),
                at,
            )
        )
    url = top.get("server_url", "")
    if url != "":
        check_bridge_server_url(url, f"{where}.server_url")
    return BridgeFleet(tuple(specs), _bridge_driver_parameters(top.get("bridge"), f"{where}.bridge"), url)


def check_bridge_server_url(url: object, where: str) -> None:
    """Raise InvalidInput unless a server can be at a URL."""
    check_http_url(url, "http://127.0.0.1:8000", where=where)


def load_bridge_fleet(path: str | Path) -> BridgeFleet:
    """The fleet of a YAML file.

    Raises:
        InvalidInput: the file is missing or broken; says what and where.
    """
    try:
        data = read_plain_yaml(Path(path)).value
    except BadInput as error:
        raise InvalidInput(error.message, where=error.where) from error
    return parse_bridge_fleet(data, str(path))


def _bridge_fleet_mapping(value: object, where: str, keys: tuple[str, ...] = ()) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput("must be a mapping", where=where)
    for key in value:
        if keys and key not in keys:
            raise InvalidInput(f"unknown key {key!r}; known: {', '.join(keys)}", where=where)
    return value


def _bridge_driver_parameters(value: object, where: str) -> dict[str, Any]:
    values = _bridge_fleet_mapping(value, where)
    for key, item in values.items():
        plain = isinstance(item, Scalar) or (
            isinstance(item, list) and all(isinstance(part, Scalar) for part in item)
        )
        if not isinstance(key, str) or not plain:
            raise InvalidInput(
                "must be a number, a text, true or false, or a list of those", where=f"{where}.{key}"
            )
    return values
