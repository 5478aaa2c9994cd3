"""What an engine's own loop takes between steps, and how that grows with its jobs, from the journals of engines."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from timely.core.arrays import Floats
from timely.engines.step_time.fit import LEAST_STEPS, non_negative_step_fit
from timely.engines.step_time.journal import NEXT_STEP_S, live_jobs_at_steps

LEAST_JOBS = (8, 32)
"""A slope takes a dozen steps with so many members, or waiting jobs, more than others have: small numbers mislead."""

REFITS = 20

LEAST_OFF_S = 1e-6
"""Deviations below this count alike: no clock is better."""


def step_loop_s(journals: Iterable[Iterable[Mapping[str, Any]]]) -> dict[str, float]:
    """What an engine's own loop takes, by the fields of ``ProfileLimits``, seconds: medians, and slopes beside them.

    ``between_s`` lies between two steps. ``launch_s`` and ``launch_prompts_s`` exist with asynchronous scheduling only.
    They are measured from composing a step of an idle engine to composing the next, while the first one runs.
    All three are without the growth.
    ``loop_member_s`` and ``loop_waiting_s`` say how the time from the end of a step to the next composition grows. With
    asynchronous scheduling they have the growth of ``loop_s``, too, where the journal tells it: what scheduling a step
    and taking in its tokens took. Otherwise the times of steps contain that.
    Beside a journal of an older version, which does not tell the jobs that waited, ``loop_waiting_s`` is 0: its steps
    contain that growth. ``journals`` has the events of each engine apart.
    """
    loops: dict[str, list[tuple[float, ...]]] = {"between_s": [], "launch_s": [], "launch_prompts_s": []}
    """Of each: time, members and live jobs that waited."""
    gaps: list[tuple[float, ...]] = []
    works: list[tuple[float, ...]] = []
    event_lists = [list(events) for events in journals]
    tells_waiting = not any(map(_is_older_journal, event_lists))
    for events in event_lists:
        timed_events = [event for event in events if event.get("event") == "timed"]
        live, arrivals = live_jobs_at_steps(events) if tells_waiting else {}, _arrivals_before_steps(events)
        journal_gaps = _loop_gaps(timed_events, live, arrivals)
        gaps += journal_gaps.values()
        works += _loop_works(timed_events, live, arrivals)
        last_s = -math.inf
        for number, (event, after) in enumerate(pairwise(timed_events)):
            gap_s = float(after["t_s"]) - float(event["end_s"])
            if 0.0 <= gap_s < NEXT_STEP_S:
                loops["between_s"].append(journal_gaps[number])
            elif gap_s < 0.0 and last_s < event["t_s"]:
                name = "launch_prompts_s" if event["prefill_tokens"] > 0 else "launch_s"
                loops[name].append((float(after["t_s"]) - float(event["t_s"]), *_step_jobs(event, live)))
            last_s = float(event["end_s"])
    member_s, waiting_s = np.add(_loop_slopes_s(gaps), _loop_slopes_s(works)).tolist()
    medians_s = {}
    for name, measured_loops in loops.items():
        times_s = [max(0.0, loop[0] - member_s * loop[1] - waiting_s * loop[2]) for loop in measured_loops]
        medians_s[name] = statistics.median(times_s) if times_s else 0.0
    return {**medians_s, "loop_member_s": member_s, "loop_waiting_s": waiting_s}


def _is_older_journal(events: Sequence[Mapping[str, Any]]) -> bool:
    """It is of before 2026-11-28, and has no ends of jobs."""
    has_timed = any(event.get("event") == "timed" for event in events)
    return has_timed and not any(event.get("event") == "finish" or "loop_s" in event for event in events)


def _loop_gaps(
    timed_events: Sequence[Mapping[str, Any]], live: Mapping[float, int], arrivals: Mapping[float, int]
) -> dict[int, tuple[float, ...]]:
    """By a step's place: time from its end to the next composition, its members, jobs not in the next one, new jobs.

    With asynchronous scheduling the step behind it is composed already, and the next one is the one after that.
    """
    gaps: dict[int, tuple[float, ...]] = {}
    later = 0
    for number, event in enumerate(timed_events):
        end_s = float(event["end_s"])
        later = max(later, number + 1)
        while later < len(timed_events) and float(timed_events[later]["t_s"]) < end_s:
            later += 1
        if later == len(timed_events):
            break
        composed_s = float(timed_events[later]["t_s"])
        if composed_s - end_s < NEXT_STEP_S:
            members, _ = _step_jobs(event, live)
            _, waiting = _step_jobs(timed_events[later], live)
            gaps[number] = composed_s - end_s, members, waiting, arrivals.get(composed_s, 0)
    return gaps


def _loop_works(
    timed_events: Sequence[Mapping[str, Any]], live: Mapping[float, int], arrivals: Mapping[float, int]
) -> list[tuple[float, ...]]:
    """Of steps with another composed while they ran: ``loop_s``, its members, jobs not in it, new jobs."""
    works: list[tuple[float, ...]] = []
    for event, after in pairwise(timed_events):
        composed_s = float(event["t_s"])
        if "loop_s" in event and float(after["t_s"]) < float(event["end_s"]):
            works.append((float(event["loop_s"]), *_step_jobs(event, live), arrivals.get(composed_s, 0)))
    return works


def _step_jobs(event: Mapping[str, Any], live: Mapping[float, int]) -> tuple[int, int]:
    """Members of a step, and live jobs that were not in it."""
    members = int(event["decodes"] + event["prefills"])
    return members, max(0, live.get(float(event["t_s"]), 0) - members)


def _arrivals_before_steps(events: Iterable[Mapping[str, Any]]) -> dict[float, int]:
    """Jobs that the engine took up just before it composed each step, since the end of another."""
    arrivals, counts = 0, {}
    for event in events:
        kind = event.get("event")
        if kind == "arrive":
            arrivals += 1
        elif kind == "timed":
            arrivals = 0
        elif kind == "step":
            counts[float(event["t_s"])], arrivals = arrivals, 0
    return counts


def _loop_slopes_s(gaps: Sequence[tuple[float, ...]]) -> tuple[float, float]:
    """Seconds for each member and each waiting job, not negative: least absolute deviations, as of a median.

    New jobs are a column of their own, or those that wait would have their cost. Each half of the steps is fitted, and
    the smaller slope counts, so what only some steps show is none.
    """
    table = np.array(gaps, dtype=np.float64).reshape(-1, 4)
    has_slope = [
        np.count_nonzero(column - column.min(initial=math.inf) >= least) >= LEAST_STEPS
        for column, least in zip(table.T[1:3], LEAST_JOBS, strict=True)
    ]
    if not any(has_slope):
        return 0.0, 0.0
    columns = np.column_stack([np.ones(len(table)), table[:, 1:]])
    columns[:, 1:3] *= has_slope
    halves = [_least_absolute_deviations(columns[half::2], table[half::2, 0]) for half in (0, 1)]
    member_s, waiting_s = np.min(halves, axis=0)[1:3].tolist()
    return member_s, waiting_s


def _least_absolute_deviations(columns: Floats, time: Floats) -> Floats:
    scale = columns.max(axis=0)
    scale[scale == 0.0] = 1.0
    x = columns / scale
    weight = np.ones(len(time))
    for _ in range(REFITS):
        coefficients = non_negative_step_fit(x * weight[:, None], time * weight)
        weight = 1.0 / np.sqrt(np.maximum(np.abs(x @ coefficients - time), LEAST_OFF_S))
    slopes: Floats = coefficients / scale
    return slopes
