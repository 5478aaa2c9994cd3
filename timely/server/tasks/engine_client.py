"""The engine with a deadline for every call."""

import asyncio
import math
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar

from timely.core.clock import AsyncClock, first_done_on_clock
from timely.core.errors import EngineDied, EngineFailed, Overloaded, TooLarge
from timely.core.hints import RequestHints
from timely.core.reports import ExecutionReport
from timely.core.utility import TimeUtility
from timely.disciplines import registry
from timely.disciplines.requirements import discipline_reads
from timely.engines.base import Engine, EngineStats, ResponsePrediction
from timely.server.settings import ServerSettings
from timely.server.tasks.engine_heartbeat import PERIOD_S
from timely.server.tasks.engine_supervisor import TaskEngineSupervisor

Answer = TypeVar("Answer")

SWITCH_S = 60.0
"""Deadline of another discipline: some load a model first."""

STATS_FRESH_S = 0.1
"""Age of a snapshot until the engine is asked for another, seconds."""

ANSWER_S = 0.5
"""So long a snapshot is waited for, seconds: probes of a server's health wait for 1 s."""

MAX_PREDICTIONS = 100
"""Most predictions that are kept."""


class EngineClient:
    """Calls one engine. A call that it does not answer in time raises EngineFailed.

    Args:
        engine: the engine; its generations are read without this class.
    """

    def __init__(self, engine: Engine, settings: ServerSettings, clock: AsyncClock) -> None:
        self.engine = engine
        self.supervisor = TaskEngineSupervisor(engine, settings, clock)
        self._settings = settings
        self._clock = clock
        self._stats: EngineStats | None = None
        self._last_stats: EngineStats | None = None
        self._stats_s = -math.inf
        """When the question was sent whose answer is the last snapshot, and the latest one, seconds on the clock."""
        self._asked_s = -math.inf
        self._predictions: dict[
            tuple[TimeUtility, tuple[str, ...]], tuple[float, ResponsePrediction | None]
        ] = {}
        """Time and value of the latest prediction for each utility behind certain tasks."""
        self._query: asyncio.Task[EngineStats] | None = None
        """The question that concurrent callers wait for."""
        self._infos: list[dict[str, Any]] | None = None

    async def start(self) -> None:
        """Load the model, which may take a minute: the only wait here without a deadline.

        Raises:
            EngineFailed: it could not start.
        """
        await self.supervisor.start()

    async def stop(self) -> None:
        """Stop the engine; always returns."""
        await self.supervisor.end()
        await self.supervisor.stop_engine()

    async def report(self, task_id: str, report: ExecutionReport) -> None:
        await self._within_deadline(self.engine.report(task_id, report))

    async def cancel(self, task_id: str) -> bool:
        """End a generation; False if there is none."""
        return await self._within_deadline(self.engine.cancel(task_id))

    async def count_tokens(self, text: str) -> int:
        """Tokens of a text under the model's tokenizer."""
        return len(await self._within_deadline(self.engine.tokenize(text)))

    async def check_length(self, prompt: str) -> None:
        """Raise TooLarge unless the prompt fits the model."""
        limit = self.engine.max_prompt_tokens
        # A token is at least a byte, so only a prompt of more bytes than that needs the tokenizer.
        if len(prompt.encode()) <= limit:
            return
        tokens = await self.count_tokens(prompt)
        if tokens > limit:
            raise TooLarge(f"the prompt has {tokens} tokens; the limit is {limit}", where="prompt")

    async def predict_response(
        self, utility: TimeUtility, ahead: Mapping[str, RequestHints]
    ) -> ResponsePrediction | None:
        """When a new request would be served; None: not known. At most ``STATS_FRESH_S`` old.

        Args:
            ahead: as in ``Engine.predict_response``.
        """
        now, key = self._clock.now(), (utility, tuple(ahead))
        predicted_s, prediction = self._predictions.get(key, (-math.inf, None))
        if now - predicted_s > STATS_FRESH_S:
            try:
                prediction = await self._within_deadline(self.engine.predict_response(utility, ahead))
            except EngineFailed:
                return None
            if len(self._predictions) >= MAX_PREDICTIONS:
                self._predictions.clear()
            self._predictions[key] = (now, prediction)
        return prediction

    def note_admission(self) -> None:
        """A task has been admitted, so predictions before it no longer hold."""
        self._predictions.clear()

    async def check_response_time(
        self, utility: TimeUtility, ahead: Mapping[str, RequestHints], deadline_s: float, sure_s: float
    ) -> float | None:
        """Check that a new request would be served in time; either limit may be infinite.

        Returns the predicted time of service, seconds; None: there is no limit, or it is not known.

        Args:
            ahead: as in ``Engine.predict_response``.
            deadline_s: its first segment is expected before, seconds on the clock.
            sure_s: its first segment comes before that all but surely, with room for urgent tasks to come; on the
                clock, too.

        Raises:
            Overloaded: it would not.
        """
        if deadline_s == sure_s == math.inf:
            return None
        prediction = await self.predict_response(utility, ahead)
        if prediction is None:
            return None
        # The engine may have answered after a step, which counts.
        now = self._clock.now()
        deadline_s, sure_s = deadline_s - now, sure_s - now
        forecast = f"the first segment would come after about {prediction.eta_s:.2f} s"
        if prediction.eta_s > deadline_s:
            # A server that was suspended may come to a request when its time is over.
            limit = f"the limit is {deadline_s:.3g} s" if deadline_s > 0.0 else "its time is over"
            problem = f"{forecast}; {limit}"
        elif not prediction.comes_before(sure_s, urgent=utility.urgent):
            problem = f"{forecast}, at most {prediction.upper_s:.2f} s; the limit is {sure_s:.3g} s"
        else:
            return prediction.eta_s
        raise Overloaded(problem, where="deadline_s", eta_s=prediction.eta_s)

    @property
    def silent_s(self) -> float:
        """Since the latest question that the engine has answered, seconds."""
        return max(0.0, self._clock.now() - max(self._stats_s, self.supervisor.answered_s))

    async def stats(self) -> EngineStats:
        """A snapshot, at most ``STATS_FRESH_S`` old; concurrent callers share one query.

        Of an engine that has not answered within ``ANSWER_S`` it is the last one, if there is one: a step may take
        longer.

        Raises:
            EngineFailed: no engine runs, or it has left the supervisor's questions unanswered, too.
        """
        now = self._clock.now()
        if self._stats is not None and now - self._stats_s <= STATS_FRESH_S:
            return self._stats
        if self._query is None or self._query.done():
            self._asked_s = now
            self._query = asyncio.create_task(self._ask_stats(), name="engine-stats")
            # Its callers may all have left.
            self._query.add_done_callback(lambda query: query.cancelled() or query.exception())
        query, last_stats, wait_s = self._query, self._last_stats, self._asked_s + ANSWER_S - now
        if last_stats is None:
            return await asyncio.shield(query)
        if wait_s > 0.0:
            async with first_done_on_clock(asyncio.wait([query]), self._clock.sleep(wait_s)):
                pass
        if query.done():
            return query.result()
        self._check_running()
        if self.silent_s >= PERIOD_S + self._settings.engine_timeout_s:
            raise EngineFailed(f"no answer for {self.silent_s:.1f} s", where="engine")
        return self._with_discipline(last_stats)

    async def _ask_stats(self) -> EngineStats:
        asked_s, self._stats = self._asked_s, None
        stats = await self._within_deadline(self.engine.stats())
        self._stats, self._last_stats, self._stats_s = stats, stats, asked_s
        return stats

    async def last_stats(self) -> tuple[EngineStats, str]:
        """A snapshot, and why the engine gives none; then its last one, without generations.

        Raises:
            EngineFailed: it has never given one.
        """
        try:
            return await self.stats(), ""
        except EngineFailed as error:
            if self._last_stats is None:
                raise
            idle = replace(self._last_stats, waiting=0, running=0, parked=0, blocked=0, kv_usage=0.0, jobs=())
            return self._with_discipline(idle), error.message

    def _with_discipline(self, stats: EngineStats) -> EngineStats:
        """An older snapshot with the discipline of now."""
        return replace(stats, discipline=self.supervisor.discipline or stats.discipline)

    async def disciplines(self) -> list[dict[str, Any]]:
        """The disciplines of the engine: the fields of ``DisciplineInfo``."""
        if self._infos is None:
            # Imports every discipline, some with a predictor: not on the loop.
            infos = await asyncio.to_thread(self.engine.disciplines)
            self._infos = [asdict(info) for info in infos]
        return self._infos

    async def reads(self, name: str) -> frozenset[str]:
        """The predictable fields of a request that a discipline reads.

        Raises:
            UnknownName: no such discipline.
        """
        # The first use imports the discipline, some with a predictor: not on the loop.
        return discipline_reads((await asyncio.to_thread(registry.load_discipline, name)).info)

    async def set_urgency(self, task_id: str, urgency: int) -> bool:
        """Change the urgency of a generation; False if there is none.

        Raises:
            Overloaded: no engine runs. Others: as ``Engine.set_urgency``.
        """
        return await self._of_running_engine(self.engine.set_urgency(task_id, urgency))

    async def set_discipline(self, name: str) -> None:
        """Switch the queue discipline while serving.

        Raises:
            UnknownName: no such discipline. Overloaded: no engine runs.
        """
        await self._of_running_engine(self.engine.set_discipline(name), SWITCH_S)
        self.supervisor.discipline = name
        self._stats = None

    async def _of_running_engine(
        self, answer: Coroutine[Any, Any, Answer], limit_s: float | None = None
    ) -> Answer:
        """An answer of the engine; while it is started again the request is refused with the time of the start."""
        try:
            return await self._within_deadline(answer, limit_s)
        except EngineDied as error:
            raise self.supervisor.restarting() from error

    async def _within_deadline(
        self, answer: Coroutine[Any, Any, Answer], limit_s: float | None = None
    ) -> Answer:
        limit_s = limit_s or self._settings.engine_timeout_s
        try:
            self._check_running()
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError as error:
            raise EngineFailed(f"no answer within {limit_s:g} s", where="engine") from error
        finally:
            answer.close()

    def _check_running(self) -> None:
        if not self.supervisor.running:
            raise EngineDied(f"it is being started again: {self.supervisor.problem}", where="engine")
