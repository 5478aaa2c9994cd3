"""Reads the tasks of a trace file as a stream."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from lrtrace.job import TraceJob, TraceSegment
from lrtrace.jsonl import read_jsonl
from lrtrace.trace import Trace
from timely.core.errors import InvalidInput
from timely.core.hints import RequestHints
from timely.core.utility import TimeUtility
from timely.disciplines.justitia.app_groups import MOST_REQUESTS
from timely.engines.replay_types import (
    PLAIN_MAX_TOKENS,
    PlannedSegment,
    PlannedTask,
    engine_replay_limit_tokens,
)

Number = TypeVar("Number", int, float)

MAX_TOKENS = 10_000_000
"""Largest length of an answer, tokens."""

MAX_PACE_S = 60
"""Longest pace of a reader, as in a request over HTTP."""

MILESTONES = ("first_token", "first_segment", "last_token")
"""Events that a time-utility function may be about."""

MAX_NUMBER = 1e9
"""Largest time, seconds, and priority of the fields that the trace format does not define."""

_JOB = re.compile(r"job (\d+)")
"""How an error about a job begins."""

_ARRIVAL = re.compile(rb'"arrival_s"\s*:\s*([-+0-9.eE]+)')


class ReplayTasks:
    """The tasks of a trace file in order of arrival, read from the file one by one.

    Raises:
        BadInput: (of lrtrace) unreadable, or a line is broken; the message has file, line, field and reason.
    """

    def __init__(self, path: str | Path) -> None:
        self.trace = Trace(path)
        self.name = self.trace.header.name or Path(path).name

    def __iter__(self) -> Iterator[PlannedTask]:
        network_s = self.trace.header.network_s
        jobs = (
            self.trace.jobs() if _is_replay_trace_in_order(self.trace.path) else self.trace.jobs_by_arrival()
        )
        return (replay_task_from_job(job, network_s) for job in jobs)

    @contextmanager
    def errors_with_lines(self) -> Iterator[None]:
        """Add file and line to an error about a job, also to one that an engine raises."""
        try:
            yield
        except InvalidInput as error:
            if (match := _JOB.match(error.where)) is not None:
                error.where = f"{self._line_of(int(match[1]))}: {error.where}"
            raise

    def _line_of(self, job: int) -> str:
        path = self.trace.path
        return next((f"{path}:{line}" for line, raw in read_jsonl(path) if raw.get("job") == job), str(path))


def replay_task_from_job(job: TraceJob, network_s: float = 0.0) -> PlannedTask:
    """A trace's job as a planned task.

    Raises:
        InvalidInput: a field that the trace format does not define has a wrong value.
    """
    tuf = job.tuf
    where = f"job {job.job}"
    plan = tuple(_replay_segment(segment, where) for segment in job.plan)
    milestone = _replay_milestone(job, where)
    max_tokens = _replay_field_number(job, "max_tokens", int, MAX_TOKENS)
    segment_bound = _replay_field_number(job, "segment_tokens", int, MAX_TOKENS)
    whole_answer = milestone == "last_token"
    if whole_answer:
        # Its length is not told: the only segment may be as long as the limit.
        max_tokens = segment_bound = engine_replay_limit_tokens(max_tokens or PLAIN_MAX_TOKENS, job.tokens)
    return PlannedTask(
        job=job.job,
        arrival_s=job.arrival_s,
        plan=plan,
        prompt_tokens=job.prompt_tokens,
        shared_prefix_tokens=job.shared_prefix_tokens,
        prefix=f"{job.skill_set}/{job.robot}",
        block_ids=_replay_numbers(job, "hash_ids", "whole numbers", where),
        robot=job.robot,
        skill_set=job.skill_set,
        task=job.task,
        scene=job.scene,
        acceptance=job.acceptance,
        segment_bound=segment_bound,
        hints=RequestHints(
            utility=TimeUtility(tuf.ert_s, tuf.alpha, tuf.beta),
            network_s=network_s,
            agent=job.agent,
            app=job.app,
            urgency=job.urgency,
            priority=_bounded_replay_field(job.extra, "priority", where, -MAX_NUMBER) or 0.0,
            app_requests=_replay_field_number(job, "app_requests", int, MOST_REQUESTS),
            expected_tokens=_replay_field_number(job, "expected_tokens", float, MAX_TOKENS),
            pace_s=_replay_field_number(job, "pace_s", float, MAX_PACE_S),
        ),
        max_tokens=max_tokens,
        after=_replay_numbers(job, "after", "job numbers", where),
        after_s=_bounded_replay_field(job.extra, "after_s", where) or 0.0,
        plain=_is_replay_job_plain(job) and not whole_answer,
        by_first_token=milestone == "first_token",
        whole_answer=whole_answer,
    )


def _is_replay_job_plain(job: TraceJob) -> bool:
    return not job.skill_set and len(job.plan) == 1


def _replay_milestone(job: TraceJob, where: str) -> str:
    """What the job's time-utility function is about: as it says, or by its pace; empty: by its first segment.

    Raises:
        InvalidInput: no such milestone or field, or a plan that is not about its first segment.
    """
    if unknown := job.tuf.extra.keys() - {"milestone"}:
        raise InvalidInput(
            f"tuf.{min(unknown)} is unknown; known: ert_s, alpha, cutoff_s, beta, milestone", where=where
        )
    has_pace = job.extra.get("pace_s") is not None
    milestone = job.tuf.extra.get("milestone", "first_token" if has_pace else "")
    if milestone not in ("", *MILESTONES):
        raise InvalidInput(
            f"tuf.milestone must be one of {', '.join(MILESTONES)}, got {milestone!r:.40}", where=where
        )
    if milestone in ("first_token", "last_token") and not _is_replay_job_plain(job):
        raise InvalidInput(
            f"tuf.milestone is {milestone}: that of a plan is its first_segment, and it has no pace_s",
            where=where,
        )
    if has_pace and milestone != "first_token":
        raise InvalidInput(f"pace_s goes with tuf.milestone first_token, got {milestone}", where=where)
    return str(milestone)


def _replay_field_number(job: TraceJob, name: str, kind: type[Number], most: int) -> Number | None:
    """A checked field that the trace format does not define.

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


def _bounded_replay_field(
    fields: Mapping[str, Any], name: str, where: str, least: float = 0.0
) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= MAX_NUMBER:
        raise InvalidInput(
            f"{name} must be a number from {least:g} to {MAX_NUMBER:g}, got {value!r:.40}", where=where
        )
    return float(value)


def _replay_numbers(job: TraceJob, name: str, kind: str, where: str) -> tuple[int, ...]:
    value = job.extra.get(name, [])
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise InvalidInput(f"{name} must be a list of {kind}, got {value!r:.40}", where=where)
    return tuple(value)


def _replay_segment(segment: TraceSegment, where: str) -> PlannedSegment:
    estimate_s = _bounded_replay_field(segment.extra, "estimate_s", where)
    blocking = segment.extra.get("blocking", False)
    if not isinstance(blocking, bool):
        raise InvalidInput(f"blocking must be true or false, got {blocking!r:.40}", where=where)
    return PlannedSegment(segment.text, segment.tokens, segment.execution_s, estimate_s, blocking)


def _is_replay_trace_in_order(path: Path) -> bool:
    """Whether arrivals never decrease; the lines are only searched, because they are parsed later."""
    previous_s = float("-inf")
    try:
        with path.open("rb") as file:
            for line in file:
                match = _ARRIVAL.search(line)
                if match is not None:
                    arrival_s = float(match[1])
                    if arrival_s < previous_s:
                        return False
                    previous_s = arrival_s
    except (OSError, ValueError):
        return True  # the parser reports the error and its place
    return True
