"""Writes the table of rooms in docs/architecture.md from docs/rooms.yaml; ``--check`` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- rooms: written by scripts/write_rooms.py -->", "<!-- end of rooms -->"
HEAD = "| room | holds | may import | libraries | libraries inside functions |\n|---|---|---|---|---|"


def table() -> str:
    """The rooms as a Markdown table."""
    rooms: dict[str, dict[str, list[str]]] = yaml.safe_load((DOCS / "rooms.yaml").read_text())["rooms"]
    lists = ("imports", "libraries", "in_functions")
    rows = (
        f"| `{name}` | {row['holds']} | "
        + " | ".join(" ".join(f"`{item}`" for item in row.get(key, ())) for key in lists)
        + " |"
        for name, row in rooms.items()
    )
    return "\n".join((HEAD, *rows))


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` say whether it is up to date; 0 if it is."""
    page = DOCS / "architecture.md"
    before = page.read_text()
    head, _, rest = before.partition(BEGIN)
    _, _, tail = rest.partition(END)
    after = f"{head}{BEGIN}\n{table()}\n{END}{tail}"
    if after == before:
        return 0
    if arguments == ["--check"]:
        print(
            f"{page}: the table differs from rooms.yaml; run python scripts/write_rooms.py", file=sys.stderr
        )
        return 1
    page.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
