"""Pictures of a paper's figures, ours beside the paper's numbers; nothing where matplotlib is not installed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Any

from timely.bench.papers.seed_statistics import Measured, paper_interval_of_measured

COLOURS = (
    "#8a8f98", "#c9a227", "#3d9a9a", "#7a5ea8", "#c8442c", "#3b8454", "#a0522d", "#5a6e3a", "#d48fb0",
)  # fmt: skip

DPI = 130

GROUP_LABEL_CHARS = 12
"""Longest line of the label below a group of bars."""

COLOUR_BY_NAME = {"TimelyLLM (pud)": "#4f86c6", "timely": "#c8442c", "timely, no limit": "#c8442c"}
"""Systems that look the same in every picture."""


def can_plot_papers() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def _paper_colour(system: str, number: int) -> str:
    return COLOUR_BY_NAME.get(system, COLOURS[number % len(COLOURS)])


@contextmanager
def _paper_figure(
    path: Path, title: str, x_label: str = "", y_label: str = "", *, width: float = 7.0, **legend: Any
) -> Iterator[Any]:
    """The axes to draw on; they get their legend, and are saved, at the end."""
    from matplotlib.figure import Figure

    figure = Figure((width, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    yield axes
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.legend(fontsize=8, frameon=False, **legend)
    figure.savefig(path, dpi=DPI)


def paper_bars(
    path: Path,
    title: str,
    groups: Sequence[str],
    systems: Mapping[str, Sequence[Measured | None]],
    y_label: str,
    *,
    floor: float | None = None,
) -> None:
    """Grouped bars with confidence intervals: for every system one value a group."""
    if not can_plot_papers():
        return
    figure_width = max(7.0, 1.1 * len(groups), 0.25 * len(groups) * len(systems))
    width = 0.8 / len(systems)
    legend = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    with _paper_figure(path, title, "", y_label, width=figure_width, **legend) as axes:
        for number, (system, values) in enumerate(systems.items()):
            shift = (number - (len(systems) - 1) / 2) * width
            first = next((group for group, value in enumerate(values) if value is not None), 0)
            for group, value in enumerate(values):
                if value is None:
                    continue
                mean, low, high = paper_interval_of_measured(value)
                height = mean if floor is None else max(mean, floor)
                axes.bar(
                    group + shift, height, width * 0.92, color=_paper_colour(system, number),
                    yerr=[[max(0.0, mean - low)], [max(0.0, high - mean)]] if height == mean else None,
                    capsize=2, error_kw={"lw": 0.8}, label=system if group == first else None,
                )  # fmt: skip
                if height != mean:
                    axes.annotate(
                        f"{mean:.1f}", (group + shift, height), ha="center", va="bottom", fontsize=7
                    )
        labels = [fill(group, GROUP_LABEL_CHARS, break_long_words=False) for group in groups]
        axes.set_xticks(range(len(groups)), labels, fontsize=8)


def paper_line_plot(
    path: Path,
    title: str,
    x: Sequence[float],
    systems: Mapping[str, Sequence[Measured]],
    x_label: str,
    y_label: str,
    *,
    paper: Mapping[str, tuple[float, float]] | None = None,
    floor: float | None = None,
) -> None:
    """Lines with confidence bands; ``paper`` marks single published points by label."""
    if not can_plot_papers():
        return
    with _paper_figure(path, title, x_label, y_label) as axes:
        for number, (system, values) in enumerate(systems.items()):
            colour = _paper_colour(system, number)
            means, lows, highs = zip(*map(paper_interval_of_measured, values), strict=True)
            axes.plot(x, means, color=colour, label=system, marker="o", ms=3)
            axes.fill_between(x, lows, highs, color=colour, alpha=0.2, lw=0)
        for label, (at, value) in (paper or {}).items():
            axes.plot([at], [value], marker="*", ms=11, color="black")
            axes.annotate(label, (at, value), textcoords="offset points", xytext=(6, 6), fontsize=8)
        if floor is not None:
            axes.set_ylim(bottom=max(floor, axes.get_ylim()[0]))


def paper_cumulative_plot(
    path: Path, title: str, systems: Mapping[str, Sequence[float]], x_label: str, *, x_max: float
) -> None:
    """Cumulative distributions, up to ``x_max``."""
    if not can_plot_papers():
        return
    with _paper_figure(path, title, x_label, "share") as axes:
        for number, (system, values) in enumerate(systems.items()):
            ascending = sorted(values)
            shares = [(place + 1) / len(ascending) for place in range(len(ascending))]
            axes.step(ascending, shares, where="post", color=_paper_colour(system, number), label=system)
        axes.set_xlim(0, x_max)


def paper_timeline(
    path: Path,
    title: str,
    rows: Sequence[tuple[str, Sequence[tuple[float, float, str]]]],
    marks: Mapping[str, float],
) -> None:
    """Spans of (begin, end, kind) a row; kinds ``queued``, ``generating``, ``executing``; marks are vertical lines."""
    if not can_plot_papers():
        return
    colours = {"queued": "#eab464", "generating": "#2867b2", "executing": "#b9d3b0"}
    with _paper_figure(path, title, "seconds after the arrival", width=8.0, loc="lower right") as axes:
        for number, (_, spans) in enumerate(rows):
            for begin, end, kind in spans:
                axes.barh(number, end - begin, left=begin, color=colours[kind], height=0.6)
        for label, at in marks.items():
            axes.axvline(at, color="black", ls="--", lw=0.8)
            axes.annotate(label, (at, len(rows) - 0.55), fontsize=7, ha="left")
        for kind, colour in colours.items():
            axes.barh(-5, 0, color=colour, label=kind)
        axes.set_ylim(-0.6, len(rows) - 0.3)
        axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
