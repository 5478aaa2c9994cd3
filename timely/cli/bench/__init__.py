"""``timely bench``: one module a benchmark, plus the benchmarks that installed packages add.

A benchmark of this package is a module here with a function ``command`` and a line in ``BENCHMARKS``.
A benchmark of another package is an entry point of the group ``timely.bench``: its name, and the command's function.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

import typer

from lrtrace.option_kinds import PlainHelpTyper
from timely.core.errors import Unsupported

GROUP = "timely.bench"
"""Entry point group of the commands that other packages add."""

BENCHMARKS = (
    *("overhead", "plain", "mixed", "decisions", "sim-speed", "closed-loop", "accuracy", "live"),
    *("cross", "compare", "capacity", "routing", "eta", "surge", "gpu", "disciplines-live"),
    *("injection", "restart", "paper", "drafts", "results"),
)
"""Names of this package's benchmarks, in the order of the help; the module is the name with underscores."""

ROS_BENCHMARKS = ("ros", "stop", "faults", "soak")
"""Names of the benchmarks that the ROS 2 package ``timely_ros_bench`` adds."""

ANY_OPTIONS = {"allow_extra_args": True, "ignore_unknown_options": True}


def _bench_cli_not_installed(name: str) -> Callable[[], None]:
    def command() -> None:
        raise Unsupported(
            "the package timely_ros_bench is not installed; `make setup` installs it into .venv",
            where=f"bench {name}",
        )

    return command


def make_app(others: Mapping[str, Callable[..., None]]) -> typer.Typer:
    """All benchmarks as one command group; ``others`` are those of other packages."""
    app = PlainHelpTyper(help="Measure claims of the papers, overheads, latencies.")
    for name in BENCHMARKS:
        module = import_module(f"timely.cli.bench.{name.replace('-', '_')}")
        app.command(name, context_settings=getattr(module, "CONTEXT_SETTINGS", None))(module.command)
    for name, command in others.items():
        app.command(name)(command)
    for name in ROS_BENCHMARKS:
        if name not in others:
            app.command(name, context_settings=ANY_OPTIONS, help="Needs the package timely_ros_bench.")(
                _bench_cli_not_installed(name)
            )
    return app


def __getattr__(name: str) -> typer.Typer:
    """``app``, made when the command runs: a package that adds commands imports this one for its options."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _installed_bench_cli()


@cache
def _installed_bench_cli() -> typer.Typer:
    return make_app({entry.name: entry.load() for entry in entry_points(group=GROUP)})
