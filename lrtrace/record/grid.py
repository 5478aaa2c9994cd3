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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrtrace.errors import BadInput
from lrtrace.yaml_file import YamlFile, read_lrtrace_yaml

KEYS = ("repetitions", "begin", "runs")
RUN_KEYS = ("do", "with")
MAX_RUNS = 100_000


@dataclass(frozen=True, slots=True)
class Unit:
    """Texts that run together, in order. ``key`` is its name within the grid."""

    key: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """The content of a grid file: one unit for each point, in order. ``begin`` may be empty."""

    units: tuple[Unit, ...]
    repetitions: int
    begin: str = ""

    @property
    def fingerprint(self) -> str:
        """A hash that differs for grids with other texts."""
        parts = [unit.texts for unit in self.units]
        return hashlib.sha256(json.dumps([self.begin, parts]).encode()).hexdigest()[:12]

    def schedule(self, seed: int, repetitions: int | None = None) -> list[tuple[str, Unit]]:
        """(name of the run, what to do) for every repetition of every point; the same order for the same seed.

        Each round holds every point once, so that whatever drifts (a battery, a temperature) touches all alike.
        """
        rng = random.Random(f"grid {seed}")
        runs: list[tuple[str, Unit]] = []
        for repetition in range(self.repetitions if repetitions is None else repetitions):
            turn = list(self.units)
            rng.shuffle(turn)
            runs += [(f"{unit.key}#{repetition}", unit) for unit in turn]
        return runs


def read_grid(path: str | Path) -> Grid:
    """The grid of a YAML file.

    Raises:
        BadInput: the file is absent or broken; the message names file, line and field.
    """
    file = read_lrtrace_yaml(Path(path))
    top = file.value
    _check_keys(file, top, (), KEYS)
    repetitions = top.get("repetitions", 1)
    if isinstance(repetitions, bool) or not isinstance(repetitions, int) or not 1 <= repetitions <= 1000:
        raise BadInput(
            f"repetitions: must be 1 to 1000, got {repetitions!r}", where=_at(file, ("repetitions",))
        )
    runs = top.get("runs")
    if not isinstance(runs, list) or not runs:
        raise BadInput("runs: must be a list of calls", where=_at(file, ("runs",)))
    units: dict[str, Unit] = {}
    for number, raw in enumerate(runs):
        for unit in _units(file, number, raw):
            if unit.key in units:
                raise BadInput(f"runs: {unit.key} comes twice", where=_at(file, ("runs", number)))
            units[unit.key] = unit
    if len(units) * repetitions > MAX_RUNS:
        raise BadInput(f"runs: {len(units) * repetitions} are over {MAX_RUNS}", where=_at(file, ("runs",)))
    begin = top.get("begin", "")
    if not isinstance(begin, str):
        raise BadInput(f"begin: must be text, got {begin!r}", where=_at(file, ("begin",)))
    return Grid(tuple(units.values()), repetitions, begin.strip())


def _units(file: YamlFile, number: int, raw: Any) -> list[Unit]:
    at = ("runs", number)
    _check_keys(file, raw, at, RUN_KEYS)
    texts = raw.get("do")
    if (
        not isinstance(texts, list)
        or not texts
        or not all(isinstance(text, str) and text.strip() for text in texts)
    ):
        raise BadInput("do: must be a list of texts", where=_at(file, (*at, "do")))
    units = []
    for values in _points(file, raw.get("with"), (*at, "with")):
        try:
            calls = tuple(text.strip().format_map(values) for text in texts)
        except KeyError as error:
            raise BadInput(f"do: no value for {error}", where=_at(file, (*at, "do"))) from error
        except (LookupError, ValueError, AttributeError, TypeError, MemoryError, OverflowError) as error:
            raise BadInput(f"do: cannot fill in {texts}: {error}", where=_at(file, (*at, "do"))) from error
        units.append(Unit(" ".join(calls), calls))
    return units


def _points(file: YamlFile, values: Any, at: tuple[str | int, ...]) -> list[dict[str, Any]]:
    """Sets of values: all combinations of a mapping of lists, or the entries of a list of mappings."""
    if values is None:
        return [{}]
    if isinstance(values, Mapping):
        if not all(isinstance(column, list) and column for column in values.values()):
            raise BadInput("with: must give a list of values for each name", where=_at(file, at))
        points = itertools.product(*values.values())
        # One more than are allowed: a few lists can have more combinations than fit into memory.
        return [dict(zip(values, point, strict=True)) for point in itertools.islice(points, MAX_RUNS + 1)]
    if isinstance(values, list) and values and all(isinstance(point, Mapping) for point in values):
        return [dict(point) for point in values]
    raise BadInput("with: must be a mapping of lists, or a list of mappings", where=_at(file, at))


def _check_keys(file: YamlFile, raw: Any, at: tuple[str | int, ...], keys: Sequence[str]) -> None:
    if not isinstance(raw, Mapping):
        raise BadInput(f"must be a mapping with {', '.join(keys)}", where=_at(file, at))
    for key in raw:
        if key not in keys:
            raise BadInput(f"unknown key {key!r}; known: {', '.join(keys)}", where=_at(file, (*at, key)))


def _at(file: YamlFile, loc: Sequence[str | int]) -> str:
    return f"{file.path}:{file.line(loc) or 1}"
