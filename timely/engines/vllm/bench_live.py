"""The paper's comparison on the real engine, in real time: systems in turn on the same trace, one process each.

``timely bench live`` runs it; beside each run stands what the simulator predicts for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from timely.core.errors import EngineFailed
from timely.engines.base import Mode
from timely.engines.replaying import BackendRun, PlannedTask, ReplayOptions
from timely.engines.vllm.engine import VllmEngine
from timely.engines.vllm.replay import VllmBackend, replay_options

SYSTEMS: dict[str, tuple[str, Mode]] = {
    "timely": ("timely", "segmented"),
    "pud": ("pud", "segmented"),
    "edf": ("edf", "segmented"),
    "fcfs": ("fcfs", "segmented"),
    "vllm-stream": ("fcfs", "stream"),
    "vllm": ("fcfs", "whole"),
}
"""System -> discipline and mode, as TimelyLLM section 7.1 has them."""


async def compare(
    tasks: Sequence[PlannedTask],
    options: ReplayOptions,
    systems: Sequence[str],
    repetitions: int,
    arguments: tuple[str, ...] = (),
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, list[BackendRun]]:
    """Replay ``tasks`` under every system, in turn, ``repetitions`` times.

    One engine a mode is started and kept; disciplines are switched on it, so that all share one warm machine.
    """
    runs: dict[str, list[BackendRun]] = {name: [] for name in systems}
    engines: dict[Mode, VllmEngine] = {}
    try:
        for repetition in range(repetitions):
            for name in systems:
                discipline, mode = SYSTEMS[name]
                chosen = replace(options, discipline=discipline, mode=mode)
                engine = engines.get(mode)
                if engine is None:
                    for other in list(engines):
                        await engines.pop(other).stop()
                    engine = engines[mode] = VllmEngine(replay_options(chosen, arguments))
                    await engine.start()
                await engine.set_discipline(discipline)
                run = await VllmBackend(engine).run(list(tasks), chosen)
                unfinished = sum(record.outcome != "complete" for record in run.records)
                if unfinished:
                    raise EngineFailed(f"{unfinished} of {len(run.records)} tasks did not end", where=name)
                runs[name].append(run)
                say(f"{repetition + 1}/{repetitions} {name}: {run.end_s:.0f} s")
    finally:
        for engine in engines.values():
            await engine.stop()
    return runs


def summaries(
    runs: dict[str, list[BackendRun]], summarise: Callable[[BackendRun], Any]
) -> dict[str, list[Any]]:
    """Each run's summary, by system."""
    return {name: [summarise(run) for run in group] for name, group in runs.items()}
