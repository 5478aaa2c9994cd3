"""The little of matplotlib that plots need, imported only when something is drawn; never opens a window."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lrtrace.errors import BadInput


def new_figure(width_in: float, height_in: float) -> Any:
    """An empty matplotlib figure of that size, inches.

    Raises:
        BadInput: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput("plots need matplotlib: install the extra 'report'") from error
    return Figure(figsize=(width_in, height_in), layout="constrained")


def save(figure: Any, path: Path) -> None:
    """Write it as the suffix says (png, svg, pdf), whole or not at all.

    Raises:
        BadInput: another suffix, or the file cannot be written.
    """
    suffix = path.suffix.lstrip(".").lower()
    if suffix not in ("png", "svg", "pdf"):
        raise BadInput("a plot ends in .png, .svg or .pdf", where=str(path))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        figure.savefig(partial, format=suffix, dpi=120)
        os.replace(partial, path)
    except OSError as error:
        raise BadInput(f"cannot write it: {error.strerror or error}", where=str(path)) from error
    finally:
        partial.unlink(missing_ok=True)
