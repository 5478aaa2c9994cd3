"""What the reproduction of a paper works with: seeds, a folder for plots, kept pieces, and real data where given."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timely.bench.checkpoints import Arguments, BenchCheckpoints, Measurement
from timely.core.progress import Say


@dataclass(frozen=True, slots=True)
class PaperEvaluation:
    """Each paper's ``run`` takes one and returns its claims.

    Attributes:
        seeds: of the workloads; the papers' comparisons ask for ten at least.
        out: folder of the plots; it exists.
        say: takes a line about each result.
        checkpoints: results of earlier runs, and where this run keeps its own.
        data: folder with real traces and texts; None where there are none.

    Raises:
        BenchOutOfTime: (every method) the budget of ``checkpoints`` is used up; finished pieces are kept.
    """

    seeds: Sequence[int]
    out: Path
    say: Say = lambda line: None
    checkpoints: BenchCheckpoints = field(default_factory=BenchCheckpoints)
    data: Path | None = None

    def input(self, name: str) -> Path | None:
        """A file of ``data`` by its path in there; None where it is not at hand."""
        path = None if self.data is None else self.data / name
        return path if path is not None and path.exists() else None

    def each(self, experiment: str, function: Measurement, *arguments: str | int | float) -> list[Any]:
        """``function(*arguments, seed)``, a result a seed."""
        return self.checkpoints.map(experiment, function, [(*arguments, seed) for seed in self.seeds])

    def all(self, experiment: str, function: Measurement, variants: Sequence[Arguments]) -> list[list[Any]]:
        """For each variant, ``function(*variant, seed)`` at every seed.

        The order is seed by seed: a process prepares each seed once.
        A run that is stopped has all variants of the seeds it finished.
        """
        arguments = [(*variant, seed) for seed in self.seeds for variant in variants]
        results = self.checkpoints.map(experiment, function, arguments)
        return [results[place :: len(variants)] for place in range(len(variants))]

    def once(self, experiment: str, function: Measurement, *arguments: str | int | float) -> Any:
        """``function(*arguments)``: a result that no seed changes, or a time measured once."""
        return self.checkpoints.map(experiment, function, [arguments])[0]
