"""Small line charts as inline SVG: no library, no script, readable in light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 10, 40

MAX_POINTS = 1500
"""Points a line is drawn with; more cannot be seen."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: ``css`` is the class that gives its colour; ``area`` fills it down to zero."""

    label: str
    css: str
    x: Sequence[float]
    y: Sequence[float]
    area: bool = False
    step: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A labelled vertical line."""

    x: float
    label: str
    css: str


def replay_svg_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    y_max: float | None = None,
    x_max: float | None = None,
    marks: Sequence[Mark] = (),
) -> str:
    curves = [line for line in lines if len(line.x)]
    if not curves:
        return (
            f'<figure><figcaption>{escape(title)}</figcaption><p class="empty">nothing to show</p></figure>'
        )
    right = x_max if x_max is not None else max(max(line.x) for line in curves)
    left = min(0.0, *(min(line.x) for line in curves))
    top = y_max if y_max is not None else max(max(line.y) for line in curves)
    floor = min(0.0, *(min(line.y) for line in curves))
    right = right if right > left else left + 1.0
    top = top if top > floor else floor + 1.0

    def sx(x: float) -> float:
        return LEFT + (min(x, right) - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def sy(y: float) -> float:
        return TOP + (top - min(max(y, floor), top)) / (top - floor) * (HEIGHT - TOP - BOTTOM)

    middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        *_replay_svg_grid(left, right, floor, top, sx, sy),
        f'<text class="axis" x="{middle_x:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text class="axis" transform="translate(12 {middle_y:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>",
    ]
    for number, mark in enumerate(marks):
        if left <= mark.x <= right:
            x = sx(mark.x)
            parts.append(
                f'<line class="mark {mark.css}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            )
            y = HEIGHT - BOTTOM - 6 - 14 * (number % 2)
            parts.append(f'<text class="mark {mark.css}" x="{x + 4:.1f}" y="{y}">{escape(mark.label)}</text>')
    for line in curves:
        parts += _replay_svg_line(line, sx, sy, sy(max(floor, 0.0)))
    parts.append("</svg>")
    legend = "".join(f'<span class="key {line.css}">{escape(line.label)}</span>' for line in curves)
    return f"<figure><figcaption>{escape(title)}{legend}</figcaption>{''.join(parts)}</figure>"


def _replay_svg_line(line: Line, sx, sy, zero: float) -> list[str]:  # type: ignore[no-untyped-def]
    points = _replay_svg_points(line)
    path, previous = [], None
    for x, y in points:
        if line.step and previous is not None:
            path.append(f"{sx(x):.1f},{previous:.1f}")
        previous = sy(y)
        path.append(f"{sx(x):.1f},{previous:.1f}")
    text = " ".join(path)
    result = []
    if line.area:
        first, last = sx(points[0][0]), sx(points[-1][0])
        result.append(
            f'<polygon class="area {line.css}" points="{first:.1f},{zero:.1f} {text} {last:.1f},{zero:.1f}"/>'
        )
    result.append(f'<polyline class="line {line.css}" points="{text}"/>')
    return result


def _replay_svg_points(line: Line) -> list[tuple[float, float]]:
    """All points of a short line; of a long one the lowest and the highest of each part, so that no peak is lost."""
    count = len(line.x)
    size = math.ceil(2 * count / MAX_POINTS) if count > MAX_POINTS else 1
    places = {0, count - 1}
    for start in range(0, count, size):
        part = range(start, min(count, start + size))
        places |= {min(part, key=line.y.__getitem__), max(part, key=line.y.__getitem__)}
    return [(line.x[place], line.y[place]) for place in sorted(places)]


def _replay_svg_grid(left: float, right: float, floor: float, top: float, sx, sy) -> list[str]:  # type: ignore[no-untyped-def]
    parts = []
    for y in replay_svg_ticks(floor, top, 5):
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{sy(y):.1f}" y2="{sy(y):.1f}"/>'
            f'<text class="tick" x="{LEFT - 6}" y="{sy(y) + 4:.1f}" text-anchor="end">{y:g}</text>'
        )
    for x in replay_svg_ticks(left, right, 8):
        parts.append(
            f'<text class="tick" x="{sx(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:g}</text>'
        )
    return parts


def replay_svg_ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers from ``low`` to ``high``, about that many."""
    raw = (high - low) / max(1, about)
    if not (raw > 0 and math.isfinite(raw)):
        return [low]
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * f for f in (1, 2, 5, 10) if size * f >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + i) * step, 12) for i in range(count)]
