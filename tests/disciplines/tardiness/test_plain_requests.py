"""Robots beside plain requests: a chat that streams delays nobody, and is delayed by nobody for long."""

from __future__ import annotations

import numpy as np
import pytest

from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines.base import StepLimits, StepPlan
from timely.disciplines.tardiness.discipline import WeightedTardiness
from timely.disciplines.tardiness.segment_lengths import TardinessAnswerLengths
from timely.engines.step_time.learned import FixedSpeed

STEP_S, SEQUENCE_S, PROMPT_S = 0.018, 0.0001, 0.00003


class Scene:
    """A machine on which a 300-token prompt takes 9 ms, and a discipline."""

    def __init__(self, sequence_s: float = SEQUENCE_S, prompt_s: float = PROMPT_S) -> None:
        self.table = JobTable()
        self.discipline = WeightedTardiness()
        self.speed = FixedSpeed(STEP_S, sequence_s, prompt_s)

    def add(
        self, name: str, now: float, *, plain: bool, utility: TimeUtility = NORMAL, prompt: int = 300,
        pace_s: float | None = None,
    ) -> Job:  # fmt: skip
        job = self.table.add(
            JobSpec(
                name,
                now,
                prompt_tokens=prompt,
                segment_tokens=32 if plain else 10,
                segmented=not plain,
                plain=plain,
                hints=RequestHints(utility=utility, pace_s=pace_s),
            )
        )
        self.discipline.arrived(job, now)
        return job

    def decode(self, job: Job, tokens: int, now: float) -> Job:
        """It has generated so many tokens, the last one just now."""
        table, row = self.table, job.row
        table.active[row] = table.resident[row] = True
        table.prefill_left[row] = 0
        table.output_tokens[row] = table.segment_tokens[row] = tokens
        table.context_tokens[row] = table.prompt_tokens[row] + tokens
        table.blocks[row] = 1 + int(table.context_tokens[row]) // 16
        if job.spec.plain:
            table.due_s[row] = now
        return job

    def compose(self, now: float, max_batch: int = 64) -> StepPlan:
        return self.discipline.compose(
            self.table, StepLimits(now, 2048, max_batch, 256, 2048, 100_000, 16, self.speed)
        )


@pytest.mark.parametrize("utility", [NORMAL, URGENT], ids=["normal", "urgent"])
@pytest.mark.parametrize("age_s", [0.2, 1.5, 20.0])
@pytest.mark.parametrize("chats", [1, 24])
def test_a_robot_joins_beside_chats_at_once(utility: TimeUtility, age_s: float, chats: int) -> None:
    """Issue: one chat that decodes for over a second, and a normal robot is first scheduled after 1.07 s."""
    scene = Scene()
    for number in range(chats):
        chat = scene.add(f"chat {number}", 0.0, plain=True)
        scene.decode(chat, int(age_s / 0.02), age_s)
    scene.add("robot", age_s, plain=False, utility=utility)
    plan = scene.compose(age_s)
    assert plan.tokens["robot"] == 300
    assert len(plan.tokens) == 1 + chats


def test_a_chat_joins_beside_chats_at_once_where_prompts_are_expensive() -> None:
    """Two cores: a prompt token takes 3.4 ms, so 64 of them cost 24 readers a fifth of a second."""
    scene = Scene(sequence_s=0.003, prompt_s=0.0034)
    for number in range(24):
        scene.decode(scene.add(f"chat {number}", 0.0, plain=True), 20 + number, 3.0)
    scene.add("new", 3.0, plain=True, prompt=64)
    plan = scene.compose(3.0)
    assert len(plan.tokens) == 25
    assert plan.tokens["new"] == 64


def test_chats_leave_an_urgent_robot_the_machine_where_sequences_are_expensive() -> None:
    """Each of 24 chats would make the robot's late segment a tenth longer."""
    scene = Scene(sequence_s=0.003)
    for number in range(24):
        scene.decode(scene.add(f"chat {number}", 0.0, plain=True), 20, 3.0)
    scene.decode(scene.add("robot", 2.5, plain=False, utility=URGENT), 2, 3.0)
    assert list(scene.compose(3.0).tokens) == ["robot"]


@pytest.mark.parametrize(
    ("utility", "robots", "chats"), [(NORMAL, 6, 24), (URGENT, 1, 0)], ids=["normal", "urgent"]
)
def test_chats_wait_for_steeper_utilities_alone(utility: TimeUtility, robots: int, chats: int) -> None:
    """Two cores: chats lengthen late segments, which without them end before a chat's next token is due."""
    scene = Scene(sequence_s=0.0019, prompt_s=0.00065)
    for number in range(24):
        scene.decode(scene.add(f"chat {number}", 0.0, plain=True), 20, 3.0)
    for number in range(robots):
        job = scene.decode(scene.add(f"robot {number}", 1.5, plain=False, utility=utility), 1, 3.0)
        scene.table.rank[job.row] = 14.0
    plan = scene.compose(3.0)
    assert len([name for name in plan.tokens if str(name).startswith("chat")]) == chats


def test_chats_join_an_urgent_segment_as_far_as_its_slack_allows() -> None:
    """Beside all 24 chats it would be late, and without them much too early."""
    scene = Scene(sequence_s=0.002)
    for number in range(24):
        scene.decode(scene.add(f"chat {number}", 0.0, plain=True), 20, 3.0)
    row = scene.decode(scene.add("robot", 1.5, plain=False, utility=URGENT), 1, 3.0).row
    scene.table.segment[row], scene.table.due_s[row], scene.table.rank[row] = 1, 3.5, 12.0
    sequences = len(scene.compose(3.0).tokens)
    assert 5 < sequences < 25
    assert 11 * (STEP_S + sequences * 0.002) < 0.5


def test_a_chat_left_out_too_long_is_taken_again() -> None:
    scene = Scene(sequence_s=0.003)
    scene.decode(scene.add("chat", 0.0, plain=True), 20, 0.5)
    for number in range(4):
        scene.decode(scene.add(f"robot {number}", 9.0, plain=False), 2, 9.5)
    assert "chat" in scene.compose(9.5).tokens


def test_answer_lengths_are_learned_and_a_long_one_is_not_about_to_end() -> None:
    lengths = TardinessAnswerLengths()
    at = np.array([0, 10, 47, 200])
    before = lengths.left(at)
    assert before == pytest.approx(lengths.PRIOR_TOKENS, rel=0.2)
    for _ in range(200):
        lengths.learn(48)
    left = lengths.left(at)
    assert left[:3] == pytest.approx([48, 38, 1], abs=6)
    assert left[3] > 20
    for _ in range(200):
        lengths.learn(48)
        lengths.learn(400)
    assert lengths.left(np.array([60])) == pytest.approx([340], rel=0.1)


def test_a_prediction_that_comes_with_the_request_is_believed_until_it_is_past() -> None:
    scene = Scene()
    spec = JobSpec("a", 0.0, plain=True, segmented=False, hints=RequestHints(expected_tokens=30.0))
    job = scene.table.add(spec)
    scene.discipline.arrived(job, 0.0)
    scene.decode(job, 10, 0.1)
    limits = StepLimits(0.1, 2048, 8, 8, 2048, 1000, 16, scene.speed)
    assert scene.discipline._numbers(scene.table, limits).left_tokens[0] == 20.0
    scene.decode(job, 40, 0.1)
    assert scene.discipline._numbers(scene.table, limits).left_tokens[0] > 60.0


def test_ordinary_requests_start_in_the_order_of_their_arrival() -> None:
    """Two places for four late chats; a short prompt or answer is no reason to pass the others."""
    scene = Scene()
    for number, prompt in enumerate((900, 500, 100, 50)):
        scene.add(f"chat {number}", 0.1 * number, plain=True, prompt=prompt)
    assert list(scene.compose(9.0, max_batch=2).tokens) == ["chat 0", "chat 1"]


def test_a_new_ordinary_request_takes_nothing_from_another_one() -> None:
    """All places hold chats with long answers to come; late newcomers with short ones wait, as in vLLM."""
    scene = Scene()
    for number in range(8):
        scene.decode(scene.add(f"chat {number}", 0.0, plain=True), 3, 30.0)
    for number in range(20):
        spec = JobSpec(
            f"new {number}", 1.0, prompt_tokens=30, plain=True, segmented=False,
            hints=RequestHints(expected_tokens=2.0),
        )  # fmt: skip
        scene.discipline.arrived(scene.table.add(spec), 1.0)
    limits = StepLimits(30.0, 2048, 8, 8, 2048, 100_000, 16, scene.speed)
    plan = scene.discipline.compose(scene.table, limits)
    assert plan.evict == []
    assert set(plan.tokens) == {f"chat {number}" for number in range(8)}


@pytest.mark.parametrize("newcomers", [1, 24])
def test_late_newcomers_interrupt_no_chat_in_progress(newcomers: int) -> None:
    """As in vLLM: a crowd of late first tokens is no reason to hold back answers that have begun."""
    scene = Scene(sequence_s=0.003, prompt_s=0.0034)
    for number in range(24):
        scene.decode(scene.add(f"chat {number}", 0.0, plain=True), 20 + number, 30.0)
    for number in range(newcomers):
        scene.add(f"new {number}", 10.0, plain=True, prompt=64)
    plan = scene.compose(30.0)
    assert {f"chat {number}" for number in range(24)} <= set(plan.tokens)
    assert len(plan.tokens) == 24 + newcomers


def test_a_chat_that_brings_a_steeper_utility_goes_first() -> None:
    scene = Scene()
    scene.add("ordinary", 0.0, plain=True)
    scene.add("urgent", 0.5, plain=True, utility=URGENT)
    assert list(scene.compose(9.0, max_batch=1).tokens) == ["urgent"]


@pytest.mark.parametrize("seed", range(6))
def test_ordinary_requests_alone_get_the_step_of_the_full_composition(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Composed by arrival without an index; the reference composes by the index."""
    rng = np.random.default_rng(seed)
    scene, reference = Scene(), Scene()
    monkeypatch.setattr(reference.discipline, "_compose_ordinary", lambda *arguments: None)
    now = 0.0
    for number in range(120):
        now += 0.01
        tokens = int(rng.integers(0, 40))
        for one in (scene, reference):
            job = one.add(str(number), now, plain=True, prompt=20 + number % 5)
            if tokens > 30:
                one.decode(job, tokens, now)
    for _ in range(10):
        now += 0.02
        plans = [one.compose(now, max_batch=40) for one in (scene, reference)]
        assert plans[0].tokens == plans[1].tokens
        assert (plans[0].limited_by, plans[0].steady) == (plans[1].limited_by, plans[1].steady)
        leaving = rng.choice(list(map(str, plans[0].tokens)), 3, replace=False).tolist()
        evicted = next(name for name in plans[0].tokens if name not in leaving)
        for one, plan in zip((scene, reference), plans, strict=True):
            for name in plan.tokens:
                one.decode(one.table[name], 1, now)
            for name in leaving:
                one.table[name].outcome = "complete"
                one.discipline.finished(one.table[name], now)
                one.table.remove(name)
            job = one.table[evicted]
            job.table.resident[job.row] = job.table.active[job.row] = False
            job.table.prefill_left[job.row], job.table.blocks[job.row] = 25, 0
            one.discipline.evicted(job, now)


def test_a_job_that_lost_its_kv_cache_outside_a_step_is_found() -> None:
    scene = Scene()
    jobs = [scene.add(str(number), 0.0, plain=True) for number in range(3)]
    scene.compose(0.0)
    for job in jobs:
        scene.decode(job, 1, 0.0)
    scene.compose(0.1)
    scene.table.resident[jobs[1].row] = False
    scene.table.prefill_left[jobs[1].row] = 300
    assert set(scene.compose(0.2).tokens) == {"0", "1", "2"}


@pytest.mark.parametrize(
    ("pace_s", "output", "newest_s", "next_due_s"),
    [
        (0.05, 1, 0.1, 6.05),  # the first token came 5.9 s early: that time is in store
        (0.05, 40, 7.9, 8.0),  # the 41st is due 6 + 40 * 0.05 s after the arrival
        (0.05, 40, 9.0, 9.05),  # behind its pace: a pace after the newest token
        (None, 40, 3.0, 9.0),  # without a pace each token has the time of the first
    ],
)
def test_a_reader_with_a_pace_has_in_store_what_came_early(
    pace_s: float | None, output: int, newest_s: float, next_due_s: float
) -> None:
    scene = Scene()
    utility = TimeUtility(6.0, NORMAL.alpha, NORMAL.beta)
    chat = scene.add("chat", 0.0, plain=True, utility=utility, pace_s=pace_s)
    scene.decode(chat, output, newest_s)
    limits = StepLimits(newest_s, 2048, 64, 256, 2048, 100_000, 16, scene.speed)
    slack_s = scene.discipline._numbers(scene.table, limits).slack_s[chat.row]
    # Its step and one of caution.
    assert slack_s == pytest.approx(next_due_s - newest_s - 2.0 * scene.speed.step_s(1, 0), abs=1e-6)
