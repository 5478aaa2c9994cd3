"""``timely bench``: one module a benchmark, plus the benchmarks of other packages.

A benchmark is a module here with a function ``command`` and a line in ``BENCHMARKS``.
"""

from __future__ import annotations

from importlib import import_module

import typer

app = typer.Typer(help="Measure claims of the papers, overheads, latencies.", no_args_is_help=True)

BENCHMARKS = (
    "overhead",
    "decisions",
    "ros",
    "stop",
    "faults",
    "soak",
    "sim-speed",
    "closed-loop",
    "accuracy",
    "live",
    "cross",
    "disciplines-live",
    "paper",
)
"""Names of the benchmarks, in the order of the help; the module is the name with underscores."""

for _name in BENCHMARKS:
    _module = import_module(f"timely.cli.bench.{_name.replace('-', '_')}")
    app.command(_name, context_settings=getattr(_module, "CONTEXT_SETTINGS", None))(_module.command)
