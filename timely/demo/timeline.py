"""The timeline picture: per robot when it waited and executed, and when the engine worked on its plan."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timely.core.files import replaced_file

URGENT, NORMAL, WAIT, WORK, PARK = "#d1495b", "#2e6f95", "#e9c46a", "#1b1b1b", "#b8c4cc"


@dataclass(slots=True)
class Lane:
    """One task: times in seconds on one axis."""

    agent: str
    task: str
    urgent: bool
    arrival_s: float
    segments: list[tuple[float, float, str]] = field(default_factory=list)
    """(start, end, text) of each executed segment."""
    steps: list[float] = field(default_factory=list)
    """When the engine took a step for this task."""


def demo_timeline_lanes(tasks: Iterable[Mapping[str, Any]], arrivals: Mapping[str, float]) -> list[Lane]:
    """Lanes from task views (``GET /v1/tasks/{id}``), whose times count from their arrival.

    Args:
        arrivals: task id -> arrival on the picture's axis, seconds.
    """
    result = []
    for task in tasks:
        arrival = arrivals[task["task_id"]]
        lane = Lane(task["agent"], task["task"], task["tuf"]["ert_s"] < 0.5, arrival)
        for segment in task["segments"]:
            if segment["start_s"] is not None and segment["end_s"] is not None and segment["started"]:
                lane.segments.append(
                    (arrival + segment["start_s"], arrival + segment["end_s"], segment["text"])
                )
        result.append(lane)
    return result


def read_demo_timeline_steps(journal: Path) -> dict[str, list[float]]:
    """Request id -> seconds after its arrival of each step it took part in, from a scheduling journal.

    Request ids begin with the task's id.
    """
    arrivals_s: dict[str, float] = {}
    steps: dict[str, list[float]] = {}
    for line in journal.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the last line of a process that was ended
        if event.get("event") == "arrive":
            arrivals_s[str(event["job"])] = float(event["t_s"])
        elif event.get("event") == "step":
            for request_id in event["tokens"]:
                if request_id in arrivals_s:
                    steps.setdefault(request_id, []).append(float(event["t_s"]) - arrivals_s[request_id])
    return steps


def draw_demo_timeline(lanes_: Sequence[Lane], path: Path, title: str) -> None:
    """Write the picture (PNG or SVG by suffix). Needs matplotlib (extra ``report``)."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    agents = sorted({lane.agent for lane in lanes_})
    end_of_all = max((segment[1] for lane in lanes_ for segment in lane.segments), default=1.0)
    # A monospace character of this size is about 0.058 inches wide, the axis about 11.5.
    character_s = 0.058 * end_of_all / 11.5
    figure = Figure((13, 1.2 + 1.15 * len(agents)), layout="constrained")
    axis = figure.subplots()
    for row, agent in enumerate(agents):
        base = len(agents) - 1 - row
        for lane in (lane for lane in lanes_ if lane.agent == agent):
            color = URGENT if lane.urgent else NORMAL
            free = lane.arrival_s
            for start, end, text in lane.segments:
                if start - free > 0.01:
                    axis.barh(base, start - free, left=free, height=0.42, color=WAIT, zorder=2)
                axis.barh(
                    base, end - start, left=start, height=0.42, color=color, zorder=2, edgecolor="white",
                    linewidth=0.8,
                )  # fmt: skip
                room = int((end - start) / character_s) - 1
                if room >= 6:
                    label = text.strip() if len(text.strip()) <= room else text.strip()[: room - 1] + "…"
                    axis.text(
                        start + 0.5 * character_s, base, label, va="center", fontsize=6.5, color="white",
                        family="monospace", zorder=3, clip_on=True,
                    )  # fmt: skip
                free = end
            axis.plot([lane.arrival_s], [base + 0.3], marker="v", color=color, markersize=6, zorder=4)
            if lane.steps:
                axis.barh(
                    base - 0.34, max(free, lane.steps[-1]) - lane.steps[0], left=lane.steps[0], height=0.10,
                    color=PARK, zorder=1,
                )  # fmt: skip
                axis.vlines(lane.steps, base - 0.40, base - 0.28, color=WORK, linewidth=0.7, zorder=3)
    axis.set_yticks(range(len(agents)), list(reversed(agents)))
    axis.set_xlabel("seconds")
    axis.set_title(title, loc="left", fontsize=11)
    axis.set_xlim(0.0, 1.01 * end_of_all)
    axis.set_ylim(-0.6, len(agents) - 0.45)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color="#dddddd", linewidth=0.6, zorder=0)
    axis.legend(
        handles=[
            Line2D([], [], color="#555555", marker="v", linestyle="none", label="a task arrives"),
            Patch(color=NORMAL, label="executes (normal task)"),
            Patch(color=URGENT, label="executes (urgent task)"),
            Patch(color=WAIT, label="waits for the plan"),
            Patch(color=WORK, label="a step of the engine for this plan"),
            Patch(color=PARK, label="generation parked"),
        ],
        loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=6, frameon=False, fontsize=8,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced_file(path) as temporary:
        figure.savefig(temporary, dpi=140)
