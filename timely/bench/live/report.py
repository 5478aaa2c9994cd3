"""The report of a live comparison: measured values beside predicted ones, and where the prediction holds."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from timely.bench.live.prediction import DRIFT_WINDOW_S, LiveBenchPredictor
from timely.bench.live.runs import LiveBenchRuns

CLOSE = 0.10
"""Relative error within which a prediction of response times holds."""

DIFFERENT = 0.05
"""Systems whose values differ by more than this should be predicted in the same order."""

MEASURES: dict[str, tuple[str, ...]] = {
    "utility, urgent": ("by_class", "urgent", "utility_mean"),
    "utility, normal": ("by_class", "normal", "utility_mean"),
    "response p50": ("response_s", "p50"),
    "response p90": ("response_s", "p90"),
    "response mean": ("response_s", "mean"),
    "waiting mean": ("waiting_s", "mean"),
}
"""Name -> path in the summary of a result."""

RESPONSES = ("response p50", "response p90")
"""Measures that are compared with the prediction one by one."""

RANKED_VALUES = (*RESPONSES, "response mean", "waiting mean", "utility, urgent", "utility, normal")
"""Measures by which systems are compared.

Utilities may be near zero. Their difference counts as a share of the maximum, where that is the larger one.
"""


def make_live_bench_report(runs: LiveBenchRuns, profile_name: str) -> dict[str, Any]:
    """Measured and predicted values, and where the prediction holds.

    ``{"settings", "profile", "door_s", "offered_load": {workload: load}, "mean_error", "worst_error", "same_winner",
    "drift", "close": [...], "pairs": [...], "workloads": {workload: {system: {"runs", "measured", "by_repetition",
    "predicted", "range", "load_before"}}}}``: means over the repetitions that all systems have, the prediction's over
    its simulations too, ``range`` the least and greatest of these. ``drift`` has the least and greatest factor of step
    times in predictions that follow how the machine drifted.
    """
    predictor = LiveBenchPredictor(runs, profile_name)
    workloads: dict[str, Any] = {}
    for workload in runs.settings.workloads:
        rows = {
            system: _live_bench_row(predictor, workload, system, by_repetition)
            for system, by_repetition in runs.comparable(workload).items()
        }
        if rows:
            workloads[workload] = rows
    close = [row for name, rows in workloads.items() for row in live_bench_prediction_errors(name, rows)]
    pairs = [row for name, rows in workloads.items() for row in compare_live_bench_pairs(name, rows)]
    factors = [factor for drift in predictor.drifts for factor in drift.factors.values()]
    return {
        "settings": asdict(runs.settings),
        "profile": predictor.profile.name,
        "door_s": round(predictor.admission_s, 6),
        "offered_load": {workload: predictor.offered_load(workload) for workload in workloads},
        **live_bench_simulator_accuracy(close, pairs),
        "drift": [min(factors), max(factors)] if factors else None,
        "workloads": workloads,
        "close": close,
        "pairs": pairs,
    }


def live_bench_simulator_accuracy(
    close: Sequence[Mapping[str, Any]], pairs: Sequence[Mapping[str, Any]]
) -> dict[str, float | None]:
    """``mean_error`` and ``worst_error`` of predicted responses, and the share of pairs with the ``same_winner``.

    None where there is nothing to compare.
    """
    errors = [abs(row["error"]) for row in close]
    return {
        "mean_error": statistics.mean(errors) if errors else None,
        "worst_error": max(errors, default=None),
        "same_winner": statistics.mean(float(row["holds"]) for row in pairs) if pairs else None,
    }


def _live_bench_row(
    predictor: LiveBenchPredictor, workload: str, system: str, runs: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    samples = [
        [
            live_bench_summary_values(summary)
            for summary in predictor.predict(system, workload, repetition, run)
        ]
        for repetition, run in runs.items()
    ]
    classes = next(iter(runs.values()))["summary"]["by_class"]
    values = {repetition: live_bench_summary_values(run["summary"]) for repetition, run in runs.items()}
    names = [name for name in MEASURES if all(name in value for value in values.values())]
    return {
        "runs": len(runs),
        "jobs": sum(run["summary"]["jobs"] for run in runs.values()),
        "load_before": max(run.get("load_before", 0.0) for run in runs.values()),
        "share_served": min(run["summary"]["share_served"] for run in runs.values()),
        "measured": {name: statistics.mean(value[name] for value in values.values()) for name in names},
        "by_repetition": {
            name: {repetition: value[name] for repetition, value in values.items()} for name in names
        },
        "predicted": {
            name: statistics.mean(sample[name] for of_run in samples for sample in of_run) for name in names
        },
        "range": {name: _live_bench_range(samples, name) for name in names},
        "most": {f"utility, {name}": group["utility_max_mean"] or 0.0 for name, group in classes.items()},
    }


def _live_bench_range(samples: Sequence[Sequence[Mapping[str, float]]], name: str) -> tuple[float, float]:
    """Least and greatest mean over the repetitions, with one simulation of each."""
    means = [statistics.mean(sample[name] for sample in group) for group in zip(*samples, strict=False)]
    return min(means), max(means)


def live_bench_summary_values(summary: Mapping[str, Any]) -> dict[str, float]:
    """The measures of a result's summary; without those of a class that has no tasks."""
    values: dict[str, float] = {}
    for name, path in MEASURES.items():
        node: Any = summary
        for key in path:
            node = node[key]
        if node is not None:
            values[name] = float(node)
    return values


def live_bench_prediction_errors(
    workload: str, rows: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The relative error of each predicted response time."""
    result = []
    for (system, row), name in itertools.product(rows.items(), RESPONSES):
        if name not in row["measured"]:
            continue
        live, prediction = row["measured"][name], row["predicted"][name]
        least, greatest = row["range"][name]
        error = prediction / live - 1.0
        result.append(
            {
                "workload": workload,
                "system": system,
                "measure": name,
                "measured": live,
                "predicted": prediction,
                "error": error,
                "holds": abs(error) <= CLOSE,
                "range": row["range"][name],
                "inside": least <= live <= greatest,
            }
        )
    return result


def compare_live_bench_pairs(workload: str, rows: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every two systems that differ by more than ``DIFFERENT``, and whether the prediction has the same winner.

    ``agreed``: the same system was ahead in every repetition.
    """
    result = []
    for name, (first, second) in itertools.product(RANKED_VALUES, itertools.combinations(rows, 2)):
        a, b = rows[first], rows[second]
        if name not in a["measured"] or name not in b["measured"]:
            continue
        live = a["measured"][name] - b["measured"][name]
        scale = max(a["most"].get(name, 1e-9), abs(a["measured"][name]), abs(b["measured"][name]))
        if abs(live) <= DIFFERENT * scale:
            continue
        difference = a["predicted"][name] - b["predicted"][name]
        result.append(
            {
                "workload": workload,
                "measure": name,
                "systems": [first, second],
                "measured": live,
                "predicted": difference,
                "agreed": _do_live_bench_pairs_agree(a["by_repetition"][name], b["by_repetition"][name]),
                "holds": live * difference > 0.0,
            }
        )
    return result


def _do_live_bench_pairs_agree(first: Mapping[int, float], second: Mapping[int, float]) -> bool:
    ahead = {first[repetition] > second[repetition] for repetition in first.keys() & second.keys()}
    return len(ahead) == 1


def live_bench_report_text(report: Mapping[str, Any]) -> str:
    """The report as Markdown tables: measured / predicted."""
    lines = []
    for workload, rows in report["workloads"].items():
        first = next(iter(rows.values()))
        seconds = report["settings"]["workloads"][workload]
        names = [name for name in MEASURES if name in first["measured"]]
        lines += [
            f"{workload}, {seconds:.0f} s, {first['jobs']} tasks in {first['runs']} runs, offered load"
            f" {report['offered_load'][workload]:.2f}; measured / predicted by `{report['profile']}`",
            "",
            f"| system | runs | {' | '.join(names)} |",
            f"|---|---|{'---|' * len(names)}",
        ]
        for system, row in rows.items():
            cells = [f"{row['measured'][name]:.3f} / {row['predicted'][name]:.3f}" for name in names]
            lines.append(f"| {system} | {row['runs']} | {' | '.join(cells)} |")
        lines.append("")
    if report["drift"] is not None:
        least, greatest = report["drift"]
        lines.append(
            f"The predictions follow how the machine drifted in each run: over {DRIFT_WINDOW_S:.0f} s, steps took"
            f" {least:.2f} to {greatest:.2f} times as long as fitted to the run."
        )
    return "\n".join(
        [*lines, *_live_bench_closeness_lines(report["close"]), *_live_bench_pair_lines(report["pairs"])]
    )


def _live_bench_closeness_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    worst = max(rows, key=lambda row: abs(row["error"]))
    near = sum(row["holds"] for row in rows)
    return [
        f"Response p50 and p90 within {CLOSE:.0%} of the prediction: {near} of {len(rows)};"
        f" the worst {worst['error']:+.0%} ({worst['workload']}, {worst['system']}, {worst['measure']}),"
        f" {statistics.mean(abs(row['error']) for row in rows):.1%} on average;"
        f" {sum(row['inside'] for row in rows)} within the range of its simulations."
    ]


def _live_bench_pair_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    wrong = [row for row in rows if not row["holds"]]
    clear_rows = [row for row in rows if row["agreed"]]
    return [
        f"Same winner in {len(rows) - len(wrong)} of {len(rows)} pairs that differ by more than {DIFFERENT:.0%}, in"
        f" {sum(row['holds'] for row in clear_rows)} of the {len(clear_rows)} with the same winner in every"
        f" repetition{':' if wrong else '.'}",
        *(
            f"- {row['workload']}, {row['measure']}: {' - '.join(row['systems'])} is {row['measured']:+.3f}, predicted"
            f" {row['predicted']:+.3f}"
            + ("" if row["agreed"] else " (not the same winner in every repetition)")
            for row in wrong
        ),
    ]
