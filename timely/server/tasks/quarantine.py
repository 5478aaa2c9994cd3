"""Finds the task that kills the engine, among those that were being computed when the engine died.

Most engines die of something else, so all tasks go on together after a first death. A task that was being computed at
two deaths, without a segment between them, is a suspect. A single suspect is the culprit. Several suspects go on one
after the other, each until its next segment. The suspect that is on trial at a further death is the culprit.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable

from timely.core.clock import AsyncClock, wait_on_clock
from timely.server.tasks.task import Task

SUSPECT_DEATHS = 2

BUSY_S = 5.0
"""A generation whose robot has work for longer is parked: it was not being computed."""

TRIAL_S = 30.0
"""A suspect that has neither killed the engine nor closed a segment for so long keeps no other one waiting."""


class TaskQuarantine:
    """Counts the deaths of the engine by task."""

    def __init__(self, clock: AsyncClock) -> None:
        self._clock = clock
        self._deaths: Counter[str] = Counter()
        self._culprits: set[str] = set()
        self._on_trial: str | None = None
        self._verdict = asyncio.Event()
        self._turn = asyncio.Lock()
        self._trial: asyncio.Task[None] | None = None

    def engine_died(self, tasks: Iterable[Task], worked_s: float, *, parks: bool) -> None:
        """Count a death.

        Args:
            worked_s: when the engine last worked; it computed no task that came later.
            parks: a generation parks while its robot is busy.
        """
        task_ids = [
            task.task_id
            for task in tasks
            if task.arrival_s <= worked_s and not (parks and _is_task_parked(task, worked_s))
        ]
        self._deaths.update(task_ids)
        suspects = [task_id for task_id in task_ids if self._deaths[task_id] >= SUSPECT_DEATHS]
        if self._on_trial is not None:
            self._culprits.add(self._on_trial)
        elif len(suspects) == 1:
            self._culprits.update(suspects)
        self._verdict.set()

    def clear(self, task_id: str) -> None:
        """The task got a segment or is over: it did not kill the engine."""
        self._deaths.pop(task_id, None)
        self._culprits.discard(task_id)
        if task_id == self._on_trial:
            self._on_trial = None
            self._verdict.set()

    def deaths_by(self, task_id: str) -> int:
        """How often the task killed the engine; 0 unless it is the culprit."""
        return self._deaths[task_id] if task_id in self._culprits else 0

    async def wait_turn(self, task_id: str) -> None:
        """Return when the task may go on: for a suspect when no other one is on trial, for all others at once."""
        if self._deaths[task_id] < SUSPECT_DEATHS or task_id in self._culprits:
            return
        await self._turn.acquire()
        self._on_trial = task_id
        self._verdict.clear()
        self._trial = asyncio.create_task(self._try(), name=f"trial of {task_id}")

    async def _try(self) -> None:
        try:
            await wait_on_clock(self._verdict, self._clock, self._clock.now() + TRIAL_S)
        finally:
            self._on_trial = None
            self._turn.release()


def _is_task_parked(task: Task, now: float) -> bool:
    """Whether nothing is computed for a task, because its robot is busy or looks for a value."""
    if not task.track.segments:
        return False
    return task.awaits_value or task.track.end_s - now > BUSY_S
