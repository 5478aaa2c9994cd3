"""The default discipline, decision by decision: protection, waiting, opportunistic decodes, steady steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable, Segment
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines.base import StepLimits, StepPlan
from timely.disciplines.tardiness.delay_cost import MAX_LATENESS_RATIO
from timely.disciplines.tardiness.discipline import WeightedTardiness
from timely.disciplines.tardiness.segment_lengths import CAUTION, TardinessSegmentLengths
from timely.disciplines.tardiness.step import MIN_CHUNK_TOKENS
from timely.engines.step_time.learned import FixedSpeed

STEP_S, PROMPT_S = 0.02, 0.0001


class Scene:
    """A table, the discipline that has heard of it, and a machine: 20 ms a step, 0.1 ms a prompt token."""

    def __init__(self, **kind: object) -> None:
        self.table = JobTable()
        self.timely: WeightedTardiness = type("Variant", (WeightedTardiness,), kind)()
        self.free_blocks = 10_000

    def job(
        self, name: str, utility: TimeUtility, *, arrival_s: float = 0.0, prompt: int = 100, running: bool = False,
        bound: int = 4, priority: float = 0.0, promised: bool = False,
    ) -> Job:  # fmt: skip
        spec = JobSpec(
            name,
            arrival_s,
            prompt_tokens=prompt,
            segment_tokens=bound,
            hints=RequestHints(utility=utility, priority=priority, promised=promised),
        )
        job = self.table.add(spec)
        self.timely.arrived(job, arrival_s)
        if running:
            row = job.row
            self.table.active[row] = self.table.resident[row] = True
            self.table.prefill_left[row] = 0
            self.table.context_tokens[row] = prompt
            self.table.blocks[row] = -(-prompt // 16) + 1
        return job

    def parked(self, name: str, due_s: float, resume_s: float, utility: TimeUtility = NORMAL) -> Job:
        job = self.job(name, utility, running=True)
        row = job.row
        self.table.active[row] = False
        self.table.segment[row] = 1
        self.table.due_s[row], self.table.resume_s[row] = due_s, resume_s
        job.parked = True
        job.segments.append(Segment(0, "s", 4, 0.0, due_s))
        self.timely.parked(job, 0.0)
        return job

    def compose(self, now: float, **limits: int) -> StepPlan:
        speed = FixedSpeed(STEP_S, 0.0, PROMPT_S)
        chosen: dict[str, Any] = {
            "token_budget": 4096,
            "max_batch": 32,
            "max_resident": 64,
            "prefill_chunk": 4096,
        }
        return self.timely.compose(
            self.table,
            StepLimits(
                now=now, free_blocks=self.free_blocks, block_tokens=16, speed=speed, **(chosen | limits)
            ),
        )


def test_a_long_prompt_waits_while_an_urgent_first_segment_is_produced() -> None:
    scene = Scene()
    scene.job("urgent", URGENT, running=True)
    scene.job("normal", NORMAL, arrival_s=0.05, prompt=3000)
    # 0.3 s of prompt would cost the urgent task its deadline; the normal one has a second.
    plan = scene.compose(0.06)
    assert plan.tokens["urgent"] == 1
    assert plan.tokens.get("normal", 0) < 1000
    assert not plan.steady


def test_the_same_prompt_joins_when_nobody_is_hurt() -> None:
    scene = Scene()
    scene.job("relaxed", NORMAL, running=True)
    scene.job("normal", NORMAL, arrival_s=0.05, prompt=400)
    assert scene.compose(0.06).tokens == {"relaxed": 1, "normal": 400}


def test_without_protection_it_joins_anyway() -> None:
    scene = Scene(PROTECT=False)
    scene.job("urgent", URGENT, running=True)
    scene.job("normal", NORMAL, arrival_s=0.05, prompt=3000)
    assert scene.compose(0.06).tokens == {"urgent": 1, "normal": 3000}


def test_a_prompt_is_cut_to_the_slack_of_those_in_the_step() -> None:
    scene = Scene(EARLY_SHARE=0.0)
    scene.job("urgent", URGENT, running=True)
    scene.job("normal", NORMAL, arrival_s=0.0, prompt=3000)
    # Two tokens expected (half the longest): 40 ms of work and a step of caution before 0.2 s.
    plan = scene.compose(0.0)
    assert plan.tokens["normal"] == pytest.approx((0.2 - 2 * STEP_S - STEP_S) / PROMPT_S, abs=2)
    # Hardly any slack left: not worth a place.
    late = 0.2 - 3 * STEP_S - 0.5 * MIN_CHUNK_TOKENS * PROMPT_S
    assert "normal" not in scene.compose(late).tokens
    assert scene.compose(late).limited_by == "suspended"


@pytest.mark.parametrize("promised", [True, False])
@pytest.mark.parametrize(("count", "begins"), [(1, False), (6, True)])
def test_prompts_that_wait_together_do_not_all_wait_for_the_last_moment(
    count: int, *, promised: bool, begins: bool
) -> None:
    scene = Scene()
    scene.job("member", URGENT, arrival_s=-0.098, running=True)
    for number in range(count):
        scene.job(f"waiting {number}", URGENT, prompt=200, promised=promised)
    # 20 ms of prompt would make the member late. A single prompt can wait for its end, 120 ms of prompts cannot.
    assert ("waiting 0" in scene.compose(0.04).tokens) is begins


@pytest.mark.parametrize(("promised", "tokens"), [(True, 100), (False, 110)])
def test_no_job_of_lower_slope_breaks_a_promise(tokens: int, *, promised: bool) -> None:
    scene = Scene()
    scene.job("member", URGENT, running=True, promised=promised)
    scene.job("other", NORMAL, arrival_s=-30.0, prompt=110)
    # 10 ms of slack, but the other one gains more than 1 ms of lateness costs.
    assert scene.compose(0.13).tokens == {"member": 1, "other": tokens}


@pytest.mark.parametrize(("promised", "joining"), [(True, 6), (False, 8)])
def test_prompts_of_late_jobs_leave_time_for_a_promised_one_behind_them(
    joining: int, *, promised: bool
) -> None:
    scene = Scene()
    for number in range(8):
        scene.job(f"late {number}", NORMAL, arrival_s=-30.0, prompt=50)
    scene.job("urgent", URGENT, prompt=600, promised=promised)
    # 30 ms of slack; the short ones come first, and take 5 ms each.
    assert len(scene.compose(0.05).tokens) == joining


@pytest.mark.parametrize(("promised", "joining"), [(True, 3), (False, 4)])
def test_no_later_deadline_breaks_a_promise(joining: int, *, promised: bool) -> None:
    scene = Scene()
    scene.job("member", URGENT, running=True, promised=promised)
    for number in range(4):
        scene.job(f"other {number}", URGENT, arrival_s=0.01, promised=True)
    # 70 ms until the deadline, and 40 ms of work; each prompt takes 10 ms.
    assert len(scene.compose(0.13).tokens) == 1 + joining


@pytest.mark.parametrize(("prompt", "joining"), [(100, 1), (200, 0)])
def test_a_promised_prompt_of_the_step_itself_needs_no_caution(prompt: int, joining: int) -> None:
    scene = Scene()
    scene.job("first", URGENT, promised=True)
    for number in range(3):
        scene.job(f"other {number}", URGENT, arrival_s=0.01, prompt=prompt, promised=True)
    # 65 ms until the deadline, and 50 ms of work: one more prompt of 10 ms does no harm, and no step is in flight.
    assert len(scene.compose(0.135).tokens) == 1 + joining


def test_prompts_that_have_time_do_not_make_a_promise_a_lost_one() -> None:
    scene = Scene()
    scene.job("first", URGENT, promised=True)
    for number in range(3):
        scene.job(f"other {number}", URGENT, arrival_s=0.03, prompt=150, promised=True)
    # 75 ms until the first deadline, and 50 ms of work: 25 ms of other prompts fit in its step, 45 ms do not.
    tokens = scene.compose(0.125).tokens
    assert tokens["first"] == 100
    assert 100 < sum(tokens.values()) <= 350


@pytest.mark.parametrize(("arrival_s", "joins"), [(0.015, True), (0.02, False)])
def test_a_job_that_can_wait_leaves_a_promised_equal_time_for_longer_steps(
    arrival_s: float, *, joins: bool
) -> None:
    scene = Scene()
    scene.job("member", URGENT, running=True, promised=True)
    scene.job("other", URGENT, arrival_s=arrival_s, prompt=200, promised=True)
    # 63 ms until the deadline, 40 ms of work and a prompt of 20 ms; the steps may take a tenth longer.
    assert ("other" in scene.compose(0.137).tokens) is joins


@pytest.mark.parametrize(("now", "joining"), [(0.15, 0), (0.165, 2)])
def test_a_promise_that_cannot_be_kept_holds_no_equal(now: float, joining: int) -> None:
    scene = Scene()
    scene.job("member", URGENT, running=True, promised=True)
    for number in range(2):
        scene.job(f"other {number}", URGENT, arrival_s=0.04, prompt=150, promised=True)
    # 40 ms of work: at 0.15 s the deadline is 50 ms away, less than a prompt more; at 0.165 s it is lost.
    assert len(scene.compose(now).tokens) == 1 + joining


@pytest.mark.parametrize(("arrival_s", "joins"), [(-0.13, True), (-0.12, False)])
@pytest.mark.parametrize("promised", [True, False])
def test_a_promised_prompt_that_can_wait_no_longer_joins(
    arrival_s: float, *, joins: bool, promised: bool
) -> None:
    scene = Scene()
    for number in range(9):
        member = scene.job(f"member {number}", URGENT, arrival_s=-0.13, running=True)
        scene.table.segment_tokens[member.row] = 3
    scene.job("waiting", URGENT, arrival_s=arrival_s, prompt=160, promised=promised)
    # 56 ms of work, and a step of caution. The members have time for it, but count more by being early.
    assert ("waiting" in scene.compose(0.0).tokens) is (joins and promised)


def test_a_promised_job_without_memory_stops_no_other_one() -> None:
    scene = Scene()
    scene.job("resident", NORMAL, running=True)
    scene.job("promised", URGENT, prompt=600, promised=True)
    scene.free_blocks = 1
    assert scene.compose(0.15).tokens == {"resident": 1}


def test_steps_before_that_of_a_promised_prompt_take_more_than_its_tokens() -> None:
    scene = Scene()
    scene.job("member", URGENT, arrival_s=-0.098, running=True)
    for number in range(3):
        scene.job(f"waiting {number}", URGENT, prompt=200, promised=True)
    # In one step 60 ms of prompts can wait for the member, in three steps not.
    assert len(scene.compose(0.05).tokens) == 1
    assert len(scene.compose(0.05, token_budget=201).tokens) == 2


def test_chunks_can_be_turned_off() -> None:
    scene = Scene(EARLY_SHARE=0.0, CHUNK=False)
    scene.job("urgent", URGENT, running=True)
    scene.job("normal", NORMAL, prompt=3000)
    assert list(scene.compose(0.0).tokens) == ["urgent"]


def test_who_is_lost_does_not_drag_down_who_can_be_saved() -> None:
    scene = Scene()
    scene.job("late", NORMAL, arrival_s=-30.0, prompt=200)
    scene.job("fresh", URGENT, arrival_s=0.0, prompt=200)
    # With time to spare the fresh one lets the late one pass, which loses by every second; when it gets tight, not.
    assert next(iter(scene.compose(0.0, max_batch=1).tokens)) == "late"
    assert next(iter(scene.compose(0.1, max_batch=1).tokens)) == "fresh"


def test_late_jobs_stand_in_the_order_of_smiths_rule() -> None:
    scene = Scene()
    scene.job("long", NORMAL, arrival_s=-9.0, prompt=3000)
    scene.job("short", NORMAL, arrival_s=-5.0, prompt=50)
    scene.job("steep", URGENT, arrival_s=-5.0, prompt=60)
    keys = scene.timely.keys(scene.table, _limits(scene))
    assert [scene.table.jobs[row].job_id for row in np.argsort(-keys)] == ["steep", "short", "long"]


def _limits(scene: Scene) -> StepLimits:
    return StepLimits(0.0, 4096, 32, 64, 4096, scene.free_blocks, 16, FixedSpeed(STEP_S, 0.0, PROMPT_S))


def test_parked_generations_ride_along_but_never_start_a_step() -> None:
    scene = Scene()
    scene.parked("parked", due_s=6.0, resume_s=5.0)
    alone = scene.compose(1.0)
    assert (alone.tokens, alone.wake_s) == ({}, 5.0)
    scene.job("other", NORMAL, arrival_s=1.0, running=True)
    assert scene.compose(1.0).tokens == {"other": 1, "parked": 1}


@pytest.mark.parametrize(
    ("due_s", "resume_s"), [(60.0, 59.0), (2.0, math.inf)], ids=["far from due", "waits for a value"]
)
def test_who_does_not_ride(due_s: float, resume_s: float) -> None:
    scene = Scene()
    scene.parked("parked", due_s, resume_s)
    scene.job("other", NORMAL, arrival_s=1.0, running=True)
    assert scene.compose(1.0).tokens == {"other": 1}


def test_while_memory_is_short_a_plan_is_better_complete_than_waiting() -> None:
    """Parked for long with less KV cache free than held: it rides on to its end instead of being evicted."""
    for free_blocks, rides in ((10_000, False), (5, True)):
        scene = Scene()
        scene.free_blocks = free_blocks
        scene.job("runs", NORMAL, running=True)
        scene.parked("reads on", due_s=60.0, resume_s=59.0)
        scene.parked("waits for a value", due_s=1.0, resume_s=math.inf)
        assert ("reads on" in scene.compose(0.1).tokens) is rides
        assert "waits for a value" not in scene.compose(0.1).tokens


def test_while_slots_are_short_a_plan_is_better_complete_than_waiting() -> None:
    """A parked plan keeps its slot on a GPU, so with few of them new tasks evict it, however much cache is free."""
    for slots, rides in ((64, False), (4, False), (3, True)):
        scene = Scene()
        scene.job("runs", NORMAL, running=True)
        scene.parked("reads on", due_s=60.0, resume_s=59.0)
        assert ("reads on" in scene.compose(0.1, max_resident=slots).tokens) is rides


def test_robots_that_report_fill_the_step_and_one_more_comes_along() -> None:
    """The plan whose robot runs dry first joins first: up to four sequences, and one beyond four."""
    names = ["e", "d", "c", "b", "a"]
    for running, boarded in ((1, {"a", "b", "c"}), (3, {"a"}), (6, {"a"})):
        scene = Scene()
        for number in range(running):
            scene.job(f"runs {number}", NORMAL, running=True)
        for number, name in enumerate(names):
            scene.parked(name, due_s=9.0 - number, resume_s=8.0 - number).segments[0].started = True
        assert set(scene.compose(0.1).tokens) & set(names) == boarded


def test_while_memory_is_short_robots_that_report_all_ride() -> None:
    """However their segments close: who waits for a place is evicted meanwhile, and computed again."""
    for free_blocks, boarded in ((10_000, 1), (5, 5)):
        scene = Scene()
        scene.free_blocks = free_blocks
        for number in range(4):
            scene.job(f"runs {number}", NORMAL, running=True)
        for number, name in enumerate("abcde"):
            scene.parked(name, due_s=60.0 + number, resume_s=59.0 + number).segments[0].started = True
            if free_blocks > 5:
                scene.table.due_s[:] = 5.0
        assert len(set(scene.compose(0.1).tokens) & set("abcde")) == boarded


def test_robots_that_report_nothing_all_ride() -> None:
    """It may yet say that it began its first segment; when it does not in time, it is one that says nothing."""
    for now, boarded in ((0.24, {"a", "b", "c"}), (0.26, {"a", "b", "c", "d", "e"})):
        scene = Scene()
        scene.job("runs", NORMAL, running=True)
        for number, name in enumerate("abcde"):
            scene.parked(name, due_s=5.0 + number, resume_s=4.0 + number).segments[0].start_s = 0.0
        assert set(scene.compose(now).tokens) - {"runs"} == boarded


def _crowd(members: int, utility: TimeUtility, late_s: float) -> Scene:
    """So many late members that decode, two steps of work each, and a prompt of 0.1 s that is late by ``late_s``."""
    scene = Scene()
    for number in range(members):
        scene.job(f"member {number}", utility, arrival_s=-50.0, running=True)
    scene.job("candidate", NORMAL, arrival_s=-NORMAL.ert_s - late_s, prompt=1000)
    return scene


@pytest.mark.parametrize(
    ("utility", "late_s", "joins"),
    [(NORMAL, 0.1, False), (NORMAL, 3.0 * MAX_LATENESS_RATIO * STEP_S, True), (URGENT, 30.0, False)],
    ids=["equals, a while", "equals, long", "steeper ones, long"],
)
def test_equals_are_not_held_back_for_ever(utility: TimeUtility, late_s: float, *, joins: bool) -> None:
    """In an overload that lasts, who waits for the members to be done waits for their successors, too."""
    scene = _crowd(12, utility, late_s)
    assert ("candidate" in scene.compose(0.0).tokens) is joins


def test_members_that_lose_nothing_hold_nobody_back() -> None:
    flat = TimeUtility(1.0, 0.0, 1.0)
    scene = Scene()
    for number in range(30):
        scene.job(f"member {number}", flat, running=True)
    scene.job("prompt", flat, arrival_s=1.0, prompt=1000)
    assert scene.compose(1.0).tokens["prompt"] == 1000


def test_nobody_rides_in_a_step_with_somebody_late() -> None:
    scene = Scene()
    scene.parked("parked", due_s=6.0, resume_s=5.0)
    scene.job("late", URGENT, arrival_s=0.0, running=True)
    assert scene.compose(3.0).tokens == {"late": 1}


@pytest.mark.parametrize(("utility", "rides"), [(NORMAL, True), (URGENT, False)])
def test_while_memory_is_short_plans_ride_beside_late_normal_tasks(
    utility: TimeUtility, *, rides: bool
) -> None:
    """In lasting overload each step has a late member, and plans that wait are evicted and computed again."""
    scene = Scene()
    scene.free_blocks = 5
    scene.parked("parked", due_s=60.0, resume_s=59.0)
    scene.job("late", utility, arrival_s=0.0, running=True)
    assert ("parked" in scene.compose(3.0).tokens) is rides


@pytest.mark.parametrize(
    ("queued", "slots", "free_blocks", "rides"),
    [
        (0, 2, 10_000, False),  # nothing waits for room
        (1, 2, 10_000, True),  # for a slot
        (1, 3, 10_000, False),  # there is one
        (2, 3, 10_000, True),
        (1, 64, 5, True),  # for seven blocks
        (1, 64, 7, False),
    ],
)
def test_while_the_queue_has_no_room_plans_ride_beside_late_urgent_tasks(
    queued: int, slots: int, free_blocks: int, *, rides: bool
) -> None:
    """Each queued task would evict a plan, which is computed again and evicts the next: the engine does less."""
    scene = Scene()
    scene.free_blocks = free_blocks
    scene.parked("parked", due_s=60.0, resume_s=59.0)
    scene.job("late", URGENT, arrival_s=0.0, running=True)
    for number in range(queued):
        scene.job(f"queued {number}", NORMAL, arrival_s=2.9)
    assert ("parked" in scene.compose(3.0, max_resident=slots).tokens) is rides
    if free_blocks == 7:
        assert "parked" in scene.compose(3.0, headroom_blocks=1).tokens, "an admission leaves those free"


def test_chats_in_the_queue_let_no_plan_ride_beside_late_urgent_tasks() -> None:
    """They take no plan's memory."""
    scene = Scene()
    scene.parked("parked", due_s=60.0, resume_s=59.0)
    scene.job("late", URGENT, arrival_s=0.0, running=True)
    scene.timely.arrived(scene.table.add(JobSpec("chat", 2.9, prompt_tokens=100, plain=True)), 2.9)
    assert set(scene.compose(3.0, max_resident=2).tokens) == {"late"}


def test_riders_take_no_blocks_from_anybody() -> None:
    scene = Scene()
    scene.parked("parked", due_s=6.0, resume_s=5.0)
    other = scene.job("other", NORMAL, arrival_s=1.0, running=True)
    for job in scene.table:
        row = job.row
        scene.table.context_tokens[row] = 16 * int(scene.table.blocks[row])
    scene.free_blocks = 1
    plan = scene.compose(1.0)
    assert plan.tokens == {"other": 1}
    assert plan.evict == []
    assert other.job_id == "other"


def test_those_who_decode_together_are_not_asked_again() -> None:
    scene = Scene()
    for name in "abc":
        scene.job(name, NORMAL, running=True)
    first = scene.compose(0.0)
    assert first.steady
    calls = scene.timely._numbers
    scene.timely._numbers = None  # type: ignore[assignment]
    assert scene.compose(0.02).tokens == first.tokens
    scene.timely._numbers = calls  # type: ignore[method-assign]
    scene.job("d", URGENT, arrival_s=0.03)
    assert "d" in scene.compose(0.04).tokens


def test_the_settled_are_asked_again_when_room_runs_short() -> None:
    scene = Scene()
    for name in "abc":
        scene.job(name, NORMAL, running=True)
    assert len(scene.compose(0.0).tokens) == 3
    assert len(scene.compose(0.02, max_batch=2).tokens) == 2


def test_flat_utilities_are_served_in_the_end() -> None:
    scene = Scene()
    scene.job("flat", TimeUtility(1.0, 0.0, 1.0), prompt=100)
    scene.job("steep", URGENT, running=True)
    plan = scene.compose(0.0)
    assert set(plan.tokens) == {"flat", "steep"} or plan.limited_by
    scene.table.remove("steep")
    assert scene.compose(5.0).tokens == {"flat": 100}


def test_vllms_priority_stands_above() -> None:
    scene = Scene()
    scene.job("urgent", URGENT, prompt=50, priority=5.0)
    scene.job("important", NORMAL, prompt=50, priority=-5.0)
    assert next(iter(scene.compose(0.0, max_batch=1).tokens)) == "important"


def test_segment_lengths_are_learned_apart() -> None:
    scene, lengths = Scene(), TardinessSegmentLengths()
    urgent, normal = scene.job("u", URGENT, bound=20), scene.job("n", NORMAL, bound=20)
    assert lengths.expect(urgent.spec, 0) == 10.0
    for tokens in (4, 4, 4, 4):
        urgent.segments = [Segment(0, "s", tokens, 0.0, 1.0)]
        lengths.learn(urgent)
    for tokens in (8, 12) * 40:
        normal.segments = [Segment(0, "s", tokens, 0.0, 1.0)]
        lengths.learn(normal)
    assert lengths.expect(urgent.spec, 0) == 4.0
    assert 10.0 + 0.5 * CAUTION < lengths.expect(normal.spec, 0) <= 20.0
    assert lengths.expect(urgent.spec, 1) == 10.0
