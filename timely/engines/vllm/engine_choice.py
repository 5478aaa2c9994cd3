"""Which of several engines a task gets, chosen in the front-end.

vLLM's own front-end takes the engine with the fewest requests, and a parked plan counts as one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from timely.core.errors import EngineFailed
from timely.core.job import JobSpec
from timely.engines.base import GenerationRequest, Mode, engine_job_spec
from timely.routing.forecast import ReportedRoutingQueue, RoutingEngineLoad
from timely.routing.reported_load import read_routing_load
from timely.routing.routers import LeastLoss

REPORT_S = 0.1
"""Between two reports of the engines' loads, seconds; vLLM's own counts come as often."""


class VllmEngineChoice:
    """Chooses by the least loss of utility, from what the engines last reported.

    A task that was sent after a report counts as one that waits in that engine.

    Args:
        engines: how many there are.
        ask: gets their reports, in order.
    """

    def __init__(self, engines: int, ask: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]) -> None:
        self._ask = ask
        self._router = LeastLoss()
        self._loads: list[RoutingEngineLoad] = []
        self._sent_jobs: list[tuple[float, int, JobSpec]] = []
        """Time, engine and job of each task since the latest report was asked for."""
        self._prompts: list[dict[str, Sequence[int]]] = [{} for _ in range(engines)]
        """Of each engine, the latest prompt of each skill set."""

    async def follow(self, live: Collection[str]) -> None:
        """Read the engines' reports until one came after the last live task, or an engine does not answer."""
        while True:
            is_over, asked_s = not live, time.monotonic()
            try:
                self.update(asked_s, await self._ask())
            except EngineFailed:
                self._loads.clear()
                return
            if is_over:
                return
            await asyncio.sleep(REPORT_S)

    def update(self, asked_s: float, reports: Sequence[Mapping[str, Any]]) -> None:
        """The engines reported what they had after ``asked_s``, on the host's monotonic clock."""
        self._loads = [read_routing_load(report) for report in reports]
        # A task that was chosen for just before may have reached its engine after the question.
        self._sent_jobs = [entry for entry in self._sent_jobs if entry[0] > asked_s - REPORT_S]
        for _, engine, spec in self._sent_jobs:
            self._queue(engine).add(spec)

    def choose(self, request: GenerationRequest, prompt: Sequence[int], mode: Mode, now: float) -> int | None:
        """The engine of a task that is sent now; None before the first report, for vLLM to choose."""
        if not self._loads:
            return None
        spec = engine_job_spec(
            request.task_id,
            now,
            request.hints,
            mode,
            plain=not (request.skill_set or (request.forced and request.forced.segments)),
            prompt_tokens=len(prompt),
            cached_tokens=0,
            max_tokens=request.max_tokens,
        )
        loads = [
            replace(
                load, cached_tokens=_vllm_common_prefix_tokens(prompts.get(request.skill_set, ()), prompt)
            )
            for load, prompts in zip(self._loads, self._prompts, strict=True)
        ]
        engine = self._router.choose(spec, loads, now)
        spec = replace(spec, cached_tokens=loads[engine].cached_tokens)
        self._sent_jobs.append((now, engine, spec))
        self._queue(engine).add(spec)
        self.note_prompt(engine, request.skill_set, prompt)
        return engine

    def note_prompt(self, engine: int, skill_set: str, prompt: Sequence[int]) -> None:
        """An engine computes that prompt, so the next one of its skill set finds its beginning in the cache."""
        self._prompts[engine][skill_set] = prompt

    def _queue(self, engine: int) -> ReportedRoutingQueue:
        return cast(ReportedRoutingQueue, self._loads[engine].table)


def _vllm_common_prefix_tokens(first: Sequence[int], second: Sequence[int]) -> int:
    """Tokens that both begin with."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))
