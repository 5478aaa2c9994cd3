"""The rules by which a task gets one of several engines: ours by expected loss, and three of other servers."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from timely.core.errors import check_name
from timely.core.job import JobSpec
from timely.routing.forecast import QueueColumns, RoutingEngineLoad, forecast_routing

MAX_ROBOTS = 10_000
"""Robots whose last engine a router keeps."""

PREFIX_WEIGHT, QUEUE_WEIGHT, MEMORY_WEIGHT = 3.0, 2.0, 2.0
"""Of the scores of ``PrefixAware``."""


class Router(Protocol):
    def choose(self, spec: JobSpec, engines: Sequence[RoutingEngineLoad], now: float) -> int:
        """The place of an engine in ``engines`` for a task that arrives now."""


class LeastLoss:
    """The engine where the task and the tasks there together lose the least utility.

    A task of a robot stays on the engine of the robot's last task unless another engine loses less than that. There the
    prompt's prefix is cached, and the robot's pace is known. The prefill that the cache saves is part of the loss. The
    pace counts as ``PACE_S`` of lateness.
    """

    PACE_S = 0.01

    def __init__(self) -> None:
        self._engines: OrderedDict[str, int] = OrderedDict()
        """Engine of each robot's last task."""

    def choose(self, spec: JobSpec, engines: Sequence[RoutingEngineLoad], now: float) -> int:
        robot = spec.hints.agent
        last = self._engines.get(robot)
        losses = []
        for place, load in enumerate(engines):
            prediction = forecast_routing(spec, load, now)
            pace = 0.0 if place == last else -spec.hints.utility.alpha * self.PACE_S
            losses.append(prediction.loss + prediction.harm + pace)
        engine = int(np.argmin(losses))
        if robot:
            self._engines[robot] = engine
            self._engines.move_to_end(robot)
            if len(self._engines) > MAX_ROBOTS:
                self._engines.popitem(last=False)
        return engine


class RoundRobin:
    """Each engine in turn."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, spec: JobSpec, engines: Sequence[RoutingEngineLoad], now: float) -> int:
        engine = self._next % len(engines)
        self._next = engine + 1
        return engine


class LeastLoaded:
    """The engine with the fewest requests, where a waiting one counts as four: the rule of vLLM's front-end.

    vLLM counts a parked generation among the running ones.
    """

    WAITING = 4

    def choose(self, spec: JobSpec, engines: Sequence[RoutingEngineLoad], now: float) -> int:
        return int(np.argmin([_weighted_routing_requests(load.table, self.WAITING) for load in engines]))


class PrefixAware:
    """The engine with the highest sum of scores for cached prefix, short queue and free memory.

    This is the form of the endpoint pickers of the Kubernetes Gateway API and of llm-d. The weights are ours.
    """

    def choose(self, spec: JobSpec, engines: Sequence[RoutingEngineLoad], now: float) -> int:
        queues = np.array([_weighted_routing_requests(load.table, 1) for load in engines], dtype=np.float64)
        span = queues.max() - queues.min()
        scores = (queues.max() - queues) / span if span else np.ones(len(engines))
        scores = QUEUE_WEIGHT * scores
        scores += [
            PREFIX_WEIGHT * load.cached_tokens / spec.prompt_tokens
            + MEMORY_WEIGHT * load.free_blocks / load.blocks
            for load in engines
        ]
        return int(np.argmax(scores))


def _weighted_routing_requests(table: QueueColumns, waiting_weight: int) -> int:
    """Requests of an engine, those that hold no KV cache weighted."""
    return len(table.resident) + (waiting_weight - 1) * int(np.count_nonzero(~table.resident))


ROUTERS: Mapping[str, Callable[[], Router]] = {
    "least-loss": LeastLoss,
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "prefix-aware": PrefixAware,
}
"""By name."""


def create_router(name: str) -> Router:
    """The router of that name; raises UnknownName without one."""
    check_name("router", name, ROUTERS, where="router")
    return ROUTERS[name]()
