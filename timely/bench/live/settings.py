"""What the live comparison measures: systems, workloads at loads, tasks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from timely.bench.capacity.measure import CAPACITY_SYSTEMS, CapacitySystem
from timely.bench.capacity.workloads import PUBLIC_TRACES, find_capacity_workload, made_up_requests
from timely.core.errors import InvalidInput
from timely.disciplines import registry
from timely.engines.replay_types import PlannedSegment, PlannedTask, ReplayOptions

SYSTEMS = ("timely", "weighted-tardiness", "pud", "edf", "fcfs", "vllm-stream", "vllm")
"""Those of ``timely bench capacity``, and any discipline, segmented (TimelyLLM section 7.1)."""

DEFAULT_DURATION_S = 45.0
DEFAULT_DURATIONS_S = {"wid3": 60.0}
"""Workload -> how much of it is served, seconds, where that is not the default."""

CHAT_PROMPT_PART, CHAT_ANSWER_PART = 8, 4
"""Chats have this part of the lengths of ``timely bench capacity``, and come as often: small machines serve these."""

MIN_BOUND_TOKENS = 10
"""Tokens of the longest segment, if none is longer (TimelyLLM section 7.1)."""


@dataclass(frozen=True, slots=True)
class LiveBenchSettings:
    """What is measured; all runs of a folder share it.

    Attributes:
        workloads: name, or name@load -> seconds of it. Names are those of ``timely bench capacity``; load 1 is the
            published one.
        seed: of the tasks of the first repetition; the next has the next seed. All systems get the same tasks.
        prompt_tokens, shared_prefix_tokens: of every task; the shared part is cached, as pre-stored prompts are.
        model: folder or name of the model; None: the packaged one.
        arguments: further ones for vLLM.
    """

    workloads: Mapping[str, float]
    systems: tuple[str, ...] = SYSTEMS
    seed: int = 7
    prompt_tokens: int = 600
    shared_prefix_tokens: int = 480
    model: str | None = None
    arguments: tuple[str, ...] = ()

    def options(self, system: str) -> ReplayOptions:
        """How a system is replayed, live and simulated."""
        kind = CAPACITY_SYSTEMS.get(system, CapacitySystem(system, "segmented"))
        registry.load_discipline(kind.discipline)
        return ReplayOptions(
            discipline=kind.discipline, mode=kind.mode, seed=self.seed, journal=False, warm_prefixes=True
        )

    def tasks(self, workload: str, repetition: int = 0) -> list[PlannedTask]:
        """The tasks of a workload in order of arrival, each with the longest segment of its skill set.

        Each repetition has other tasks.
        A schedule may hang on a millisecond, and more runs of the same tasks would only repeat that.

        Raises:
            UnknownName: no such workload. InvalidInput: its load is no positive number.
        """
        name, load = parse_live_bench_workload(workload)
        source = find_capacity_workload(name)
        seed, seconds = self.seed + repetition, self.workloads[workload]
        robots = source.make(load, seed, seconds)
        longest: dict[str, int] = {}
        for task in robots:
            bound = max(segment.tokens for segment in task.plan)
            longest[task.skill_set] = max(bound, longest.get(task.skill_set, MIN_BOUND_TOKENS))
        tasks = [
            replace(
                task,
                segment_bound=longest[task.skill_set],
                prompt_tokens=self.prompt_tokens,
                shared_prefix_tokens=self.shared_prefix_tokens,
            )
            for task in robots
        ]
        if source.chats:
            tasks += _live_bench_chats(load, seed, seconds)
        return sorted(tasks, key=lambda task: task.arrival_s)


def parse_live_bench_workloads(text: str) -> dict[str, float]:
    """``wid1,wid2@0.5:30`` as seconds by workload and load.

    Raises:
        UnknownName: no such workload. InvalidInput: a load or a time that is none.
    """
    durations_s: dict[str, float] = {}
    for part in text.split(","):
        workload, _, seconds = part.strip().partition(":")
        name, _ = parse_live_bench_workload(workload)
        default_s = DEFAULT_DURATIONS_S.get(name, DEFAULT_DURATION_S)
        duration_s = _live_bench_number(seconds, "number of seconds") if seconds else default_s
        if not 1.0 <= duration_s < math.inf:
            raise InvalidInput(f"{workload} for {seconds!r} s; at least 1 s", where="--workloads")
        durations_s[workload] = duration_s
    return durations_s


def parse_live_bench_workload(text: str) -> tuple[str, float]:
    """``wid2@0.5`` as its name and its load; without one, 1.

    Raises:
        UnknownName: no such workload. InvalidInput: the load is no positive number, or prompts are long.
    """
    name, _, load = text.partition("@")
    if name in PUBLIC_TRACES or find_capacity_workload(name).owner:
        raise InvalidInput(
            f"{name} has prompts that are too long here; the simulator serves it", where="--workloads"
        )
    value = _live_bench_number(load, "load") if load else 1.0
    if not 0.0 < value < math.inf:
        raise InvalidInput(f"a load of {load}; it must be over 0", where="--workloads")
    return name, value


def _live_bench_number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is no {what}", where="--workloads") from None


def _live_bench_chats(load: float, seed: int, seconds: float) -> list[PlannedTask]:
    """Plain requests; their rate is scaled with the load, as that of the robots is."""
    return [
        PlannedTask(
            f"chat-{number}",
            round(arrival_s / load, 6),
            (PlannedSegment("", max(1, answer // CHAT_ANSWER_PART), 0.0),),
            max(1, prompt // CHAT_PROMPT_PART),
            plain=True,
        )
        for number, (arrival_s, prompt, answer) in enumerate(made_up_requests(seed, seconds * load))
    ]
