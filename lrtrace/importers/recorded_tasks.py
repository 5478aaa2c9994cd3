"""Tasks as some system recorded them, and what can be made of them: a trace to replay, runs to fit models to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lrtrace.errors import BadInput
from lrtrace.plan_text import Call, parse_calls
from lrtrace.profiles import RobotProfile
from lrtrace.record.samples import Sample, Value
from lrtrace.trace import NORMAL, Header, Job, PlanSegment, Tuf

RAN_S = 0.05
"""A call inside a block that is reported to have taken less was most likely in the branch not taken."""


@dataclass(slots=True)
class RecordedSegment:
    """A segment that went to a robot.

    Attributes:
        expected_s: estimated execution time, seconds.
        elapsed_s: measured execution time, seconds; nan when the robot did not say.
        done: the robot said that it had finished.
        blocking: the generation waited for what it returned.
        executed: the calls the robot says it ran, as text; None when it did not say.
    """

    index: int
    text: str
    tokens: int
    expected_s: float = 0.0
    elapsed_s: float = math.nan
    done: bool = False
    failed: bool = False
    blocking: bool = False
    executed: str | None = None

    @property
    def execution_s(self) -> float:
        """Measured if known, else expected, seconds."""
        return self.expected_s if math.isnan(self.elapsed_s) else self.elapsed_s


@dataclass(slots=True)
class RecordedTask:
    """A task with its segments; ``arrival_s`` on the recording's own axis, seconds. ``where`` is file and line."""

    task_id: str
    arrival_s: float
    where: str
    agent: str = ""
    app: str | None = None
    robot: str = ""
    skill_set: str = ""
    task: str = ""
    scene: str = ""
    tuf: Tuf = NORMAL
    urgency: int | None = None
    network_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    outcome: str = ""
    segments: dict[int, RecordedSegment] = field(default_factory=dict)


@dataclass(slots=True)
class Taken:
    """What conversion did with the recording: how many came out, and what was left out and why."""

    made: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, Any]:
        """As JSON."""
        return {"made": self.made, "left_out": dict(self.left_out)}


def to_trace(
    tasks: Sequence[RecordedTask],
    name: str,
    taken: Taken,
    *,
    prompt_tokens: int = 1300,
    shared_prefix_tokens: int | None = None,
) -> tuple[Header, Iterator[Job]]:
    """A trace of these tasks, from the first arrival on. Measured execution times where known, else expected ones.

    Args:
        tasks: in any order.
        taken: counts what happens.
        prompt_tokens: for tasks whose recording does not say.
        shared_prefix_tokens: of each prompt; unless given, the least that any prompt of the skill set found cached.
    """
    ordered = sorted(tasks, key=lambda task: task.arrival_s)
    shared: dict[str, int] = {}
    for task in ordered:
        if task.cached_tokens:
            shared[task.skill_set] = min(task.cached_tokens, shared.get(task.skill_set, task.cached_tokens))
    network_s = max((task.network_s for task in ordered if task.network_s is not None), default=0.0)
    header = Header(name, None, network_s, {"recorded": {"tasks": len(ordered)}})

    def jobs() -> Iterator[Job]:
        origin = ordered[0].arrival_s if ordered else 0.0
        for task in ordered:
            if not task.segments:
                taken.left_out["task without a segment"] += 1
                continue
            prompt = task.prompt_tokens or prompt_tokens
            prefix = shared.get(task.skill_set, 0) if shared_prefix_tokens is None else shared_prefix_tokens
            try:
                yield _job(task, taken.made, task.arrival_s - origin, prompt, min(prefix, prompt))
            except BadInput as error:
                raise BadInput(error.message, where=task.where) from error
            taken.made += 1

    return header, jobs()


def _job(task: RecordedTask, number: int, arrival_s: float, prompt: int, prefix: int) -> Job:
    return Job(
        number,
        round(arrival_s, 6),
        prompt,
        tuple(_plan_segment(segment) for _, segment in sorted(task.segments.items())),
        agent=task.agent,
        robot=task.robot,
        skill_set=task.skill_set,
        task=task.task,
        scene=task.scene,
        shared_prefix_tokens=prefix,
        tuf=task.tuf,
        app=task.app,
        urgency=task.urgency,
        extra={"task_id": task.task_id, "outcome": task.outcome}
        if task.outcome
        else {"task_id": task.task_id},
    )


def _plan_segment(segment: RecordedSegment) -> PlanSegment:
    execution, estimate = round(segment.execution_s, 6), round(segment.expected_s, 6)
    extra: dict[str, Any] = {} if execution == estimate else {"estimate_s": estimate}
    if segment.blocking:
        extra["blocking"] = True
    return PlanSegment(segment.text, max(1, segment.tokens), execution, extra)


def to_samples(
    tasks: Iterable[RecordedTask], profiles: Mapping[str, RobotProfile], taken: Taken
) -> Iterator[Sample]:
    """The runs of single skills in these tasks.

    Only segments that were measured, did not fail and ran exactly one call can be used: the time of several calls
    cannot be told apart. Where the robot did not say what it ran, a call inside a block counts if it took longer
    than ``RAN_S``.

    Args:
        profiles: by robot; give names and units of arguments.
        taken: counts what happens.

    Raises:
        BadInput: a robot has no profile here, or its profile lacks a skill; names where.
    """
    for task in tasks:
        depth = 0
        for _, segment in sorted(task.segments.items()):
            inside = depth > 0
            depth = max(0, depth + segment.text.count("{") - segment.text.count("}"))
            calls = parse_calls(segment.text if segment.executed is None else segment.executed)
            why = _unusable(segment, calls, inside)
            if why:
                taken.left_out[why] += 1
                continue
            profile = profiles.get(task.robot)
            if profile is None:
                raise BadInput(
                    f"robot: no profile for {task.robot!r}; give one with --profile", where=task.where
                )
            yield _sample(task, segment, calls[0], profile)
            taken.made += 1


def _unusable(segment: RecordedSegment, calls: Sequence[Call], inside: bool) -> str:
    """Why a segment says nothing about one skill; empty when it does."""
    if segment.failed:
        return "segment failed"
    if math.isnan(segment.elapsed_s):
        return "segment not measured"
    if len(calls) != 1:
        return "segment with several calls" if calls else "segment that ran no call"
    if segment.executed is None and inside and segment.elapsed_s < RAN_S:
        return "call in a branch that seems not taken"
    return ""


def _sample(task: RecordedTask, segment: RecordedSegment, call: Call, profile: RobotProfile) -> Sample:
    try:
        skill = profile.skill_name(call.skill)
        given = profile.named_args(skill, call.args)
    except BadInput as error:
        raise BadInput(f"segment {segment.index}: {error}", where=task.where) from error
    limits = profile.skills[skill].args
    args: dict[str, Value] = {
        name: value if isinstance(value, (float, str)) else str(value) for name, value in given.items()
    }
    units = {name: limits[name].unit for name in args if name in limits and limits[name].numeric}
    return Sample(profile.name, skill, args, round(segment.elapsed_s, 6), units)
