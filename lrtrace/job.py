"""The contents of a trace: jobs with their plans and time-utility functions, and the trace's header.

All times are seconds from the trace's origin. The constructors check every field, so an existing object is valid.
Unknown fields stay in ``extra`` and are written back.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn, Self

from lrtrace.errors import BadInput
from lrtrace.jsonl import is_utf8_jsonl_text

VERSION = 1
MAX_NUMBER = 2**53
"""The largest integer that every JSON reader keeps exactly."""
MAX_S = 1e10
"""The largest time, seconds: up to here a float tells microseconds apart."""
URGENT_BELOW_S = 0.5
"""A task is of class urgent when its expected response time is under this."""


def _fail_trace_field(name: str, expected: str, got: object) -> NoReturn:
    value_text = repr(got)
    raise BadInput(
        f"{name}: must be {expected}, got {value_text if len(value_text) <= 80 else value_text[:77] + '...'}"
    )


def _check_trace_number(name: str, value: object, expected: str, most: float = 1e300) -> float:
    if value.__class__ is not float and value.__class__ is not int:
        _fail_trace_field(name, expected, value)
    number: float = value
    if not 0.0 <= number <= most:
        _fail_trace_field(name, expected, value)
    return number


def _check_trace_seconds(name: str, value: object) -> None:
    _check_trace_number(name, value, f"seconds from 0 to {MAX_S:g}", MAX_S)


def _check_trace_integer(name: str, value: object, low: int, high: int = MAX_NUMBER) -> None:
    if value.__class__ is not int or not low <= value <= high:
        expected = (
            f"an integer of {low} or more" if high == MAX_NUMBER else f"an integer from {low} to {high}"
        )
        _fail_trace_field(name, expected, value)


def _check_trace_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        _fail_trace_field(name, "text", value)
    if not is_utf8_jsonl_text(value):
        _fail_trace_field(name, "text that can be written as UTF-8", value)


def _check_trace_extra(values: Mapping[str, Any]) -> None:
    """Raise BadInput for a field whose value a reader of JSON cannot get back."""
    for name, value in values.items():
        try:
            json.dumps({name: value}, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError):
            _fail_trace_field(name, "JSON that can be written as UTF-8", value)


RESPONSE_S = 1.0
"""Assumed wait of a robot for its first action: the expected response time of a normal task."""


@dataclass(frozen=True, slots=True)
class Tuf:
    """A time-utility function ``U(t) = min(beta, alpha (t - ert_s) + beta)`` (TimelyLLM, Eq. 1).

    Attributes:
        ert_s: expected response time, seconds, zero or more.
        alpha: slope after it, utility per second, zero or negative.
        beta: initial utility, positive.
    """

    ert_s: float = 1.0
    alpha: float = -2.0
    beta: float = 1.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_trace_number("ert_s", self.ert_s, "zero or more seconds")
        if self.alpha.__class__ not in (float, int) or not -1e300 < self.alpha <= 0:
            _fail_trace_field("alpha", "zero or negative", self.alpha)
        if _check_trace_number("beta", self.beta, "positive") == 0:
            _fail_trace_field("beta", "positive", self.beta)
        _check_trace_extra(self.extra)

    @property
    def urgent(self) -> bool:
        """Class ``urgent`` of the reports."""
        return self.ert_s < URGENT_BELOW_S

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """From JSON. ``cutoff_s``, the time of zero utility, may stand for ``alpha``."""
        values = dict(raw)
        ert_s, beta = values.pop("ert_s", 1.0), values.pop("beta", 1.0)
        if "cutoff_s" in values:
            if "alpha" in values:
                raise BadInput("alpha: give alpha or cutoff_s, not both")
            cutoff = values.pop("cutoff_s")
            flat = cls(ert_s, 0.0, beta)
            if _check_trace_number("cutoff_s", cutoff, "a number of seconds") <= flat.ert_s:
                _fail_trace_field("cutoff_s", f"later than ert_s={flat.ert_s}", cutoff)
            values["alpha"] = -flat.beta / (cutoff - flat.ert_s)
        return cls(ert_s, values.pop("alpha", -2.0), beta, values)

    def to_dict(self) -> dict[str, Any]:
        return {"ert_s": self.ert_s, "alpha": self.alpha, "beta": self.beta, **self.extra}


NORMAL = Tuf(1.0, -2.0, 1.0)
"""A normal robot task (TimelyLLM, section 7.1)."""
URGENT = Tuf(0.2, -6.67, 2.0)
"""An urgent robot task (TimelyLLM, section 7.1)."""


@dataclass(frozen=True, slots=True)
class TraceSegment:
    """A segment of a plan: its text, its length in tokens and its execution time, seconds."""

    text: str
    tokens: int
    execution_s: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_trace_text("text", self.text)
        _check_trace_integer("tokens", self.tokens, 1)
        _check_trace_seconds("execution_s", self.execution_s)
        _check_trace_extra(self.extra)

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "tokens": self.tokens, "execution_s": self.execution_s, **self.extra}


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One request of a trace.

    Attributes:
        job: its number, unique in the trace.
        arrival_s: seconds from the trace's origin.
        prompt_tokens: length of the prompt.
        shared_prefix_tokens: length of the prompt's start that its whole skill set shares.
        plan: the model's answer in segments; ordinary requests have one.
        agent: the robot or user that sends the request.
        robot: the robot's profile.
        skill_set: the skill set, which defines segment boundaries.
        app: the LLM application of the request.
        urgency: 0 (most) to 4.
        acceptance: share of accepted draft tokens, 0..1.
        extra: unknown fields.
    """

    job: int
    arrival_s: float
    prompt_tokens: int
    plan: tuple[TraceSegment, ...]
    agent: str = ""
    robot: str = ""
    skill_set: str = ""
    task: str = ""
    scene: str = ""
    shared_prefix_tokens: int = 0
    tuf: Tuf = NORMAL
    app: str | None = None
    urgency: int | None = None
    acceptance: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_trace_integer("job", self.job, 0)
        _check_trace_seconds("arrival_s", self.arrival_s)
        _check_trace_integer("prompt_tokens", self.prompt_tokens, 1)
        _check_trace_integer("shared_prefix_tokens", self.shared_prefix_tokens, 0)
        if self.shared_prefix_tokens > self.prompt_tokens:
            expected = f"at most prompt_tokens={self.prompt_tokens}"
            _fail_trace_field("shared_prefix_tokens", expected, self.shared_prefix_tokens)
        if not self.plan:
            raise BadInput("plan: must have at least one segment")
        for name in ("agent", "robot", "skill_set", "task", "scene"):
            _check_trace_text(name, getattr(self, name))
        if self.app is not None:
            _check_trace_text("app", self.app)
        if self.urgency is not None:
            _check_trace_integer("urgency", self.urgency, 0, 4)
        if self.acceptance is not None:
            expected = "a share from 0 to 1"
            if _check_trace_number("acceptance", self.acceptance, expected) > 1:
                _fail_trace_field("acceptance", expected, self.acceptance)
        _check_trace_extra(self.extra)

    @property
    def tokens(self) -> int:
        return sum(segment.tokens for segment in self.plan)

    @property
    def execution_s(self) -> float:
        """Execution time of the whole plan, seconds."""
        return sum(segment.execution_s for segment in self.plan)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """From JSON.

        Raises:
            BadInput: a field is absent or wrong; the message starts with its name.
        """
        values = dict(raw)
        for name in ("job", "arrival_s", "prompt_tokens", "plan"):
            if name not in values:
                raise BadInput(f"{name}: is missing")
        plan = values.pop("plan")
        if not isinstance(plan, list):
            _fail_trace_field("plan", "a list of segments", plan)
        tuf = values.pop("tuf", None)
        if tuf is not None and not isinstance(tuf, dict):
            _fail_trace_field("tuf", "an object", tuf)
        try:
            utility = NORMAL if tuf is None else Tuf.from_dict(tuf)
        except BadInput as error:
            raise BadInput(f"tuf.{error.message}") from error
        own = {name: values.pop(name) for name in _FIELDS if name in values}
        return cls(
            **own,
            plan=tuple(_read_trace_segment(index, raw_segment) for index, raw_segment in enumerate(plan)),
            tuf=utility,
            extra=values,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON, in the order of the format description."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _FIELD_ORDER}
        values["tuf"] = self.tuf.to_dict()
        if self.acceptance is None:
            del values["acceptance"]
        values["plan"] = [segment.to_dict() for segment in self.plan]
        return values | dict(self.extra)


_FIELD_ORDER = (
    *("job", "arrival_s", "agent", "app", "robot", "skill_set", "task", "scene", "prompt_tokens"),
    *("shared_prefix_tokens", "tuf", "urgency", "acceptance", "plan"),
)
"""Fields in the order of the format description."""
_FIELDS = [field.name for field in fields(TraceJob) if field.name not in ("plan", "tuf", "extra")]


def _read_trace_segment(index: int, raw: object) -> TraceSegment:
    if not isinstance(raw, dict):
        _fail_trace_field(f"plan[{index}]", "an object", raw)
    values = dict(raw)
    try:
        for name in ("text", "tokens"):
            if name not in values:
                raise BadInput(f"{name}: is missing")
        return TraceSegment(values.pop("text"), values.pop("tokens"), values.pop("execution_s", 0.0), values)
    except BadInput as error:
        raise BadInput(f"plan[{index}].{error.message}") from error


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """First line of a trace: its name, its seed, and the delay to the robots, seconds."""

    name: str = ""
    seed: int | None = None
    network_s: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_trace_text("name", self.name)
        if self.seed is not None:
            _check_trace_integer("seed", self.seed, 0, 2**64 - 1)
        _check_trace_seconds("network_s", self.network_s)
        _check_trace_extra(self.extra)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """From JSON.

        Raises:
            BadInput: not the header of a trace, another version, or a field is wrong.
        """
        values = dict(raw)
        if "lrtrace" not in values:
            raise BadInput(
                'lrtrace: is missing; the first line must be a header like {"lrtrace": 1, "name": ...}'
            )
        version = values.pop("lrtrace")
        if version != VERSION or isinstance(version, bool):
            _fail_trace_field("lrtrace", f"{VERSION}, the only version there is", version)
        own = {name: values.pop(name) for name in ("name", "seed", "network_s") if name in values}
        return cls(**own, extra=values)

    def to_dict(self) -> dict[str, Any]:
        own = {"lrtrace": VERSION, "name": self.name, "seed": self.seed, "network_s": self.network_s}
        return {**own, **self.extra}
