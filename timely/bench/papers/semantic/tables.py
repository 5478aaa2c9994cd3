"""Semantic scheduling, Tables 1 and 2 by level, and memory-tight settings."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from timely.bench.papers import plots
from timely.bench.papers.claims import NOT_EXERCISED, Claim, PaperRule, paper_claim
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.seed_statistics import paper_mean, paper_ratios
from timely.bench.papers.semantic.figures import paper_level_waiting
from timely.bench.papers.semantic.spikes import (
    GAP_S,
    MAIN,
    SCRIPT_GAP_S,
    TIGHT_BLOCKS,
    Levels,
    measure_paper_predicted,
    measure_paper_tight,
)
from timely.disciplines.semantic.constants import CONCURRENT_REQUESTS, URGENCY_LEVELS

LATENCIES = (0.001, 0.01, 0.1, 1.0)
SCRIPT_CONCURRENCY = {0.001: 4, 0.01: 16, 0.1: 32, 1.0: 64}
"""Latency of the predictor, seconds -> most requests at once in the published script of Table 1."""
BATCHES = (4, 16, 32, 64)
BATCHINGS = ("full", "immediate")
NAMES = (*(f"urgency {level}" for level in range(URGENCY_LEVELS)), "average")

PAPER_1: dict[str, tuple[tuple[float, ...], ...]] = {
    "full": (
        (0.07, 0.09, 0.18, 0.35), (0.13, 0.35, 0.68, 1.37), (0.21, 0.63, 1.25, 2.51), (0.29, 0.89, 1.75, 3.51),
        (0.37, 1.15, 2.29, 4.57), (0.21, 0.61, 1.23, 2.46),
    ),
    "immediate": (
        (0.01, 0.08, 0.16, 0.37), (0.01, 0.34, 0.68, 1.42), (0.02, 0.62, 1.24, 2.55), (0.04, 0.91, 1.83, 3.72),
        (0.15, 1.15, 2.33, 4.70), (0.04, 0.61, 1.25, 2.56),
    ),
}  # fmt: skip
"""Table 1: a row a level and the average, a column a latency; seconds a token."""

PAPER_2: dict[str, tuple[tuple[float, ...], ...]] = {
    "full": (
        (0.07, 0.07, 0.08, 0.08), (0.33, 0.34, 0.35, 0.35), (0.60, 0.61, 0.62, 0.62), (0.87, 0.88, 0.90, 0.91),
        (1.13, 1.14, 1.17, 1.17), (0.58, 0.59, 0.60, 0.60),
    ),
    "immediate": (
        (0.06, 0.07, 0.07, 0.07), (0.33, 0.33, 0.34, 0.33), (0.60, 0.60, 0.60, 0.60), (0.87, 0.87, 0.88, 0.87),
        (1.13, 1.14, 1.14, 1.14), (0.58, 0.58, 0.59, 0.58),
    ),
}  # fmt: skip
"""Table 2: a row a level and the total, a column a batch size; seconds a token."""

Cells = dict[str, list[list[Levels]]]
"""Batching -> a cell for each column, with a run for each seed."""


def _paper_cells(
    evaluation: PaperEvaluation, columns: Sequence[tuple[float, int, int]], gap_s: float
) -> Cells:
    """Runs for each latency of the predictor (seconds), its batch, and number of requests at once.

    ``gap_s`` lies between points of arrival, seconds.
    """
    return {
        batching: [
            evaluation.each("predicted", measure_paper_predicted, latency_s, batch, batching, count, gap_s)
            for latency_s, batch, count in columns
        ]
        for batching in BATCHINGS
    }


def paper_table_1(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Predictor latency with batches of 64, on the caption's terms and on those of the published script."""
    caption_cells = _paper_cells(
        evaluation, [(latency_s, 64, CONCURRENT_REQUESTS) for latency_s in LATENCIES], GAP_S
    )
    # In the script a call of the predictor also costs a tenth of its latency for each place in the batch.
    script_cells = _paper_cells(
        evaluation,
        [(latency_s * 6.4, 64, count) for latency_s, count in SCRIPT_CONCURRENCY.items()],
        SCRIPT_GAP_S,
    )
    for name, cells in (("caption", caption_cells), ("script", script_cells)):
        plots.paper_line_plot(
            evaluation.out / f"table1_{name}.png", f"Semantic Table 1: predictor latency ({name})",
            [-3.0, -2.0, -1.0, 0.0],
            {
                f"{batching}, {NAMES[level]}": [paper_level_waiting(cell, level, True) for cell in row]
                for batching, row in cells.items()
                for level in (0, URGENCY_LEVELS)
            },
            "log10 of the latency, s", "normalized waiting, s a token",
        )  # fmt: skip
    yield from _paper_claims_by_level("table1", "latency 0.01 s", 1, PAPER_1, caption_cells, script_cells)
    average = _paper_average_waiting(caption_cells)
    yield paper_claim(
        "table1.quick", "Table 1: latency 0.001 s, full batching over immediate processing, average", 0.21 / 0.04,
        paper_ratios(average["full"][0], average["immediate"][0]), "times", PaperRule.near(0.21 / 0.04, neutral=1.0),
    )  # fmt: skip
    yield paper_claim(
        "table1.slow", "Table 1: latency 1 s, immediate processing over full batching, average", 2.56 / 2.46,
        paper_ratios(average["immediate"][-1], average["full"][-1]), "times",
        PaperRule.near(2.56 / 2.46, neutral=1.0),
        "immediate takes up to a batch of the requests that wait, as the published code does",
    )  # fmt: skip
    for name, cells in (("caption", caption_cells), ("script", script_cells)):
        growth = paper_ratios(
            paper_level_waiting(cells["immediate"][-1], URGENCY_LEVELS, True),
            paper_level_waiting(cells["immediate"][0], URGENCY_LEVELS, True),
        )
        yield paper_claim(
            f"table1.growth.{name}",
            f"Table 1: latency 1 s over 0.001 s, immediate, average, terms of the {name}", 2.56 / 0.04, growth,
            "times", PaperRule.near(2.56 / 0.04, neutral=1.0),
            "the caption says 5 at once; the published script has 4, 16, 32 and 64, a second apart",
        )  # fmt: skip


def _paper_average_waiting(cells: Cells) -> dict[str, list[list[float]]]:
    """Of all levels, by batching and column."""
    return {
        batching: [paper_level_waiting(cell, URGENCY_LEVELS, True) for cell in row]
        for batching, row in cells.items()
    }


def paper_table_2(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Batch sizes at a predictor latency of 0.01 s, on the caption's terms and with the script's 16 at once."""
    caption_cells, script_cells = (
        _paper_cells(evaluation, [(0.01, batch, count) for batch in BATCHES], gap_s)
        for count, gap_s in ((CONCURRENT_REQUESTS, GAP_S), (SCRIPT_CONCURRENCY[0.01], SCRIPT_GAP_S))
    )
    average = _paper_average_waiting(caption_cells)
    plots.paper_line_plot(
        evaluation.out / "table2.png", "Semantic Table 2: predictor batch, latency 0.01 s", BATCHES,
        average,
        "predictor batch", "normalized waiting of all, s a token",
    )  # fmt: skip
    yield from _paper_claims_by_level("table2", "batch 64", 3, PAPER_2, caption_cells, script_cells)
    full, immediate = average["full"], average["immediate"]
    steps = [paper_ratios(later, sooner) for sooner, later in pairwise(full)]
    yield paper_claim(
        "table2.full", "Table 2: full batching, least growth from one batch size to the next, average", None,
        min(steps, key=paper_mean), "ratio", PaperRule.above(1.0), "the paper: 'monotonically increases'",
    )  # fmt: skip
    yield paper_claim(
        "table2.immediate", "Table 2: immediate processing, batch 64 over batch 4, average", 1.0,
        paper_ratios(immediate[-1], immediate[0]), "ratio", PaperRule.near(1.0), "the paper: 'insensitive'",
    )  # fmt: skip


def _paper_claims_by_level(
    table: str,
    what: str,
    place: int,
    paper: dict[str, tuple[tuple[float, ...], ...]],
    caption_cells: Cells,
    script_cells: Cells,
) -> Iterator[Claim]:
    """One column as claims, a row a level; the note has all columns."""
    for batching in BATCHINGS:
        for level, name in enumerate(NAMES):
            paper_row = paper[batching][level]
            yield paper_claim(
                f"{table}.{batching}.{name.replace(' ', '')}",
                f"Table {table[-1]}, {batching}, {name}: waiting at {what}, up to {CONCURRENT_REQUESTS} at once",
                paper_row[place], paper_level_waiting(caption_cells[batching][place], level, True), "s a token",
                PaperRule.near(paper_row[place]), f"all columns {_paper_columns(caption_cells[batching], level)}, paper"
                f" {' '.join(f'{value:.2f}' for value in paper_row)},"
                f" on the script's terms {_paper_columns(script_cells[batching], level)}",
            )  # fmt: skip


def _paper_columns(cells: Sequence[Sequence[Levels]], level: int) -> str:
    return " ".join(f"{paper_mean(paper_level_waiting(cell, level, True)):.2f}" for cell in cells)


def paper_memory(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Eviction by priority and cache-or-recompute where memory is short, which no setting of the paper exercises."""
    for machine in (MAIN, "A5000-7B"):
        runs = {
            variant: evaluation.each("tight", measure_paper_tight, machine, variant)
            for variant in ("cost", "recompute", "swap", "off")
        }
        evictions = paper_mean([run[2] for run in runs["cost"]])
        rarely = paper_mean([run[2] for run in runs["off"]])
        where = f"{machine}, {TIGHT_BLOCKS} KV blocks, up to 20 at once"
        for key, other, place, what in (
            ("off", "off", 0, "urgency 0, eviction by priority over none"),
            ("off-all", "off", 1, "all, eviction by priority over none"),
            ("recompute", "recompute", 1, "all, cache or recompute by Eq. 3 to 6 over always recompute"),
            ("swap", "swap", 1, "all, cache or recompute by Eq. 3 to 6 over always cache"),
        ):
            ratios = paper_ratios([run[place] for run in runs["cost"]], [run[place] for run in runs[other]])
            rule = PaperRule.below(1.0) if key == "off" else PaperRule.at_most(1.01)
            if all(ratio == 1.0 for ratio in ratios):
                rule = NOT_EXERCISED  # both always decided alike
            yield paper_claim(
                f"memory.{machine}.{key}", f"Waiting of {what} ({where})", None, ratios, "ratio", rule,
                f"{evictions:.0f} evictions a run by priority, {rarely:.0f} where only a standstill evicts;"
                " the paper gives no number",
            )  # fmt: skip
