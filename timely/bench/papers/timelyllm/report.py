"""The outcomes of an evaluation, and every plotted number as a table."""

import csv
from collections.abc import Sequence

from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.seed_statistics import Interval, paper_interval
from timely.bench.papers.timelyllm.runs import (
    NEW_TOKENS,
    OUTCOMES,
    PROFILE,
    PaperOutcome,
    PaperSystem,
    measure_paper_run,
)


class PaperReport:
    """The runs of an evaluation, and the numbers that its figures show.

    Attributes:
        calibrations: label -> new prompt tokens, set by ``calibration.calibrate_timelyllm_paper``.
    """

    def __init__(self, evaluation: PaperEvaluation) -> None:
        self.evaluation = evaluation
        self.out = evaluation.out
        self.calibrations: dict[str, int] = {}
        self._rows: list[tuple[str, str, str, float, float, float]] = []

    def outcomes(
        self,
        system: PaperSystem,
        name: str,
        *,
        new_tokens: int = NEW_TOKENS,
        profile: str = PROFILE,
        max_batch: int = 0,
        unit: str = "",
        longer: float = 1.0,
    ) -> list[PaperOutcome]:
        """A system's outcomes on a workload, one a seed; ``max_batch`` 0 is no limit."""
        arguments = (system.name, name, new_tokens, profile, max_batch, unit, longer)
        entries = self.evaluation.each("run", measure_paper_run, *arguments)
        return [OUTCOMES.validate_python(entry) for entry in entries]

    def row(self, figure: str, system: str, group: str, value: Interval) -> None:
        """Keep a plotted number."""
        self._rows.append((figure, system, group, *value))

    def save_rows(self) -> None:
        """All plotted numbers as ``numbers.csv``."""
        with (self.out / "numbers.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("figure", "system", "group", "mean", "ci_low", "ci_high"))
            writer.writerows((*row[:3], *(f"{value:.6g}" for value in row[3:])) for row in self._rows)


def paper_values_by_type(outcomes: Sequence[PaperOutcome], number: int, measure: str) -> list[float]:
    """``utility``, ``response`` or ``waiting`` of one task type, a seed each."""
    column = ("utility", "response", "waiting").index(measure)
    return [outcome.types[number][column] for outcome in outcomes if number in outcome.types]


def paper_shares(outcomes: Sequence[PaperOutcome], kind: str = "urgent") -> list[float]:
    """Share of the maximum utility of ``urgent`` or ``normal`` tasks, a seed each."""
    return [outcome.share[kind] for outcome in outcomes]


def paper_difference(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Ours less theirs, seed by seed."""
    return paper_interval([a - b for a, b in zip(ours, theirs, strict=True)])
