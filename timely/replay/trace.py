"""From a trace file to planned tasks, as a stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from lrtrace.job import Job, PlanSegment
from lrtrace.trace import Trace
from timely.core.errors import InvalidInput
from timely.core.hints import RequestHints
from timely.core.utility import TimeUtility
from timely.disciplines.justitia.app_groups import MOST_REQUESTS
from timely.engines.replay_types import PlannedSegment, PlannedTask

Number = TypeVar("Number", int, float)

MOST_TOKENS = 10_000_000
"""Of one answer; more is a slip of the pen."""

_ARRIVAL = re.compile(rb'"arrival_s"\s*:\s*([-+0-9.eE]+)')


class Tasks:
    """The tasks of a trace file in order of arrival; the file is read while they are taken.

    Raises:
        BadInput: (of lrtrace) unreadable, or a line is broken; the text says file, line, field and reason.
    """

    def __init__(self, path: str | Path) -> None:
        self.trace = Trace(path)
        self.name = self.trace.header.name or Path(path).name

    def __iter__(self) -> Iterator[PlannedTask]:
        network_s = self.trace.header.network_s
        jobs = self.trace.jobs() if _in_order(self.trace.path) else self.trace.jobs_by_arrival()
        return (planned(job, network_s) for job in jobs)


def planned(job: Job, network_s: float = 0.0) -> PlannedTask:
    """A trace's job as a planned task.

    Raises:
        InvalidInput: a field that only the replay knows is not what it should be.
    """
    tuf = job.tuf
    extra = job.extra
    return PlannedTask(
        job=job.job,
        arrival_s=job.arrival_s,
        plan=tuple(_segment(segment) for segment in job.plan),
        prompt_tokens=job.prompt_tokens,
        shared_prefix_tokens=job.shared_prefix_tokens,
        prefix=f"{job.skill_set}/{job.robot}",
        robot=job.robot,
        skill_set=job.skill_set,
        task=job.task,
        scene=job.scene,
        acceptance=job.acceptance,
        segment_bound=extra.get("segment_tokens"),
        hints=RequestHints(
            utility=TimeUtility(tuf.ert_s, tuf.alpha, tuf.beta),
            network_s=network_s,
            agent=job.agent,
            app=job.app,
            urgency=job.urgency,
            priority=float(extra.get("priority", 0.0)),
            app_requests=_number(job, "app_requests", int, MOST_REQUESTS),
            expected_tokens=_number(job, "expected_tokens", float, MOST_TOKENS),
        ),
        max_tokens=_number(job, "max_tokens", int, MOST_TOKENS),
        after=tuple(extra.get("after", ())),
        after_s=float(extra.get("after_s", 0.0)),
    )


def _number(job: Job, name: str, kind: type[Number], most: int) -> Number | None:
    """A field that the trace format itself does not know, checked.

    Raises:
        InvalidInput: names job and field.
    """
    value = job.extra.get(name)
    if value is None:
        return None
    fits = isinstance(value, int) if kind is int else isinstance(value, int | float)
    if isinstance(value, bool) or not fits or not 0 < value <= most:
        raise InvalidInput(
            f"{name} must be {'a whole number' if kind is int else 'a number'} over 0 and at most {most},"
            f" got {value!r}",
            where=f"job {job.job}",
        )
    return kind(value)


def _segment(segment: PlanSegment) -> PlannedSegment:
    extra = segment.extra
    return PlannedSegment(
        segment.text,
        segment.tokens,
        segment.execution_s,
        extra.get("estimate_s"),
        bool(extra.get("blocking", False)),
    )


def _in_order(path: Path) -> bool:
    """Whether arrivals never decrease, by a look at the text: full parsing comes later, once."""
    previous = float("-inf")
    try:
        with path.open("rb") as file:
            for line in file:
                found = _ARRIVAL.search(line)
                if found is not None:
                    arrival = float(found[1])
                    if arrival < previous:
                        return False
                    previous = arrival
    except (OSError, ValueError):
        return True  # the reader proper says what is wrong, and where
    return True


def check_order(tasks: Iterable[PlannedTask]) -> Iterator[PlannedTask]:
    """The same tasks; refuses those that are not in order of arrival or share a name.

    Raises:
        InvalidInput: names the task.
    """
    previous, seen = float("-inf"), set()
    for task in tasks:
        if task.arrival_s < previous:
            raise InvalidInput(
                f"arrives at {task.arrival_s} s, after one at {previous} s", where=f"job {task.job}"
            )
        if task.job in seen:
            raise InvalidInput("appears twice", where=f"job {task.job}")
        seen.add(task.job)
        previous = task.arrival_s
        yield task
