"""Requests without a deadline under `timely`: lengths, drafts, levels, applications, evictions, learning."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from step_driver import Machine as Engine
from step_driver import StepDriver, random_works
from utility_scene import complete, dated, join, keys, limits, make_resident, ordinary

from timely.core.errors import InvalidInput
from timely.core.hints import RequestHints
from timely.core.job import JobSpec, JobTable
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines.predictors.app_cost import OnlineAppCosts, TrainedAppCosts, predictor_kv_token_time
from timely.disciplines.predictors.embedding import Vectors
from timely.disciplines.predictors.history import HistoryPredictor
from timely.disciplines.round_tokens import PRIOR_TOKENS_A_ROUND, RoundTokens
from timely.disciplines.timely.applications import TimelyApplications
from timely.disciplines.timely.discipline import Timely
from timely.disciplines.timely.index import TimelyMachine, timely_gittins_use, timely_mean_left
from timely.disciplines.timely.lengths import (
    PLACES,
    PRIOR_TOKENS,
    TimelyAnswerLengths,
    timely_even_lengths,
)
from timely.engines.step_time.learned import FixedSpeed

PARTS = [
    f"timely-{part}"
    for part in ("mean", "no-drafts", "no-apps", "no-levels", "no-residence", "no-price", "slots", "cache")
]


def app(name: str, instance: str, *, requests: int, expected: float) -> JobSpec:
    hints = RequestHints(app=instance, app_requests=requests, expected_tokens=expected)
    return JobSpec(name, 0.0, hints, prompt_tokens=100, segmented=False, plain=True)


def test_the_scarcer_of_slots_and_cache_counts() -> None:
    """By brute force, token for token."""
    machine = TimelyMachine(slots=8.0, cache_tokens=2000.0)
    for begin, end, context in ((0, 40, 50), (0, 400, 100), (100, 500, 100), (3, 90, 1000)):
        sizes = context + np.linspace(begin, end, 100_001)
        exact = np.maximum(1 / 8, sizes / 2000).mean() * (end - begin)
        use = machine.use(np.array([float(begin)]), np.array([float(end)]), np.array([float(context)]))
        assert use[0] == pytest.approx(exact, rel=1e-4)


def test_an_answer_longer_than_all_before_is_not_about_to_end() -> None:
    lengths = np.array([[10.0, 20.0, 30.0, 40.0]])
    machine = TimelyMachine(1.0, 1e9)
    outlived = timely_gittins_use(lengths, np.array([400.0]), np.zeros(1), np.zeros(1), machine)
    assert outlived[0] > 300.0
    assert timely_mean_left(lengths, np.array([400.0]))[0] > 300.0
    assert timely_mean_left(lengths, np.array([15.0]))[0] == pytest.approx(15.0)


def test_a_prompt_to_compute_is_part_of_the_use() -> None:
    table, discipline = JobTable(), Timely()
    here, there = join(table, discipline, ordinary("here", prompt=800), ordinary("there", prompt=800))
    make_resident(here)
    index = keys(discipline, table)
    assert index["here"] > index["there"]
    assert there.row == 1


@pytest.mark.parametrize(
    ("waited_s", "expected", "first"), [(0.9, None, "long"), (1.1, None, "short"), (0.9, 20.0, "short")]
)
def test_requests_without_hints_start_by_arrival_while_none_waits_for_long(
    waited_s: float, expected: float | None, first: str
) -> None:
    table, discipline = JobTable(), Timely()
    long, short = (
        ordinary(name, expected=expected, prompt=prompt) for name, prompt in (("long", 900), ("short", 30))
    )
    join(table, discipline, long, short)
    for most in (1, 4):  # one slot, and the budget of one prompt
        plan = discipline.compose(table, limits(waited_s, max_batch=most, token_budget=900))
        assert next(iter(plan.tokens)) == first


def test_a_request_that_cannot_run_does_not_wait() -> None:
    """Such as a streaming session without input."""
    table, discipline = JobTable(), Timely()
    specs = [
        ordinary(name, expected=None, prompt=prompt)
        for name, prompt in (("idle", 9), ("long", 900), ("short", 30))
    ]
    join(table, discipline, *specs)
    table.arrival_s[0], table.resume_s[0] = -600.0, math.inf
    assert list(discipline.compose(table, limits(0.9, max_batch=1)).tokens) == ["long"]
    table.resume_s[0] = 0.9
    assert list(discipline.compose(table, limits(0.9, max_batch=1)).tokens) == ["idle"]
    make_resident(table["idle"])
    assert list(discipline.compose(table, limits(0.9, max_batch=2)).tokens) == ["idle", "long"]


def test_predictions_are_corrected_by_the_errors_of_earlier_ones() -> None:
    answers = TimelyAnswerLengths()

    def mean(expected: float) -> float:
        return float(answers.predict([ordinary("x", expected=expected)], [None]).mean())

    assert mean(100.0) == pytest.approx(100.0, rel=0.1)
    for _ in range(100):
        answers.learn(ordinary("x", expected=100.0), None, 200)
    assert mean(100.0) == pytest.approx(200.0, rel=0.1)
    assert mean(300.0) == pytest.approx(300.0, rel=0.1), "a prediction of another size errs by itself"


def test_lengths_of_similar_prompts_are_learned_and_others_know_less() -> None:
    answers = TimelyAnswerLengths()

    def median(text: str) -> float:
        spec = replace(ordinary(text, expected=None), text=text)
        return float(np.median(answers.predict([spec], [answers.embed(spec)])))

    assert median("hello") == pytest.approx(PRIOR_TOKENS, rel=0.1)
    for _ in range(8):
        spec = replace(ordinary("x", expected=None), text="write a long story about a robot")
        answers.learn(spec, answers.embed(spec), 480)
    assert median("write a long story about a robot") == pytest.approx(480.0, rel=0.05)
    assert 1.5 * PRIOR_TOKENS < median("sum these numbers") < 479.0


def test_even_lengths_stand_for_a_weighted_distribution() -> None:
    even = timely_even_lengths(np.array([30.0, 10.0, 20.0]), np.array([1.0, 2.0, 1.0]))
    assert even.shape == (PLACES,)
    assert (np.diff(even) >= 0.0).all()
    assert even.mean() == pytest.approx(17.5, rel=0.05)


def test_tokens_a_round_go_from_all_to_own() -> None:
    rounds = RoundTokens()
    none, many = np.zeros(1), np.array([40.0])
    assert rounds.expect(none, none)[0] == PRIOR_TOKENS_A_ROUND
    assert rounds.expect(1.0 * many, many)[0] < 1.2
    for _ in range(400):
        rounds.learn(4)
    assert rounds.expect(none, none)[0] == pytest.approx(4.0, rel=0.1)


def test_the_request_with_better_drafts_goes_first() -> None:
    table, discipline = JobTable(), Timely()
    jobs = join(table, discipline, ordinary("bad", expected=100.0), ordinary("good", expected=100.0))
    for job, tokens in zip(jobs, (1, 5), strict=True):
        make_resident(job, 10)
        for _ in range(6):
            discipline.accepted(job, 4, tokens - 1, 0.0)
            discipline.progressed(job, tokens, 0.0)
    index = keys(discipline, table)
    assert index["good"] > 2.0 * index["bad"]


def test_a_level_counts_before_any_usual_difference_of_lengths() -> None:
    table, discipline = JobTable(), Timely()
    join(
        table, discipline, ordinary("short", expected=20.0, urgency=1),
        ordinary("urgent", expected=300.0, urgency=0), ordinary("none", expected=20.0),
    )  # fmt: skip
    assert list(discipline.compose(table, limits()).tokens) == ["urgent", "short", "none"]


def test_the_requests_of_an_application_stand_together_by_its_cost() -> None:
    table, discipline = JobTable(), Timely()
    large = [app(f"large{n}", "a/1", requests=9, expected=20.0) for n in range(2)]
    small = [app(f"small{n}", "b/2", requests=2, expected=60.0) for n in range(2)]
    join(table, discipline, *large, *small)
    assert list(discipline.compose(table, limits()).tokens) == ["small0", "small1", "large0", "large1"]


def test_an_application_that_has_begun_is_not_interrupted_by_another() -> None:
    table, discipline = JobTable(), Timely()
    begun, other = join(
        table,
        discipline,
        app("begun", "a/1", requests=9, expected=200.0),
        app("other", "b/2", requests=1, expected=10.0),
    )
    make_resident(begun)
    discipline.compose(table, limits())
    full = replace(limits(), free_blocks=2)
    assert list(discipline.compose(table, full).tokens) == ["begun"]
    assert list(discipline.compose(table, limits(max_batch=1)).tokens) == ["begun"], (
        "it keeps the only place, too"
    )
    single = join(table, discipline, ordinary("single", expected=5.0))[0]
    plan = discipline.compose(table, full)
    assert plan.evict == ["begun"], "a request of its own is no application"
    assert "single" in plan.tokens
    assert single.row != other.row


def test_of_applications_that_have_begun_the_last_under_fair_sharing_gives_its_cache() -> None:
    """Also while another waits that fair sharing would finish before both."""
    table, discipline = JobTable(), Timely()
    large, small, _ = join(
        table,
        discipline,
        app("large", "a/1", requests=9, expected=200.0),
        app("small", "b/2", requests=2, expected=200.0),
        app("waiting", "c/3", requests=1, expected=10.0),
    )
    for job in (large, small):
        make_resident(job, 12)  # the next token needs a block
    plan = discipline.compose(table, replace(limits(), free_blocks=0))
    assert (plan.evict, list(plan.tokens)) == (["large"], ["small"])


def test_what_requests_of_a_type_cost_is_learned_from_each_of_them() -> None:
    applications, table = TimelyApplications(), JobTable()

    def opened(name: str) -> float:
        job = table.add(app(name, f"kind/{name}", requests=11, expected=20.0))
        return applications.join(job, 0.0).cost

    assert opened("before") == pytest.approx(11 * predictor_kv_token_time(100, 20.0))
    for number in range(20):
        job = table.add(app(str(number), "kind/other", requests=64, expected=20.0))
        applications.join(job, 0.0)
        make_resident(job, 200)
        job.outcome = "complete"
        applications.leave(job, 0.0)
    assert opened("after") > 0.8 * 11 * predictor_kv_token_time(100, 200.0)


def test_an_application_that_is_over_leaves_fair_sharing_at_its_true_cost() -> None:
    applications, table = TimelyApplications(), JobTable()
    job = table.add(app("one", "kind/1", requests=1, expected=400.0))
    applications.join(job, 0.0)
    make_resident(job, 20)
    job.outcome = "complete"
    applications.leave(job, 0.0)
    time = applications.clock.time
    time.rate = 1.0
    assert time.advance(1e9) == predictor_kv_token_time(100, 20)


def test_predictions_of_waiting_requests_follow_the_answers_of_others() -> None:
    table, discipline = JobTable(), Timely()
    join(table, discipline, ordinary("waiting", expected=None))
    before = keys(discipline, table)["waiting"]
    for number in range(10):
        (job,) = join(table, discipline, ordinary(str(number), expected=None))
        make_resident(job, 2)
        complete(table, discipline, job, 0.0)
    discipline.compose(table, limits(1.0))
    assert keys(discipline, table)["waiting"] > 1.5 * before


def test_prompts_are_read_only_when_their_lengths_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrivals and ends lie between two steps of the engine; a burst of chats must not delay the next one."""
    table, discipline = JobTable(), Timely()
    texts: list[str] = []
    embedder = discipline.knowledge().embedder
    embed = embedder.embed

    def embed_and_note(words: list[str]) -> Vectors:
        texts.extend(words)
        return embed(words)

    monkeypatch.setattr(embedder, "embed", embed_and_note)
    discipline.compose(table, limits(0.9))
    jobs = join(
        table, discipline, *(replace(ordinary(str(n), expected=None), text=str(n)) for n in range(12))
    )
    discipline.compose(table, limits(1.0))
    assert texts == [], "they start in the order of their arrival"
    for job in jobs:
        make_resident(job, 2)
        complete(table, discipline, job, 1.0)
    join(table, discipline, replace(ordinary("next", expected=None), arrival_s=2.0))
    discipline.compose(table, limits(2.0))
    assert texts == [], "nor is an answer learned from between two steps"
    discipline.maintain(table, limits(2.0))
    assert 0 < len(texts) < 12, "some while a step is computed"
    assert len(discipline.knowledge()) == len(texts) == 12


def test_decisions_do_not_depend_on_when_an_engine_learns() -> None:
    def rank(maintains: bool) -> float:
        table, discipline = JobTable(), Timely()
        for number in range(10):
            (job,) = join(table, discipline, ordinary(str(number), expected=None))
            make_resident(job, 2)
            complete(table, discipline, job, 0.0)
            if maintains:
                discipline.maintain(table, limits(0.0))
        join(table, discipline, ordinary("last", expected=None))
        return keys(discipline, table)["last"]

    assert rank(maintains=True) == rank(maintains=False)


def test_memory_goes_to_the_better_index_unless_recomputing_costs_more() -> None:
    def evicts(output_tokens: int, prompt: int) -> list[object]:
        table, discipline = JobTable(), Timely()
        long, _ = join(
            table,
            discipline,
            ordinary("long", expected=100.0, prompt=prompt),
            ordinary("short", expected=30.0),
        )
        make_resident(long, output_tokens)
        return discipline.compose(table, replace(limits(), free_blocks=2)).evict

    assert evicts(0, 100) == ["long"]
    assert evicts(60, 8000) == []


def test_a_prompt_without_a_deadline_keeps_out_of_a_step_that_it_would_make_late() -> None:
    table, discipline = JobTable(), Timely()
    robot, _ = join(table, discipline, dated("robot", URGENT), ordinary("chat", prompt=3500))
    make_resident(robot)
    plan = discipline.compose(table, limits(0.06))
    assert plan.tokens["robot"] == 1
    assert plan.tokens.get("chat", 0) < 1000


def test_columns_are_reused() -> None:
    table, discipline = JobTable(), Timely()
    for number in range(300):
        (job,) = join(table, discipline, ordinary(str(number)))
        complete(table, discipline, job, 0.0)
    assert len(discipline._requests.apps) == 64
    assert not len(discipline._requests)


def test_many_requests_without_a_deadline_do_not_make_a_robot_wait() -> None:
    table, discipline = JobTable(), Timely()
    chats = join(table, discipline, *(ordinary(str(number), expected=300.0) for number in range(30)))
    for chat in chats:
        make_resident(chat, 5)
    (robot,) = join(table, discipline, dated("robot", URGENT, prompt=500))
    assert discipline.compose(table, limits(max_batch=64)).tokens[robot.job_id] == 500


def test_chats_leave_an_urgent_robot_the_machine_where_sequences_are_expensive() -> None:
    """Left out they wait as long as the robot's steps take without them."""
    table, discipline = JobTable(), Timely()
    for chat in join(table, discipline, *(ordinary(str(number), expected=300.0) for number in range(24))):
        make_resident(chat, 20)
    (robot,) = join(table, discipline, dated("robot", URGENT))
    make_resident(robot, 1)
    table.rank[robot.row] = 12.0
    speed = FixedSpeed(0.016, 0.001, 0.00065)
    assert list(discipline.compose(table, replace(limits(0.5, max_batch=64), speed=speed)).tokens) == [
        "robot"
    ]


@pytest.mark.parametrize(
    ("late", "chats"),
    [([NORMAL] * 3, 24), ([URGENT], 0), ([NORMAL, NORMAL, URGENT], 0)],
    ids=["normal", "urgent", "both"],
)
def test_chats_in_progress_join_robots_that_are_late_all_the_time(
    late: list[TimeUtility], chats: int
) -> None:
    """Three late robots lose more by 24 chats than those gain now, but every later step has late robots, too."""
    table, discipline = JobTable(), Timely()
    answers = join(table, discipline, *(ordinary(str(number), expected=300.0) for number in range(24)))
    for chat in answers:
        make_resident(chat, 20)
    assert chats_beside(table, discipline, [NORMAL] * 3, 3.0) == 0
    for step in range(1, 201):
        chats_beside(table, discipline, [NORMAL] * 3, 3.0 + 0.05 * step)
    assert chats_beside(table, discipline, late, 13.05) == chats


def test_a_prompt_waits_for_a_step_without_late_robots() -> None:
    """An answer in progress decodes in hundreds of steps, a prompt is computed in one, so it can choose."""
    table, discipline = JobTable(), Timely()
    join(table, discipline, ordinary("new", expected=300.0, prompt=400))
    assert not any(chats_beside(table, discipline, [NORMAL] * 3, 3.0 + 0.05 * step) for step in range(201))


def chats_beside(table: JobTable, discipline: Timely, late: list[TimeUtility], now: float) -> int:
    """Members of a step without a deadline, beside new robots whose first segments are late by half a second.

    The machine takes 45 ms a step, 2.75 ms a sequence and 2 ms a prompt token.
    """
    for robot in [job for job in table if job.spec.segmented]:
        discipline.finished(robot, now)
        table.remove(robot.job_id)
    for number, utility in enumerate(late):
        spec = dated(f"robot {number}", utility, arrival_s=now - utility.ert_s - 0.5)
        (robot,) = join(table, discipline, spec)
        make_resident(robot, 1)
        table.rank[robot.row] = 12.0
    speed = FixedSpeed(0.045, 0.00275, 0.002)
    plan = discipline.compose(table, replace(limits(now, max_batch=64), speed=speed))
    return len(plan.tokens) - len(late)


def test_a_level_of_requests_without_a_deadline_does_not_put_them_before_robots() -> None:
    table, discipline = JobTable(), Timely()
    levels = [ordinary(f"level {level}", expected=20.0, urgency=level) for level in (3, 0)]
    join(table, discipline, *levels, dated("robot", NORMAL))
    assert next(iter(discipline.compose(table, limits(1.5)).tokens)) == "robot"


@pytest.mark.parametrize("seed", range(6))
def test_a_step_of_ordinary_requests_alone_is_that_of_a_full_composition(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, table, discipline = random.Random(seed), JobTable(), Timely()
    running = rng.randint(1, 12)
    lengths = [30.0] * running + [90.0] * 20
    jobs = join(
        table, discipline,
        *(ordinary(str(n), expected=e, prompt=rng.randint(20, 300)) for n, e in enumerate(lengths)),
    )  # fmt: skip
    for job in jobs[:running]:
        make_resident(job, rng.randint(1, 20))
    if seed % 2:
        table.prefill_left[0] = 10
    machine = replace(limits(max_batch=16, max_resident=20), free_blocks=rng.choice((30, 10_000)))
    quick = discipline.compose(table, machine)
    monkeypatch.setattr(Timely, "_ordinary_order", lambda *_: None)
    full = discipline.compose(table, machine)
    assert (quick.tokens, quick.evict, quick.limited_by) == (full.tokens, full.evict, full.limited_by)


@pytest.mark.parametrize("name", PARTS)
def test_each_part_can_be_left_out(name: str) -> None:
    driver = StepDriver(name, random_works(3, 12), Engine(blocks=60, max_batch=4), seed=3).run()
    assert all(fate.outcome in ("complete", "cancelled") for fate in driver.fates.values())


def test_a_predictor_file_of_either_kind_gives_it_a_start(tmp_path: Path) -> None:
    history = HistoryPredictor()
    history.remember(history.embedder.embed(["a task"])[0], 10, 77)
    history.save(tmp_path / "history.npz")
    started = Timely.with_predictor(tmp_path / "history.npz")
    knowledge = started.knowledge()
    assert isinstance(knowledge, HistoryPredictor)
    assert len(knowledge) == 1
    TrainedAppCosts({}, "kv", OnlineAppCosts(predictor_kv_token_time)).save(tmp_path / "costs.npz")
    assert isinstance(Timely.with_predictor(tmp_path / "costs.npz"), Timely)
    with pytest.raises(InvalidInput):
        Timely.with_predictor(tmp_path / "none.npz")
