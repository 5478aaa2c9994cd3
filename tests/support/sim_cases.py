"""Small workloads and a simulator that checks its books at every step, for the tests of this folder."""

from __future__ import annotations

from typing import Any

import numpy as np
from hints import with_hints

from timely.core.job import JobSpec
from timely.core.utility import NORMAL, URGENT
from timely.disciplines.timely.discipline import Timely
from timely.engines.replay_types import BackendRun, PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import KvCache, ProfileLimits, StepTerms, StepTimeProfile


class Recording(Timely):
    """Keeps the specs that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.specs: list[JobSpec] = []

    def check(self, spec: JobSpec) -> None:
        self.specs.append(spec)


def profile(
    *,
    base: float = 0.01,
    blocks: int = 1000,
    block_tokens: int = 16,
    swap: float = 0.0,
    max_batch: int = 64,
    token_budget: int = 100_000,
    per_sequence: float = 0.0,
    per_prefill_token: float = 0.0,
    per_prefill_token_sq: float = 0.0,
    per_context_token: float = 0.0,
) -> StepTimeProfile:
    """A linear profile; every term is zero but the base."""
    return StepTimeProfile(
        name="test",
        source="made up",
        step_s=StepTerms(
            base=base,
            per_sequence=per_sequence,
            per_prefill_token=per_prefill_token,
            per_prefill_token_sq=per_prefill_token_sq,
            per_context_token=per_context_token,
        ),
        kv=KvCache(blocks=blocks, block_tokens=block_tokens, swap_s_per_token=swap),
        limits=ProfileLimits(max_batch=max_batch, token_budget=token_budget),
    )


def task(
    job: int,
    arrival_s: float = 0.0,
    plan: tuple[tuple[int, float], ...] = ((2, 1.0), (3, 1.0)),
    **fields: object,
) -> PlannedTask:
    """A task; ``plan`` as (tokens, execution seconds)."""
    segments = tuple(PlannedSegment(f"s{k};", tokens, seconds) for k, (tokens, seconds) in enumerate(plan))
    return PlannedTask(
        job=job, arrival_s=arrival_s, plan=segments, **with_hints({"prompt_tokens": 32, **fields})
    )


class CheckedSimulator(Simulator):
    """Checks at every step that blocks are counted right and nothing is lost."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.checks = 0
        begin = self.steps._begin

        def checked(now: float, retries: int = 0) -> None:
            begin(now, retries)
            self.check()

        self.steps._begin = checked  # type: ignore[method-assign]

    def check(self) -> None:
        self.checks += 1
        pool, table = self.memory.pool, self.controller.table
        assert 0 <= pool.used_blocks <= pool.capacity
        held = sum(live.holding.private for live in self.live.values())
        holders = [live.holding for live in self.live.values() if live.holding.holder]
        held += sum(part.deepest for part in {part for holding in holders for part in holding.path})
        assert pool.used_blocks == held
        assert len(table) == len(self.live)
        for live in self.live.values():
            row = live.job.row
            if table.resident[row]:
                assert int(table.blocks[row]) == live.holding.blocks
                assert int(table.context_tokens[row]) <= live.holding.blocks * pool.block_tokens
            else:
                assert live.holding.blocks == 0
            assert 0 <= int(table.shared_blocks[row]) <= live.holding.prefix_blocks


def run(tasks: list[PlannedTask], shape: StepTimeProfile | None = None, **options: object) -> BackendRun:
    """Run tasks with the books checked."""
    simulator = CheckedSimulator(ReplayOptions(**options), shape or profile())  # type: ignore[arg-type]
    result = simulator.run(tasks)
    assert simulator.checks or not tasks
    return result


def random_tasks(seed: int, jobs: int, *, prefixes: int = 2, most_prompt: int = 120) -> list[PlannedTask]:
    """Bursty, mixed tasks with shared prefixes, in order of arrival."""
    rng = np.random.default_rng(seed)
    tasks, now = [], 0.0
    for job in range(jobs):
        if rng.random() < 0.4:
            now += float(rng.exponential(0.4))
        prompt = int(rng.integers(2, most_prompt))
        plan = tuple(
            (int(rng.integers(1, 9)), float(rng.choice([0.0, 0.002, 0.3, 1.5])))
            for _ in range(rng.integers(1, 5))
        )
        tasks.append(
            task(
                job,
                round(now, 6),
                plan,
                prompt_tokens=prompt,
                shared_prefix_tokens=int(rng.integers(0, prompt + 1)),
                prefix=f"p{rng.integers(prefixes)}",
                utility=URGENT if rng.random() < 0.4 else NORMAL,
                network_s=0.008,
            )
        )
    return tasks
