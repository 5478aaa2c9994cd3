"""Speculative decoding in the simulator: several tokens a step, told to the discipline, and nothing else changes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_cases import CheckedSimulator, profile, random_tasks, run, task

from examples import examples
from timely.core.errors import InvalidInput, Unsupported
from timely.core.job import Job
from timely.disciplines import registry
from timely.disciplines.basic import Fcfs
from timely.disciplines.laps_sd.discipline import LapsSd
from timely.disciplines.requirements import SPECULATION
from timely.engines.base import Mode
from timely.engines.replay_types import PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.sim.speculation import SimSpeculation, sim_draft_token_rate
from timely.engines.step_time.profile import DraftTerms, StepTimeProfile
from timely.replay import results

approx = pytest.approx


def with_drafts(shape: StepTimeProfile, **terms: float) -> StepTimeProfile:
    return shape.model_copy(update={"speculation": DraftTerms(**terms)})  # type: ignore[arg-type]


def whole(job: int, tokens: int, acceptance: float | None, **fields: Any) -> PlannedTask:
    return task(job, plan=((tokens, 0.0),), acceptance=acceptance, **fields)


# ---------------------------------------------------------------- the acceptance model


@given(st.floats(0.0, 1.0), st.integers(1, 12))
def test_a_round_keeps_the_share_that_the_trace_names(acceptance: float, drafts: int) -> None:
    rate = sim_draft_token_rate(acceptance, drafts)
    assert 0.0 <= rate <= 1.0
    assert sum(rate**k for k in range(1, drafts + 1)) == approx(acceptance * drafts, abs=1e-9)


@pytest.mark.parametrize("acceptance", [0.1, 0.5, 0.8])
def test_drawn_rounds_have_that_share(acceptance: float) -> None:
    speculation = SimSpeculation(4, None, seed=3)
    rounds = [speculation.round("a", acceptance, 4) for _ in range(4000)]
    assert np.mean(rounds) / 4 == approx(acceptance, abs=0.02)
    assert {0, 1, 2, 3, 4} == set(rounds)


def test_rounds_are_a_requests_own_whatever_else_runs() -> None:
    alone, among = SimSpeculation(4, None, seed=1), SimSpeculation(4, None, seed=1)
    first = [alone.round("a", 0.6, 4) for _ in range(50)]
    mixed = []
    for _ in range(50):
        mixed.append(among.round("a", 0.6, 4))
        among.round("b", 0.6, 4)
    assert first == mixed
    assert first != [SimSpeculation(4, None, seed=2).round("a", 0.6, 4) for _ in range(50)]


def test_nonsense_is_refused() -> None:
    for drafts in (-1, 1000):
        with pytest.raises(InvalidInput, match="draft_tokens"):
            Simulator(ReplayOptions(discipline="fcfs", draft_tokens=drafts), profile())


# ---------------------------------------------------------------- steps


def test_perfect_drafts_give_five_tokens_a_step() -> None:
    # One step for the prompt and its first token, then (n + 1) a round: 1 + 40 / 5.
    result = run([whole(0, 41, 1.0)], discipline="fcfs", mode="whole", draft_tokens=4)
    assert result.counters["steps"] == 9
    assert result.records[0].last_token_s == approx(0.09)
    assert (result.counters["drafted_tokens"], result.counters["accepted_tokens"]) == (32, 32)
    assert result.counters["computed_tokens"] == 32 + 40


def test_drafts_take_their_tokens_of_the_budget() -> None:
    tasks = [whole(job, 41, 1.0) for job in range(5)]
    counters = run(tasks, profile(token_budget=10), discipline="fcfs", mode="whole", draft_tokens=4).counters
    assert counters["computed_tokens"] <= 10 * counters["steps"]


def forced(tokens: str, execution_s: float = 0.0, *, blocking: bool = False) -> PlannedSegment:
    """A segment whose tokens are forced (1) or not (0)."""
    marks = tuple(mark == "1" for mark in tokens)
    return PlannedSegment("s;", len(tokens), execution_s, blocking=blocking, forced=marks)


@pytest.mark.parametrize(
    ("segments", "drafts", "steps"),
    [
        # The prompt's step gives the first token; each step then gives a run of forced tokens and one more.
        (("0110",), 4, 2),
        (("0000",), 4, 4),
        (("0111111",), 4, 3),
        (("0111111",), 0, 7),
        (("0111",), 4, 2),
        # Drafts end with the segment: the second begins with a token of its own.
        (("01", "11"), 4, 3),
        (("01", "01"), 4, 3),
    ],
)
def test_forced_tokens_take_no_step(segments: tuple[str, ...], drafts: int, steps: int) -> None:
    plan = tuple(forced(marks) for marks in segments)
    result = run([replace(task(0), plan=plan)], discipline="fcfs", draft_tokens=drafts)
    assert result.counters["steps"] == steps
    assert result.counters.get("drafted_tokens", 0) == result.counters.get("accepted_tokens", 0)
    assert result.records[0].output_tokens == sum(map(len, segments))


def test_nothing_forced_follows_a_blocking_skill_before_its_value() -> None:
    plan = (forced("0", 1.0, blocking=True), forced("11"))
    result = run([replace(task(0), plan=plan)], discipline="fcfs", draft_tokens=4)
    assert result.records[0].ready_s[1] > result.records[0].end_s[0]


def test_requests_without_drafts_leave_the_budget_to_others() -> None:
    tasks = [whole(job, 10, None, prompt_tokens=1) for job in range(4)]
    steps = [
        run(tasks, profile(token_budget=4), discipline="fcfs", mode="whole", draft_tokens=drafts).counters[
            "steps"
        ]
        for drafts in (0, 4)
    ]
    assert steps == [10, 10]


def test_useless_drafts_cost_steps_nothing_and_give_nothing() -> None:
    result = run([whole(0, 41, 0.0)], discipline="fcfs", mode="whole", draft_tokens=4)
    assert result.counters["steps"] == 41
    assert result.counters["accepted_tokens"] == 0


def test_drafting_and_verifying_take_the_profiles_time() -> None:
    shape = with_drafts(profile(base=0.02), draft_tokens=4, draft_s=0.001, verify_s_per_token=0.0005)
    result = run([whole(0, 11, 1.0)], shape, discipline="fcfs", mode="whole")
    # Two rounds of 20 ms, each with four drafts of 1 ms one after the other, and four to verify at half that.
    assert result.records[0].last_token_s == approx(0.02 + 2 * (0.02 + 0.004 + 0.002))
    off = run([whole(0, 11, 1.0)], shape, discipline="fcfs", mode="whole", draft_tokens=0)
    assert off.counters["steps"] == 11


def test_requests_without_an_acceptance_decode_as_ever() -> None:
    tasks = random_tasks(5, 40)
    for mode in ("segmented", "stream", "whole"):
        plain = ReplayOptions(discipline="edf", mode=mode, max_batch=6)
        texts = []
        for options in (plain, replace(plain, draft_tokens=4)):
            result = Simulator(options, profile(blocks=30), repeat_steps=False).run(tasks)
            result.counters.pop("drafted_tokens", None)
            result.counters.pop("accepted_tokens", None)
            texts.append(
                json.dumps(results.build_replay_result(result, plain, engine="sim", trace="t", wall_s=0.0))
            )
        assert texts[0] == texts[1]


def test_the_same_seed_gives_the_same_run() -> None:
    tasks = [replace(t, acceptance=0.6) for t in random_tasks(8, 30)]

    def text(seed: int) -> str:
        options = ReplayOptions(discipline="timely", draft_tokens=3, seed=seed)
        result = Simulator(options, profile()).run(tasks)
        return json.dumps(results.build_replay_result(result, options, engine="sim", trace="t", wall_s=0.0))

    assert text(1) == text(1)
    assert text(1) != text(2)


@pytest.mark.process
@settings(max_examples=examples(25))
@given(
    st.integers(0, 10_000), st.sampled_from(["laps-sd", "fcfs", "semantic", "timely", "sagesched"]),
    st.sampled_from(["segmented", "stream", "whole"]), st.integers(1, 6), st.sampled_from([16, 200]),
)  # fmt: skip
def test_whatever_is_drafted_plans_come_out_whole(
    seed: int, discipline: str, mode: Mode, drafts: int, blocks: int
) -> None:
    """Boundaries inside a round, several of them, memory pressure: every segment has its tokens, in order."""
    rng = np.random.default_rng(seed)
    tasks = [
        replace(
            t,
            acceptance=None if rng.random() < 0.2 else float(rng.uniform()),
            plan=tuple(replace(s, blocking=bool(rng.random() < 0.2)) for s in t.plan),
        )
        for t in random_tasks(seed, 20)
    ]
    options = ReplayOptions(
        discipline=discipline, mode=mode, draft_tokens=drafts, max_batch=5, token_budget=64
    )
    simulator = CheckedSimulator(options, profile(blocks=blocks))
    tokens: dict[object, list[int]] = {}
    close = simulator.controller.close_segment

    def noting(job: Job, *args: object, **kwargs: object) -> object:
        segment = close(job, *args, **kwargs)  # type: ignore[arg-type]
        tokens.setdefault(job.job_id, []).append(segment.tokens)
        return segment

    simulator.controller.close_segment = noting  # type: ignore[method-assign, assignment]
    result = simulator.run(tasks)
    for record in result.records:
        assert record.outcome == "complete"
        assert record.output_tokens == record.task.output_tokens
        assert record.ready_s == sorted(record.ready_s)
        if mode != "whole":
            assert tokens[record.task.job] == [segment.tokens for segment in record.task.plan]
    assert result.counters["tokens"] == sum(t.output_tokens for t in tasks)
    assert result.counters["accepted_tokens"] <= result.counters["drafted_tokens"]


def test_nothing_runs_past_a_blocking_skill() -> None:
    """What is drafted beyond it is sampled without its value: void."""
    plan = (
        PlannedSegment("a", 3, 0.5),
        PlannedSegment("look", 2, 1.0, blocking=True),
        PlannedSegment("b", 4, 0.1),
    )
    only = PlannedTask(job=0, arrival_s=0.0, plan=plan, prompt_tokens=8, acceptance=1.0)
    heard: list[tuple[int, int]] = []

    class Listening(Fcfs):
        def accepted(self, job: Job, drafted: int, accepted: int, now: float) -> None:
            heard.append((drafted, accepted))

    options = ReplayOptions(mode="segmented", draft_tokens=8)
    result = Simulator(options, profile(), discipline=Listening()).run([only])
    # The first token came with the prompt; a round then gives the other four up to the value, and the next the rest.
    assert heard == [(8, 3), (8, 3)]
    assert result.records[0].ready_s[0] == result.records[0].ready_s[1]
    assert result.records[0].ready_s[2] > result.records[0].end_s[1]


# ---------------------------------------------------------------- what disciplines hear


def test_a_discipline_hears_of_every_round_before_its_tokens() -> None:
    heard: list[tuple[str, int]] = []

    class Listening(Fcfs):
        def accepted(self, job: Job, drafted: int, accepted: int, now: float) -> None:
            heard.append(("accepted", accepted))

        def progressed(self, job: Job, tokens: int, now: float) -> None:
            heard.append(("progressed", tokens))

    options = ReplayOptions(mode="whole", draft_tokens=4)
    Simulator(options, profile(), discipline=Listening()).run([whole(0, 60, 0.5)])
    assert heard[0] == ("progressed", 1), "the prompt's step drafts nothing"
    rounds = heard[1:]
    assert [kind for kind, _ in rounds] == ["accepted", "progressed"] * (len(rounds) // 2)
    assert all(after == before + 1 for (_, before), (_, after) in zip(rounds[::2], rounds[1::2], strict=True))


def test_laps_sd_learns_acceptances_in_the_simulator() -> None:
    """Lengths alike, acceptances apart: it finds out which are quick, and those end first."""
    tasks = [whole(k, 200, 0.9 if k % 2 else 0.1, expected_tokens=200.0) for k in range(8)]
    laps = LapsSd(first_s=0.2)
    options = ReplayOptions(mode="whole", draft_tokens=4, max_batch=1)
    result = Simulator(options, profile(), discipline=laps).run(tasks)
    ends = {record.task.job: record.last_token_s for record in result.records}
    assert max(ends[k] for k in (1, 3, 5, 7)) < max(ends[k] for k in (0, 2, 4, 6))
    blind = run(tasks, discipline="lp-sjf", mode="whole", draft_tokens=4, max_batch=1)
    assert np.mean(list(ends.values())) < np.mean([record.last_token_s for record in blind.records])


# ---------------------------------------------------------------- what needs it


def test_laps_sd_without_speculation_is_refused_at_start() -> None:
    with pytest.raises(Unsupported, match=r"'laps-sd' needs speculation: .*--draft-tokens"):
        Simulator(ReplayOptions(discipline="laps-sd"), profile())
    Simulator(ReplayOptions(discipline="laps-sd", draft_tokens=4), profile())
    Simulator(ReplayOptions(discipline="laps-sd"), with_drafts(profile(), draft_tokens=2))
    Simulator(ReplayOptions(), profile(), discipline=LapsSd())


def test_it_is_the_only_one_that_is() -> None:
    needy = [
        name
        for name in registry.discipline_names()
        if SPECULATION in registry.load_discipline(name).info.needs
    ]
    assert needy == ["laps-sd"]
