"""Disciplines with a heap of waiting jobs: a job that cannot start does not block those behind it."""

from __future__ import annotations

import pytest

from timely.core.job import NEVER, JobSpec, JobTable
from timely.disciplines.base import Discipline, StepLimits, StepPlan
from timely.disciplines.registry import create_discipline
from timely.engines.step_time.learned import FixedSpeed

NAMES = ("justitia", "vtc", "vllm-sjf")


class Scene:
    """A table, and a discipline that knows its jobs; an engine for one LoRA adapter a step."""

    def __init__(self, name: str) -> None:
        self.table = JobTable()
        self.discipline: Discipline = create_discipline(name)

    def add(self, name: str, *, adapter: int = 0, running: bool = False, ready: bool = True) -> None:
        job = self.table.add(
            JobSpec(name, 0.0, prompt_tokens=32, plain=True, segmented=False, adapter=adapter)
        )
        row = job.row
        if running:
            self.table.resident[row] = self.table.active[row] = True
            self.table.prefill_left[row] = 0
            self.table.context_tokens[row], self.table.blocks[row] = 33, 3
        if not ready:
            self.table.resume_s[row] = NEVER
        self.discipline.arrived(job, 0.0)

    def compose(self) -> StepPlan:
        limits = StepLimits(1.0, 2048, 8, 8, 2048, 1000, 16, FixedSpeed(), max_adapters=1)
        return self.discipline.compose(self.table, limits)


@pytest.mark.parametrize("name", NAMES)
def test_a_job_whose_adapter_has_no_place_blocks_no_other(name: str) -> None:
    scene = Scene(name)
    scene.add("runs", adapter=1, running=True)
    scene.add("barred", adapter=2)
    scene.add("bare")
    scene.add("same", adapter=1)
    assert set(scene.compose().tokens) == {"runs", "bare", "same"}
    for job_id in ("runs", "bare", "same"):
        job = scene.table[job_id]
        scene.discipline.finished(job, 1.0)
        scene.table.remove(job_id)
    assert set(scene.compose().tokens) == {"barred"}, "it kept its place"


@pytest.mark.parametrize("name", NAMES)
def test_a_job_that_is_not_ready_blocks_no_other(name: str) -> None:
    scene = Scene(name)
    scene.add("not ready", ready=False)
    scene.add("ready")
    assert set(scene.compose().tokens) == {"ready"}
    scene.table.resume_s[scene.table["not ready"].row] = 0.5
    assert set(scene.compose().tokens) == {"ready", "not ready"}
