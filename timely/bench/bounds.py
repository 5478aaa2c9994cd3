"""Bounds that no schedule can beat: every task alone on an idle engine, and a clairvoyant order of a burst."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from timely.core.errors import InvalidInput
from timely.engines.replay_types import PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import StepTime, StepTimeProfile

MAX_TASKS = 14
"""The search for the clairvoyant order visits all subsets: 2 to the number of tasks."""


class IdleEngineResponses:
    """Response time of each task on an engine that does nothing else, its prefix cached; seconds."""

    def __init__(self, profile: StepTimeProfile) -> None:
        self._profile = profile
        self._response_s: dict[tuple[int, int, int, float], float] = {}

    def response_s(self, task: PlannedTask) -> float:
        """From its arrival to the start of its first segment."""
        key = (task.prompt_tokens, task.shared_prefix_tokens, task.plan[0].tokens, task.hints.network_s)
        if key not in self._response_s:
            options = ReplayOptions(discipline="fcfs", journal=False, warm_prefixes=True)
            alone = replace(task, arrival_s=0.0, plan=task.plan[:1])
            self._response_s[key] = Simulator(options, self._profile).run([alone]).records[0].response_time_s
        return self._response_s[key]

    def utility(self, task: PlannedTask) -> float:
        return task.hints.utility.value(self.response_s(task))


def bench_clairvoyant_bound(tasks: Sequence[PlannedTask], profile: StepTimeProfile) -> float:
    """An upper bound on the summed utility of tasks that arrive at one moment on an idle engine.

    The scheduler knows everything and chooses the order in which first segments are completed.
    A segment is not complete before its task would be if it ran alone.
    Neither is it complete before the accelerator has computed its tokens and those of all earlier segments.
    Tokens are computed at the best rate of any step, so no schedule of real steps does better.
    The bound is exact, by dynamic programming over subsets (Held and Karp).

    Raises:
        InvalidInput: more than ``MAX_TASKS`` tasks.
    """
    count = len(tasks)
    if count > MAX_TASKS:
        raise InvalidInput(f"{count} tasks at once, at most {MAX_TASKS} can be ordered", where="tasks")
    alone = IdleEngineResponses(profile)
    token_s = benchmark_min_token_s(profile)
    work = [_bound_prompt_tokens(task, profile) * token_s for task in tasks]
    path = [alone.response_s(task) for task in tasks]
    work_of = np.zeros(1 << count)
    for task in range(count):
        work_of[1 << task : 2 << task] = work_of[: 1 << task] + work[task]
    best = np.full(1 << count, -np.inf)
    best[0] = 0.0
    for size in range(1, count + 1):
        for members in combinations(range(count), size):
            subset = sum(1 << member for member in members)
            ready = work_of[subset]
            best[subset] = max(
                best[subset ^ (1 << last)]
                + tasks[last].hints.utility.value(max(ready + tasks[last].hints.network_s, path[last]))
                for last in members
            )
    return float(best[-1])


def benchmark_min_token_s(profile: StepTimeProfile) -> float:
    """The least time any step takes per token in it, seconds."""
    step = StepTime(profile.step_s)
    return min(step(0, 1, tokens, 0.0, 0) / tokens for tokens in range(1, profile.limits.token_budget + 1))


def _bound_prompt_tokens(task: PlannedTask, profile: StepTimeProfile) -> int:
    """Tokens to compute until the first segment is complete, without the cached prefix."""
    cached_tokens = min(task.shared_prefix_tokens, task.prompt_tokens - 1)
    cached_tokens -= cached_tokens % profile.kv.block_tokens
    return task.prompt_tokens - cached_tokens + task.plan[0].tokens - 1
