"""``timely planner latency``: time to the first segment, with a planner and with examples in the prompt."""

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
from timely.planner.cases.generate import GENERATORS, generate_cases
from timely.plans.skill_library import find_skill_set

if TYPE_CHECKING:
    from timely.engines.vllm.engine import VllmEngine
    from timely.planner.cases.case import PlannerCase

DEADLINE_S = 60.0
PLANNER, WITH_EXAMPLES, UNTRAINED = "planner", "planner, examples", "untrained, examples"
"""The ways of prompting."""

WARM_UP = 3
"""Tasks of each skill set that are served but not counted."""


@dataclass(frozen=True, slots=True)
class FirstSegment:
    """A task's first segment: time until it was complete, milliseconds; its tokens; its text."""

    ms: float
    tokens: int
    text: str


@dataclass(slots=True)
class WayResult:
    """The first segments of one way of prompting, by the task's number; ``without_segment`` counts the other tasks."""

    way: str
    skill_set: str
    cold: bool
    firsts: dict[int, FirstSegment] = field(default_factory=dict)
    without_segment: int = 0

    @property
    def median_ms(self) -> float:
        """Median time of all tasks; 0 if there are none."""
        return statistics.median(self._times) if self.firsts else 0.0

    @property
    def quartiles_ms(self) -> tuple[float, float]:
        """First and third quartile of the times."""
        if len(self.firsts) < 2:
            return self.median_ms, self.median_ms
        low, _, high = statistics.quantiles(self._times, n=4)
        return low, high

    @property
    def mean_tokens(self) -> float:
        return statistics.mean(first.tokens for first in self.firsts.values()) if self.firsts else 0.0

    @property
    def _times(self) -> list[float]:
        return [first.ms for first in self.firsts.values()]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two prompts on the tasks for which they got the same first segment, so that only the prompts differ.

    Attributes:
        tasks: their number.
        ratio: median of the time without examples over that with them; None without tasks.
    """

    skill_set: str
    cold: bool
    tasks: int
    ratio: float | None


def compare_planner_bench(results: Sequence[WayResult]) -> list[Comparison]:
    """The planner without examples over the planner with them, for each skill set, cached and cold."""
    with_examples = {(one.skill_set, one.cold): one.firsts for one in results if one.way == WITH_EXAMPLES}
    comparisons = []
    for one in results:
        if one.way != PLANNER:
            continue
        theirs = with_examples[one.skill_set, one.cold]
        ratios = [
            first.ms / theirs[task].ms
            for task, first in one.firsts.items()
            if task in theirs and theirs[task].text == first.text
        ]
        ratio = statistics.median(ratios) if ratios else None
        comparisons.append(Comparison(one.skill_set, one.cold, len(ratios), ratio))
    return comparisons


async def bench_planner_latency(
    planner: str | None, tasks: int, seed: int, arguments: Sequence[str]
) -> list[WayResult]:
    """Measure on two engines, one task at a time; each task is served in every way before the next one.

    The ways are the planner without examples, as served, and the planner with examples in its prompt.
    Their weights are the same, so the difference is the cost of the examples.
    The third way is the untrained model with examples.
    Each way runs with its fixed prompt in the prefix cache, and cold.
    """
    # The messages of two engines would bury the table; errors are raised all the same.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
    from timely.engines.vllm.arguments import VllmOptions
    from timely.engines.vllm.engine import VllmEngine

    def options(which: str | None) -> VllmOptions:
        return VllmOptions(
            planner=which, discipline="fcfs", warm_up=tuple(sorted(GENERATORS)), arguments=tuple(arguments)
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
        results = {
            (way, name, cold): WayResult(way, name, cold)
            for name in sorted(GENERATORS)
            for way, _, _ in ways
            for cold in (False, True)
        }
        for name in sorted(GENERATORS):
            for number, case in enumerate(islice(generate_cases(name, "test", seed), tasks + WARM_UP)):
                # The first way finds other processor caches than the next ones, so the order rotates.
                rotation = ways[number % len(ways) :] + ways[: number % len(ways)]
                for way, engine, examples in rotation:
                    for cold in (False, True):
                        segment = await _measure_planner_bench_first_segment(
                            engine, case, examples, f"{number}, {way}. " if cold else ""
                        )
                        if number >= WARM_UP:
                            if segment is None:
                                results[way, name, cold].without_segment += 1
                            else:
                                results[way, name, cold].firsts[number] = segment
        return list(results.values())


async def _measure_planner_bench_first_segment(
    engine: VllmEngine, case: PlannerCase, examples: bool, before: str
) -> FirstSegment | None:
    """The first segment of a task; ``before`` makes a prompt that is in no cache."""
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
    begin_s = time.perf_counter()
    async with asyncio.timeout(DEADLINE_S), contextlib.aclosing(stream) as events:
        async for event in events:
            if isinstance(event, SegmentReady):
                return FirstSegment((time.perf_counter() - begin_s) * 1e3, event.tokens, event.text)
    return None
