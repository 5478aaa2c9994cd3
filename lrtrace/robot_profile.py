"""A robot profile: the skills of one robot with their limits and execution times. Read-only.

Arguments are in the robot's own units (cm and degrees for a Tello, metres for an arm), and each states its unit.
Times are seconds.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    NonNegativeFloat,
    PositiveFloat,
    field_validator,
    model_validator,
)

from lrtrace.errors import BadInput, UnknownName
from lrtrace.models import Args, ExecutionModel, How, LinearModel

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Values = Sequence[object] | Mapping[str, object]
"""Arguments of a skill call: in the order of the profile, or by name."""


class _RobotProfilePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ArgumentLimit(_RobotProfilePart):
    """Limits of one argument, in its ``unit``. Both bounds are allowed values.

    ``min`` and ``max`` are for numbers, ``choices`` and ``max_chars`` for texts.
    """

    unit: str = ""
    min: FiniteFloat | None = None
    max: FiniteFloat | None = None
    choices: tuple[str, ...] | None = None
    max_chars: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is over max {self.max:g}")
        return self

    @property
    def numeric(self) -> bool:
        return self.min is not None or self.max is not None

    def violation(self, value: object) -> str | None:
        """The reason why ``value`` is not allowed, or None."""
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


NO_UNITS = ("", "text", "1")
"""Units of arguments that have none."""


def _check_line_unit(model: LinearModel, unit: str) -> None:
    """Raise ValueError if a line over a number and its argument are in different units."""
    if model.of_number and model.unit not in NO_UNITS and unit not in NO_UNITS and model.unit != unit:
        raise ValueError(
            f"the line is per {model.unit}, {model.argument} is in {unit}: write both in one unit"
        )


def _check_line_limits(model: LinearModel, low: float | None, high: float | None) -> None:
    """Raise ValueError if a line gives a negative time for the least, negative value or for the greatest one.

    A fitted line may give one for the least positive value or for the greatest one, where ``floor_s`` holds.
    """
    least = low if low is not None and low < 0.0 else None
    for value in (least, high if model.samples is None else None):
        if value is None or (seconds := model.line_s({model.argument: value})) >= 0.0:
            continue
        hint = f"; with 'measure: magnitude' it takes as long as {-value:g}"
        raise ValueError(
            f"{model.argument} {value:g} gives {seconds:g} s"
            + (hint if value < 0.0 and model.measure == "value" else "")
        )


class SkillProfile(_RobotProfilePart):
    """One skill of one robot: argument limits in call order, and the execution time."""

    abbr: str | None = None
    args: dict[str, ArgumentLimit] = Field(default_factory=dict)
    execution: ExecutionModel
    basis: str = ""
    """Source of the execution time: published, vendor, fitted or assumed."""
    held_out_error: NonNegativeFloat | None = None
    """Mean error of the estimate on runs outside the fit, as a share of the measured time. For a variable skill only
    runs shorter than the estimate count, since its estimate is the minimum."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if isinstance(self.execution, LinearModel) and self.execution.argument not in self.args:
            names = ", ".join(self.args) or "none"
            raise ValueError(f"execution is linear in {self.execution.argument!r}; arguments here: {names}")
        if isinstance(self.execution, LinearModel):
            limit = self.args[self.execution.argument]
            _check_line_unit(self.execution, limit.unit)
            if self.execution.of_number:
                _check_line_limits(self.execution, limit.min, limit.max)
        return self

    def unit(self, argument: str) -> str:
        """The unit of an argument: that of its limits, else that of the line over it; empty if there is none."""
        unit = self.args[argument].unit if argument in self.args else ""
        line = self.execution
        if (
            unit in NO_UNITS
            and isinstance(line, LinearModel)
            and line.argument == argument
            and line.of_number
        ):
            return line.unit
        return "" if unit in NO_UNITS else unit


class Measurement(_RobotProfilePart):
    """The measurement of the execution times; ``date`` is ISO 8601 or empty."""

    date: str = ""
    samples: int | None = Field(default=None, ge=0)
    setup: str = ""
    """The robot and set-up in words."""

    @field_validator("date", mode="before")
    @classmethod
    def _date(cls, value: object) -> object:
        # YAML reads an unquoted 2025-01-31 as a date.
        return value.isoformat() if hasattr(value, "isoformat") else value


class Geofence(_RobotProfilePart):
    """Allowed positions in the robot's start or base frame, metres; None is unbounded."""

    x_m: tuple[FiniteFloat, FiniteFloat] | None = None
    y_m: tuple[FiniteFloat, FiniteFloat] | None = None
    z_m: tuple[FiniteFloat, FiniteFloat] | None = None
    radius_m: PositiveFloat | None = None
    """Horizontal distance from the origin."""

    @model_validator(mode="after")
    def _check(self) -> Self:
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


class Failsafe(_RobotProfilePart):
    """What the robot does by itself when plan, bridge, lease, link or task are lost, or the battery is low."""

    hold_s: NonNegativeFloat = 10.0
    """A lost plan, bridge, lease or link, or a time without a task away from the base, may last for so long.

    The robot holds meanwhile.
    """
    then: Literal["hold", "land", "return", "retract", "release"] = "hold"
    battery_reserve: float | None = Field(default=None, ge=0.0, le=1.0)
    """Below it, or with an unknown level, the robot does not move; away from its base it acts at once."""
    land_while_stopped: bool = False
    """Where ``then`` is ``land``: with a battery below the reserve it lands also while a stop is latched.

    Otherwise a stop forbids every action.
    """


class SpeedLimits(_RobotProfilePart):
    """Speed limits; None is the robot's own limit."""

    linear_m_per_s: PositiveFloat | None = None
    angular_deg_per_s: PositiveFloat | None = None
    joint_rad_per_s: PositiveFloat | None = None
    joint_rad_per_s2: PositiveFloat | None = None
    cruise_m_per_s: PositiveFloat | None = None
    """Speed during the measurement of the execution times."""


class RobotProfile(_RobotProfilePart):
    """Limits and execution-time models of one robot. Read-only.

    Attributes:
        name: its name in requests, equal to the file's stem.
        robot: make and model in words.
        source: source of the numbers.
        network_s: one-way delay from the server to the robot, seconds.
        skills: skills by full name.
        allow: skills that may run; None allows all.
        deny: skills that may not run, even if ``allow`` lists them.
        joints_deg: (lowest, highest) of each joint, degrees.
    """

    name: str
    robot: str
    source: str
    network_s: NonNegativeFloat = 0.0
    measured: Measurement = Measurement()
    skills: dict[str, SkillProfile] = Field(min_length=1)
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    geofence: Geofence | None = None
    speed: SpeedLimits = SpeedLimits()
    failsafe: Failsafe = Failsafe()
    joints_deg: tuple[tuple[FiniteFloat, FiniteFloat], ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"name {self.name!r} must be letters, digits, '.', '_' and '-'")
        skills_by_name: dict[str, str] = {}
        for skill, entry in self.skills.items():
            for name in {skill, entry.abbr or skill}:
                if skills_by_name.setdefault(name, skill) != skill:
                    raise ValueError(f"{name!r} names both {skills_by_name[name]} and {skill}")
        for entry_name in (*(self.allow or ()), *self.deny):
            if entry_name not in skills_by_name:
                raise ValueError(f"allow or deny lists {entry_name!r}, which is no skill here")
        return self

    def skill_name(self, skill: str) -> str:
        """Full name of a skill, from its name or abbreviation.

        Raises:
            UnknownName: the profile has no such skill.
        """
        if skill in self.skills:
            return skill
        for name, entry in self.skills.items():
            if entry.abbr == skill:
                return name
        names = (f"{name} (abbr {entry.abbr})" if entry.abbr else name for name, entry in self.skills.items())
        raise UnknownName("skill", skill, names, where=f"robot profile {self.name}")

    def limits(self, skill: str) -> Mapping[str, ArgumentLimit]:
        """Limits of each argument of a skill (name or abbreviation), in call order."""
        return self.skills[self.skill_name(skill)].args

    def allows(self, skill: str) -> bool:
        """The allow and deny lists permit this skill; False for an unknown skill."""
        try:
            name = self.skill_name(skill)
        except UnknownName:
            return False
        names = {name, self.skills[name].abbr or name}
        return not (names & set(self.deny)) and (self.allow is None or bool(names & set(self.allow)))

    def named_args(self, skill: str, args: Values = ()) -> Args:
        """Arguments by name. Absent ones are left out, and too many raise BadInput."""
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

    def sample_args(self, skill: str, args: Values) -> tuple[dict[str, float | str], dict[str, str]]:
        """Arguments of a call by name as numbers and texts, and the units of the numbers that have limits."""
        limits, entry = self.limits(skill), self.skills[self.skill_name(skill)]
        by_name = {
            name: value if isinstance(value, (float, str)) else str(value)
            for name, value in self.named_args(skill, args).items()
        }
        return by_name, {
            name: entry.unit(name) for name in by_name if name in limits and limits[name].numeric
        }

    def violations(self, skill: str, args: Values = ()) -> list[str]:
        """Every reason against this call on this robot, in words; empty if it may run.

        Raises:
            UnknownName: the profile has no such skill.
        """
        name = self.skill_name(skill)
        reasons = [] if self.allows(name) else [f"{name} is not allowed on {self.name}"]
        try:
            values = self.named_args(name, args)
        except BadInput as error:
            return [*reasons, error.message]
        limits = self.skills[name].args
        reasons.extend(f"{name} has no argument {unknown!r}" for unknown in values if unknown not in limits)
        for argument, limit in limits.items():
            if argument not in values:
                reasons.append(f"{name} needs {argument}")
            elif (why := limit.violation(values[argument])) is not None:
                reasons.append(f"{argument} of {name} {why}")
        return reasons

    def execution_s(
        self, skill: str, args: Values = (), how: How = "estimate", rng: np.random.Generator | None = None
    ) -> float:
        """Execution time of a call, seconds; ``how`` is a time that the model gives. ``sample`` draws from ``rng``.

        Raises:
            UnknownName: no such skill. BadInput: an argument is absent or not a number.
            ValueError: ``sample`` without ``rng``.
        """
        name = self.skill_name(skill)
        model = self.skills[name].execution
        try:
            values = self.named_args(name, args)
            if how == "sample":
                if rng is None:
                    raise ValueError("sampling needs a random generator")
                return model.sample_s(values, rng)
            if how == "mean":
                return model.mean_s(values)
            return model.minimum_s(values) if how == "minimum" else model.estimate_s(values)
        except BadInput as error:
            if error.where:
                raise
            raise BadInput(error.message, where=f"robot profile {self.name}, skill {name}") from error
