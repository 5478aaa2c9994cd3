"""The tasks of a replay on their way into the engine, each after the answers of its application that it needs."""

import math
from collections.abc import Callable, Iterable, Iterator

from timely.core.errors import InvalidInput
from timely.core.job import JobId
from timely.engines.replay_types import JobRecord, PlannedTask
from timely.engines.sim.events import ARRIVAL, SimAgenda


class SimArrivals:
    """Puts the arrival of each task on the agenda, one ahead, and holds back those that wait for others.

    Args:
        tasks: in order of arrival.
        submit: called with the time and the record of a task that has reached the engine.
    """

    def __init__(
        self,
        tasks: Iterable[PlannedTask],
        admission_s: float,
        agenda: SimAgenda,
        submit: Callable[[float, JobRecord], None],
    ) -> None:
        self._tasks: Iterator[PlannedTask] = iter(tasks)
        self._admission_s, self._agenda, self._submit = admission_s, agenda, submit
        self.records: list[JobRecord] = []
        self._admitted_s = -math.inf
        """When the last task reached the engine."""
        self._ends_s: dict[JobId, float] = {}
        """When requests of applications ended: others may wait for their answers."""
        self._followers: dict[JobId, list[JobRecord]] = {}
        self._awaited_counts: dict[JobId, int] = {}
        self._schedule_next()

    def _schedule_next(self) -> None:
        task = next(self._tasks, None)
        if task is None:
            return
        if task.admission_s is None:
            self._admitted_s = max(task.arrival_s, self._admitted_s) + self._admission_s
        else:
            self._admitted_s = max(task.arrival_s + task.admission_s, self._admitted_s)
        self._agenda.at(self._admitted_s, ARRIVAL, self._arrive, task)

    def _arrive(self, now: float, task: PlannedTask) -> None:
        self._schedule_next()
        record = JobRecord(task)
        self.records.append(record)
        open_jobs = [job_id for job_id in task.after if job_id not in self._ends_s]
        if open_jobs:
            self._awaited_counts[task.job] = len(open_jobs)
            record.note = f"waits for {', '.join(map(str, open_jobs))}"
            for job_id in open_jobs:
                self._followers.setdefault(job_id, []).append(record)
        elif (due_s := self._due_s(task)) > task.arrival_s:
            self._agenda.at(max(due_s, now), ARRIVAL, self._follow, record)
        else:
            self._submit(now, record)

    def _due_s(self, task: PlannedTask) -> float:
        """``after_s`` after the last answer that the task needs, all of which are there."""
        return max((self._ends_s[job_id] for job_id in task.after), default=-math.inf) + task.after_s

    def _follow(self, now: float, record: JobRecord) -> None:
        """The answers that it waited for are there, so it arrives now."""
        record.arrived_s = now
        self._submit(now, record)

    def end(self, task: PlannedTask, now: float) -> None:
        """The task is served or refused: tasks of its application that wait for it may go on."""
        if task.hints.app is None:
            return
        self._ends_s[task.job] = now
        for record in self._followers.pop(task.job, ()):
            follower = record.task
            self._awaited_counts[follower.job] -= 1
            if not self._awaited_counts[follower.job]:
                del self._awaited_counts[follower.job]
                when_s = max(self._due_s(follower), follower.arrival_s)
                self._agenda.at(when_s, ARRIVAL, self._follow, record)

    def check_all_submitted(self) -> None:
        """At the end of a run.

        Raises:
            InvalidInput: a task waits for others that never end.
        """
        for job_id in self._awaited_counts:
            names = [
                str(awaited)
                for awaited, records in self._followers.items()
                if any(record.task.job == job_id for record in records)
            ]
            never_end = "which never ends" if len(names) == 1 else "which never end"
            raise InvalidInput(f"waits for {', '.join(names)}, {never_end}", where=f"job {job_id}: after")
