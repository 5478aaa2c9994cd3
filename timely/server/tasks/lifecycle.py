"""The life of one task after admission: generate, check and release each segment, wait for the execution, settle.

A task is ``generating`` until its plan has ended, then ``executing`` until the robot has finished, then ``ended``. One
coroutine owns each task, so no client and no engine error delays another task.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from timely.core.clock import AsyncClock, clock_timeout, wait_on_clock
from timely.core.errors import Conflict, EngineFailed, InvalidInput, NotAllowed, Overloaded, TimelyError
from timely.core.job import Segment
from timely.core.json_log import LOG_FIELDS, log_fields
from timely.core.reports import ExecutionReport
from timely.engines.base import GenerationDone, GenerationRequest, SegmentReady
from timely.server.settings import ServerSettings
from timely.server.tasks.engine_client import EngineClient
from timely.server.tasks.failover import TaskFailover
from timely.server.tasks.recorder import TaskRecorder
from timely.server.tasks.task import Task, TaskEnding, task_call_data
from timely.server.tasks.task_events import TaskEvents
from timely.server.tasks.task_log import TaskLog
from timely.server.tasks.task_table import TaskTable

log = logging.getLogger(__name__)


class TaskLifecycle:
    """Runs the coroutines of all tasks."""

    def __init__(
        self,
        engine: EngineClient,
        table: TaskTable,
        recorder: TaskRecorder,
        log: TaskLog,
        settings: ServerSettings,
        clock: AsyncClock,
    ) -> None:
        self.draining = False
        self._engine = engine
        self._table = table
        self._recorder = recorder
        self._log = log
        self._settings = settings
        self._clock = clock
        self._releasing = asyncio.Lock()
        self._failover = TaskFailover(engine, recorder, clock)

    # ------------------------------------------------------------------ what the service asks for

    async def begin(self, task: Task, generation: GenerationRequest) -> None:
        """Start a task of the table; returns with its record kept, after the engine's first event or soon without one.

        Raises:
            TimelyError: the engine refused the generation.
        """
        LOG_FIELDS.set(task.log_fields)
        task.pump = asyncio.create_task(self._generate(task, generation), name=f"generate {task.task_id}")
        task.runner = asyncio.create_task(self._run(task), name=f"task {task.task_id}")
        self._count_live()
        async with clock_timeout(self._settings.admission_wait_s):
            await task.answered.wait()
        if task.refusal is not None:
            self.settle(task)
            self._forget(task)
            raise task.refusal
        await self._log.durable()
        if task.state == "generating" and task.grace is None:
            # The client has no open event stream yet, and may never have one.
            task.grace = asyncio.create_task(self._expect_reader(task, self._settings.grace_s))

    def adopt(self, task: Task, generation: GenerationRequest | None) -> None:
        """Go on with a task of an earlier life of the server.

        Args:
            generation: its plan; None if it has ended, or ends now as ``task.ending`` says.
        """
        task.recovered_s, task.resumed = self._clock.now(), True
        self._table.add(task)
        if generation is not None:
            task.pump = asyncio.create_task(self._generate(task, generation), name=f"generate {task.task_id}")
            task.grace = asyncio.create_task(self._expect_reader(task, self._settings.recovery_grace_s))
            self._limit_value_wait(task)
        else:
            task.answered.set()
            task.over.set()
        if task.state == "ended":
            self._table.settle(task)
        task.runner = asyncio.create_task(self._run(task), name=f"task {task.task_id}")
        self._count_live()

    @asynccontextmanager
    async def reading(self, task: Task, *, with_token: bool) -> AsyncIterator[TaskEvents]:
        """Hold a task's events open; a generation with a reader is not cancelled for want of one.

        Args:
            with_token: the reader has the task's token. Such readers have places of their own.

        Raises:
            Overloaded: the task has too many readers.
        """
        similar = task.token_readers if with_token else task.readers - task.token_readers
        if similar >= self._settings.max_readers:
            raise Overloaded(f"the task has {similar} readers", where="readers")
        task.readers += 1
        task.token_readers += with_token
        self._recorder.metrics.readers.inc()
        if task.grace is not None:
            task.grace.cancel()
            task.grace = None
        try:
            yield task.events
        finally:
            task.readers -= 1
            task.token_readers -= with_token
            self._recorder.metrics.readers.dec()
            if task.readers == 0 and task.state == "generating" and not self.draining:
                task.grace = asyncio.create_task(self._expect_reader(task, self._settings.grace_s))

    async def report(self, task: Task, report: ExecutionReport, now: float) -> bool:
        """Apply a robot's report; False if it changed nothing.

        Raises:
            Conflict: the segment was not released, returns no value, or another value was reported for it.
        """
        task.track.check(report)
        if report.kind == "value":
            if report.segment in task.track.values:
                return False
            if task.state == "generating" and not task.track.segments[report.segment].blocking:
                raise Conflict(f"segment {report.segment} returns no value", where="segment")
            # The plan goes on with the value, so that it must be kept before.
            self._log.report(task, report, now)
        if task.state == "generating" and task.ending is None:
            await self._failover.report(task, report)
        if not task.track.report(report, now):
            return False
        task.remember(report, now)
        if report.kind != "value":
            self._log.report(task, report, now)
        self._recorder.report_news(task, report)
        if report.kind == "failed":
            ending = task_execution_failure(report)
            if task.state == "executing":
                task.ending = ending
            await self.end(task, ending)
        task.reported.set()
        return True

    async def end(self, task: Task, ending: TaskEnding) -> None:
        """End a generation early; returns when it is over, even if the engine does not answer."""
        if task.state != "generating" or task.over.is_set():
            return
        if task.stopping:
            async with clock_timeout(2 * self._settings.engine_timeout_s):
                await task.over.wait()
            return
        task.stopping = True
        task.ending = task.ending or ending
        # Before the engine is asked: it may hang until a stop is reset and the server is killed.
        self._log.write_ending(task.task_id, task.ending)
        try:
            cancelled = await self._engine.cancel(task.task_id)
        except Exception as error:
            # Whatever the engine raises: the task must end.
            with log_fields(task.log_fields):
                log.warning("task %s: %r", task.task_id, error)
            cancelled = False
        if cancelled:
            async with clock_timeout(self._settings.engine_timeout_s):
                await task.over.wait()
        if not task.over.is_set() and task.pump is not None:
            task.pump.cancel()
            await asyncio.gather(task.pump, return_exceptions=True)
            # A pump that was cancelled before its first step has run none of its own clean-up.
            task.answered.set()
            task.over.set()
        self._end_generation(task)

    async def discard(self, task: Task, ending: TaskEnding) -> None:
        """End the rest of a plan, in generation or in execution: the robot executes no more of it."""
        await self.end(task, ending)
        if task.over.is_set():
            self._end_generation(task)  # its own coroutine has not seen it yet
        if task.state == "executing":
            if task.outcome == "complete":
                task.ending = ending
            self.settle(task)

    async def finish(self, until_s: float) -> None:
        """Return when no plan and no answer is in generation, or at ``until_s``."""
        ends = [task.over for task in self._table.generating()]
        for over in (*ends, *(place.over for place in self._table.places())):
            await wait_on_clock(over, self._clock, until_s)

    async def drain(self, ending: TaskEnding) -> None:
        self.draining = True
        await asyncio.gather(*(self.end(task, ending) for task in self._table.generating()))

    async def stop(self) -> None:
        for task in self._table.open_tasks():
            self.settle(task)
        runners = [task.runner for task in self._table.all_tasks() if task.runner is not None]
        for runner in runners:
            runner.cancel()
        await asyncio.gather(*runners, return_exceptions=True)

    # ------------------------------------------------------------------ a task's own coroutines

    async def _run(self, task: Task) -> None:
        """Own a task from admission until it is forgotten."""
        limit_s = min(task.request.deadline_s or self._settings.max_task_s, self._settings.max_task_s)
        if not await wait_on_clock(task.over, self._clock, task.arrival_s + limit_s):
            await self.end(task, TaskEnding("expired", "expired", f"no complete plan within {limit_s:g} s"))
            await task.over.wait()
        self._end_generation(task)
        if (surplus := self._table.surplus_execution()) is not None:
            self.settle(surplus)
            surplus.reported.set()
        while task.state == "executing" and task.outcome == "complete" and not task.track.all_done:
            task.reported.clear()
            # A robot that has reported before will report the end too, however late.
            settings = self._settings
            patience_s = settings.settle_reporting_s if task.track.measured else settings.settle_s
            end_s = max(task.track.end_s, task.recovered_s)
            if not await wait_on_clock(task.reported, self._clock, end_s + patience_s):
                break
        self.settle(task)
        await self._clock.sleep(task.settled_s + self._settings.retention_s - self._clock.now())
        self._forget(task)

    async def _generate(self, task: Task, generation: GenerationRequest) -> None:
        """Read the engine's events, and after its death those of the next; an error ends this task and no other."""
        try:
            while task.done is None and task.ending is None:
                async with self._failover.attempt(task, generation) as request:
                    await self._read(task, request)
        except TimelyError as error:
            if not task.answered.is_set():
                task.refusal = error
            if task.resumed and isinstance(error, (Conflict, InvalidInput)):
                ending = TaskEnding("failed", "interrupted", error.message, error.where)
            elif not task.track.segments and isinstance(error, (InvalidInput, Overloaded, NotAllowed)):
                ending = TaskEnding("refused", error.code, error.message, error.where)
            else:
                ending = TaskEnding("engine_failed", "engine_failed", error.message, error.where)
            task.ending = task.ending or ending
        except Exception as error:
            log.exception("task %s", task.task_id)
            detail = f"{type(error).__name__}; see the server's log"
            task.ending = task.ending or TaskEnding("engine_failed", "engine_failed", detail, "engine")
        finally:
            self._failover.clear(task)
            task.answered.set()
            task.over.set()

    async def _read(self, task: Task, request: GenerationRequest) -> None:
        # Closing the events frees the KV cache.
        async with aclosing(self._engine.engine.generate(request)) as events:
            async for event in events:
                self._failover.clear(task)
                task.answered.set()
                if isinstance(event, GenerationDone):
                    task.done = event
                    return
                await self._release(task, event)
                if task.outcome == "unsafe_segment":
                    return
        if task.ending is None:
            raise EngineFailed("the generation stopped without an end", where="engine")

    async def _release(self, task: Task, event: SegmentReady) -> None:
        """Send a segment.

        One engine step may close segments of several tasks. They leave one after the other: the first is sent before
        the second is checked.
        """
        async with self._releasing:
            segment = self._check(task, event) if task.ending is None else None
            if segment is None:
                return
            data = task.segment_event(segment)
            event = replace(event, ready_s=segment.ready_s, due_s=segment.end_s)
            task.past.append(event)
            began_s = time.perf_counter()
            self._log.segment(event, data)
            if not self._log.flushes_segments:
                self._log.segment_costs_s.append(time.perf_counter() - began_s)
                await self._send(task, segment, data)
                return
        # Segments of other tasks go to the disk with this one.
        try:
            await self._log.durable()
        except asyncio.CancelledError:
            task.withdraw(segment)
            raise
        self._log.segment_costs_s.append(time.perf_counter() - began_s)
        if task.ending is not None:
            task.withdraw(segment)
            return
        await self._send(task, segment, data)

    async def _send(self, task: Task, segment: Segment, data: dict[str, Any]) -> None:
        try:
            task.events.append("segment", data)
        except EngineFailed:
            task.withdraw(segment)
            raise
        self._limit_value_wait(task)
        try:
            await asyncio.sleep(0)
        finally:
            self._recorder.record_release(task, segment)

    def _check(self, task: Task, event: SegmentReady) -> Segment | None:
        """Check a segment and add it to the robot's work; None, and the end of the task, if the check fails.

        Raises:
            EngineFailed: its times are not finite. Conflict: it is not the next one.
        """
        now = self._clock.now()
        if not (math.isfinite(event.ready_s) and math.isfinite(event.execution_s) and event.execution_s >= 0):
            raise EngineFailed(f"segment {event.index} takes {event.execution_s} s", where="engine")
        try:
            calls = [task_call_data(call) for call in task.check(event.text)]
        except Exception as error:
            if not isinstance(error, TimelyError):
                log.exception("task %s: the check itself failed", task.task_id)
            detail = error.message if isinstance(error, TimelyError) else "it could not be checked"
            task.ending = TaskEnding("unsafe_segment", "unsafe_segment", detail, f"segment {event.index}")
            return None
        ready_s = min(max(event.ready_s, task.arrival_s), now)
        segment = task.track.release(replace(event, ready_s=ready_s).segment())
        task.calls.append(calls)
        return segment

    def _end_generation(self, task: Task) -> None:
        """The generation is over: append the last event."""
        if task.state != "generating":
            return
        task.generated_s = self._clock.now()
        if task.ending is None:
            task.ending = _task_ending_of(task.done)
        task.state = "executing"
        if task.grace is not None:
            task.grace.cancel()
            task.grace = None
        if task.value_wait is not None:
            task.value_wait.cancel()
            task.value_wait = None
        result = task.result(task.generated_s)
        name, data = "result", result
        if task.ending.is_error:
            name, data = "error", {**task.ending.problem(), **result}
        self._log.write_generation(task, name, data)
        task.events.append(name, data, last=True)
        self._count_live()
        self._recorder.record_generation(task)

    def settle(self, task: Task) -> None:
        """Nothing more is expected of a task: count it and keep it for late readers."""
        if task.state == "ended":
            return
        self._end_generation(task)
        task.state = "ended"
        task.settled_s = self._clock.now()
        self._log.write_end(task)
        self._recorder.record_end(task, task.settled_s)
        oldest = self._table.settle(task)
        if oldest is not None:
            self._forget(oldest)

    def _forget(self, task: Task) -> None:
        self._table.remove(task)
        self._log.forget(task.task_id)
        if task.state != "ended":
            return
        if task.runner is not None and task.runner is not asyncio.current_task():
            task.runner.cancel()
        # A cancelled coroutine keeps its frame, which holds the task: without these it goes at once.
        task.runner = task.pump = None

    async def _expect_reader(self, task: Task, grace_s: float) -> None:
        """Cancel a generation whose events have no reader for a while."""
        await self._clock.sleep(grace_s)
        task.grace = None
        if task.readers == 0:
            detail = f"its events had no reader for {grace_s:g} s"
            await self.end(task, TaskEnding("cancelled", "", detail, cause="no_reader"))

    def _limit_value_wait(self, task: Task) -> None:
        """Let a plan that waits for a value end if the value does not come in its time."""
        if math.isfinite(task.value_wait_s) and task.awaits_value:
            task.value_wait = asyncio.create_task(self._expect_value(task))

    async def _expect_value(self, task: Task) -> None:
        """End a generation whose robot does not report the value of the last segment in time."""
        index = len(task.track.segments) - 1
        while True:
            end_s = max(task.track.end_s, task.recovered_s)
            left_s = end_s + task.value_wait_s - self._clock.now()
            if left_s <= 0.0:
                break
            await self._clock.sleep(left_s)
            if index in task.track.values:
                return
        task.value_wait = None
        detail = f"no value of segment {index} within {task.value_wait_s:g} s of its expected end"
        await self.end(task, TaskEnding("expired", "expired", detail, f"segment {index}"))

    def _count_live(self) -> None:
        self._recorder.metrics.live.set(len(self._table.generating()))


def task_execution_failure(report: ExecutionReport) -> TaskEnding:
    """How a plan ends whose robot reports a failure."""
    reason = report.reason or "no reason given"
    return TaskEnding("failed", "execution_failed", f"segment {report.segment}: {reason}", "segment")


def _task_ending_of(generation: GenerationDone | None) -> TaskEnding:
    """What the engine's last event means for the task."""
    if generation is None:
        return TaskEnding("engine_failed", "engine_failed", "the generation stopped without an end", "engine")
    if generation.reason == "complete":
        return TaskEnding("complete")
    if generation.reason == "length":
        return TaskEnding("failed", "truncated", f"stopped after {generation.tokens} tokens", "max_tokens")
    if generation.reason == "cancelled":
        return TaskEnding("cancelled")
    return TaskEnding(
        "engine_failed", "engine_failed", generation.error or "the engine gave no reason", "engine"
    )
