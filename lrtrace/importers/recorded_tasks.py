"""Recorded tasks, and their conversion into a trace to replay or into runs of single skills."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lrtrace.errors import BadInput
from lrtrace.job import NORMAL, TraceHeader, TraceJob, TraceSegment, Tuf
from lrtrace.plan_text import TraceCall, parse_trace_calls
from lrtrace.record.samples import RecordedSample, recorded_argument
from lrtrace.robot_profile import RobotProfile

MIN_RUN_S = 0.05
"""A shorter run of a call inside a block counts as a branch that did not run."""

_BRACE = re.compile(r"(?P<loop>(?<![\w.<>=])\d+\s*)?\{|\}")


@dataclass(slots=True)
class ImportedSegment:
    """A segment that a robot received.

    Attributes:
        expected_s: estimated execution time, seconds.
        elapsed_s: measured execution time, seconds; nan without a report.
        done: the robot reported its end.
        blocking: the generation waited for its value.
        executed: the calls that the robot reported, as text; None without a report.
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
        """Measured execution time, or the expected one without a measurement, seconds."""
        return self.expected_s if math.isnan(self.elapsed_s) else self.elapsed_s


@dataclass(slots=True)
class ImportedTask:
    """A task with its segments. ``arrival_s`` is on the recording's own axis, seconds; ``where`` is file and line."""

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
    hints: dict[str, float] = field(default_factory=dict)
    """What else the request said of itself, as in a trace; see ``event_log.HINTS``."""
    segments: dict[int, ImportedSegment] = field(default_factory=dict)


@dataclass(slots=True)
class ImportConversion:
    """Counts of a conversion: number of results, and reasons for omissions."""

    converted: int = 0
    assumed_prompts: int = 0
    """Number of jobs without a recorded length of their prompt."""
    left_out: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, Any]:
        return {
            "made": self.converted,
            "assumed_prompts": self.assumed_prompts,
            "left_out": dict(self.left_out),
        }


def convert_to_imported_trace(
    tasks: Sequence[ImportedTask],
    name: str,
    conversion: ImportConversion,
    *,
    prompt_tokens: int = 1300,
    shared_prefix_tokens: int | None = None,
) -> tuple[TraceHeader, Iterator[TraceJob]]:
    """A trace of these tasks from the first arrival on, with measured or else expected execution times.

    Args:
        tasks: in any order.
        conversion: takes the counts.
        prompt_tokens: prompt length for tasks without a recorded one.
        shared_prefix_tokens: length of the shared start of each prompt; by default the smallest number of cached tokens
            of the skill set.
    """
    by_arrival = sorted(tasks, key=lambda task: task.arrival_s)
    prefix_tokens: dict[str, int] = {}
    for task in by_arrival:
        if task.cached_tokens:
            prefix_tokens[task.skill_set] = min(
                task.cached_tokens, prefix_tokens.get(task.skill_set, task.cached_tokens)
            )
    network_s = max((task.network_s for task in by_arrival if task.network_s is not None), default=0.0)
    header = TraceHeader(name, None, network_s, {"recorded": {"tasks": len(by_arrival)}})

    def jobs() -> Iterator[TraceJob]:
        origin = by_arrival[0].arrival_s if by_arrival else 0.0
        for task in by_arrival:
            if not task.segments:
                conversion.left_out["task without a segment"] += 1
                continue
            prompt = task.prompt_tokens or prompt_tokens
            conversion.assumed_prompts += not task.prompt_tokens
            prefix = (
                prefix_tokens.get(task.skill_set, 0) if shared_prefix_tokens is None else shared_prefix_tokens
            )
            try:
                yield _imported_job(
                    task, conversion.converted, task.arrival_s - origin, prompt, min(prefix, prompt)
                )
            except BadInput as error:
                raise BadInput(error.message, where=task.where) from error
            conversion.converted += 1

    return header, jobs()


def _imported_job(task: ImportedTask, number: int, arrival_s: float, prompt: int, prefix: int) -> TraceJob:
    return TraceJob(
        number,
        round(arrival_s, 6),
        prompt,
        tuple(_imported_plan_segment(segment) for _, segment in sorted(task.segments.items())),
        agent=task.agent,
        robot=task.robot,
        skill_set=task.skill_set,
        task=task.task,
        scene=task.scene,
        shared_prefix_tokens=prefix,
        tuf=task.tuf,
        app=task.app,
        urgency=task.urgency,
        extra={"task_id": task.task_id, **({"outcome": task.outcome} if task.outcome else {}), **task.hints},
    )


def _imported_plan_segment(segment: ImportedSegment) -> TraceSegment:
    execution, estimate = round(segment.execution_s, 6), round(segment.expected_s, 6)
    extra: dict[str, Any] = {} if execution == estimate else {"estimate_s": estimate}
    if segment.blocking:
        extra["blocking"] = True
    return TraceSegment(segment.text, max(1, segment.tokens), execution, extra)


def import_skill_samples(
    tasks: Iterable[ImportedTask], profiles: Mapping[str, RobotProfile], conversion: ImportConversion
) -> Iterator[RecordedSample]:
    """The runs of single skills in these tasks.

    A segment counts if it has a measurement, did not fail and ran exactly one call, since several calls share one
    time. If the robot did not report its calls, a call inside a block counts if it took longer than ``MIN_RUN_S``.
    Then one in a segment that closes a loop never counts, since the further rounds share its time.

    Args:
        profiles: profiles by robot, for names and units of arguments.
        conversion: takes the counts.

    Raises:
        BadInput: a robot has no profile here, or its profile lacks a skill; the message says where.
    """
    for task in tasks:
        blocks: list[bool] = []
        for _, segment in sorted(task.segments.items()):
            inside = bool(blocks)
            closes_loop = _follow_imported_blocks(segment.text, blocks)
            calls = parse_trace_calls(segment.text if segment.executed is None else segment.executed)
            why = _unusable_import_reason(segment, calls, inside, closes_loop)
            if why:
                conversion.left_out[why] += 1
                continue
            profile = profiles.get(task.robot)
            if profile is None:
                raise BadInput(
                    f"robot: no profile for {task.robot!r}; give one with --profile", where=task.where
                )
            yield _imported_sample(task, segment, calls[0], profile)
            conversion.converted += 1


def _follow_imported_blocks(text: str, blocks: list[bool]) -> bool:
    """Follow the open blocks of a plan, True for a loop, through a segment; True if it closes a loop."""
    closes_loop = False
    for brace in _BRACE.finditer(text):
        if brace.group() != "}":
            blocks.append(brace["loop"] is not None)
        elif blocks:
            closes_loop |= blocks.pop()
    return closes_loop


def _unusable_import_reason(
    segment: ImportedSegment, calls: Sequence[TraceCall], inside: bool, closes_loop: bool
) -> str:
    """The reason why a segment is no run of a single skill; empty if it is one."""
    if segment.failed:
        return "segment failed"
    if math.isnan(segment.elapsed_s):
        return "segment not measured"
    if len(calls) != 1:
        return "segment with several calls" if calls else "segment that ran no call"
    if segment.executed is None and closes_loop:
        return "call in a loop that went round"
    if segment.executed is None and inside and segment.elapsed_s < MIN_RUN_S:
        return "call in a branch that seems not taken"
    return ""


def _imported_sample(
    task: ImportedTask, segment: ImportedSegment, call: TraceCall, profile: RobotProfile
) -> RecordedSample:
    try:
        skill = profile.skill_name(call.skill)
        args, units = profile.sample_args(skill, call.args)
        values = {name: recorded_argument(name, value) for name, value in args.items()}
    except BadInput as error:
        raise BadInput(f"segment {segment.index}: {error}", where=task.where) from error
    return RecordedSample(profile.name, skill, values, round(segment.elapsed_s, 6), units)
