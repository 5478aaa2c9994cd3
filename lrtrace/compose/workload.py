"""Workloads: event rates, tasks and robots, with the paper's workloads by name (TimelyLLM, Table 3)."""

import math
from dataclasses import dataclass

from lrtrace.compose.tasks import find_workload_task
from lrtrace.errors import BadInput, UnknownName

CHAT = 0
"""Trace id of a chatbot request."""

MAX_RATE = 1_000_000
"""Largest number of events a second, and of tasks an event: with far more, a composition never ends."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Rates, tasks and robots of a workload.

    Attributes:
        eps: events per second, the rate of a Poisson process.
        max_tpe: maximum tasks per event; each number from 1 is equally likely.
        trace_ids: tasks to draw from, all equally likely; 0 is a chatbot request.
        agents: number of robots of each kind.
        duration_s: time of the last event, seconds.
        prompt_tokens: length of each prompt.
        shared_prefix_tokens: length of the prompt's start that a whole skill set shares.
    """

    name: str
    summary: str
    eps: float
    max_tpe: int
    trace_ids: tuple[int, ...]
    agents: int
    duration_s: float
    prompt_tokens: int = 1300
    shared_prefix_tokens: int = 1200

    def __post_init__(self) -> None:
        for name, value in (("eps", self.eps), ("duration_s", self.duration_s)):
            if not 0 < value < math.inf:
                raise BadInput(f"{name}: must be positive, got {value}")
        for name, value in (("eps", self.eps), ("max_tpe", self.max_tpe)):
            if value > MAX_RATE:
                raise BadInput(f"{name}: must be at most {MAX_RATE}, got {value:g}")
        for name, count in (
            ("max_tpe", self.max_tpe),
            ("agents", self.agents),
            ("prompt_tokens", self.prompt_tokens),
        ):
            if count < 1:
                raise BadInput(f"{name}: must be 1 or more, got {count}")
        if not 0 <= self.shared_prefix_tokens <= self.prompt_tokens:
            raise BadInput(
                f"shared_prefix_tokens: must be 0 to prompt_tokens={self.prompt_tokens},"
                f" got {self.shared_prefix_tokens}"
            )
        if not self.trace_ids:
            raise BadInput("trace_ids: must name at least one task")
        for trace_id in self.trace_ids:
            if trace_id != CHAT:
                find_workload_task(trace_id)


_DRONE = tuple(range(1, 9))

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload("wid1", "drones, normal and urgent tasks (Table 3, WID 1)", 0.25, 8, _DRONE, 25, 260.0),
        Workload("wid2", "drones, more tasks at once (Table 3, WID 2)", 0.25, 16, _DRONE, 42, 300.0),
        Workload("wid3", "robot arms, long plans (Table 3, WID 3)", 0.1, 8, (9, 10, 11), 40, 900.0),
        Workload("chat", "people who read stories (section 7.4.2)", 0.25, 8, (CHAT,), 100, 260.0, 80, 40),
    )
}
"""The paper's workloads and the chatbot's, by name. The chatbot's rates are our choice, since the paper has none."""


def find_workload(name: str) -> Workload:
    """The workload of that name; raises UnknownName without one."""
    try:
        return WORKLOADS[name]
    except KeyError:
        raise UnknownName("workload", name, WORKLOADS) from None
