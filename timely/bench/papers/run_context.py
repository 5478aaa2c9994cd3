"""The context of a paper's reproduction: seeds, a folder for plots, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timely.bench.checkpoints import Arguments, Checkpoints, Measurement

Say = Callable[[str], None]


def _to_nobody(line: str) -> None:
    """Says nothing."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Each paper's ``run`` takes one and returns its claims; every figure of it takes the same.

    Attributes:
        seeds: of the workloads; the papers' comparisons ask for ten at least.
        out: where the plots go; it exists.
        say: told what has been measured, a line at a time.
        checkpoints: what earlier runs have measured, and where to keep what this one does.

    Raises:
        OutOfTime: (of every method) the budget of ``checkpoints`` is used up; what is done is kept.
    """

    seeds: Sequence[int]
    out: Path
    say: Say = _to_nobody
    checkpoints: Checkpoints = field(default_factory=Checkpoints)

    def each(self, experiment: str, function: Measurement, *arguments: str | int | float) -> list[Any]:
        """``function(*arguments, seed)``, a result a seed."""
        return self.checkpoints.map(experiment, function, [(*arguments, seed) for seed in self.seeds])

    def all(self, experiment: str, function: Measurement, variants: Sequence[Arguments]) -> list[list[Any]]:
        """For each variant, ``function(*variant, seed)`` at every seed.

        Computed seed by seed: what a process makes for a seed is made once, and a run that is stopped has all variants
        of the seeds that it came to.
        """
        asked = [(*variant, seed) for seed in self.seeds for variant in variants]
        found = self.checkpoints.map(experiment, function, asked)
        return [found[place :: len(variants)] for place in range(len(variants))]

    def once(self, experiment: str, function: Measurement, *arguments: str | int | float) -> Any:
        """``function(*arguments)``: something that no seed changes, or a time that is taken once."""
        return self.checkpoints.map(experiment, function, [arguments])[0]
