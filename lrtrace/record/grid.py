"""A grid of skill calls and arguments to measure, in a random order with a seed.

A grid file (YAML)::

    repetitions: 5
    begin: mu(20);                        # once, without measurement: moves the robot to its start
    runs:
      - do: ["mf({distance})", "mb({distance})"]
        with: {distance: [20, 100, 400]}  # every combination of the values
      - do: ["s('{object}')", "tu({back})"]
        with: [{object: cat, back: 120}]  # or sets of values

The robot gets the texts of ``do`` in order. A text with a single call is a run of its skill, so a move and its way
back measure two skills. A text with several calls is no run, since the calls share one time.
"""

import hashlib
import itertools
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints, field_validator

from lrtrace.errors import BadInput
from lrtrace.yaml_file import read_lrtrace_yaml

MAX_RUNS = 100_000


@dataclass(frozen=True, slots=True)
class RecordGridUnit:
    """Texts that run together, in order. ``key`` is its name within the grid."""

    key: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordGrid:
    """The content of a grid file: one unit for each point, in order. ``begin`` may be empty."""

    units: tuple[RecordGridUnit, ...]
    repetitions: int
    begin: str = ""

    @property
    def fingerprint(self) -> str:
        """A hash that differs for grids with other texts."""
        parts = [unit.texts for unit in self.units]
        return hashlib.sha256(json.dumps([self.begin, parts]).encode()).hexdigest()[:12]

    def schedule(self, seed: int, repetitions: int | None = None) -> list[tuple[str, RecordGridUnit]]:
        """(name of the run, what to do) for every repetition of every point; the same order for the same seed.

        Each round holds every point once, so that whatever drifts (a battery, a temperature) touches all alike.
        """
        rng = random.Random(f"grid {seed}")
        runs: list[tuple[str, RecordGridUnit]] = []
        for repetition in range(self.repetitions if repetitions is None else repetitions):
            turn = list(self.units)
            rng.shuffle(turn)
            runs += [(f"{unit.key}#{repetition}", unit) for unit in turn]
        return runs


class _RecordGridRuns(BaseModel, extra="forbid"):
    """An entry of ``runs``; ``points`` are its sets of values."""

    do: Annotated[
        list[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]], Field(min_length=1)
    ]
    points: Annotated[list[dict[str, Any]], Field(alias="with", min_length=1)] = [{}]

    @field_validator("points", mode="before")
    @classmethod
    def _combine(cls, values: Any) -> Any:
        """All combinations of a mapping of lists; a list of mappings as it is."""
        if not isinstance(values, Mapping):
            return [{}] if values is None else values
        if not all(isinstance(column, list) and column for column in values.values()):
            raise ValueError("must give a list of values for each name")
        points = itertools.product(*values.values())
        # One more than are allowed: a few lists can have more combinations than fit into memory.
        return [dict(zip(values, point, strict=True)) for point in itertools.islice(points, MAX_RUNS + 1)]

    def units(self, where: str) -> Iterator[RecordGridUnit]:
        for values in self.points:
            try:
                calls = tuple(text.format_map(values) for text in self.do)
            except KeyError as error:
                raise BadInput(f"do: no value for {error}", where=where) from error
            except (LookupError, ValueError, AttributeError, TypeError, MemoryError, OverflowError) as error:
                raise BadInput(f"do: cannot fill in {self.do}: {error}", where=where) from error
            yield RecordGridUnit(" ".join(calls), calls)


class _RecordGridFile(BaseModel, extra="forbid"):
    repetitions: Annotated[int, Field(strict=True, ge=1, le=1000)] = 1
    begin: str = ""
    runs: Annotated[list[_RecordGridRuns], Field(min_length=1)]


def read_record_grid(path: str | Path) -> RecordGrid:
    """The grid of a YAML file.

    Raises:
        BadInput: the file is absent or broken; the message names file, line and field.
    """
    file = read_lrtrace_yaml(Path(path))
    content = file.validate(_RecordGridFile)
    units: dict[str, RecordGridUnit] = {}
    for number, runs in enumerate(content.runs):
        for unit in runs.units(file.where(("runs", number, "do"))):
            if unit.key in units:
                raise BadInput(f"runs: {unit.key} comes twice", where=file.where(("runs", number)))
            units[unit.key] = unit
    count = len(units) * content.repetitions
    if count > MAX_RUNS:
        raise BadInput(f"runs: {count} are over {MAX_RUNS}", where=file.where(("runs",)))
    return RecordGrid(tuple(units.values()), content.repetitions, content.begin.strip())
