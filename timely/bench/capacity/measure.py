"""One point of a capacity measurement: a system serves a workload at a load in the simulator."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from timely.bench.capacity.forced_tokens import bench_forced_tokens
from timely.bench.capacity.workloads import capacity_tasks, find_capacity_workload
from timely.core.errors import UnknownName
from timely.disciplines.registry import create_discipline, discipline_names
from timely.engines.base import Mode
from timely.engines.replay_types import JobRecord, PlannedTask, ReplayOptions, utility_share
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import load_step_profile
from timely.plans.forced_text import MOST_DRAFTS

Point = dict[str, Any]
"""``tasks`` counts them. ``urgent`` and ``all`` are shares in time, null without such tasks. ``utility_urgent`` and
``utility_all`` are the robots' shares of the maximum. ``served`` is the share with a complete answer. ``waiting_s`` is
the robots' mean waiting time."""


@dataclass(frozen=True, slots=True)
class CapacitySystem:
    """A discipline with a serving mode.

    Attributes:
        has_priorities: requests bring vLLM's ``priority``: 0 for urgent tasks, 1 for others, 2 for chats. On a rival's
            own workload it is the deadline.
        is_timely_serve: it runs in ``timely serve``, where the fixed parts of prompts stay in the prefix cache.
        jumps_ahead: with ``--jump-ahead``: tokens that grammar and names force are drafted.
    """

    discipline: str
    mode: Mode
    has_priorities: bool = False
    is_timely_serve: bool = False
    jumps_ahead: bool = False


CAPACITY_SYSTEMS: dict[str, CapacitySystem] = {
    "timely": CapacitySystem("timely", "segmented", is_timely_serve=True),
    "timely-jump-ahead": CapacitySystem("timely", "segmented", is_timely_serve=True, jumps_ahead=True),
    "weighted-tardiness": CapacitySystem("weighted-tardiness", "segmented", is_timely_serve=True),
    "vllm": CapacitySystem("fcfs", "whole"),
    "vllm-stream": CapacitySystem("fcfs", "stream"),
    "vllm-priority": CapacitySystem("vllm-priority", "stream", has_priorities=True),
    "vllm-priority-preempt": CapacitySystem("priority", "stream", has_priorities=True),
    "edf": CapacitySystem("edf", "segmented", is_timely_serve=True),
    "pud": CapacitySystem("pud", "segmented", is_timely_serve=True),
    "qoserve": CapacitySystem("qoserve", "stream"),
    "jitserve": CapacitySystem("jitserve", "stream"),
    "slos-serve": CapacitySystem("slos-serve", "stream"),
    "inferential": CapacitySystem("inferential", "segmented"),
}
"""By name. Systems of other papers stream, as theirs do, unless their paper parks."""


def find_capacity_system(name: str) -> CapacitySystem:
    """The system of that name, or any discipline, a plugin too, in ``timely serve``; raises UnknownName without one."""
    if name in CAPACITY_SYSTEMS:
        return CAPACITY_SYSTEMS[name]
    if name not in discipline_names():
        raise UnknownName("system", name, {*CAPACITY_SYSTEMS, *discipline_names()}, where="--systems")
    return CapacitySystem(name, "segmented", is_timely_serve=True)


def measure_capacity_point(
    workload: str, system: str, token_budget: int, seed: int, load: float, profile: str, quick: int, data: str
) -> Point:
    """Serve a workload at a load, with a step of so many tokens at most, and count the tasks in time."""
    row = find_capacity_system(system)
    tasks = capacity_tasks(workload, load, seed, quick=bool(quick), data=data)
    if row.has_priorities:
        by_deadline = bool(find_capacity_workload(workload).owner)
        tasks = [_with_priority(task, by_deadline=by_deadline) for task in tasks]
    if row.jumps_ahead:
        tasks = bench_forced_tokens(tasks)
    options = ReplayOptions(
        mode=row.mode, journal=False, warm_prefixes=True, keep_prefixes=row.is_timely_serve, seed=seed,
        token_budget=token_budget, draft_tokens=MOST_DRAFTS if row.jumps_ahead else None,
    )  # fmt: skip
    discipline = create_discipline(row.discipline)
    run = Simulator(options, load_step_profile(profile), discipline=discipline).run(tasks)
    return capacity_point(run.records, run.end_s)


def _with_priority(task: PlannedTask, *, by_deadline: bool) -> PlannedTask:
    priority = 2.0 if task.plain else 0.0 if task.hints.utility.urgent else 1.0
    if by_deadline:
        priority = task.hints.utility.ert_s
    return replace(task, hints=replace(task.hints, priority=priority))


def capacity_point(records: Sequence[JobRecord], end_s: float) -> Point:
    """The shares in time and what stands beside them."""
    robots = [record for record in records if not record.task.plain]
    urgent = [record for record in robots if record.task.hints.utility.urgent]
    waiting_s = [record.waiting_time_s for record in robots if math.isfinite(record.waiting_time_s)]
    return {
        "tasks": len(records),
        "urgent": _mean(map(is_bench_task_in_time, urgent)),
        "all": _mean(map(_is_aim_met, _group_by_aim(records))),
        "utility_urgent": _utility_share(urgent, end_s),
        "utility_all": _utility_share(robots, end_s),
        "served": _mean(record.outcome == "complete" for record in records),
        "waiting_s": _mean(waiting_s),
    }


def is_bench_task_in_time(record: JobRecord) -> bool:
    """The first action, or a chat's first token, came within the expected response time.

    Where a chat names a pace, its last token came by that time and the pace of the tokens between (Niyama's deadlines).
    """
    task, hints = record.task, record.task.hints
    if not task.plain:
        return record.response_time_s <= hints.utility.ert_s  # false for nan: it never came
    due_s = record.arrived_s + hints.utility.ert_s
    if not record.first_token_s <= due_s:
        return False
    return hints.pace_s is None or (
        record.outcome == "complete"
        and record.last_token_s <= due_s + hints.pace_s * (task.output_tokens - 1)
    )


def _group_by_aim(records: Sequence[JobRecord]) -> Iterable[list[JobRecord]]:
    """The requests of each aim: an application that says how many it sends has one aim for all of them."""
    apps: dict[str, list[JobRecord]] = {}
    for record in records:
        hints = record.task.hints
        if hints.app is None or hints.app_requests is None:
            yield [record]
        else:
            apps.setdefault(hints.app, []).append(record)
    yield from apps.values()


def _is_aim_met(records: Sequence[JobRecord]) -> bool:
    """A single request is in time; an application, if its last answer came by the deadlines of all in a row."""
    if len(records) == 1:
        return is_bench_task_in_time(records[0])
    limit_s = sum(record.task.hints.utility.ert_s for record in records)
    begin_s = min(record.task.arrival_s for record in records)
    return all(
        record.outcome == "complete" and record.last_token_s - begin_s <= limit_s for record in records
    )


def _mean(values: Iterable[float]) -> float | None:
    """Null of nothing; of truth values it is the share that is true."""
    numbers = list(values)
    return round(math.fsum(numbers) / len(numbers), 9) if numbers else None


def _utility_share(records: Sequence[JobRecord], end_s: float) -> float | None:
    return round(utility_share(records, end_s), 9) if records else None
