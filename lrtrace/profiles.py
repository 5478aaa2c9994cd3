"""Robot profiles: what a robot may be asked to do (limits, allow and deny lists) and how long that takes.

One YAML file a robot. Arguments are in the robot's own units (cm and degrees for a Tello, metres for an arm);
each states its unit. Times are seconds. Looked up by name in the folders of ``LRTRACE_PROFILES_PATH``, then in
the ``robot_profiles`` folder of a checkout, then among the profiles that are installed with the package.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    NonNegativeFloat,
    PositiveFloat,
    ValidationError,
    field_validator,
    model_validator,
)

from lrtrace.errors import BadInput, UnknownName
from lrtrace.models import Args, ExecutionModel, LinearModel
from lrtrace.yaml_file import YamlFile, read_yaml

PATH_VARIABLE = "LRTRACE_PROFILES_PATH"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_EXTENDS = 8

Values = Sequence[object] | Mapping[str, object]
"""Arguments of a skill call: in the order of the profile, or by name."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Limit(_Part):
    """What one argument of a skill may be, in its ``unit``; both bounds are allowed values.

    ``min`` and ``max`` bound a number; ``choices`` and ``max_chars`` a text.
    """

    unit: str = ""
    min: FiniteFloat | None = None
    max: FiniteFloat | None = None
    choices: tuple[str, ...] | None = None
    max_chars: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check(self) -> Limit:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is over max {self.max:g}")
        return self

    @property
    def numeric(self) -> bool:
        """The argument is a number."""
        return self.min is not None or self.max is not None

    def violation(self, value: object) -> str | None:
        """Why ``value`` is not allowed, or None."""
        if self.numeric:
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                return f"must be a number, got {value!r}"
            try:
                number = float(value)
            except (ValueError, OverflowError):
                return f"must be a number, got {value!r}"
            low = -math.inf if self.min is None else self.min
            high = math.inf if self.max is None else self.max
            if not (math.isfinite(number) and low <= number <= high):
                return f"must be {low:g} to {high:g} {self.unit}".rstrip() + f", got {value}"
        text = str(value)
        if self.choices is not None and text not in self.choices:
            return f"must be one of {', '.join(self.choices)}, got {text!r}"
        if self.max_chars is not None and len(text) > self.max_chars:
            return f"must be at most {self.max_chars} characters, got {len(text)}"
        return None


class SkillProfile(_Part):
    """One skill on one robot: its argument limits, in call order, and how long it takes."""

    abbr: str | None = None
    args: dict[str, Limit] = Field(default_factory=dict)
    execution: ExecutionModel
    basis: str = ""
    """Where the execution time comes from: published, vendor, fitted, assumed."""
    held_out_error: NonNegativeFloat | None = None
    """Mean absolute error of the estimate on runs that were not fitted, as a share of the measured time. Of a variable
    skill, which is planned with its minimum: by how much such runs were shorter than that, on average."""

    @model_validator(mode="after")
    def _check(self) -> SkillProfile:
        if isinstance(self.execution, LinearModel) and self.execution.argument not in self.args:
            known = ", ".join(self.args) or "none"
            raise ValueError(f"execution is linear in {self.execution.argument!r}; arguments here: {known}")
        return self


class Measured(_Part):
    """When and how often the execution times were measured; ``date`` is ISO 8601 or empty."""

    date: str = ""
    samples: int | None = Field(default=None, ge=0)
    setup: str = ""
    """What was measured, in words."""

    @field_validator("date", mode="before")
    @classmethod
    def _date(cls, value: object) -> object:
        # YAML reads an unquoted 2025-01-31 as a date.
        return value.isoformat() if hasattr(value, "isoformat") else value


class Geofence(_Part):
    """Where the robot may be, in its own start or base frame, metres; None is unbounded."""

    x_m: tuple[FiniteFloat, FiniteFloat] | None = None
    y_m: tuple[FiniteFloat, FiniteFloat] | None = None
    z_m: tuple[FiniteFloat, FiniteFloat] | None = None
    radius_m: PositiveFloat | None = None
    """Horizontal distance from the origin."""

    @model_validator(mode="after")
    def _check(self) -> Geofence:
        for name in ("x_m", "y_m", "z_m"):
            bounds = getattr(self, name)
            if bounds is not None and bounds[0] > bounds[1]:
                raise ValueError(f"{name}: {bounds[0]:g} is over {bounds[1]:g}")
        return self

    def contains(self, x: float, y: float, z: float) -> bool:
        """The point (metres) lies inside."""
        for value, bounds in ((x, self.x_m), (y, self.y_m), (z, self.z_m)):
            if bounds is not None and not bounds[0] <= value <= bounds[1]:
                return False
        return self.radius_m is None or math.hypot(x, y) <= self.radius_m


class SpeedLimits(_Part):
    """How fast it may move; None is the robot's own limit."""

    linear_m_per_s: PositiveFloat | None = None
    angular_deg_per_s: PositiveFloat | None = None
    joint_rad_per_s: PositiveFloat | None = None
    joint_rad_per_s2: PositiveFloat | None = None
    cruise_m_per_s: PositiveFloat | None = None
    """What the execution times were measured at."""


class RobotProfile(_Part):
    """Limits and execution-time models of one robot. Read-only.

    Attributes:
        name: how it is asked for; equals the file's stem.
        robot: make and model in words.
        source: where the numbers come from.
        network_s: one-way delay from the server to the robot, seconds.
        skills: per skill, by full name.
        allow: skills that may run; None is all. deny: skills that may not, whatever ``allow`` says.
        joints_deg: per joint (lowest, highest), degrees.
    """

    name: str
    robot: str
    source: str
    network_s: NonNegativeFloat = 0.0
    measured: Measured = Measured()
    skills: dict[str, SkillProfile] = Field(min_length=1)
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    geofence: Geofence | None = None
    speed: SpeedLimits = SpeedLimits()
    joints_deg: tuple[tuple[FiniteFloat, FiniteFloat], ...] = ()

    @model_validator(mode="after")
    def _check(self) -> RobotProfile:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"name {self.name!r} must be letters, digits, '.', '_' and '-'")
        taken: dict[str, str] = {}
        for skill, entry in self.skills.items():
            for name in {skill, entry.abbr or skill}:
                if taken.setdefault(name, skill) != skill:
                    raise ValueError(f"{name!r} names both {taken[name]} and {skill}")
        for listed in (*(self.allow or ()), *self.deny):
            if listed not in taken:
                raise ValueError(f"allow or deny lists {listed!r}, which is no skill here")
        return self

    def skill_name(self, skill: str) -> str:
        """Full name of a skill given by name or abbreviation.

        Raises:
            UnknownName: the profile has no such skill.
        """
        if skill in self.skills:
            return skill
        for name, entry in self.skills.items():
            if entry.abbr == skill:
                return name
        raise UnknownName("skill", skill, self.skills, where=f"robot profile {self.name}")

    def limits(self, skill: str) -> Mapping[str, Limit]:
        """Limits of each argument of a skill (name or abbreviation), in call order."""
        return self.skills[self.skill_name(skill)].args

    def allows(self, skill: str) -> bool:
        """The allow and deny lists let this skill run; False for a skill it does not have."""
        try:
            name = self.skill_name(skill)
        except UnknownName:
            return False
        names = {name, self.skills[name].abbr or name}
        return not (names & set(self.deny)) and (self.allow is None or bool(names & set(self.allow)))

    def named_args(self, skill: str, args: Values = ()) -> Args:
        """Arguments by name; missing ones are left out, too many raise BadInput."""
        name = self.skill_name(skill)
        if isinstance(args, Mapping):
            return args
        values = [args] if isinstance(args, str) else list(args)
        names = list(self.skills[name].args)
        if len(values) > len(names):
            raise BadInput(
                f"{name} takes {len(names)} arguments, got {len(values)}", where=f"robot profile {self.name}"
            )
        return dict(zip(names, values, strict=False))

    def violations(self, skill: str, args: Values = ()) -> list[str]:
        """Everything that forbids this call on this robot, in words; empty when it may run.

        Raises:
            UnknownName: the profile has no such skill.
        """
        name = self.skill_name(skill)
        found = [] if self.allows(name) else [f"{name} is not allowed on {self.name}"]
        try:
            values = self.named_args(name, args)
        except BadInput as error:
            return [*found, error.message]
        limits = self.skills[name].args
        found.extend(f"{name} has no argument {unknown!r}" for unknown in values if unknown not in limits)
        for argument, limit in limits.items():
            if argument not in values:
                found.append(f"{name} needs {argument}")
            elif (why := limit.violation(values[argument])) is not None:
                found.append(f"{argument} of {name} {why}")
        return found

    def estimate_s(self, skill: str, args: Values = ()) -> float:
        """Execution time a scheduler plans with, seconds.

        The mean of a simple skill, the minimum of a variable one (TimelyLLM, section 4.3).

        Raises:
            UnknownName: no such skill. BadInput: an argument the model needs is missing or not a number.
        """
        return self._ask(skill, args, lambda model, values: model.estimate_s(values))

    def mean_s(self, skill: str, args: Values = ()) -> float:
        """Mean execution time, seconds. Raises as ``estimate_s``."""
        return self._ask(skill, args, lambda model, values: model.mean_s(values))

    def minimum_s(self, skill: str, args: Values = ()) -> float:
        """Shortest execution time, seconds. Raises as ``estimate_s``."""
        return self._ask(skill, args, lambda model, values: model.minimum_s(values))

    def quantile_s(self, level: float, skill: str, args: Values = ()) -> float:
        """Execution time that a share ``level`` (0..1) of runs does not exceed. Raises as ``estimate_s``."""
        if not 0.0 <= level <= 1.0:
            raise BadInput(f"a quantile level lies in 0..1, got {level!r}")
        return self._ask(skill, args, lambda model, values: model.quantile_s(level, values))

    def sample_s(self, skill: str, args: Values, rng: np.random.Generator) -> float:
        """One random run, seconds; takes exactly one number from ``rng``. Raises as ``estimate_s``."""
        return self._ask(skill, args, lambda model, values: model.sample_s(values, rng))

    def _ask(self, skill: str, args: Values, question: Callable[[ExecutionModel, Args], float]) -> float:
        name = self.skill_name(skill)
        model = self.skills[name].execution
        try:
            return question(model, self.named_args(name, args))
        except BadInput as error:
            if error.where:
                raise
            raise BadInput(error.message, where=f"robot profile {self.name}, skill {name}") from error


def profile_folders() -> list[Path]:
    """Folders that are searched, first wins; only those that exist."""
    given = [Path(part) for part in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if part]
    package = Path(__file__).resolve().parent
    checkout = [package.parent / "robot_profiles"] if (package.parent / "pyproject.toml").is_file() else []
    return [folder for folder in (*given, *checkout, package / "_data" / "robot_profiles") if folder.is_dir()]


def profile_names() -> list[str]:
    """Names of all profiles that can be found, sorted."""
    return sorted({file.stem for folder in profile_folders() for file in folder.glob("*.yaml")})


def find_profile(name: str) -> RobotProfile:
    """The profile of that name. Never a path: safe for names that come over a network.

    Raises:
        UnknownName: there is none. BadInput: its file is broken; names file, line and field.
    """
    return _load(_locate(name))


def load_profile(name_or_path: str | Path) -> RobotProfile:
    """The profile of that name, or of that YAML file (anything with a slash or ending in .yaml or .yml).

    Raises:
        UnknownName: no such name. BadInput: the file is missing or broken; names file, line and field.
    """
    text = os.fspath(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or os.sep in text or text.endswith((".yaml", ".yml")):
        return _load(Path(text))
    return find_profile(text)


def _locate(name: str) -> Path:
    if isinstance(name, str) and NAME.fullmatch(name):
        for folder in profile_folders():
            file = folder / f"{name}.yaml"
            if file.is_file():
                return file
    raise UnknownName("robot profile", name, profile_names())


def _load(path: Path) -> RobotProfile:
    raw, files = _chain(path)
    try:
        profile = RobotProfile.model_validate(raw)
    except ValidationError as error:
        raise first_error(error, files) from error
    if profile.name != path.stem:
        raise BadInput(
            f"name is {profile.name!r} but the file is called {path.name}", where=_where(files, ("name",))
        )
    return profile


def _chain(path: Path) -> tuple[dict[str, Any], list[YamlFile]]:
    """The fields of a profile over those of the one it ``extends``; the files, nearest first."""
    layers: list[YamlFile] = []
    following: Path | None = path
    while following is not None:
        layer = read_yaml(following)
        layers.append(layer)
        parent = layer.value.get("extends")
        following = None
        if parent is not None:
            where = _where([layer], ("extends",))
            if len(layers) > MAX_EXTENDS or any(file.path.stem == parent for file in layers):
                raise BadInput(f"extends {parent!r} leads in a circle", where=where)
            beside = layer.path.parent / f"{parent}.yaml"
            try:
                following = beside if NAME.fullmatch(str(parent)) and beside.is_file() else _locate(parent)
            except UnknownName as error:
                raise BadInput(f"extends: {error.message}", where=where) from error
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        merged = _over(merged, {key: value for key, value in layer.value.items() if key != "extends"})
    return merged, layers


def _over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """``top`` over ``base``, mapping by mapping; an execution model is replaced whole, not mixed."""
    merged = dict(base)
    for key, value in top.items():
        old = merged.get(key)
        whole = key == "execution" or not (isinstance(old, Mapping) and isinstance(value, Mapping))
        merged[key] = value if whole else _over(old or {}, value)
    return merged


def _where(files: Iterable[YamlFile], loc: Sequence[str | int]) -> str:
    listed = list(files)
    for file in listed:
        if (line := file.line(loc)) is not None:
            return f"{file.path}:{line}"
    return f"{listed[0].path}:1"


def first_error(error: ValidationError, files: Sequence[YamlFile]) -> BadInput:
    """The first complaint of a validation as one line: file, line, field, reason."""
    problem = error.errors(include_url=False)[0]
    # The tag of a union ('linear') appears in pydantic's location but is no key of the file.
    loc: list[str | int] = []
    for part in problem["loc"]:
        tagged = len(loc) > 0 and loc[-1] == "execution" and part in ("constant", "linear", "sampled")
        if not tagged:
            loc.append(part)
    field = ".".join(str(part) for part in loc)
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        message = "is missing"
    return BadInput(f"{field}: {message}" if field else message, where=_where(files, loc))
