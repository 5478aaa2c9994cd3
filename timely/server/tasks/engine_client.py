"""The engine as the server uses it: every question with a deadline, every generation closed whatever happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, TypeVar

from timely.core.clock import Clock
from timely.core.errors import EngineFailed, TimelyError, TooLarge
from timely.core.reports import ExecutionReport
from timely.disciplines.base import DisciplineInfo
from timely.disciplines.requirements import reads
from timely.engines.base import Engine, EngineEvent, EngineStats, GenerationRequest
from timely.server.settings import ServerSettings

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

STATS_FRESH_S = 0.1
"""However many pages look, the engine is asked no more often."""


class EngineDoor:
    """Deadlines around one engine.

    Args:
        engine: what is behind the door.
        settings: the deadlines.
        clock: how old a snapshot is.
    """

    def __init__(self, engine: Engine, settings: ServerSettings, clock: Clock) -> None:
        self.engine = engine
        self._settings = settings
        self._clock = clock
        self._stats: EngineStats | None = None
        self._stats_s = float("-inf")
        self._infos: tuple[DisciplineInfo, ...] | None = None

    @property
    def planner_skill_sets(self) -> frozenset[str]:
        """Skill sets whose plans the engine's model was trained on; see ``Engine``."""
        return self.engine.planner_skill_sets

    async def start(self) -> None:
        """Load what is needed, which may take a minute: the one wait here without a deadline of ours.

        Raises:
            EngineFailed: it could not start.
        """
        await self.engine.start()

    async def stop(self) -> None:
        """Stop it; one that does not stop in time is left behind with a line in the log."""
        try:
            async with asyncio.timeout(self._settings.stop_timeout_s):
                await self.engine.stop()
        except TimeoutError:
            log.error("the engine did not stop within %s s", self._settings.stop_timeout_s)
        except TimelyError as error:
            log.error("the engine failed while stopping: %s", error)

    @asynccontextmanager
    async def generating(self, request: GenerationRequest) -> AsyncIterator[AsyncIterator[EngineEvent]]:
        """A generation's events; leaving closes the iterator, which is what frees its KV cache."""
        events = self.engine.generate(request)
        try:
            yield events
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()

    async def report(self, task_id: str, report: ExecutionReport) -> None:
        """See ``Engine.report``; EngineFailed also when it does not answer in time."""
        await self._ask(self.engine.report(task_id, report))

    async def cancel(self, task_id: str) -> bool:
        """See ``Engine.cancel``; EngineFailed also when it does not answer in time."""
        return await self._ask(self.engine.cancel(task_id))

    async def check_length(self, prompt: str) -> None:
        """Whether a prompt fits the model.

        Raises:
            TooLarge: it does not.
        """
        limit = self.engine.max_prompt_tokens
        # A token is at least a byte, so only a prompt of more bytes than that needs the tokenizer.
        if len(prompt.encode()) <= limit:
            return
        tokens = len(await self._ask(self.engine.tokenize(prompt)))
        if tokens > limit:
            raise TooLarge(f"the prompt has {tokens} tokens; the limit is {limit}", where="prompt")

    async def stats(self, *, fresh: bool = False) -> EngineStats:
        """A snapshot, at most ``STATS_FRESH_S`` old, or ``fresh``.

        Raises:
            EngineFailed: the engine is gone.
        """
        now = self._clock.now()
        if fresh or self._stats is None or now - self._stats_s > STATS_FRESH_S:
            self._stats = await self._ask(self.engine.stats())
            self._stats_s = now
        return self._stats

    async def disciplines(self) -> list[dict[str, Any]]:
        """What it can switch to: the fields of ``DisciplineInfo``."""
        if self._infos is None:
            # Imports every discipline, some with a predictor: not on the loop.
            self._infos = await asyncio.to_thread(self.engine.disciplines)
        return [asdict(info) for info in self._infos]

    async def reads(self, name: str) -> frozenset[str]:
        """Which predictable fields of a request that discipline goes by; none for one that is not listed."""
        if self._infos is None:
            # Imports every discipline, some with a predictor: not on the loop.
            self._infos = await asyncio.to_thread(self.engine.disciplines)
        return next((reads(info) for info in self._infos if info.name == name), frozenset())

    async def set_urgency(self, task_id: str, urgency: int) -> bool:
        """See ``Engine.set_urgency``; EngineFailed also when it does not answer in time."""
        return await self._ask(self.engine.set_urgency(task_id, urgency))

    async def set_discipline(self, name: str) -> None:
        """Switch the queue discipline while serving.

        Raises:
            UnknownName: no such discipline.
        """
        await self._ask(self.engine.set_discipline(name))
        self._stats = None

    async def _ask(self, answer: Coroutine[Any, Any, Answer]) -> Answer:
        limit_s = self._settings.engine_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError as error:
            raise EngineFailed(f"no answer within {limit_s:g} s", where="engine") from error
