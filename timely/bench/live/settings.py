"""What the live comparison measures: systems, workloads, tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lrtrace.compose.composition import compose
from timely.disciplines import registry
from timely.engines.base import Mode
from timely.engines.replay_types import PlannedTask, ReplayOptions
from timely.replay.trace import replay_task_from_job

SYSTEMS: dict[str, tuple[str, Mode]] = {
    "timely": ("timely", "segmented"),
    "weighted-tardiness": ("weighted-tardiness", "segmented"),
    "pud": ("pud", "segmented"),
    "edf": ("edf", "segmented"),
    "fcfs": ("fcfs", "segmented"),
    "vllm-stream": ("fcfs", "stream"),
    "vllm": ("fcfs", "whole"),
}
"""System -> discipline and mode (TimelyLLM section 7.1)."""

ABLATIONS: dict[str, tuple[str, Mode]] = {
    name: (name, "segmented") for name in registry.discipline_ablation_names()
}
"""Parts of our disciplines."""

DEFAULT_DURATIONS_S = {"wid1": 45.0, "wid2": 45.0, "wid3": 60.0}
"""Workload of Table 3 -> how much of it is served, seconds."""

MIN_BOUND_TOKENS = 10
"""Tokens of the longest segment, if none is longer (TimelyLLM section 7.1)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured; all runs of a folder share it.

    Attributes:
        workloads: name -> seconds of it.
        seed: of the tasks of the first repetition; the next has the next seed. All systems get the same tasks.
        prompt_tokens, shared_prefix_tokens: of every task; the shared part is cached, as pre-stored prompts are.
        model: folder or name of the model; None: the packaged one.
        arguments: further ones for vLLM.
    """

    workloads: Mapping[str, float]
    systems: tuple[str, ...] = tuple(SYSTEMS)
    seed: int = 7
    prompt_tokens: int = 600
    shared_prefix_tokens: int = 480
    model: str | None = None
    arguments: tuple[str, ...] = ()

    def options(self, system: str) -> ReplayOptions:
        """How a system is replayed, live and simulated."""
        discipline, mode = (SYSTEMS | ABLATIONS)[system]
        registry.load_discipline(discipline)
        return ReplayOptions(
            discipline=discipline, mode=mode, seed=self.seed, journal=False, warm_prefixes=True
        )

    def tasks(self, workload: str, repetition: int = 0) -> list[PlannedTask]:
        """The tasks of a workload in order of arrival, each with the longest segment of its skill set.

        Each repetition has other tasks.
        A schedule may hang on a millisecond, and more runs of the same tasks would only repeat that.
        """
        trace = compose(
            workload,
            self.seed + repetition,
            duration_s=self.workloads[workload],
            prompt_tokens=self.prompt_tokens,
            shared_prefix_tokens=self.shared_prefix_tokens,
        )
        tasks = [replay_task_from_job(job, trace.header.network_s) for job in trace.jobs]
        longest: dict[str, int] = {}
        for task in tasks:
            bound = max(segment.tokens for segment in task.plan)
            longest[task.skill_set] = max(bound, longest.get(task.skill_set, MIN_BOUND_TOKENS))
        return sorted(
            (replace(task, segment_bound=longest[task.skill_set]) for task in tasks),
            key=lambda task: task.arrival_s,
        )
