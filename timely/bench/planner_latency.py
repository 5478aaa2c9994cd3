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
from timely.planner.cases.generate import DRAWN, generate
from timely.plans.skill_library import find_skill_set

if TYPE_CHECKING:
    from timely.engines.vllm.engine import VllmEngine
    from timely.planner.cases.case import Case

DEADLINE_S = 60.0
PLANNER, WITH_EXAMPLES, UNTRAINED = "planner", "planner, examples", "untrained, examples"
"""The ways of asking."""

WARM_UP = 3
"""Tasks a skill set that are asked but not counted."""


@dataclass(frozen=True, slots=True)
class First:
    """A task's first segment: after how many milliseconds it was there, how many tokens it has, its text."""

    ms: float
    tokens: int
    text: str


@dataclass(slots=True)
class Measured:
    """One way of asking: the first segment of each task that gave it one, by the task's number.

    ``missing``: how many tasks gave it none.
    """

    way: str
    skill_set: str
    cold: bool
    firsts: dict[int, First] = field(default_factory=dict)
    missing: int = 0

    @property
    def median_ms(self) -> float:
        """Of all tasks; 0 if there are none."""
        return statistics.median(self._times) if self.firsts else 0.0

    @property
    def quartiles_ms(self) -> tuple[float, float]:
        """The middle half of the tasks lies between."""
        if len(self.firsts) < 2:
            return self.median_ms, self.median_ms
        low, _, high = statistics.quantiles(self._times, n=4)
        return low, high

    @property
    def mean_tokens(self) -> float:
        """Of the first segment."""
        return statistics.mean(first.tokens for first in self.firsts.values()) if self.firsts else 0.0

    @property
    def _times(self) -> list[float]:
        return [first.ms for first in self.firsts.values()]


@dataclass(frozen=True, slots=True)
class Paired:
    """Both prompts on the tasks for which they got the same first segment: what is left is what the prompts cost.

    Attributes:
        tasks: how many. ratio: median of the time without examples over that with them; None without any.
    """

    skill_set: str
    cold: bool
    tasks: int
    ratio: float | None


def paired(found: Sequence[Measured]) -> list[Paired]:
    """The planner without examples over the planner with them, for each skill set, cached and cold."""
    with_examples = {(one.skill_set, one.cold): one.firsts for one in found if one.way == WITH_EXAMPLES}
    result = []
    for one in found:
        if one.way != PLANNER:
            continue
        theirs = with_examples[one.skill_set, one.cold]
        ratios = [
            first.ms / theirs[task].ms
            for task, first in one.firsts.items()
            if task in theirs and theirs[task].text == first.text
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
                            if got is None:
                                found[way, name, cold].missing += 1
                            else:
                                found[way, name, cold].firsts[number] = got
        return list(found.values())


async def _first_segment(engine: VllmEngine, case: Case, examples: bool, before: str) -> First | None:
    """The first segment of a task; ``before`` makes a prompt that no cache has seen."""
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
                return First((time.perf_counter() - began) * 1e3, event.tokens, event.text)
    return None
