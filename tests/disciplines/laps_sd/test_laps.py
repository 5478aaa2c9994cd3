"""LAPS-SD: queues, stability of acceptance, Eq. 6, preemption only while cheap; and its baselines."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hints import with_hints
from hypothesis import given, settings
from hypothesis import strategies as st
from step_driver import Machine, StepDriver, Work

from examples import examples
from timely.core.errors import InvalidInput
from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable
from timely.disciplines.base import Discipline, StepLimits
from timely.disciplines.laps_sd import constants
from timely.disciplines.laps_sd.baselines import Las, LpSjf
from timely.disciplines.laps_sd.discipline import (
    LapsSd,
    LapsSdPrior,
    LapsSdRounds,
    laps_discipline_execution_s,
)
from timely.disciplines.requirements import check_queue_discipline_needs
from timely.engines.step_time.learned import FixedSpeed

SPEED = FixedSpeed(0.02, 0.0, 0.0003)


def limits(**changes: Any) -> StepLimits:
    values = {
        "token_budget": 8192, "max_batch": 1, "max_resident": 100, "prefill_chunk": 8192, "free_blocks": 1000,
        "block_tokens": 16,
    } | changes  # fmt: skip
    return StepLimits(now=1.0, speed=SPEED, **values)


class Bench:
    def __init__(self, discipline: Discipline) -> None:
        self.table = JobTable()
        self.discipline = discipline

    def job(
        self,
        name: object,
        attained_s: float = 0.0,
        tokens: float = 100.0,
        *,
        active: bool = False,
        **spec: Any,
    ) -> Job:
        spec = {"segmented": False, "prompt_tokens": 8} | spec
        job = self.table.add(JobSpec(name, 0.0, **with_hints({"expected_tokens": tokens, **spec})))
        table, row = self.table, job.row
        table.attained_s[row] = attained_s
        if active or attained_s:
            table.resident[row], table.prefill_left[row], table.blocks[row] = True, 0, 1
            table.context_tokens[row] = 8
        table.active[row] = active
        self.discipline.arrived(job, 0.0)
        return job

    def rounds(self, job: Job, *accepted: int, drafted: int = 4) -> None:
        for count in accepted:
            self.discipline.accepted(job, drafted, count, 1.0)
            self.discipline.progressed(job, count + 1, 1.0)

    def order(self, **changes: Any) -> list[object]:
        return list(self.discipline.compose(self.table, limits(**{"max_batch": 99} | changes)).tokens)


# ---------------------------------------------------------------- Eq. 6


def test_eq6_with_the_numbers_of_the_papers_fig1() -> None:
    """R1 wants 10 tokens at 0.5: with one draft a round and drafting free, 10 / 1.5 rounds of 10 ms."""
    assert laps_discipline_execution_s(10, 0.5, 1, 0.0, 0.01) == pytest.approx(10 / 1.5 * 0.01)
    # The shortest output is not the shortest job: five tokens at 0.1 outlast eight at 0.9.
    assert laps_discipline_execution_s(5, 0.1, 4, 0.0, 0.01) > laps_discipline_execution_s(
        8, 0.9, 4, 0.0, 0.01
    )


@given(
    tokens=st.integers(1, 500), acceptance=st.floats(0.0, 1.0), drafts=st.integers(0, 10),
    draft_s=st.floats(0.0, 0.01), verify_s=st.floats(0.001, 0.1),
)  # fmt: skip
def test_eq6_counts_rounds(
    *, tokens: int, acceptance: float, drafts: int, draft_s: float, verify_s: float
) -> None:
    rounds = tokens / (1 + drafts * acceptance)
    each = drafts * draft_s + verify_s
    assert laps_discipline_execution_s(tokens, acceptance, drafts, draft_s, verify_s) == pytest.approx(
        rounds * each
    )


@pytest.mark.parametrize("acceptance", [0.2, 0.6, 0.9])
@pytest.mark.parametrize(("rounds", "spread", "most"), [(6, 0.1, 0.2), (16, 0.03, 0.09)])
def test_the_estimate_is_close_to_what_rounds_really_take(
    acceptance: float, rounds: int, spread: float, most: float
) -> None:
    """Drawn rounds, estimated when the acceptance first seems stable; a stricter notion of stable errs less."""
    rng = np.random.default_rng(1)
    errors = []
    for _ in range(60):
        bench = Bench(LapsSd(rounds=rounds, spread=spread))
        job = bench.job("a", tokens=400.0)
        left, spent, estimated = 400, 0, math.nan
        while left > 0:
            right = int(rng.binomial(4, acceptance))
            bench.rounds(job, right)
            bench.table.output_tokens[job.row] += right + 1
            left -= right + 1
            spent += 1
            if math.isnan(estimated):
                left_s = bench.discipline.left_s(job, limits())  # type: ignore[attr-defined]
                if left_s is not None:
                    estimated = spent + (left_s - 8 * 0.0003) / 0.02
        errors.append(abs(estimated - spent) / spent)
    assert float(np.mean(errors)) < most


# ---------------------------------------------------------------- stability


def test_stable_when_it_moved_little_for_gamma_rounds() -> None:
    seen = LapsSdRounds(deque(maxlen=3))
    for rate in (0.2, 0.5, 0.52, 0.51):
        seen.note(rate, 0.05)
    assert seen.rate == pytest.approx((0.5 + 0.52 + 0.51) / 3)
    wild = LapsSdRounds(deque(maxlen=3))
    for rate in (0.2, 0.5, 0.2, 0.5, 0.2):
        wild.note(rate, 0.05)
    assert wild.rate is None


def test_once_perceptible_it_stays_so_and_follows() -> None:
    seen = LapsSdRounds(deque(maxlen=2))
    for rate in (0.5, 0.5, 0.9):
        seen.note(rate, 0.05)
    assert seen.rate == pytest.approx(0.7)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40), st.integers(2, 8), st.floats(0.01, 0.5))
def test_stability_against_its_definition(rates: list[float], gamma: int, delta: float) -> None:
    seen = LapsSdRounds(deque(maxlen=gamma))
    for rate in rates:
        seen.note(rate, delta)
    windows = [rates[end - gamma : end] for end in range(gamma, len(rates) + 1)]
    assert (seen.rate is not None) == any(max(window) - min(window) < delta for window in windows)
    if seen.rate is not None:
        assert seen.rate == pytest.approx(sum(rates[-gamma:]) / gamma)


def test_acceptance_is_that_of_all_rounds_and_empty_rounds_say_nothing() -> None:
    bench = Bench(LapsSd(rounds=2, spread=0.2))
    job = bench.job("a", tokens=100.0)
    bench.rounds(job, 4, 2)
    bench.rounds(job, 0, 0, 0, drafted=0)
    assert not bench.discipline._perceptible, "1.0 and 0.75 are too far apart"  # type: ignore[attr-defined]
    bench.rounds(job, 3)
    seen = bench.discipline._perceptible["a"]  # type: ignore[attr-defined]
    assert seen.rate == pytest.approx((0.75 + 0.75) / 2)
    assert seen.drafts == 4.0


def test_without_rounds_nothing_is_perceptible_whatever_the_request_claims() -> None:
    bench = Bench(LapsSd(rounds=3))
    claims = bench.job("claims", acceptance=0.6)
    for _ in range(9):
        bench.discipline.progressed(claims, 1, 1.0)
    assert not bench.discipline._perceptible  # type: ignore[attr-defined]


# ---------------------------------------------------------------- queues


@given(st.integers(1, 10), st.floats(0.05, 5.0), st.floats(1.1, 8.0), st.floats(0.0, 1e4))
def test_thresholds_grow_exponentially_and_hold_what_they_should(
    queues: int, first: float, factor: float, service: float
) -> None:
    laps = LapsSd(queues=queues, first_s=first, factor=factor)
    assert laps.thresholds == pytest.approx([first * factor**j for j in range(queues - 1)])
    queue = int(laps.queue_of(np.array([service]))[0])
    lower = 0.0 if queue == 0 else laps.thresholds[queue - 1]
    upper = math.inf if queue == queues - 1 else laps.thresholds[queue]
    assert lower <= service < upper


def test_less_served_queues_first_and_arrival_within_one() -> None:
    bench = Bench(LapsSd(first_s=0.5, factor=2.0))
    for name, attained in (("q2", 0.7), ("q1 first", 0.4), ("q4", 9.0), ("q1 second", 0.1), ("q3", 1.5)):
        bench.job(name, attained)
    assert bench.order() == ["q1 first", "q1 second", "q2", "q3", "q4"]


def perceptible(bench: Bench, name: str, accepted: int, tokens: float, **more: Any) -> Job:
    job = bench.job(name, more.pop("attained_s", 0.01), tokens, **more)
    bench.rounds(job, *[accepted] * 6)
    return job


def test_perceptible_ones_of_a_queue_go_first_shortest_time_first() -> None:
    bench = Bench(LapsSd(first_s=100.0))
    bench.job("blind")
    perceptible(bench, "few tokens, bad drafts", 0, 30.0)
    perceptible(bench, "more tokens, good drafts", 4, 60.0)
    assert bench.order() == ["more tokens, good drafts", "few tokens, bad drafts", "blind"]


def test_a_perceptible_one_lies_where_its_perceived_service_belongs() -> None:
    bench = Bench(LapsSd(first_s=0.5, factor=2.0))
    perceptible(bench, "long ahead", 0, 100.0)  # two seconds to go
    bench.job("blind", 0.8)
    perceptible(bench, "nearly done", 4, 8.0, attained_s=0.3)
    assert bench.order() == ["nearly done", "blind", "long ahead"]


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 20.0), st.floats(1.0, 400.0), st.sampled_from([None, 0, 2, 4]), st.booleans(), st.booleans()
        ),
        min_size=1, max_size=12,
    ),
    st.integers(1, 6),
)  # fmt: skip
def test_the_order_is_that_of_sorting_by_the_papers_rules(
    requests: list[tuple[float, float, int | None, bool, bool]], queues: int
) -> None:
    """Queue by queue, in each the perceptible by estimated time, then the others by arrival; chosen ones before all."""
    laps = LapsSd(queues=queues, first_s=0.5)
    bench = Bench(laps)
    places: list[tuple[tuple[float, ...], int]] = []
    for name, (attained, tokens, accepted, chosen, active) in enumerate(requests):
        job = bench.job(name, attained, tokens, active=active)
        if accepted is not None:
            bench.rounds(job, *[accepted] * 6)
            if chosen:
                bench.rounds(job, accepted)
        left = laps.left_s(job, limits()) if accepted is not None else None
        service = attained + (left or 0.0)
        queue = sum(service >= 0.5 * 2.0**k for k in range(queues - 1))
        first = accepted is not None and chosen and active
        places.append(((-1 if first else queue, left is None, left or 0.0, name), name))
    assert bench.order() == [name for _, name in sorted(places)]


def test_only_who_is_not_perceptible_is_preempted() -> None:
    blind = Bench(LapsSd())
    blind.job("runs", 1.3, active=True)
    blind.job("new")
    assert blind.order(max_batch=1) == ["new"]
    seen = Bench(LapsSd())
    runs = perceptible(seen, "runs", 2, 300.0, attained_s=1.3, active=True)
    seen.job("new")
    assert seen.order(max_batch=1) == ["new"], "it has only just become perceptible and competes once more"
    seen.rounds(runs, 2)
    assert seen.order(max_batch=1) == ["runs"]
    seen.discipline.parked(runs, 1.0)
    assert seen.order(max_batch=1) == ["new"]


def test_an_acceptance_outside_0_to_1_is_refused() -> None:
    for rate in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidInput, match="acceptance"):
            LapsSd().check(JobSpec("a", 0.0, acceptance=rate))
    LapsSd().check(JobSpec("a", 0.0, acceptance=1.0))


@pytest.mark.parametrize(
    "bad", [{"queues": 0}, {"first_s": 0.0}, {"factor": 1.0}, {"rounds": 1}, {"spread": 0.0}]
)
def test_parameters_that_make_no_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="need queues"):
        LapsSd(**bad)


# ---------------------------------------------------------------- baselines, and what it is for


def test_las_gives_to_the_least_served_in_quanta() -> None:
    bench = Bench(Las(quantum_s=0.1))
    for name, attained in (("much", 0.5), ("same as next", 0.19), ("same", 0.11), ("none", 0.0)):
        bench.job(name, attained, active=True)
    assert bench.order() == ["none", "same as next", "same", "much"]


def test_lp_sjf_looks_at_predicted_length_only_and_lets_runners_run() -> None:
    bench = Bench(LpSjf())
    bench.job("runs", 0.5, 500.0, active=True)
    bench.job("long", tokens=300.0, prompt_tokens=1)
    bench.job("short", tokens=20.0, prompt_tokens=2000)
    assert bench.order() == ["runs", "short", "long"]


def speculative(seed: int, jobs: int) -> list[Work]:
    """Lengths alike, acceptances far apart: what length prediction cannot see."""
    rng = np.random.default_rng(seed)
    works = []
    for name in range(jobs):
        tokens = int(rng.integers(200, 300))
        spec = JobSpec(
            name, float(rng.uniform(0.0, 0.5)), prompt_tokens=16, segmented=False,
            hints=RequestHints(expected_tokens=float(tokens)), acceptance=float(rng.choice([0.05, 0.95])),
        )  # fmt: skip
        works.append(Work(spec, [(tokens, 0.0, False)]))
    return works


def mean_latency(name: str, works: list[Work]) -> float:
    driver = StepDriver(name, works, Machine(max_batch=1, blocks=10_000, max_resident=64), twice=False).run()
    return float(np.mean([fate.end_s - fate.work.spec.arrival_s for fate in driver.fates.values()]))


@pytest.mark.paper
def test_with_acceptances_far_apart_it_beats_its_baselines() -> None:
    """Section 5.2 in small: mean latency below LP-SJF and LAS, on average over seeds."""
    means = {
        name: np.mean([mean_latency(name, speculative(seed, 16)) for seed in range(3)])
        for name in ("laps-sd", "lp-sjf", "las")
    }
    assert means["laps-sd"] < 0.9 * means["lp-sjf"]
    assert means["laps-sd"] < 0.7 * means["las"]


def test_robots_too() -> None:
    works = [
        replace(
            work, segments=[(12, 1.0, False)] * 3, spec=replace(work.spec, segmented=True, segment_tokens=12)
        )
        for work in speculative(9, 8)
    ]
    driver = StepDriver("laps-sd", works, Machine(max_batch=2)).run()
    assert all(fate.emitted == [12, 12, 12] for fate in driver.fates.values())


# ---------------------------------------------------------------- ours: an estimate from the start


def lasting(bench: Bench, job: Job, *tokens: int) -> None:
    """Rounds that gave so many tokens each."""
    for count in tokens:
        bench.table.output_tokens[job.row] += count
        bench.discipline.progressed(job, count, 1.0)


def test_before_anything_is_seen_the_shorter_goes_first() -> None:
    bench = Bench(LapsSdPrior())
    for name, tokens in (("long", 300.0), ("short", 20.0), ("middle", 90.0)):
        bench.job(name, tokens=tokens)
    assert bench.order() == ["short", "middle", "long"]


def test_bad_drafts_make_a_short_request_long_and_good_ones_a_long_one_short() -> None:
    bench = Bench(LapsSdPrior())
    bad, good = bench.job("few, bad drafts", tokens=120.0), bench.job("more, good drafts", tokens=160.0)
    assert bench.order() == ["few, bad drafts", "more, good drafts"]
    lasting(bench, bad, 1, *[1] * 20)
    lasting(bench, good, 1, *[5] * 4)
    assert bench.order() == ["more, good drafts", "few, bad drafts"]


def test_what_others_showed_is_believed_of_newcomers() -> None:
    """Rounds of the others shorten or lengthen what is not drafted for yet, against a prompt's fixed time."""
    orders = []
    for each in (1, 5):
        bench = Bench(LapsSdPrior())
        lasting(bench, bench.job("others", tokens=10_000.0), 1, *[each] * 100)
        bench.job("output", tokens=100.0, prompt_tokens=8)
        bench.job("prompt", tokens=1.0, prompt_tokens=4000)  # 1.2 s
        orders.append([name for name in bench.order() if name != "others"])
    assert orders == [["prompt", "output"], ["output", "prompt"]]


def test_who_runs_is_displaced_only_by_one_that_is_shorter_by_more_than_the_switch() -> None:
    def first(tokens: float, **changes: Any) -> object:
        bench = Bench(LapsSdPrior())
        runs = bench.job("runs", tokens=100.0, active=True)
        bench.table.context_tokens[runs.row] = 400
        bench.job("new", tokens=tokens, prompt_tokens=1)
        return bench.order(**({"max_batch": 1} | changes))[0]

    # 400 tokens to compute again are 0.12 s, 15 tokens of output at the rate of the prior.
    assert (first(95.0), first(80.0)) == ("runs", "new")
    # Moved at 10 microseconds a token, out and in again cost 8 ms, one token.
    assert (first(99.8, swap_s_per_token=1e-5), first(98.0, swap_s_per_token=1e-5)) == ("runs", "new")


def test_it_needs_no_speculation_to_make_sense() -> None:
    check_queue_discipline_needs(LapsSdPrior.info, ())


@pytest.mark.paper
def test_it_is_ahead_where_lengths_tell_and_where_acceptances_do() -> None:
    apart = {
        name: np.mean([mean_latency(name, speculative(seed, 16)) for seed in range(3)])
        for name in ("laps-sd-prior", "lp-sjf", "las")
    }
    assert apart["laps-sd-prior"] < 0.9 * apart["lp-sjf"]
    assert apart["laps-sd-prior"] < 0.7 * apart["las"]


def test_the_thresholds_grow_as_section_4_2_says() -> None:
    """S_j^up = M^(j-1) S_1^up; the paper states none of the constants."""
    assert LapsSd().thresholds.tolist() == [
        constants.FIRST_QUEUE_S * constants.FACTOR**place for place in range(constants.QUEUES - 1)
    ]
    assert constants.QUEUES in (4, 6), "the best values of Fig. 6"
