"""The five pictures of the results' page. One system, ours, stands out in all of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timely.bench.papers.seed_statistics import Interval

OURS_COLOUR, OTHER_COLOUR = "#c8442c", "#9aa3ad"
LINES = ("#3d6fb4", "#3b8454", "#7a5ea8", "#c9a227", "#3d9a9a", "#a0522d")
COLOUR_BY_NAME = {"vllm": "#5c6570", "vllm-stream": "#9aa3ad"}

Pairs = Mapping[str, Sequence[tuple[float, float]]]


COLUMNS = 3
"""Most panels beside each other."""

DPI = 130


def _bench_plot_panels(count: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """A figure of panels, each of that width and height, inches."""
    from matplotlib.figure import Figure

    columns = min(count, COLUMNS)
    rows = -(-count // columns)
    figure = Figure((width * columns, height * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels[:count]:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    for panel in panels[count:]:
        panel.set_axis_off()
    return figure, panels[:count]


def _bench_plot_colours(systems: Sequence[str], ours: str) -> dict[str, str]:
    others = [system for system in systems if system != ours and system not in COLOUR_BY_NAME]
    return {
        **COLOUR_BY_NAME,
        **{system: LINES[number % len(LINES)] for number, system in enumerate(others)},
        ours: OURS_COLOUR,
    }


def _set_bench_plot_log_log(panel: Any) -> None:
    from matplotlib.ticker import LogLocator

    panel.set(xscale="log", yscale="log")
    for axis in (panel.xaxis, panel.yaxis):
        # Also within a decade, since a panel often holds less than one.
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")


def plot_ranked_bars(
    path: Path, title: str, groups: Mapping[str, Mapping[str, Interval]], unit: str, ours: str
) -> None:
    """A panel a group: its systems as horizontal bars with intervals, the largest at the top, each with its value."""
    most = max(len(values) for values in groups.values())
    figure, panels = _bench_plot_panels(len(groups), 3.5, 0.8 + 0.24 * most)
    for panel, (group, values) in zip(panels, groups.items(), strict=True):
        ranking = sorted(values, key=lambda system: values[system])
        means = [values[system][0] for system in ranking]
        bars = panel.barh(
            ranking, means, height=0.72,
            xerr=[
                [mean - values[system][1] for system, mean in zip(ranking, means, strict=True)],
                [values[system][2] - mean for system, mean in zip(ranking, means, strict=True)],
            ],
            error_kw={"elinewidth": 0.9, "ecolor": "#333333"},
            color=[OURS_COLOUR if system == ours else OTHER_COLOUR for system in ranking],
        )  # fmt: skip
        panel.bar_label(bars, fmt="{:.0f}", padding=2, fontsize=7)
        panel.set_title(group, fontsize=9)
        panel.set_xlabel(unit, fontsize=8)
        panel.margins(x=0.15)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=DPI)


def plot_log_curves(
    path: Path,
    title: str,
    groups: Mapping[str, Pairs],
    x_label: str,
    y_label: str,
    ours: str,
    *,
    marks: Sequence[float],
) -> None:
    """A panel a group: values from 0 to 1 over loads on a logarithmic axis; dotted lines at ``marks``."""
    figure, panels = _bench_plot_panels(len(groups), 3.6, 3.2)
    colours = _bench_plot_colours(
        list(dict.fromkeys(name for curves in groups.values() for name in curves)), ours
    )
    for panel, (group, curves) in zip(panels, groups.items(), strict=True):
        for system, points in curves.items():
            panel.plot(
                [load for load, _ in points], [share for _, share in points], color=colours[system], label=system,
                lw=2.2 if system == ours else 1.3, zorder=3 if system == ours else 2,
            )  # fmt: skip
        for mark in marks:
            panel.axhline(mark, color="#777777", lw=0.7, ls=":")
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(lambda load, _: f"{load:g}" if load >= 1.0 else f"1/{1.0 / load:g}")
        panel.set_ylim(-0.02, 1.02)  # a curve at 0 stands clear of the axis
        panel.set_title(group, fontsize=9)
        panel.set_xlabel(x_label, fontsize=8)
        panel.legend(fontsize=7, frameon=False, loc="lower left")
    panels[0].set_ylabel(y_label, fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=DPI)


def plot_heat_map(
    path: Path, title: str, columns: Sequence[str], rows: Mapping[str, Sequence[float]], ours: str
) -> None:
    """Shares of the best, from 0 to 1, a row a discipline."""
    figure, (panel,) = _bench_plot_panels(1, 1.6 + 0.95 * len(columns), 1.3 + 0.24 * len(rows))
    image = panel.imshow(list(rows.values()), cmap="YlGnBu", vmin=0.0, vmax=1.15, aspect="auto")
    panel.set_xticks(range(len(columns)), columns, rotation=30, ha="right", rotation_mode="anchor")
    panel.set_yticks(range(len(rows)), rows)
    for place, (name, values) in enumerate(rows.items()):
        for column, value in enumerate(values):
            panel.text(
                column, place, f"{value:.2f}", ha="center", va="center", fontsize=7,
                color=_bench_plot_text_colour(image.to_rgba(value)),
            )  # fmt: skip
        if name == ours:
            panel.get_yticklabels()[place].set(color=OURS_COLOUR, fontweight="bold")
    panel.spines[:].set_visible(False)
    panel.set_title(title, fontsize=10)
    figure.savefig(path, dpi=DPI)


def _bench_plot_text_colour(background: Sequence[float]) -> str:
    """Black or white, whichever has the higher contrast by WCAG; red, green and blue from 0 to 1."""
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in background[:3]
    ]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if luminance < 0.179 else "black"


def plot_bench_measured_and_predicted(path: Path, title: str, systems: Pairs, unit: str) -> None:
    """Predicted over measured values on logarithmic axes, with the band of 10%."""
    figure, (panel,) = _bench_plot_panels(1, 4.6, 4.2)
    for (system, pairs), colour in zip(systems.items(), (OURS_COLOUR, *LINES), strict=False):
        panel.plot(
            [measurement for measurement, _ in pairs], [prediction for _, prediction in pairs], "o", ms=4, color=colour,
            label=system,
        )  # fmt: skip
    values = [value for pairs in systems.values() for pair in pairs for value in pair if value > 0.0]
    ends = (0.8 * min(values, default=0.1), 1.25 * max(values, default=1.0))
    panel.plot(ends, ends, color="#555555", lw=0.8)
    panel.fill_between(
        ends, [0.9 * end for end in ends], [1.1 * end for end in ends], color="#555555", alpha=0.12, lw=0
    )
    _set_bench_plot_log_log(panel)
    panel.set(xlim=ends, ylim=ends)
    panel.set_xlabel(f"measured, {unit}", fontsize=8)
    panel.set_ylabel(f"simulated, {unit}", fontsize=8)
    panel.legend(fontsize=7, frameon=False)
    panel.set_title(title, fontsize=10)
    figure.savefig(path, dpi=DPI)


def plot_frontiers(
    path: Path,
    pairs: Sequence[tuple[str, str, Mapping[str, tuple[float, float]]]],
    fronts: Sequence[Sequence[str]],
    ours: str,
) -> None:
    """A panel a pair of measures: each discipline a point, and the front of those that no other beats on both."""
    figure, panels = _bench_plot_panels(len(pairs), 4.6, 3.8)
    for panel, (first, second, points), front in zip(panels, pairs, fronts, strict=True):
        panel.plot(*zip(*(points[name] for name in front), strict=True), color="#777777", lw=0.9, zorder=1)
        for name, point in points.items():
            panel.plot(
                *point, "o", ms=7 if name == ours else 4, color=OURS_COLOUR if name == ours else "#3d6fb4",
                zorder=3 if name == ours else 2,
            )  # fmt: skip
            if name == ours or name in front:
                # No point lies to the left of the front and below it; the name of ours stands above those.
                panel.annotate(
                    name, point, textcoords="offset points", fontsize=7, ha="right",
                    xytext=(-4, 4 if name == ours else -4), va="bottom" if name == ours else "top",
                )  # fmt: skip
        _set_bench_plot_log_log(panel)
        panel.margins(0.2, 0.12)
        panel.set_xlabel(first, fontsize=8)
        panel.set_ylabel(second, fontsize=8)
    figure.savefig(path, dpi=DPI)
