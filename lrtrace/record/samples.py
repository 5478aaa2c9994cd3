"""Recorded runs of single skills (``*.samples.jsonl``): the call and its execution time.

Each line is one run (here on two lines)::

    {"robot": "tello", "skill": "move_forward", "args": {"distance": 100}, "units": {"distance": "cm"},
     "elapsed_s": 2.53}

``units`` is optional. A run with an ``outcome`` other than ``done`` failed and is ignored, like unknown fields.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lrtrace.errors import BadInput
from lrtrace.jsonl import is_finite_jsonl_number, is_utf8_jsonl_text, read_jsonl, write_jsonl

Value = float | str

MAX_ARGUMENT = 1e12
"""Largest number as an argument: beyond it the sums of a fit lose all others."""


@dataclass(frozen=True, slots=True)
class RecordedSample:
    """One run. ``where`` is its file and line."""

    robot: str
    skill: str
    args: dict[str, Value]
    elapsed_s: float
    units: dict[str, str] = field(default_factory=dict)
    where: str = ""

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {"robot": self.robot, "skill": self.skill, "args": self.args}
        if self.units:
            values["units"] = self.units
        values["elapsed_s"] = self.elapsed_s
        return values


def read_recorded_samples(path: str | Path) -> Iterator[RecordedSample]:
    """The successful runs of a file, as a stream.

    Raises:
        BadInput: the file is unreadable, or a line is broken; the message names file, line and field.
    """
    for number, raw in read_jsonl(Path(path)):
        where = f"{path}:{number}"
        if raw.get("outcome", "done") != "done":
            continue
        for name in ("robot", "skill"):
            if not is_utf8_jsonl_text(raw.get(name)) or not raw[name]:
                raise BadInput(f"{name}: must be a name, got {raw.get(name)!r}", where=where)
        elapsed_s = raw.get("elapsed_s")
        if (
            isinstance(elapsed_s, bool)
            or not isinstance(elapsed_s, (int, float))
            or not 0 <= elapsed_s < 86_400
        ):
            raise BadInput(
                f"elapsed_s: must be zero or more seconds, less than a day, got {elapsed_s!r}", where=where
            )
        args = raw.get("args", {})
        if not isinstance(args, dict):
            raise BadInput(f"args: must be an object, got {args!r}", where=where)
        units = raw.get("units", {})
        if not isinstance(units, dict) or not all(isinstance(unit, str) for unit in units.values()):
            raise BadInput(f"units: must be an object of texts, got {units!r}", where=where)
        try:
            values = {name: recorded_argument(name, value) for name, value in args.items()}
        except BadInput as error:
            raise BadInput(error.message, where=where) from error
        yield RecordedSample(raw["robot"], raw["skill"], values, float(elapsed_s), units, where)


def recorded_argument(name: str, value: object) -> Value:
    """An argument of a run as a fit takes it. Raises BadInput for one that is no number or text."""
    if is_utf8_jsonl_text(value):
        return value
    if not is_finite_jsonl_number(value) or abs(value) > MAX_ARGUMENT:
        raise BadInput(f"args.{name}: must be a number or text, got {str(value)[:40]!a}")
    return float(value)


def write_recorded_samples(path: str | Path, samples: Iterable[RecordedSample]) -> int:
    """Write runs and return their number. Raises BadInput if the file cannot be written."""
    return write_jsonl(Path(path), (sample.to_dict() for sample in samples))
