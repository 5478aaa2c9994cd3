"""Writes the table and the picture of docs/architecture.md from docs/rooms.yaml; ``--check`` only compares."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from generated_files import write_or_check

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, PICTURE = DOCS / "architecture.md", DOCS / "images" / "rooms.svg"
BEGIN, END = "<!-- rooms: written by scripts/write_rooms.py -->", "<!-- end of rooms -->"
HEAD = "| room | holds | may import | libraries | libraries inside functions |\n|---|---|---|---|---|"
BOX_W, BOX_H, GAP_X, GAP_Y, MARGIN = 184, 40, 26, 64, 20
SWEEPS = 12
STYLE = """<style>
  text { font: 13px sans-serif; text-anchor: middle; fill: #1f2328 }
  rect { fill: #eef2f7; stroke: #57606a; rx: 6 }
  path { fill: none; stroke: #8c959f; stroke-width: 1.2; marker-end: url(#tip) }
  marker path { fill: #8c959f; stroke: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } rect { fill: #21262d; stroke: #8b949e }
  }
</style>"""

Rooms = Mapping[str, Mapping[str, Any]]


def table(rooms: Rooms) -> str:
    lists = ("imports", "libraries", "in_functions")
    rows = (
        f"| `{name}` | {row['holds']} | "
        + " | ".join(" ".join(f"`{item}`" for item in row.get(key, ())) for key in lists)
        + " |"
        for name, row in rooms.items()
    )
    return "\n".join((HEAD, *rows))


def wing(module: str) -> str:
    """The box that a module is drawn in: ``timely.X``, or a package beside ``timely``."""
    return ".".join(module.split(".")[: 2 if module.startswith("timely.") else 1])


def edges(rooms: Rooms) -> dict[str, set[str]]:
    """Box -> boxes below it, without arrows that follow from others.

    A door to a single module, which may point upwards, is left out, and so is the version in ``timely``.
    """
    boxes = {wing(name) for name in rooms} - {"timely"}
    below: dict[str, set[str]] = {name: set() for name in boxes}
    for name, row in rooms.items():
        whole = {wing(door) for door in row.get("imports", ()) if door in rooms or wing(door) == door}
        if name != "timely":
            below[wing(name)] |= (whole & boxes) - {wing(name)}
    below_all = {name: _reach(below, name) for name in boxes}
    return {
        name: {door for door in doors if not any(door in below_all[other] for other in doors - {door})}
        for name, doors in below.items()
    }


def _reach(below: Mapping[str, set[str]], start: str) -> set[str]:
    open_, reachable = list(below[start]), set[str]()
    while open_:
        name = open_.pop()
        if name not in reachable:
            reachable.add(name)
            open_ += below[name]
    return reachable


def picture(rooms: Rooms) -> str:
    """The boxes in rows, each above all that it imports, as SVG."""
    below = edges(rooms)
    rows, links = _rows(below)
    middle = _middles(rows, links)
    height = 2 * MARGIN + (len(rows) - 1) * (BOX_H + GAP_Y) + BOX_H
    width = 2 * MARGIN + max(_row_width(names) for names in rows)
    top = {
        name: height - MARGIN - BOX_H - row * (BOX_H + GAP_Y)
        for row, names in enumerate(rows)
        for name in names
    }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">',
        STYLE,
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker>',
    ]
    for start, stop in sorted((name, door) for name in below for door in below[name]):
        place, path = start, f"M{middle[start]:g} {top[start] + BOX_H:g}"
        while place != stop:
            place, before = next(n for n in links[place] if n == stop or n.endswith(f"{start}>{stop}")), place
            half = GAP_Y / 2
            from_y, to_y = top[before] + BOX_H, top[place]
            bends = f"{middle[before]:g} {from_y + half:g} {middle[place]:g} {to_y - half:g}"
            path += f"C{bends} {middle[place]:g} {to_y:g}"
            path += "" if place == stop else f"V{to_y + BOX_H:g}"
        lines.append(f'<path d="{path}"/>')
    for name in sorted(below):
        x, y = middle[name] - BOX_W / 2, top[name]
        lines.append(f'<rect x="{x:g}" y="{y:g}" width="{BOX_W}" height="{BOX_H}"/>')
        lines.append(f'<text x="{middle[name]:g}" y="{y + BOX_H / 2 + 5:g}">{name}</text>')
    return "\n".join((*lines, "</svg>")) + "\n"


def _rows(below: Mapping[str, set[str]]) -> tuple[list[list[str]], dict[str, list[str]]]:
    """The rows from below, and the links down; an arrow over several rows has a gap in each row between."""
    level: dict[str, int] = {}

    def level_of(name: str) -> int:
        if name not in level:
            level[name] = 1 + max((level_of(door) for door in below[name]), default=-1)
        return level[name]

    rows: list[list[str]] = [[] for _ in range(1 + max(level_of(name) for name in below))]
    links: dict[str, list[str]] = {name: [] for name in below}
    for name in sorted(below):
        rows[level[name]].append(name)
        for door in sorted(below[name]):
            above = name
            for row in range(level[name] - 1, level[door], -1):
                gap = f"{row}:{name}>{door}"
                rows[row].append(gap)
                links.setdefault(above, []).append(gap)
                above = gap
            links.setdefault(above, []).append(door)
    return rows, links


def _row_width(names: Sequence[str]) -> float:
    return sum(_width(name) for name in names) + GAP_X * (len(names) - 1)


def _width(name: str) -> float:
    return 0 if ">" in name else BOX_W


def _middles(rows: list[list[str]], links: Mapping[str, list[str]]) -> dict[str, float]:
    """Where the middle of each box is; rows are ordered so that arrows run steeply."""
    width = max(_row_width(names) for names in rows)
    parents: dict[str, list[str]] = {}
    for name, doors in links.items():
        for door in doors:
            parents.setdefault(door, []).append(name)
    middle: dict[str, float] = {}

    def spread(names: list[str]) -> None:
        x = MARGIN + (width - _row_width(names)) / 2
        for name in names:
            middle[name] = x + _width(name) / 2
            x += _width(name) + GAP_X

    for names in rows:
        spread(names)
    for sweep in range(SWEEPS):
        near = links if sweep % 2 == 0 else parents
        for names in rows if sweep % 2 == 0 else rows[::-1]:
            places = {n: [middle[other] for other in near.get(n, ())] or [middle[n]] for n in names}
            names.sort(key=lambda name: (sum(places[name]) / len(places[name]), name))
            spread(names)
    return middle


def main(arguments: list[str]) -> int:
    """Write page and picture, or with ``--check`` say whether they are up to date; 0 if they are."""
    rooms: Rooms = yaml.safe_load((DOCS / "rooms.yaml").read_text())["rooms"]
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    texts = {PAGE: f"{head}{BEGIN}\n{table(rooms)}\n{END}{tail}", PICTURE: picture(rooms)}
    return write_or_check(__file__, texts, check=arguments == ["--check"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
