"""Workloads whose load can be scaled: more robots, each with as many tasks as before.

Load 1 is the published workload. At load 2 there are twice the robots and twice the events, each as large as before.
A high load is served for a shorter time, so that every point has about as many tasks.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from lrtrace.compose.composition import compose_workload
from lrtrace.compose.workload import WORKLOADS as COMPOSED
from lrtrace.importers.public_traces import PublicTraceImport
from timely.bench.capacity import rival_workloads as rival
from timely.bench.capacity.lengths import (
    CONVERSATION,
    MAX_PROMPT_TOKENS,
    capacity_request,
    clip_lengths,
    poisson_arrivals,
)
from timely.bench.capacity.made_up_traces import TRACE_LIKENESSES
from timely.core.errors import check_name
from timely.engines.replay_types import PlannedTask
from timely.replay.trace import replay_task_from_job

POINT_TASKS, QUICK_POINT_TASKS = 1200, 500
"""Robot tasks of a point, about; loads below the published one have fewer."""

MIN_S, QUICK_MIN_S = 60.0, 30.0
"""Shortest duration of a point, seconds: several times as long as a robot is busy with a task."""

FLEET_SHARE = 1 / 3
"""Share of the robots and events of WID 2, WID 3 and the readers in the mixed fleet."""

SURGE_S, SURGE_PERIOD_S, SURGE_FACTOR = 10.0, 60.0, 4.0
"""A surge lasts so long, comes so often, and multiplies the events."""

CHAT_PROMPT_TOKENS_PER_S = 2000.0
"""Prompt tokens of the chats beside the robots, a second. Robots are scaled, chats are not."""

PUBLIC_TRACES = {
    "robots-and-azure": ("azure", "azure2023/AzureLLMInferenceTrace_conv.csv"),
    "robots-and-mooncake": ("mooncake", "mooncake/conversation_trace.jsonl"),
}
"""Workload -> format and file of its chats, within the folder of real traces; without one they are made up alike."""

Requests = Sequence[tuple[float, int, int]]
"""Arrival in seconds, prompt tokens and answer tokens of each request."""


@dataclass(frozen=True, slots=True)
class CapacityWorkload:
    """A workload at load 1.

    Attributes:
        robots: of all kinds together; without robots it is users who ask once a minute.
        tasks_per_s: of robots, on average.
        duration_s: as published, or the longest that is measured.
        make: robot tasks at a load, a seed and a duration.
        chats: whether ordinary requests are served beside the robots.
        owner: the rival whose headline workload it is, or empty.
        least_s: shortest duration of a point, seconds, where its deadlines need more than others.
    """

    name: str
    summary: str
    robots: int
    tasks_per_s: float
    duration_s: float
    make: Callable[[float, int, float], list[PlannedTask]]
    chats: bool = False
    owner: str = ""
    least_s: float = 0.0

    def seconds(self, load: float, *, quick: bool) -> float:
        """Duration of a point, seconds."""
        tasks, least_s = (QUICK_POINT_TASKS, QUICK_MIN_S) if quick else (POINT_TASKS, MIN_S)
        return max(least_s, self.least_s, min(self.duration_s, tasks / (self.tasks_per_s * load)))


def find_capacity_workload(name: str) -> CapacityWorkload:
    """The workload of that name; raises UnknownName without one."""
    check_name("workload", name, CAPACITY_WORKLOADS, where="--workloads")
    return CAPACITY_WORKLOADS[name]


def capacity_tasks(
    name: str, load: float, seed: int, *, quick: bool = False, data: str = ""
) -> list[PlannedTask]:
    """The tasks of a workload at a load, in order of arrival.

    Args:
        data: folder of real traces; empty for requests that are made up like theirs.

    Raises:
        UnknownName: no such workload. BadInput: the folder's trace is missing or broken.
    """
    workload = find_capacity_workload(name)
    seconds = workload.seconds(load, quick=quick)
    tasks = workload.make(load, seed, seconds)
    if workload.chats:
        if name in PUBLIC_TRACES:
            requests = public_capacity_requests(name, data, seed, seconds)
        else:
            requests = made_up_requests(seed, seconds)
        tasks += [
            capacity_request(f"chat-{number}", arrival_s, lengths, plain=True)
            for number, (arrival_s, *lengths) in enumerate(requests)
        ]
    return sorted(tasks, key=lambda task: task.arrival_s)


def _composer(name: str, share: float = 1.0) -> Callable[[float, int, float], list[PlannedTask]]:
    def make(load: float, seed: int, seconds: float) -> list[PlannedTask]:
        base = COMPOSED[name]
        scale = share * load
        trace = compose_workload(
            name, seed, eps=base.eps * scale, agents=math.ceil(base.agents * scale), duration_s=seconds
        )
        return [replay_task_from_job(job, trace.header.network_s) for job in trace.jobs]

    return make


def _compose_mixed_fleet(load: float, seed: int, seconds: float) -> list[PlannedTask]:
    return [
        replace(task, job=f"{name}-{task.job}")
        for name in ("wid2", "wid3", "chat")
        for task in _composer(name, FLEET_SHARE)(load, seed, seconds)
    ]


def _compose_surges(load: float, seed: int, seconds: float) -> list[PlannedTask]:
    """WID 2 whose events come ``SURGE_FACTOR`` times as often now and then, with as many on average."""
    base = COMPOSED["wid2"]
    calm = base.eps * load / (1.0 + (SURGE_FACTOR - 1.0) * SURGE_S / SURGE_PERIOD_S)
    arrivals = list(_surging_arrivals(np.random.default_rng(seed), calm, seconds))
    trace = compose_workload(
        "wid2", seed, arrivals=arrivals, agents=math.ceil(base.agents * load), duration_s=seconds
    )
    return [replay_task_from_job(job, trace.header.network_s) for job in trace.jobs]


def _surging_arrivals(draw: np.random.Generator, calm: float, seconds: float) -> Iterator[float]:
    """A Poisson process by thinning; a surge is in the middle of each period."""
    begin_s = (SURGE_PERIOD_S - SURGE_S) / 2.0
    for time_s in poisson_arrivals(draw, calm * SURGE_FACTOR, seconds):
        surge = begin_s <= time_s % SURGE_PERIOD_S < begin_s + SURGE_S
        if surge or draw.random() < 1.0 / SURGE_FACTOR:
            yield time_s


def made_up_requests(seed: int, seconds: float) -> Requests:
    """Poisson arrivals with lengths like those of a public trace, which is not shipped."""
    draw = np.random.default_rng([seed, 1])
    rate = CHAT_PROMPT_TOKENS_PER_S / CONVERSATION.mean_prompt
    return [(time_s, *CONVERSATION.draw(draw)) for time_s in poisson_arrivals(draw, rate, seconds)]


def public_capacity_requests(name: str, data: str, seed: int, seconds: float) -> Requests:
    """A part of a public trace; its arrivals are scaled to the rate of the chats and keep their bursts.

    Without a folder of traces the requests are made up alike.
    """
    source, file = PUBLIC_TRACES[name]
    if not data:
        return TRACE_LIKENESSES[source].requests(seed, CHAT_PROMPT_TOKENS_PER_S, seconds)
    rows = _read_public_rows(source, str(Path(data) / file))
    span_s, prompt_tokens = rows[-1][0], sum(prompt for _, prompt, _ in rows)
    speed = CHAT_PROMPT_TOKENS_PER_S / (prompt_tokens / span_s)
    skip_s = (seed * 997.0) % max(1.0, span_s / speed - seconds)
    requests = ((time_s / speed - skip_s, prompt, answer) for time_s, prompt, answer in rows)
    return [
        (round(time_s, 6), *clip_lengths(prompt, answer))
        for time_s, prompt, answer in requests
        if 0.0 <= time_s < seconds
    ]


@cache
def _read_public_rows(source: str, path: str) -> Requests:
    return [
        (job.arrival_s, job.prompt_tokens, job.plan[0].tokens)
        for job in PublicTraceImport(source, path).jobs
        if job.prompt_tokens <= MAX_PROMPT_TOKENS
    ]


def _workload_of(name: str) -> CapacityWorkload:
    base = COMPOSED[name]
    return CapacityWorkload(
        name, base.summary, base.agents, base.eps * (1 + base.max_tpe) / 2, base.duration_s, _composer(name)
    )


_WID2 = _workload_of("wid2")
_FLEET = [_workload_of(name) for name in ("wid2", "wid3", "chat")]

CAPACITY_WORKLOADS: Mapping[str, CapacityWorkload] = {
    workload.name: workload
    for workload in (
        _workload_of("wid1"),
        _WID2,
        _workload_of("wid3"),
        CapacityWorkload(
            "mixed-fleet",
            "drones, arms and readers, a third of WID 2, of WID 3 and of the readers each",
            sum(math.ceil(kind.robots * FLEET_SHARE) for kind in _FLEET),
            sum(kind.tasks_per_s for kind in _FLEET) * FLEET_SHARE,
            300.0,
            _compose_mixed_fleet,
        ),
        replace(_WID2, name="surges", summary="WID 2 whose events come in surges", make=_compose_surges),
        replace(_WID2, name="robots-and-chat", summary="WID 2 beside made-up chats", chats=True),
        *(
            replace(_WID2, name=name, summary=f"WID 2 beside chats of, or like, a public trace ({source})", chats=True)
            for name, (source, _) in PUBLIC_TRACES.items()
        ),
        CapacityWorkload(
            "own-qoserve", "interactive requests, and batch requests with two deadlines", 60, rival.QOSERVE_RATE,
            600.0, rival.qoserve_capacity_requests, owner="qoserve", least_s=150.0,
        ),
        CapacityWorkload(
            "own-jitserve", "chats, whole answers with deadlines, applications with one deadline", 36,
            rival.JITSERVE_RATE * (2.0 + sum(rival.STAGES) / len(rival.STAGES)) / 3.0, 600.0,
            rival.jitserve_capacity_requests,
            owner="jitserve", least_s=150.0,
        ),
        CapacityWorkload(
            "own-slos-serve", "chats, coding and summaries with deadlines of prompts and paces", 15, rival.SLOS_RATE,
            600.0, rival.slos_serve_capacity_requests, owner="slos-serve", least_s=120.0,
        ),
        CapacityWorkload(
            "own-inferential", "robots that ask a policy for an action again and again", rival.POLICY_ROBOTS,
            rival.POLICY_ROBOTS * sum(1.0 / period_s for period_s in rival.PERIODS_S) / len(rival.PERIODS_S), 300.0,
            rival.inferential_capacity_requests, owner="inferential",
        ),
    )
}  # fmt: skip
"""By name."""
