"""Claims gathered one by one, and every plotted number as a table."""

import csv
from collections.abc import Sequence
from pathlib import Path

from timely.bench.papers.claims import Claim, Rule, Subject, paper_claim
from timely.bench.papers.seed_statistics import Interval
from timely.bench.papers.timelyllm.runs import Outcome, Runs, paper_interval


class Report:
    """The claims of a run, with the runs behind them.

    Attributes:
        calibrations: label -> new prompt tokens, set by ``calibration.calibrate_timelyllm_paper``.
    """

    def __init__(self, out: Path, runs: Runs, seeds: Sequence[int]) -> None:
        self.out = out
        self.runs = runs
        self.seeds = seeds
        self.calibrations: dict[str, int] = {}
        self.claims: list[Claim] = []
        self._rows: list[tuple[str, str, str, float, float, float]] = []

    def claim(
        self,
        name: str,
        what: str,
        paper: float | None,
        ours: Interval | float | None,
        unit: str,
        rule: Rule | None,
        note: str = "",
        subject: Subject = "literal",
    ) -> None:
        """Add a claim (``claims.paper_claim``)."""
        self.claims.append(paper_claim(name, what, paper, ours, unit, rule, note, subject))

    def row(self, figure: str, system: str, group: str, value: Interval) -> None:
        """Keep a plotted number."""
        self._rows.append((figure, system, group, *value))

    def save_rows(self) -> None:
        """All plotted numbers as ``numbers.csv``."""
        with (self.out / "numbers.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("figure", "system", "group", "mean", "ci_low", "ci_high"))
            writer.writerows((*row[:3], *(f"{value:.6g}" for value in row[3:])) for row in self._rows)


def paper_values_by_type(outcomes: Sequence[Outcome], number: int, measure: str) -> list[float]:
    """``utility``, ``response`` or ``waiting`` of one task type, a seed each."""
    column = ("utility", "response", "waiting").index(measure)
    return [outcome.types[number][column] for outcome in outcomes if number in outcome.types]


def paper_shares(outcomes: Sequence[Outcome], kind: str = "urgent") -> list[float]:
    """Share of the maximum utility of ``urgent`` or ``normal`` tasks, a seed each."""
    return [outcome.share[kind] for outcome in outcomes]


def paper_difference(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Ours less theirs, seed by seed."""
    return paper_interval([a - b for a, b in zip(ours, theirs, strict=True)])
