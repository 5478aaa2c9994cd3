"""``timely planner latency``: how soon the first segment is there, with a planner and with examples in the prompt."""

from __future__ import annotations

import asyncio
import contextlib
import os
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
PLANNER, WITH_EXAMPLES, UNTRAINED = "planner", "planner, examples", "untrained, examples"
"""The ways of asking."""

WARM_UP = 3
"""Tasks a skill set that are asked but not counted."""


@dataclass(slots=True)
class Measured:
    """One way of asking, over all tasks that gave it a segment.

    Attributes:
        first_ms: until the first segment, milliseconds, task by task. tokens, texts: of that segment.
        tasks: their numbers. missing: tasks without any segment.
    """

    way: str
    skill_set: str
    cold: bool
    first_ms: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)
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


@dataclass(frozen=True, slots=True)
class Paired:
    """Two ways on the tasks for which both wrote the same first segment: what is left is what the prompts cost.

    Attributes:
        tasks: how many. ratio: median of this way's time over the other's; None without any.
    """

    skill_set: str
    cold: bool
    tasks: int
    ratio: float | None


def paired(found: Sequence[Measured], way: str = PLANNER, other: str = WITH_EXAMPLES) -> list[Paired]:
    """``way`` over ``other``, for each skill set, cached and cold."""
    result = []
    for one in found:
        if one.way != way:
            continue
        [against] = [
            that
            for that in found
            if (that.way, that.skill_set, that.cold) == (other, one.skill_set, one.cold)
        ]
        theirs = dict(zip(against.tasks, zip(against.texts, against.first_ms, strict=True), strict=True))
        ratios = [
            ms / theirs[task][1]
            for task, text, ms in zip(one.tasks, one.texts, one.first_ms, strict=True)
            if task in theirs and theirs[task][0] == text
        ]
        ratio = statistics.median(ratios) if ratios else None
        result.append(Paired(one.skill_set, one.cold, len(ratios), ratio))
    return result


async def measure(planner: str | None, tasks: int, seed: int, arguments: Sequence[str]) -> list[Measured]:
    """Ask two engines on this machine, one task at a time, each task every way before the next one.

    Ways: the planner without examples, as served; the planner with examples in its prompt (the same weights: what the
    examples cost); the untrained model with examples. Each with its fixed prompt in the prefix cache, and cold.
    """
    # Two engines' notices, up to their farewells, would bury the table; what fails is raised.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
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
            (PLANNER, engines["planner"], False),
            (WITH_EXAMPLES, engines["planner"], True),
            (UNTRAINED, engines["none"], True),
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
                            _note(found[way, name, cold], number, got)
        return list(found.values())


async def _first_segment(
    engine: VllmEngine, case: Case, examples: bool, before: str
) -> tuple[float, SegmentReady] | None:
    """Milliseconds until it, and the segment; ``before`` makes a prompt that no cache has seen."""
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
                return (time.perf_counter() - began) * 1e3, event
    return None


def _note(measured: Measured, task: int, got: tuple[float, SegmentReady] | None) -> None:
    if got is None:
        measured.missing += 1
        return
    ms, segment = got
    measured.first_ms.append(ms)
    measured.tokens.append(segment.tokens)
    measured.texts.append(segment.text)
    measured.tasks.append(task)
