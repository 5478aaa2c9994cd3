"""Finds and loads robot profiles, one YAML file a robot.

The folders are those of ``LRTRACE_PROFILES_PATH``, the ``robot_profiles`` folder of a checkout and the profiles of the
package; the first match wins. A profile may extend another one.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lrtrace.errors import BadInput, UnknownName
from lrtrace.robot_profile import NAME, RobotProfile
from lrtrace.yaml_file import YamlFile, first_yaml_problem, read_lrtrace_yaml

PATH_VARIABLE = "LRTRACE_PROFILES_PATH"
MAX_EXTENDS = 8


def robot_profile_folders() -> list[Path]:
    """The existing folders to search, in order; the first match wins."""
    variable_folders = [Path(part) for part in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if part]
    package = Path(__file__).resolve().parent
    checkout = [package.parent / "robot_profiles"] if (package.parent / "pyproject.toml").is_file() else []
    return [
        folder
        for folder in (*variable_folders, *checkout, package / "_data" / "robot_profiles")
        if folder.is_dir()
    ]


def robot_profile_names() -> list[str]:
    return sorted({file.stem for folder in robot_profile_folders() for file in folder.glob("*.yaml")})


def find_robot_profile(name: str) -> RobotProfile:
    """The profile of that name. A path is refused, so names from a network are safe.

    Raises:
        UnknownName: there is none. BadInput: its file is broken; the message names file, line and field.
    """
    return _load_robot_profile(_locate_robot_profile(name))


def load_robot_profile(name_or_path: str | Path) -> RobotProfile:
    """The profile of that name, or of that YAML file (anything with a slash or ending in .yaml or .yml).

    Raises:
        UnknownName: no such name. BadInput: the file is missing or broken; names file, line and field.
    """
    text = os.fspath(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or os.sep in text or text.endswith((".yaml", ".yml")):
        return _load_robot_profile(Path(text))
    return find_robot_profile(text)


def _locate_robot_profile(name: str) -> Path:
    if isinstance(name, str) and NAME.fullmatch(name):
        for folder in robot_profile_folders():
            file = folder / f"{name}.yaml"
            if file.is_file():
                return file
    raise UnknownName("robot profile", name, robot_profile_names())


def _load_robot_profile(path: Path) -> RobotProfile:
    raw, files = _robot_profile_chain(path)
    try:
        profile = RobotProfile.model_validate(raw)
    except ValidationError as error:
        raise first_yaml_problem(error, files) from error
    if profile.name != path.stem:
        raise BadInput(
            f"name is {profile.name!r} but the file is called {path.name}", where=files[0].where(("name",))
        )
    return profile


def _robot_profile_chain(path: Path) -> tuple[dict[str, Any], list[YamlFile]]:
    """The fields of a profile, merged over the profile it ``extends``, and the files, nearest first."""
    layers: list[YamlFile] = []
    following: Path | None = path
    while following is not None:
        layer = read_lrtrace_yaml(following)
        layers.append(layer)
        parent = layer.value.get("extends")
        following = None
        if parent is not None:
            where = layer.where(("extends",))
            if len(layers) > MAX_EXTENDS or any(file.path.stem == parent for file in layers):
                raise BadInput(f"extends {parent!r} leads in a circle", where=where)
            beside = layer.path.parent / f"{parent}.yaml"
            try:
                following = (
                    beside
                    if NAME.fullmatch(str(parent)) and beside.is_file()
                    else _locate_robot_profile(parent)
                )
            except UnknownName as error:
                raise BadInput(f"extends: {error.message}", where=where) from error
    fields: dict[str, Any] = {}
    for layer in reversed(layers):
        fields = _merge_robot_profile(
            fields, {key: value for key, value in layer.value.items() if key != "extends"}
        )
    return fields, layers


def _merge_robot_profile(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``top`` over ``base``, mapping by mapping. An execution model is replaced whole."""
    result = dict(base)
    for key, value in top.items():
        old = result.get(key)
        whole = key == "execution" or not (isinstance(old, Mapping) and isinstance(value, Mapping))
        result[key] = value if whole else _merge_robot_profile(old or {}, value)
    return result
