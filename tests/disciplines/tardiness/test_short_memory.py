"""A cut prompt leaves tokens to those that decode. Where the KV cache is short, the cheapest to compute again goes."""

from __future__ import annotations

import math

from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable, Segment
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines.base import StepLimits, StepPlan
from timely.disciplines.registry import create_discipline
from timely.disciplines.step_builder import KeyedDiscipline
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
        self,
        name: str,
        utility: TimeUtility,
        *,
        prompt: int = 160,
        output: int = 0,
        is_answer: bool = False,
        is_chat: bool = False,
    ) -> Job:
        """A request that came at 0 s; with ``output`` tokens it decodes. A plan's bound is its limit, too."""
        spec = JobSpec(
            name, 0.0, RequestHints(utility=utility), prompt, max_tokens=500, segment_tokens=500,
            whole_answer=is_answer, segmented=not is_chat, plain=is_chat,
        )  # fmt: skip
        job = self.table.add(spec)
        self.discipline.arrived(job, 0.0)
        if output:
            self.decode(job, output)
        return job

    def decode(self, job: Job, output: int) -> None:
        """The job has so many tokens."""
        table, row = self.table, job.row
        table.active[row] = table.resident[row] = True
        table.prefill_left[row] = 0
        table.output_tokens[row] = table.segment_tokens[row] = output
        table.context_tokens[row] = job.spec.prompt_tokens + output
        table.blocks[row] = -(-int(table.context_tokens[row]) // 16)

    def begin(self, name: str, *, resume_s: float = 0.0, resident: bool = True) -> Job:
        """A plan at its second segment: parked until ``resume_s``, and evicted unless it is resident."""
        job = self.add(name, NORMAL, output=5)
        table, row = self.table, job.row
        table.active[row] = False
        table.segment[row], table.segment_tokens[row] = 1, 0
        table.due_s[row] = table.resume_s[row] = resume_s
        job.segments = [Segment(0, "", 5, 0.0, 1.0)]
        self.discipline.parked(job, 0.0)
        if not resident:
            table.resident[row] = False
            table.blocks[row] = table.context_tokens[row] = 0
            table.prefill_left[row] = 165
            self.discipline.evicted(job, 0.0)
        return job

    def learn(self, job: Job, *lengths: int) -> None:
        """First segments like its own had these lengths."""
        for tokens in lengths:
            job.segments = [Segment(0, "", tokens, 0.0, 1.0)]
            self.discipline.parked(job, 0.0)

    def index(self, job: Job, output: int) -> float:
        """Its index when it has so many tokens and is late, as all are."""
        self.decode(job, output)
        discipline = self.discipline
        assert isinstance(discipline, KeyedDiscipline)
        return float(discipline.keys(self.table, self.limits(1000.0))[job.row])

    def limits(self, now: float, token_budget: int = 256) -> StepLimits:
        speed = FixedSpeed(STEP_S, SEQUENCE_S, PROMPT_S)
        return StepLimits(now, token_budget, 64, 64, token_budget, self.free_blocks, 16, speed)

    def compose(self, now: float, token_budget: int = 256) -> StepPlan:
        return self.discipline.compose(self.table, self.limits(now, token_budget))


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


def two_prompts_beside_ten(*, are_answers: bool, free_blocks: int, queued_tokens: int = 6400) -> StepPlan:
    """Both prompts are cut, beside ten jobs that decode and have the time; waiting, they hold shared blocks only.

    A further prompt of ``queued_tokens`` has the time to wait.
    """
    scene = Scene(free_blocks)
    for number in range(10):
        scene.add(f"decoding {number}", PATIENT, prompt=1600, output=5, is_answer=are_answers)
    for name in ("first", "second"):
        job = scene.add(name, NORMAL, prompt=2000)
        scene.table.shared_blocks[job.row] = 1000
    scene.add("queued", PATIENT, prompt=queued_tokens)
    return scene.compose(0.5)


def test_where_answers_fill_the_cache_a_later_prompt_leaves_them_their_tokens() -> None:
    plan = two_prompts_beside_ten(are_answers=True, free_blocks=300)
    assert plan.tokens == {"first": 246, **{f"decoding {number}": 1 for number in range(10)}}


def test_where_the_cache_has_room_a_later_prompt_takes_the_tokens_of_answers_with_time() -> None:
    assert two_prompts_beside_ten(are_answers=True, free_blocks=10_000).tokens == {"first": 246, "second": 10}


def test_where_no_job_waits_for_the_cache_a_later_prompt_takes_the_tokens_of_answers_with_time() -> None:
    plan = two_prompts_beside_ten(are_answers=True, free_blocks=300, queued_tokens=1600)
    assert plan.tokens == {"first": 246, "second": 10}


def test_where_plans_fill_the_cache_a_later_prompt_takes_their_tokens() -> None:
    plan = two_prompts_beside_ten(are_answers=False, free_blocks=300)
    assert plan.tokens == {"first": 246, "second": 10}


def test_a_prompt_that_ends_in_the_step_leaves_nothing() -> None:
    scene = ten_that_decode()
    scene.add("prompt", NORMAL, prompt=256)
    assert scene.compose(0.5).tokens == {"prompt": 256}


def test_a_steeper_prompt_leaves_nothing_to_the_others() -> None:
    scene = ten_that_decode()
    scene.add("urgent", URGENT, prompt=2000)
    assert scene.compose(0.01).tokens == {"urgent": 256}


def test_an_answer_longer_than_expected_is_not_about_to_end() -> None:
    scene = Scene()
    answer = scene.add("answer", NORMAL, is_answer=True)
    other = scene.add("other", NORMAL, output=5, is_answer=True)
    scene.learn(answer, *[100] * 30, 300)
    scene.learn(other, 100)
    assert scene.index(answer, 250) < scene.index(other, 5)


def test_a_segment_longer_than_expected_is_about_to_end() -> None:
    scene = Scene()
    plan, other = scene.add("plan", NORMAL), scene.add("other", NORMAL, output=5)
    scene.learn(plan, *[100] * 30, 150)
    scene.learn(other, 100)
    assert scene.index(plan, 140) > scene.index(other, 5)


def test_the_shortest_context_that_has_time_is_given_up() -> None:
    scene = Scene(free_blocks=0)
    scene.add("old", PATIENT, prompt=1440, output=160)
    scene.add("new", PATIENT, prompt=160, output=1)
    scene.add("late", TimeUtility(0.1, NORMAL.alpha, NORMAL.beta), prompt=16, output=16)
    scene.add("grows", NORMAL, prompt=160, output=16)
    plan = scene.compose(0.5)
    assert plan.evict == ["new"]
    assert "grows" in plan.tokens


def full_of_parked_plans() -> Scene:
    """The robots of three plans are busy for ten seconds, and another plan has lost its cache and is late."""
    scene = Scene(free_blocks=0)
    for number in range(3):
        scene.begin(f"parked {number}", resume_s=20.0)
    scene.begin("evicted", resident=False)
    return scene


def test_a_plan_that_has_begun_takes_no_cache_from_plans_that_decode_ahead() -> None:
    scene = full_of_parked_plans()
    scene.free_blocks = 1
    scene.add("member", PATIENT, output=5)
    plan = scene.compose(10.0)
    assert not plan.evict
    assert set(plan.tokens) == {"member", "parked 0", "parked 1", "parked 2"}


def test_a_new_task_behind_it_takes_cache_all_the_same() -> None:
    scene = full_of_parked_plans()
    scene.add("member", PATIENT, output=5)
    scene.add("new", NORMAL)
    plan = scene.compose(10.0)
    assert len(plan.evict) == 1
    assert "new" in plan.tokens
    assert "evicted" not in plan.tokens


def test_a_chat_behind_it_waits() -> None:
    """The plan does not fit into the free blocks, and the chat would."""
    scene = full_of_parked_plans()
    scene.free_blocks = 8
    scene.add("member", PATIENT, output=5)
    scene.add("chat", NORMAL, prompt=32, is_chat=True)
    plan = scene.compose(10.0)
    assert not plan.evict
    assert set(plan.tokens) == {"member", "parked 0", "parked 1", "parked 2"}


def test_where_no_step_runs_a_plan_that_has_begun_takes_the_cache_of_a_robot_that_is_busy() -> None:
    scene = full_of_parked_plans()
    plan = scene.compose(10.0)
    assert len(plan.evict) == 1
    assert set(plan.tokens) == {"evicted", "parked 0", "parked 1", "parked 2"} - set(plan.evict)


def test_a_robot_that_returns_a_value_first_decodes_nothing_ahead() -> None:
    scene = full_of_parked_plans()
    scene.begin("awaits", resume_s=math.inf)
    scene.add("member", PATIENT, output=5)
    plan = scene.compose(10.0)
    assert plan.evict == ["awaits"]
    assert "evicted" in plan.tokens
