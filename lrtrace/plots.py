"""Makes and saves figures. Matplotlib is imported only when needed, and never opens a window."""

from pathlib import Path
from typing import Any

from lrtrace.errors import BadInput
from lrtrace.files import replaced_trace_file


def new_lrtrace_figure(width_in: float, height_in: float) -> Any:
    """An empty figure of that size, inches; raises BadInput without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput("plots need matplotlib: install the extra 'report'") from error
    return Figure(figsize=(width_in, height_in), layout="constrained")


def save_lrtrace_figure(figure: Any, path: Path) -> None:
    """Write the figure in the format of its suffix (png, svg, pdf), whole or not at all.

    Raises:
        BadInput: another suffix, or the file cannot be written.
    """
    name = lrtrace_figure_format(path)
    with replaced_trace_file(path) as partial:
        figure.savefig(partial, format=name, dpi=120)


def lrtrace_figure_format(path: Path) -> str:
    """The format that a figure's suffix names. Raises BadInput on another suffix."""
    suffix = path.suffix.lstrip(".").lower()
    if suffix not in ("png", "svg", "pdf"):
        raise BadInput("a plot ends in .png, .svg or .pdf", where=str(path))
    return suffix
