"""One replay from trace to result."""

import time
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import cast, get_args

from timely.core.errors import InvalidInput, Unsupported, check_name
from timely.disciplines import registry
from timely.engines.base import Mode
from timely.engines.replay_types import Backend, PlannedTask, Progress, ReplayOptions
from timely.replay import results

BACKENDS: dict[str, str] = {"sim": "timely.engines.sim.simulator", "vllm": "timely.engines.vllm.replay"}
"""Engine name -> module whose ``replay_backend()`` gives a ``Backend``. Only the one asked for is imported."""

EVICTIONS = ("discipline", "recompute", "swap", "auto")

MOST = {"estimate_factor": 1000.0, "estimate_noise": 10.0}
"""Largest factor on estimates, and largest sigma of their noise, whose factors stay finite."""


def load_replay_backend(engine: str) -> Backend:
    """The replay engine of that name.

    Raises:
        UnknownName: no such engine.
        Unsupported: it is not installed; says how to get it.
    """
    check_name("engine", engine, BACKENDS, where="engine")
    try:
        if engine == "vllm" and find_spec("vllm") is None:
            raise ModuleNotFoundError("no module named 'vllm'", name="vllm")
        module = import_module(BACKENDS[engine])
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"engine {engine!r} is not installed (missing {error.name}); install timely-serving[{engine}]",
            where="engine",
        ) from error
    return cast(Backend, module.replay_backend())


def replay_through_engine(
    tasks: Iterable[PlannedTask],
    options: ReplayOptions,
    *,
    engine: str = "sim",
    trace: str = "",
    progress: Progress | None = None,
) -> results.Result:
    """Run ``tasks`` through an engine and give the result as plain data (see ``results.build_replay_result``).

    Raises:
        UnknownName: unknown engine, discipline, mode or profile.
        InvalidInput: another option or the profile is unusable. EngineFailed: the engine died.
    """
    registry.load_discipline(options.discipline)
    check_name("mode", options.mode, get_args(Mode), where="mode")
    check_name("eviction", options.eviction, EVICTIONS, where="eviction")
    for name, most in MOST.items():
        value = getattr(options, name)
        if not 0.0 <= value <= most:
            raise InvalidInput(f"must be from 0 to {most:g}, got {value}", where=name)
    if options.until_s is not None and not options.until_s >= 0.0:
        raise InvalidInput(f"must be 0 s or more, got {options.until_s}", where="until")
    if options.mode == "whole":
        # A reader gets the first token with the last one.
        tasks = (replace(task, by_first_token=False) for task in tasks)
    backend = load_replay_backend(engine)
    begin_s = time.perf_counter()
    run = backend.replay(tasks, options, progress)
    wall_s = time.perf_counter() - begin_s
    return results.build_replay_result(run, options, engine=engine, trace=trace, wall_s=wall_s)
