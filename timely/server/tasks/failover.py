"""Carries tasks over the death of the engine: they go on with the next engine, unless they killed the one before."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from timely.core.clock import AsyncClock
from timely.core.errors import EngineDied, EngineFailed, Overloaded
from timely.core.reports import ExecutionReport
from timely.engines.base import GenerationRequest
from timely.server.tasks.engine_client import EngineClient
from timely.server.tasks.quarantine import TaskQuarantine
from timely.server.tasks.recorder import TaskRecorder
from timely.server.tasks.task import Task, TaskEnding

QUEUE_RETRY_S = 0.2
"""After so long a resumed plan is sent again to an engine whose own queue is full."""


class TaskFailover:
    """Decides how a task goes on when the engine died."""

    def __init__(self, engine: EngineClient, recorder: TaskRecorder, clock: AsyncClock) -> None:
        self._engine = engine
        self._recorder = recorder
        self._clock = clock
        self._quarantine = TaskQuarantine(clock)
        self._in_engine: dict[str, Task] = {}
        engine.supervisor.on_death = self._engine_died

    @asynccontextmanager
    async def attempt(self, task: Task, generation: GenerationRequest) -> AsyncIterator[GenerationRequest]:
        """One attempt to generate the plan, or its rest; gives the request for it when an engine runs.

        If the engine dies during the attempt, it ends without an error when the task may try again. A task that
        killed the engine gets its ending instead. A resumed task, which has been accepted, also tries again where the
        engine's own queue is full: all resumed plans come to it at once.
        """
        supervisor, task_id = self._engine.supervisor, task.task_id
        await supervisor.wait_running()
        if task.resumed:
            # Made now: reports from here on reach the engine itself.
            generation = _resumed_task_request(task, generation)
        deaths = supervisor.deaths
        self._in_engine[task_id] = task
        try:
            yield generation
            return
        except EngineDied:
            await supervisor.wait_running(deaths)
        except Overloaded:
            if not task.resumed:
                raise
            await self._clock.sleep(QUEUE_RETRY_S)
            return
        finally:
            self._in_engine.pop(task_id, None)
        if count := self._quarantine.deaths_by(task_id):
            detail = f"the engine died {count} times while it generated task {task_id!r}"
            task.ending = TaskEnding("engine_failed", "quarantined", detail, "engine")
            return
        task.resumed = True
        await self._quarantine.wait_turn(task_id)

    def clear(self, task: Task) -> None:
        """The engine answered, or the task is over: it did not kill the engine."""
        self._quarantine.clear(task.task_id)

    async def report(self, task: Task, report: ExecutionReport) -> None:
        """Give a report to the engine; one that is dead gets it with the history of the task when it runs again."""
        supervisor = self._engine.supervisor
        while True:
            deaths = supervisor.deaths
            try:
                await self._engine.report(task.task_id, report)
                return
            except EngineFailed as error:
                if deaths == supervisor.deaths and not isinstance(error, EngineDied):
                    raise
                if deaths == supervisor.deaths or not supervisor.running:
                    return

    def _engine_died(self, error: EngineFailed, worked_s: float) -> None:
        self._recorder.engine_died(error)
        parks = self._recorder.mode == "segmented"
        self._quarantine.engine_died(self._in_engine.values(), worked_s, parks=parks)


def _resumed_task_request(task: Task, generation: GenerationRequest) -> GenerationRequest:
    """The request for the rest of a plan, with the urgency that an operator may have set."""
    hints = generation.hints
    if task.annotation is not None:
        hints = replace(hints, urgency=task.annotation.urgency.level)
    return replace(generation, hints=hints, history=task.history)
