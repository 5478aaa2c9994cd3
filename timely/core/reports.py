"""Reports of a robot on the execution of a segment, as plain data."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from timely.core.errors import InvalidInput

ReportKind = Literal["started", "progress", "done", "failed", "value"]
REPORT_KINDS: tuple[ReportKind, ...] = get_args(ReportKind)
MAX_VALUE_CHARS = MAX_REASON_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """One report of a robot about one segment of its task. Idempotent: a repeat changes nothing.

    Attributes:
        segment: index of the segment, from 0.
        kind: ``started``, ``progress`` (``remaining_s`` set), ``done`` (``elapsed_s`` may be set), ``failed``
            (``reason`` set) or ``value`` (``value`` set: what a blocking skill returned).
        elapsed_s: measured execution time of the segment so far, seconds.
        remaining_s: the robot's own estimate of the time left, seconds.
        age_s: how long before it was received this report was true, seconds.
    """

    segment: int
    kind: ReportKind
    elapsed_s: float | None = None
    remaining_s: float | None = None
    age_s: float = 0.0
    value: str | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.segment, bool) or not isinstance(self.segment, int) or self.segment < 0:
            raise InvalidInput(f"segment must be an index from 0, got {self.segment!r}", where="segment")
        if self.kind not in REPORT_KINDS:
            raise InvalidInput(
                f"kind must be one of {', '.join(REPORT_KINDS)}, got {self.kind!r}", where="kind"
            )
        for name in ("elapsed_s", "remaining_s", "age_s"):
            seconds = getattr(self, name)
            if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
                raise InvalidInput(
                    f"{name} must be a finite number of seconds, zero or more, got {seconds!r}", where=name
                )
        if self.kind == "progress" and self.remaining_s is None:
            raise InvalidInput("a progress report needs remaining_s", where="remaining_s")
        if self.kind == "value":
            if self.value is None:
                raise InvalidInput("a value report needs value", where="value")
            if len(self.value) > MAX_VALUE_CHARS:
                raise InvalidInput(f"value is longer than {MAX_VALUE_CHARS} characters", where="value")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a wire; fields at their defaults are left out."""
        values = ((field, getattr(self, field.name)) for field in fields(ExecutionReport))
        return {field.name: value for field, value in values if value != field.default}
