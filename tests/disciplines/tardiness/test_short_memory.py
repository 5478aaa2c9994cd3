"""A cut prompt leaves tokens to those that decode. Where the KV cache is short, the cheapest to compute again goes."""

from __future__ import annotations

from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines.base import StepLimits, StepPlan
from timely.disciplines.registry import create_discipline
from timely.engines.step_time.learned import FixedSpeed

STEP_S, SEQUENCE_S, PROMPT_S = 0.02, 0.0001, 0.0001
PATIENT = TimeUtility(60.0, NORMAL.alpha, NORMAL.beta)


class Scene:
    """A step takes 20 ms, 0.1 ms a sequence and 0.1 ms a prompt token."""

    def __init__(self, free_blocks: int = 10_000) -> None:
        self.table = JobTable()
        self.discipline = create_discipline("timely")
        self.free_blocks = free_blocks

    def add(
        self, name: str, utility: TimeUtility, *, prompt: int = 160, output: int = 0, bound: int = 200
    ) -> Job:
        """A request that came at 0 s; with ``output`` tokens it decodes."""
        hints = RequestHints(utility=utility)
        spec = JobSpec(name, 0.0, hints, prompt, max_tokens=500, segment_tokens=bound)
        job = self.table.add(spec)
        self.discipline.arrived(job, 0.0)
        if output:
            table, row = self.table, job.row
            table.active[row] = table.resident[row] = True
            table.prefill_left[row] = 0
            table.output_tokens[row] = table.segment_tokens[row] = output
            table.context_tokens[row] = prompt + output
            table.blocks[row] = -(-(prompt + output) // 16)
        return job

    def compose(self, now: float, token_budget: int = 256) -> StepPlan:
        speed = FixedSpeed(STEP_S, SEQUENCE_S, PROMPT_S)
        limits = StepLimits(now, token_budget, 64, 64, token_budget, self.free_blocks, 16, speed)
        return self.discipline.compose(self.table, limits)


def ten_that_decode() -> Scene:
    scene = Scene()
    for number in range(10):
        scene.add(f"decoding {number}", PATIENT, output=5)
    return scene


def test_a_prompt_that_is_cut_leaves_a_token_to_each_that_decodes() -> None:
    scene = ten_that_decode()
    scene.add("prompt", NORMAL, prompt=2000)
    plan = scene.compose(0.5)
    assert plan.tokens["prompt"] == 256 - 10
    assert len(plan.tokens) == 11


def test_a_prompt_that_ends_in_the_step_leaves_nothing() -> None:
    scene = ten_that_decode()
    scene.add("prompt", NORMAL, prompt=256)
    assert scene.compose(0.5).tokens == {"prompt": 256}


def test_a_steeper_prompt_leaves_nothing_to_the_others() -> None:
    scene = ten_that_decode()
    scene.add("urgent", URGENT, prompt=2000)
    assert scene.compose(0.01).tokens == {"urgent": 256}


def test_the_shortest_context_that_has_time_is_given_up() -> None:
    scene = Scene(free_blocks=0)
    scene.add("old", PATIENT, prompt=1440, output=160)
    scene.add("new", PATIENT, prompt=160, output=1)
    scene.add("late", TimeUtility(0.1, NORMAL.alpha, NORMAL.beta), prompt=16, output=16)
    scene.add("grows", NORMAL, prompt=160, output=16)
    plan = scene.compose(0.5)
    assert plan.evict == ["new"]
    assert "grows" in plan.tokens
