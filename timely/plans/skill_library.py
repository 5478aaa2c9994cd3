"""Finds and loads skill sets: by name in the skill folders or, on the command line only, by path.

The folders are those of ``TIMELY_SKILLS_PATH``, the ``skills`` folder of a checkout and the installed skill sets; the
first match wins. Loading parses the examples too, so the plans of a loaded skill set are valid.
"""

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from lrtrace.errors import BadInput
from lrtrace.yaml_file import Loc, YamlFile, read_lrtrace_yaml
from timely.core.errors import EngineFailed, InvalidInput, UnknownName
from timely.core.files import file_errors
from timely.plans.language.parser import parse_plan
from timely.plans.skill_set import NAME, SkillSet

PATH_VARIABLE = "TIMELY_SKILLS_PATH"
_NAME = re.compile(NAME)


def skill_folders() -> list[Path]:
    """The existing folders to search, in order; the first match wins."""
    variable_folders = [Path(part) for part in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if part]
    package = Path(__file__).resolve().parent.parent
    checkout = [package.parent / "skills"] if (package.parent / "pyproject.toml").is_file() else []
    return [
        folder for folder in (*variable_folders, *checkout, package / "_data" / "skills") if folder.is_dir()
    ]


def skill_set_names() -> list[str]:
    stems = {file.stem for folder in skill_folders() for file in folder.glob("*.yaml")}
    return sorted(stem for stem in stems if _NAME.fullmatch(stem))


def find_skill_set(name: str) -> SkillSet:
    """The skill set of that name. A path is refused, so names from a network are safe.

    Raises:
        UnknownName: there is none; the message lists the names. InvalidInput: its file is broken.
    """
    return _load_skill_set_file(_locate_skill_set(name))


def _locate_skill_set(name: str) -> Path:
    if isinstance(name, str) and _NAME.fullmatch(name):
        for folder in skill_folders():
            file = folder / f"{name}.yaml"
            if file.is_file():
                return file
    raise UnknownName("skill set", name, skill_set_names(), where="skill_set")


def find_skill_set_copy(name: str, fingerprint: str) -> SkillSet:
    """The skill set of that name, where another program checks plans by its own copy.

    Args:
        fingerprint: of that copy; empty takes any.

    Raises:
        EngineFailed: this program would read another copy. UnknownName, InvalidInput: as ``find_skill_set``.
    """
    skill_set = find_skill_set(name)
    if fingerprint not in ("", skill_set.fingerprint):
        raise EngineFailed(
            f"skill set {name} is {skill_set.fingerprint} here, {fingerprint} where its plans are checked: "
            "its file was changed, so start the server again",
            where="skill_set",
        )
    return skill_set


def skill_set_file(name_or_path: str | Path) -> Path:
    """The file of a skill set by name, or the given file (anything with a slash or ending in .yaml or .yml).

    Raises:
        UnknownName: no such name.
    """
    text = os.fspath(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or os.sep in text or text.endswith((".yaml", ".yml")):
        return Path(text)
    return _locate_skill_set(text)


def load_skill_set(name_or_path: str | Path) -> SkillSet:
    """The skill set of that name, or of that file; see ``skill_set_file``.

    Raises:
        UnknownName: no such name. InvalidInput: the file is missing or broken; the message names file, line and field.
    """
    return _load_skill_set_file(skill_set_file(name_or_path))


def _load_skill_set_file(path: Path) -> SkillSet:
    with file_errors(path):
        stat = path.stat()
    return _build_skill_set(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=64)
def _build_skill_set(path: Path, _mtime_ns: int, _size: int) -> SkillSet:
    """Read and validate once per content, since every request needs its skill set."""
    try:
        file = read_lrtrace_yaml(path)
    except BadInput as error:
        raise InvalidInput(error.message, where=error.where) from error
    try:
        skill_set = SkillSet.model_validate(file.value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidInput(
            _skill_set_error_reason(first["msg"], first.get("input")),
            where=_skill_set_error_place(file, first["loc"]),
        ) from error
    if skill_set.name != path.stem:
        raise InvalidInput(
            f"name is {skill_set.name!r}, the file is {path.name}",
            where=_skill_set_error_place(file, ("name",)),
        )
    if skill_set.language == "text":
        return skill_set
    for loc, plan in plans_of_skill_set(skill_set):
        try:
            parse_plan(plan, skill_set)
        except InvalidInput as error:
            raise InvalidInput(str(error), where=_skill_set_error_place(file, loc)) from error
    return skill_set


def plans_of_skill_set(skill_set: SkillSet) -> Iterator[tuple[Loc, str]]:
    """The plans and calls in a skill set, with their places in its file."""
    for index, skill in enumerate(skill_set.skills):
        if skill.example:
            yield ("skills", index, "example"), skill.example
    for index, example in enumerate(skill_set.examples):
        yield ("examples", index, "plan"), example.plan


def _skill_set_error_reason(message: str, value: object) -> str:
    message = message.removeprefix("Value error, ")
    if isinstance(value, (str, int, float, bool)):
        hint = "; quote it to make it text" if isinstance(value, bool) and "string" in message else ""
        return f"{message}, got {value!r}{hint}"
    return message


def _skill_set_error_place(file: YamlFile, loc: tuple[str | int, ...]) -> str:
    """File, line and field of a location."""
    line = file.line(loc)
    kinds = ("strict-", "int", "float", "str", "constrained-")  # pydantic names the arm of a union
    parts = [str(part) for part in loc]
    while len(parts) > 1 and parts[-1].startswith(kinds):
        parts.pop()
    field = ".".join(parts)
    return f"{file.path}{f':{line}' if line else ''}{f', {field}' if field else ''}"
