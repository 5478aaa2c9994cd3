"""``timely planner latency``: how soon the first segment is there, with a planner and with examples in the prompt."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from timely.engines.base import GenerationRequest, SegmentReady
from timely.planner.generate import DRAWN, generate
from timely.plans.library import find_skill_set

if TYPE_CHECKING:
    from timely.engines.vllm.engine import VllmEngine
    from timely.planner.cases import Case

DEADLINE_S = 60.0
WARM_UP = 3
"""Tasks a skill set that are asked but not counted."""


@dataclass(slots=True)
class Measured:
    """One way of asking, over all tasks that gave it a segment.

    Attributes:
        first_ms: until the first segment, milliseconds, task by task. tokens: of that segment.
        missing: tasks without any segment.
    """

    way: str
    skill_set: str
    cold: bool
    first_ms: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    missing: int = 0

    @property
    def median_ms(self) -> float:
        """Of all tasks; 0 if there are none."""
        return statistics.median(self.first_ms) if self.first_ms else 0.0

    @property
    def quartiles_ms(self) -> tuple[float, float]:
        """The middle half of the tasks lies between."""
        if len(self.first_ms) < 2:
            return self.median_ms, self.median_ms
        low, _, high = statistics.quantiles(self.first_ms, n=4)
        return low, high

    @property
    def mean_tokens(self) -> float:
        """Of the first segment."""
        return statistics.mean(self.tokens) if self.tokens else 0.0


async def measure(planner: str | None, tasks: int, seed: int, arguments: Sequence[str]) -> list[Measured]:
    """Ask two engines on this machine, one task at a time, each task every way before the next one.

    Ways: the planner without examples, as served; the planner with examples in its prompt (the same weights: what the
    examples cost); the untrained model with examples. Each with its fixed prompt in the prefix cache, and cold.
    """
    from timely.engines.vllm.engine import VllmEngine, VllmOptions

    def options(which: str | None) -> VllmOptions:
        return VllmOptions(
            planner=which, discipline="fcfs", warm_up=tuple(sorted(DRAWN)), arguments=tuple(arguments)
        )

    async with contextlib.AsyncExitStack() as running:
        engines: dict[str, VllmEngine] = {}
        for name, which in (("planner", planner), ("none", "none")):
            engine = VllmEngine(options(which))
            running.push_async_callback(engine.stop)
            await engine.start()
            engines[name] = engine
        ways = (
            ("planner", engines["planner"], False),
            ("planner, examples", engines["planner"], True),
            ("untrained, examples", engines["none"], True),
        )
        found = {
            (way, name, cold): Measured(way, name, cold)
            for name in sorted(DRAWN)
            for way, _, _ in ways
            for cold in (False, True)
        }
        for name in sorted(DRAWN):
            for number, case in enumerate(islice(generate(name, "test", seed), tasks + WARM_UP)):
                # Whoever comes first meets other caches of the processor: the order goes round.
                turned = ways[number % len(ways) :] + ways[: number % len(ways)]
                for way, engine, examples in turned:
                    for cold in (False, True):
                        got = await _first_segment(
                            engine, case, examples, f"{number}, {way}. " if cold else ""
                        )
                        if number >= WARM_UP:
                            _note(found[way, name, cold], got)
        return list(found.values())


async def _first_segment(
    engine: VllmEngine, case: Case, examples: bool, before: str
) -> tuple[float, int] | None:
    """Milliseconds until it, and its tokens; ``before`` makes a prompt that no cache has seen."""
    prompt = case.prompt(find_skill_set(case.skill_set), examples=examples)
    request = GenerationRequest(
        task_id=f"{case.skill_set}-{time.monotonic_ns()}",
        prompt=prompt.user,
        system=before + prompt.system,
        skill_set=case.skill_set,
        max_tokens=96,
        temperature=0.0,
    )
    stream: Any = engine.generate(request)
    began = time.perf_counter()
    async with asyncio.timeout(DEADLINE_S), contextlib.aclosing(stream) as events:
        async for event in events:
            if isinstance(event, SegmentReady):
                return (time.perf_counter() - began) * 1e3, event.tokens
    return None


def _note(measured: Measured, got: tuple[float, int] | None) -> None:
    if got is None:
        measured.missing += 1
        return
    measured.first_ms.append(got[0])
    measured.tokens.append(got[1])
