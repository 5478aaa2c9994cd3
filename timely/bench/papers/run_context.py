"""What the reproduction of a paper is given: its seeds, a folder for its pictures, and the pieces that are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timely.bench.checkpoints import Arguments, Piece, Pieces

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
        pieces: what earlier runs have measured, and where to keep what this one does.

    Raises:
        OutOfTime: (of every method) the budget of ``pieces`` is used up; what is done is kept.
    """

    seeds: Sequence[int]
    out: Path
    say: Say = _to_nobody
    pieces: Pieces = field(default_factory=Pieces)

    def each(self, experiment: str, function: Piece, *arguments: str | int | float) -> list[Any]:
        """``function(*arguments, seed)``, a result a seed."""
        return self.pieces.map(experiment, function, [(*arguments, seed) for seed in self.seeds])

    def all(self, experiment: str, function: Piece, variants: Sequence[Arguments]) -> list[list[Any]]:
        """For each variant, ``function(*variant, seed)`` at every seed.

        Computed seed by seed: what a process makes for a seed is made once, and a run that is stopped has all variants
        of the seeds that it came to.
        """
        asked = [(*variant, seed) for seed in self.seeds for variant in variants]
        found = self.pieces.map(experiment, function, asked)
        return [found[place :: len(variants)] for place in range(len(variants))]

    def once(self, experiment: str, function: Piece, *arguments: str | int | float) -> Any:
        """``function(*arguments)``: something that no seed changes, or a time that is taken once."""
        return self.pieces.map(experiment, function, [arguments])[0]
