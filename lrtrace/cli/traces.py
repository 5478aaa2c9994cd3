"""``lrtrace stats`` and ``lrtrace sort``: summarise a trace, or order its jobs by arrival."""

from pathlib import Path
from typing import Annotated

import typer

from lrtrace.cli.output import JsonFile, Output, Plot, print_lrtrace_result
from lrtrace.stats import COLUMNS, plot_trace_stats, trace_stats
from lrtrace.trace import Trace, write_trace


def lrtrace_stats_command(
    trace: Annotated[Path, typer.Argument(metavar="TRACE")], plot: Plot = None, json_file: JsonFile = None
) -> None:
    """Summarise a trace.

    Arrivals, tokens, execution times, and how many robots are busy at once.
    """
    stats = trace_stats(trace)
    if plot is not None:
        plot_trace_stats(stats, plot)
    values = stats.summary()
    lines = [
        f"{values['name'] or trace}: {values['jobs']} jobs in {values['duration_s']:.1f} s, {values['agents']} agents",
        "classes: " + ", ".join(f"{count} {name}" for name, count in values["by_class"].items()),
        "skill sets: " + ", ".join(f"{count} {name}" for name, count in values["by_skill_set"].items()),
        f"tasks in progress: {values['busy']['mean']:.1f} on average, {values['busy']['peak']} at most",
        f"{'':28}{'mean':>10}{'min':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}",
    ]
    for name, words in COLUMNS.items():
        if (column := values[name]) is not None:
            cells = "".join(f"{value:>10.4g}" for value in column.values())
            lines.append(f"{words:28}{cells}")
    print_lrtrace_result(json_file, values, lines)


def lrtrace_sort_command(
    trace: Annotated[Path, typer.Argument(metavar="TRACE")], output: Output, json_file: JsonFile = None
) -> None:
    """Order the jobs of a trace by arrival."""
    source = Trace(trace)
    jobs = write_trace(output, source.header, source.jobs_by_arrival())
    print_lrtrace_result(json_file, {"trace": str(output), "jobs": jobs}, [f"{output}: {jobs} jobs"])
