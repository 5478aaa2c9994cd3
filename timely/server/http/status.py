"""The state of the server as data: robots with their generations, totals, recent tasks."""

import math
from collections.abc import Iterable
from typing import Any

import timely
from timely.core.errors import NotAllowed
from timely.core.job import Segment
from timely.engines.base import JobView
from timely.principals import Principal
from timely.server.tasks.service import TaskService
from timely.server.tasks.task import Task

MAX_TASK_CHARS = 160
MAX_ROBOTS = 512
MAX_RECENT = 50
TIMELINE_S = 60.0
ENGINE_FIELDS = (
    "engine", "discipline", "mode", "waiting", "running", "parked", "blocked", "kv_usage", "steps", "tokens",
    "segments", "evictions", "recomputed_tokens", "step_s", "decide_s",
)  # fmt: skip
"""Of ``EngineStats``."""

MAX_TIMELINE_TASKS = 200


async def http_status_snapshot(service: TaskService, principal: Principal) -> dict[str, Any]:
    """Data of the live page and of ``GET /v1/status``; times are seconds from now unless named otherwise."""
    stats, problem = await service.engine.last_stats()
    now = service.clock.now()
    jobs = {job.task_id: job for job in stats.jobs}
    open_tasks = _status_visible_tasks(service.tasks.open_tasks(), principal)
    recent = _status_visible_tasks(service.tasks.recent, principal)
    return {
        "server": {
            "version": timely.__version__,
            "uptime_s": round(service.uptime_s, 1),
            "stopping": service.stopping,
            "arrived": service.recorder.arrivals,
            "generating": len(service.tasks.generating()),
            "max_live_tasks": service.settings.max_live_tasks,
            "log_ms": service.log.segment_cost_ms,
            "log_problem": service.log.problem,
        },
        "stop": _status_stop_json(service, principal),
        "principal": {"name": principal.name, "roles": sorted(principal.roles)},
        "engine": {
            **{name: getattr(stats, name) for name in ENGINE_FIELDS},
            "problem": problem,
            "silent_s": round(service.engine.silent_s, 3),
            "restart": service.engine.supervisor.restart(),
        },
        "robots": [
            _status_robot_json(
                task,
                jobs.get(task.task_id),
                stats.paces.get(task.request.agent),
                now,
                principal,
                engine_runs=not problem,
            )
            for task in open_tasks[-MAX_ROBOTS:]
        ],
        "robots_left_out": max(0, len(open_tasks) - MAX_ROBOTS),
        "robot_problems": _status_robot_problems(service, principal),
        "classes": service.recorder.metrics.classes(),
        "recent": [_status_recent_task_json(task, now, principal) for task in recent[: -MAX_RECENT - 1 : -1]],
        "timeline": _status_timeline_json([*recent, *open_tasks], now),
    }


def _status_stop_json(service: TaskService, principal: Principal) -> dict[str, Any]:
    """The stop; without its robots for a principal that may not see them."""
    try:
        return service.fleet_stop.view(principal)
    except NotAllowed:
        return {"stopped": service.fleet_stop.latch.is_latched, "reason": "", "principal": "", "robots": {}}


def _status_robot_problems(service: TaskService, principal: Principal) -> dict[str, str]:
    """Name of a robot -> what keeps it from its tasks; none for a principal that may not see them."""
    try:
        problems = service.fleet_stop.problems(principal)
    except NotAllowed:
        return {}
    return {agent: _short_status_text(problem) for agent, problem in list(problems.items())[:MAX_ROBOTS]}


def _status_visible_tasks(tasks: Iterable[Task], principal: Principal) -> list[Task]:
    return [task for task in tasks if principal.sees(task.owner, task.request.agent)]


def _status_robot_json(
    task: Task,
    job: JobView | None,
    pace: float | None,
    now: float,
    principal: Principal,
    *,
    engine_runs: bool,
) -> dict[str, Any]:
    track = task.track
    generation: str | None = job.state if job else None
    if not engine_runs and task.state == "generating":
        generation = "interrupted"
    current = track.executing(now)
    queued_segments = [segment for segment in track.segments if not segment.done and segment.start_s > now]
    return {
        "agent": task.request.agent,
        "robot": task.profile.name,
        "pace": None if pace is None else round(pace, 3),
        "task_id": _status_task_id(task, principal),
        "task": _short_status_text(task.request.task),
        "class": task.kind,
        "urgency": task.annotation.urgency.level if task.annotation else task.request.urgency,
        "urgency_source": task.annotation.urgency.source if task.annotation else "none",
        "age_s": round(now - task.arrival_s, 2),
        "state": task.state,
        "generation": generation,
        "slack_s": round(job.slack_s, 2) if job and math.isfinite(job.slack_s) else None,
        "output_tokens": job.output_tokens if job else None,
        "segments": len(track.segments),
        "executing": _status_segment_json(current, now) if current else None,
        "queued": [_short_status_text(segment.text) for segment in queued_segments],
        "dry": bool(track.segments)
        and current is None
        and not queued_segments
        and task.state == "generating",
    }


def _status_task_id(task: Task, principal: Principal) -> str:
    """Its owner knows the id that it chose; for all others every task has an id of its own."""
    return task.name if task.owner == principal.name else task.task_id


def _status_segment_json(segment: Segment, now: float) -> dict[str, Any]:
    length_s = segment.end_s - segment.start_s
    return {
        "index": segment.index,
        "text": _short_status_text(segment.text),
        "elapsed_s": round(now - segment.start_s, 2),
        "execution_s": round(length_s, 2),
        "reported": segment.started,
        "blocking": segment.blocking,
    }


def _status_recent_task_json(task: Task, now: float, principal: Principal) -> dict[str, Any]:
    numbers = task.numbers(now)
    return {
        "task_id": _status_task_id(task, principal),
        "agent": task.request.agent,
        "task": _short_status_text(task.request.task),
        "class": task.kind,
        "outcome": task.outcome,
        "detail": task.ending.detail if task.ending else "",
        "ended_ago_s": round(now - task.settled_s, 1),
        "segments": len(task.track.segments),
        "response_time_s": numbers["response_time_s"],
        "waiting_time_s": numbers["waiting_time_s"],
        "utility": numbers["utility"],
        "utility_max": task.request.tuf.beta,
        "measured": numbers["measured"],
    }


def _status_timeline_json(tasks: list[Task], now: float) -> list[dict[str, Any]]:
    """What robots executed in the last minute, and what they are expected to; times are seconds from now."""
    tasks = [task for task in tasks if _does_status_task_reach(task, now - TIMELINE_S)]
    return [
        {
            "agent": task.request.agent,
            "class": task.kind,
            "outcome": task.outcome if task.state == "ended" else None,
            "generating": task.state == "generating",
            "arrival_s": round(task.arrival_s - now, 2),
            "ended_s": round(task.settled_s - now, 2) if task.state == "ended" else None,
            "segments": [
                {
                    "text": _short_status_text(segment.text),
                    "ready_s": round(segment.ready_s - now, 2),
                    "start_s": round(segment.start_s - now, 2),
                    "end_s": round(segment.end_s - now, 2),
                    "done": segment.done,
                }
                for segment in task.track.segments
                if segment.end_s > now - TIMELINE_S and not _is_status_segment_abandoned(task, segment)
            ],
        }
        for task in tasks[-MAX_TIMELINE_TASKS:]
    ]


def _is_status_segment_abandoned(task: Task, segment: Segment) -> bool:
    """The segment had not started when its plan ended early."""
    return task.state == "ended" and task.outcome != "complete" and segment.start_s >= task.settled_s


def _does_status_task_reach(task: Task, since_s: float) -> bool:
    """Something of the task happened after ``since_s``."""
    return task.state != "ended" or max(task.settled_s, task.track.end_s) > since_s


def _short_status_text(text: str) -> str:
    return text if len(text) <= MAX_TASK_CHARS else text[: MAX_TASK_CHARS - 1] + "…"
