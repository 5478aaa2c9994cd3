"""The live terminal view of the demonstration: per robot what it executes, what its generation does, its slack."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

STATE_STYLES = {
    "running": "bold green",
    "parked": "cyan",
    "blocked": "magenta",
    "waiting": "yellow",
    "evicted": "red",
}

WIDE = 110
"""A terminal of so many columns has room for all of a table."""


def render_demo(
    status: Mapping[str, Any], robots: Sequence[str], elapsed_s: float, total_s: float, width: int
) -> RenderableType:
    """One frame.

    Args:
        status: the server's ``GET /v1/status``.
        robots: agents to show, idle ones too.
        elapsed_s, total_s: of the demonstration, seconds.
        width: of the terminal, characters; a narrow one shows fewer columns.
    """
    wide = width >= WIDE
    return Group(
        *_demo_head(status["engine"], elapsed_s, total_s),
        Panel(_demo_robots_table(status["robots"], robots, wide), title="robots", border_style="dim"),
        Panel(_demo_recent_table(status["recent"], wide), title="done", border_style="dim"),
    )


def _demo_head(engine: Mapping[str, Any], elapsed_s: float, total_s: float) -> list[RenderableType]:
    progress = Table.grid(padding=(0, 2), expand=True)
    progress.add_column()
    progress.add_column(ratio=1)
    progress.add_row(
        f"{elapsed_s:.0f} s of {total_s:.0f}", ProgressBar(total=total_s, completed=min(elapsed_s, total_s))
    )
    values = [
        Text.assemble("discipline ", (str(engine["discipline"]), "bold")),
        Text(f"step {1000 * engine['step_s']:.1f} ms"),
        Text(f"decision {1e6 * engine['decide_s']:.0f} µs"),
        Text(f"KV {100 * engine['kv_usage']:.0f}%"),
        Text(f"running {engine['running']}", style=STATE_STYLES["running"]),
        Text(f"parked {engine['parked']}", style=STATE_STYLES["parked"]),
        Text(f"waiting {engine['waiting']}", style=STATE_STYLES["waiting"]),
        Text(f"recomputed {engine['recomputed_tokens']}"),
    ]
    return [progress, Columns(values, padding=(0, 2))]


def _demo_table(texts: dict[str, int], numbers: dict[str, int]) -> Table:
    """A table over the whole line: columns of texts with their widths, then of numbers; width 0 takes what is left."""
    table = Table(box=None, expand=True, pad_edge=False)
    for name, width in (texts | numbers).items():
        table.add_column(
            name,
            justify="left" if name in texts else "right",
            width=width or None,
            ratio=None if width else 1,
            no_wrap=True,
            overflow="ellipsis",
        )
    return table


def _demo_robots_table(lines: Sequence[Mapping[str, Any]], robots: Sequence[str], wide: bool) -> Table:
    bar = {"": 12} if wide else {}
    table = _demo_table(
        {"robot": 7, "class": 6, "task": 0, "executes": 0, **bar, "generation": 10},
        {"slack": 8, "segments": 8},
    )
    by_agent: dict[str, list[Mapping[str, Any]]] = {robot: [] for robot in robots}
    for line in lines:
        by_agent.setdefault(str(line["agent"]), []).append(line)
    for agent, tasks in by_agent.items():
        if not tasks:
            table.add_row(agent, style="dim")
        for line in tasks:
            table.add_row(agent, *_demo_robot_row(line, wide))
    return table


def _demo_robot_row(line: Mapping[str, Any], wide: bool) -> list[RenderableType]:
    executing = line["executing"]
    progress: RenderableType = ""
    if executing:
        progress = ProgressBar(
            total=max(executing["execution_s"], 1e-3), completed=executing["elapsed_s"], width=12
        )
    generation = line["generation"] or ("finished" if line["state"] != "generating" else "")
    slack = line["slack_s"]
    urgent = line["class"] == "urgent"
    return [
        Text(line["class"], style="bold red" if urgent else ""),
        Text(line["task"]),
        Text(executing["text"] if executing else ("without a segment" if line["dry"] else "")),
        *([progress] if wide else []),
        Text(generation, style=STATE_STYLES.get(generation, "dim")),
        Text(
            "" if slack is None else f"{slack:+.2f} s", style="red" if slack is not None and slack < 0 else ""
        ),
        Text(str(line["segments"])),
    ]


def _demo_recent_table(lines: Sequence[Mapping[str, Any]], wide: bool) -> Table:
    rest = {"waiting": 8, "segments": 8} if wide else {}
    table = _demo_table(
        {"robot": 7, "class": 6, "task": 0, "outcome": 10}, {"response": 8, "utility": 11, **rest}
    )
    for line in lines[:8]:
        table.add_row(
            line["agent"],
            Text(line["class"], style="bold red" if line["class"] == "urgent" else ""),
            Text(line["task"]),
            Text(line["outcome"], style="green" if line["outcome"] == "complete" else "red"),
            _demo_seconds_text(line["response_time_s"]),
            "" if line["utility"] is None else f"{line['utility']:.2f} of {line['utility_max']:g}",
            *([_demo_seconds_text(line["waiting_time_s"]), str(line["segments"])] if wide else []),
        )
    return table


def demo_summary(tasks: Sequence[Mapping[str, Any]]) -> Table:
    """The table at the end: response, waiting, utility and share served per class.

    Args:
        tasks: views of all tasks (``GET /v1/tasks/{id}``).
    """
    table = Table(title="What the robots saw")
    table.add_column("class")
    for name in ("tasks", "served", "response (median)", "waiting (median)", "utility (mean)", "of maximum"):
        table.add_column(name, justify="right")
    for kind, group in _demo_urgency_classes(tasks):
        complete_tasks = [task for task in group if task["outcome"] == "complete"]
        utilities = [task["utility"] for task in group if task["utility"] is not None]
        best = sum(task["tuf"]["beta"] for task in group) / len(group)
        mean = sum(utilities) / len(utilities) if utilities else float("nan")
        table.add_row(
            kind,
            str(len(group)),
            f"{100 * len(complete_tasks) / len(group):.0f}%",
            _demo_seconds_text(_demo_median([task["response_time_s"] for task in group])),
            _demo_seconds_text(_demo_median([task["waiting_time_s"] for task in group])),
            f"{mean:.2f}",
            f"{100 * mean / best:.0f}%",
        )
    return table


def demo_out_of_reach(tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each class in which even the fastest task got its first segment late.

    It tells a reader that the processor, not the discipline, is the limit.
    """
    lines = []
    for kind, group in _demo_urgency_classes(tasks):
        answered_tasks = [task for task in group if task["response_time_s"] is not None]
        if not answered_tasks:
            continue
        quickest = min(answered_tasks, key=lambda task: float(task["response_time_s"] - task["tuf"]["ert_s"]))
        if quickest["response_time_s"] > quickest["tuf"]["ert_s"]:
            lines.append(
                f"No {kind} task had its first segment in time: wanted within "
                f"{_demo_seconds_text(quickest['tuf']['ert_s'])}, "
                f"the quickest took {_demo_seconds_text(quickest['response_time_s'])}. On this machine the model needs "
                "longer for a prompt and a first segment, in whatever order tasks run."
            )
    return lines


def _demo_urgency_classes(
    tasks: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """``urgent`` and ``normal`` with their tasks, where there are any."""
    for kind in ("urgent", "normal"):
        group = [task for task in tasks if (task["tuf"]["ert_s"] < 0.5) == (kind == "urgent")]
        if group:
            yield kind, group


def _demo_median(values: Sequence[float | None]) -> float | None:
    present = sorted(value for value in values if value is not None)
    return present[len(present) // 2] if present else None


def _demo_seconds_text(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"
