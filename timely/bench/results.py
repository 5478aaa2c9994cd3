"""The page of results: five pictures out of the JSON files of other benchmarks, each with the command it comes from."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from timely.bench import result_plots as plots
from timely.bench.capacity.report import best_rival_ratio, robots_with_interval
from timely.bench.papers.seed_statistics import Interval
from timely.core.errors import InvalidInput
from timely.core.files import core_write_file

Value = Mapping[str, Any]

CURVES = 5
"""Systems whose share in time is drawn over the load: ours and the best others, besides those of stock vLLM."""

STOCK = ("vllm-stream", "vllm")

FRONTIERS = (
    ("spikes up to 100, level 0, s a token", "the same, all levels"),
    ("uncertain lengths at 8/s, TTLT, s", "the same, TTFT"),
)
"""Pairs of columns of which no discipline is best in both: the first task or the last, the urgent or all."""

NEAR_BEST = 0.95


def write_bench_results_page(
    page: Path, capacity: Sequence[Value], cross: Value, live: Value, ours: str = "timely"
) -> None:
    """Write the page, and its pictures into the folder ``images`` beside it.

    Each file names the command that wrote it.

    Args:
        capacity: what ``timely bench capacity --json`` wrote, by call: of all workloads, or some systems of some.
        cross: what ``timely bench cross --json`` wrote.
        live: what ``timely bench live --json`` wrote.
        ours: the discipline whose row and lines stand out.

    Raises:
        InvalidInput: a file has not the keys of its benchmark.
    """
    images = page.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    sections: tuple[tuple[str, Sequence[Value], Callable[[], list[str]]], ...] = (
        ("capacity", capacity, lambda: _bench_page_robots(images, capacity, ours)),
        ("capacity", capacity, lambda: _bench_page_share_over_load(images, capacity, ours)),
        ("cross", [cross], lambda: _bench_page_cross_table(images, cross, ours)),
        ("live", [live], lambda: _bench_page_simulated_and_measured(images, live)),
        ("cross", [cross], lambda: _bench_page_frontier(images, cross, ours)),
    )
    lines = ["# Results", "", "Five pictures, and the command behind each.", ""]
    commands: set[str] = set()
    for benchmark, results, section in sections:
        lines += [*_bench_page_section(benchmark, results, section, is_first=benchmark not in commands), ""]
        commands.add(benchmark)
    core_write_file(page, "\n".join(lines).rstrip() + "\n")


def _bench_page_section(
    benchmark: str, results: Sequence[Value], section: Callable[[], list[str]], *, is_first: bool
) -> list[str]:
    """The section and its commands; a later one of the same benchmark refers to those."""
    try:
        commands = [f".venv/bin/{result['command']}" for result in results]
        text = section()
    except (KeyError, TypeError, IndexError) as error:
        raise InvalidInput(f"is no result of `timely bench {benchmark} --json`", where=benchmark) from error
    if is_first:
        return [*text, "", "```bash", *commands, "```"]
    return [*text, f"The values are of the runs of `timely bench {benchmark}` above."]


def _bench_page_workloads(capacity: Sequence[Value]) -> dict[str, dict[str, Value]]:
    """The rows of all results, by workload and system."""
    workloads: dict[str, dict[str, Value]] = {}
    for result in capacity:
        for name, rows in result["workloads"].items():
            workloads.setdefault(name, {}).update(rows)
    return workloads


def _bench_page_robots(images: Path, capacity: Sequence[Value], ours: str) -> list[str]:
    workloads = _bench_page_workloads(capacity)
    plots.plot_ranked_bars(
        images / "results-robots.png", "Robots on one machine with 99% of the urgent tasks in time, with 95% intervals",
        {
            name: {system: robots_with_interval(name, row) for system, row in rows.items()}
            for name, rows in workloads.items()
        },
        "robots", ours,
    )  # fmt: skip
    lines = [
        "## Robots on one machine",
        "",
        "![Robots that each system carries, by workload](images/results-robots.png)",
        "",
        f"Simulated, profile `{capacity[0]['profile']}`, {capacity[0]['seeds']} seeds.",
        "Each system has the token budget that suits it; see [capacity](capacity.md).",
        "In brackets is the 95% interval over the seeds.",
        f"The last column compares the load with 90% of all tasks in time: `{ours}` over the best other.",
        "",
        f"| workload | robots under `{ours}` | best other | its robots | ratio | 90% of all tasks |",
        "|---|---|---|---|---|---|",
    ]
    for name, rows in workloads.items():
        ratio = best_rival_ratio(rows, ours)
        beside = "none carries any |  | "
        if ratio is not None:
            beside = f"`{ratio[1]}` | {_bench_page_cell(robots_with_interval(name, rows[ratio[1]]))} | {ratio[0]:.2f}"
        of_all = best_rival_ratio(rows, ours, "all_90")
        last = "" if of_all is None else f"{of_all[0]:.2f} (`{of_all[1]}`)"
        lines.append(
            f"| `{name}` | {_bench_page_cell(robots_with_interval(name, rows[ours]))} | {beside} | {last} |"
        )
    return lines


def _bench_page_cell(interval: Interval) -> str:
    robots, low, high = interval
    return f"{robots:.0f} ({low:.0f} to {high:.0f})"


def _bench_page_share_over_load(images: Path, capacity: Sequence[Value], ours: str) -> list[str]:
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name, rows in _bench_page_workloads(capacity).items():
        ranking = sorted(rows, key=lambda system: (-rows[system]["load_99"], -rows[system]["load_90"]))
        best = [system for system in ranking if system not in STOCK][: CURVES - len(STOCK)]
        curves = dict.fromkeys([ours, *best, *(system for system in STOCK if system in rows)])
        panels[name] = {system: [tuple(point) for point in rows[system]["curve"]] for system in curves}
    plots.plot_log_curves(
        images / "results-load.png", "Tasks in time over load", panels, "load (1: as published)",
        "share of the urgent tasks in time", ours, marks=(0.9, 0.99),
    )  # fmt: skip
    return [
        "## In time over load",
        "",
        "![The share of urgent tasks in time over the load, by workload](images/results-load.png)",
        "",
        "A workload without urgent tasks counts all.",
        "Dotted: 90 and 99%.",
    ]


def _bench_page_label(column: str) -> str:
    """The name of a column up to its measure."""
    return column.partition(" new prompt tokens")[0] if column.startswith("WID") else column.partition(",")[0]


def _bench_page_cross_table(images: Path, cross: Value, ours: str) -> list[str]:
    rows, better, headline = cross["rows"], cross["better"], cross["headline"]
    best = {
        column: (max if better[column] == "higher" else min)(row[column] for row in rows.values())
        for column in headline
    }
    # 1 where it is the best; a tenth where it takes ten times as long, or has a tenth of the utility.
    share = {
        name: [
            max(0.0, row[column] / best[column] if better[column] == "higher" else best[column] / row[column])
            for column in headline
        ]
        for name, row in rows.items()
    }
    order = sorted(share, key=lambda name: (name != ours, -math.prod(share[name])))
    plots.plot_heat_map(
        images / "results-cross.png", "Every discipline on every paper's headline, as a share of the best",
        [_bench_page_label(column) for column in headline], {name: share[name] for name in order}, ours,
    )  # fmt: skip
    worst = min(range(len(headline)), key=lambda place: share[ours][place])
    near = sum(value >= NEAR_BEST for value in share[ours])
    near_all = [f"`{name}`" for name in order if min(share[name]) >= NEAR_BEST]
    return [
        "## Every discipline on every paper's workload",
        "",
        "![The cross table as a heat map](images/results-cross.png)",
        "",
        f"Simulated, {cross['seeds']} seeds, the same settings everywhere.",
        "All columns are on the page of [all disciplines](papers/all-disciplines.md).",
        f"`{ours}` is within 5% of the best on {near} of {len(headline)} headlines.",
        f"Within 5% on all of them: {', '.join(near_all) or 'none'}.",
        f"`{ours}` is worst on {_bench_page_label(headline[worst])}, with {share[ours][worst]:.2f} of the best.",
    ]


def _bench_page_simulated_and_measured(images: Path, live: Value) -> list[str]:
    pairs: dict[str, list[tuple[float, float]]] = {}
    for rows in live["workloads"].values():
        for system, row in rows.items():
            points = pairs.setdefault(system, [])
            points += [
                (row["measured"][name], row["predicted"][name])
                for name in row["measured"]
                if name.startswith(("response", "waiting"))
            ]
    plots.plot_bench_measured_and_predicted(
        images / "results-simulator.png", "Response and waiting times, simulated and measured", pairs, "s"
    )
    return [
        "## Simulated and measured",
        "",
        "![Predicted over measured times](images/results-simulator.png)",
        "",
        f"On {', '.join(live['workloads'])}, on the machine at hand; see [the simulator](simulator.md).",
        f"Mean error of response times {live['mean_error']:.1%}, worst {live['worst_error']:.1%}.",
        f"The same system is ahead in {live['same_winner']:.0%} of the pairs.",
    ]


def _bench_page_frontier(images: Path, cross: Value, ours: str) -> list[str]:
    rows = cross["rows"]
    pairs = [
        (first, second, {name: (row[first], row[second]) for name, row in rows.items()})
        for first, second in FRONTIERS
        if {first, second} <= cross["better"].keys()
    ]
    fronts = [bench_pareto_front(points) for _, _, points in pairs]
    axis_pairs = [
        (first, second.replace("the same", _bench_page_label(first)), points)
        for first, second, points in pairs
    ]
    plots.plot_frontiers(images / "results-frontier.png", axis_pairs, fronts, ours)
    return [
        "## What excludes each other",
        "",
        "![Two pairs of measures, each discipline a point](images/results-frontier.png)",
        "",
        "Lower is better on both axes; the line joins the disciplines that no other beats on both.",
        *(
            f"On {_bench_page_label(first)} the line joins {', '.join(f'`{name}`' for name in front)};"
            f" `{ours}` is {'' if ours in front else 'not '}on it."
            for (first, _, _), front in zip(pairs, fronts, strict=True)
        ),
    ]


def bench_pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Names of the points that no other beats in both values (lower is better), by the first value."""
    front: list[str] = []
    for name in sorted(points, key=lambda name: points[name]):
        if not front or points[name][1] < points[front[-1]][1]:
            front.append(name)
    return front
