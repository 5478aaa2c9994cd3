"""SageSched's order and refreshing, its ablations, and the baselines FastServe, SSJF, LTR and TRAIL."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hints import with_hints

from timely.core.job import Job, JobSpec, JobTable
from timely.disciplines.base import Discipline, StepLimits
from timely.disciplines.predictors.history import HistoryPredictor, LengthPrediction
from timely.disciplines.sagesched import constants
from timely.disciplines.sagesched.baselines import Ltr, Ssjf, Trail
from timely.disciplines.sagesched.discipline import (
    GittinsStatic,
    SageSched,
    SageSchedMean,
    SageSchedSmooth,
    discipline_hybrid_cost,
)
from timely.disciplines.sagesched.fastserve import FastServe
from timely.disciplines.sagesched.gittins import CostDistribution
from timely.engines.step_time.learned import FixedSpeed


class Told:
    """A predictor that reads the distribution in the prompt: ``10:3 200:1`` is lengths and weights."""

    def __init__(self) -> None:
        self.learned: list[tuple[str, int]] = []

    def predict(self, spec: JobSpec) -> LengthPrediction:
        pairs = [part.split(":") for part in spec.words.split()]
        return LengthPrediction(
            np.array([float(a) for a, _ in pairs]), np.array([float(b) for _, b in pairs]), 1
        )

    def learn(self, spec: JobSpec, prediction: LengthPrediction, output_tokens: int) -> None:
        self.learned.append((spec.words, output_tokens))


class Hall:
    """A discipline and a machine with ``units`` places."""

    def __init__(self, discipline: Discipline, units: int = 1) -> None:
        self.discipline, self.units, self.table, self.now = discipline, units, JobTable(), 0.0

    def arrive(self, name: str, text: str = "100:1", prompt: int = 10, **settings: Any) -> Job:
        spec = JobSpec(
            name,
            self.now,
            prompt_tokens=prompt,
            text=text,
            segmented=False,
            max_tokens=4096,
            **with_hints(settings),
        )
        job = self.table.add(spec)
        self.discipline.arrived(job, self.now)
        return job

    def compose(self) -> list[Any]:
        limits = StepLimits(self.now, 10_000, self.units, 1000, 10_000, 10_000, 16, FixedSpeed(1.0))
        return list(self.discipline.compose(self.table, limits).tokens)

    def step(self, tokens: int = 1) -> list[Any]:
        chosen = self.compose()
        self.now += 1.0
        for name in chosen:
            job = self.table[name]
            row = job.row
            self.table.resident[row] = self.table.active[row] = True
            self.table.prefill_left[row] = 0
            self.table.output_tokens[row] += tokens
            self.discipline.progressed(job, tokens, self.now)
        return chosen

    def finish(self, name: str, outcome: str = "complete") -> None:
        job = self.table[name]
        job.outcome = outcome
        self.discipline.finished(job, self.now)
        self.table.remove(name)


def cost(output: float, prompt: float = 10.0) -> float:
    return output * output / 2.0 + prompt * output


# --------------------------------------------------------------------------- SageSched


def test_the_rank_is_the_gittins_index_of_the_cost() -> None:
    hall = Hall(SageSched(Told()))
    job = hall.arrive("a", "10:3 200:1")
    expected = CostDistribution([cost(10), cost(200)], [3, 1]).index()
    assert hall.table.rank[job.row] == pytest.approx(expected)
    assert hall.table.rank[job.row] < rank_of("mean", "10:3 200:1")


def rank_of(order: Any, text: str, **settings: Any) -> float:
    hall = Hall(SageSched(Told(), order=order, **settings))
    job = hall.arrive("a", text)
    return float(hall.table.rank[job.row])


def test_long_prompts_count_where_output_alone_would_not() -> None:
    """Fig. 2b: of two outputs the slightly shorter one may cost far more memory."""
    for name, first in (("hybrid", "light"), ("overall", "light"), ("output", "heavy")):
        hall = Hall(SageSched(Told(), cost=name))
        hall.arrive("heavy", "90:1", prompt=4000)
        hall.arrive("light", "100:1", prompt=10)
        assert hall.compose() == [first]


def test_a_better_one_interrupts_and_keeps_nobody_else() -> None:
    hall = Hall(SageSched(Told()))
    hall.arrive("long", "1000:1")
    assert hall.step() == ["long"]
    hall.arrive("short", "5:1")
    assert hall.step() == ["short"]
    hall.finish("short")
    assert hall.step() == ["long"]


def test_the_index_is_taken_again_at_bucket_boundaries_and_only_there() -> None:
    hall = Hall(SageSched(Told(), bucket_tokens=200))
    job = hall.arrive("a", "150:1 1000:1")
    seen = []
    for _ in range(420):
        hall.step()
        seen.append(float(hall.table.rank[job.row]))
    changes = [at + 2 for at, (a, b) in enumerate(pairwise(seen)) if a != b]
    assert changes == [200, 400]
    for at in changes:
        assert seen[at - 1] == pytest.approx(cost(1000) - cost(at))


def test_refreshing_sends_a_gamble_that_failed_behind() -> None:
    """The sure thing waits at first, and takes over when the gamble has turned out long."""

    def order(discipline: SageSched) -> list[str]:
        hall = Hall(discipline)
        hall.arrive("gamble", "100:4 3000:1")
        hall.arrive("sure", "600:1")
        return [hall.step(10)[0] for _ in range(30)]

    assert order(SageSched(Told(), bucket_tokens=200)) == ["gamble"] * 20 + ["sure"] * 10
    assert order(GittinsStatic(Told())) == ["gamble"] * 30
    assert order(SageSchedMean(Told())) == ["sure"] * 30


def test_several_tokens_may_jump_over_boundaries() -> None:
    hall = Hall(SageSched(Told(), bucket_tokens=10))
    job = hall.arrive("a", "5:1 1000:1")
    hall.step(37)
    assert hall.table.rank[job.row] == pytest.approx(cost(1000) - cost(37))
    belief = hall.discipline._beliefs["a"]  # type: ignore[attr-defined]
    assert belief.refresh_at == 40


def test_one_that_outlives_every_belief_goes_on_with_a_finite_rank() -> None:
    hall = Hall(SageSched(Told(), bucket_tokens=50))
    job = hall.arrive("a", "20:1")
    ranks = []
    for _ in range(10):
        hall.step(50)
        ranks.append(float(hall.table.rank[job.row]))
    assert np.isfinite(ranks).all()
    assert ranks == sorted(ranks), "what has lasted longer is expected to last longer"


def test_taken_over_while_running_it_starts_from_its_age() -> None:
    table = JobTable()
    job = table.add(JobSpec("a", 0.0, prompt_tokens=10, text="100:1 1000:1"))
    table.output_tokens[job.row] = 500
    discipline = SageSched(Told())
    discipline.arrived(job, 1.0)
    assert table.rank[job.row] == pytest.approx(cost(1000) - cost(500))
    assert discipline._beliefs["a"].refresh_at == 600


def test_noise_blurs_the_belief() -> None:
    """The paper's test: a uniform distribution mixed in by 1:4."""
    clear, blurred = rank_of("gittins", "100:1"), rank_of("gittins", "100:1", noise=0.2)
    assert clear == cost(100)
    assert blurred != clear
    assert rank_of("mean", "100:1", noise=1.0) == pytest.approx(
        float(np.mean([cost(x) for x in np.linspace(1, 100, 64)])), rel=1e-9
    )


@pytest.mark.parametrize("outcome", ["complete", "stop", "length", "abort", "cancelled", "failed"])
def test_only_requests_that_ended_by_themselves_teach(outcome: str) -> None:
    oracle = Told()
    hall = Hall(SageSched(oracle))
    hall.arrive("a", "100:1")
    hall.step(7)
    hall.finish("a", outcome)
    assert oracle.learned == ([("100:1", 7)] if outcome in ("complete", "stop", "length") else [])
    assert not hall.discipline._beliefs  # type: ignore[attr-defined]


def test_it_learns_while_serving() -> None:
    """With its own predictor: after some requests of two kinds it knows the short kind from the long one."""
    hall = Hall(SageSched())
    for number in range(12):
        kind, tokens = (("list all planets", 400), ("name one planet", 4))[number % 2]
        hall.arrive(f"t{number}", kind)
        hall.step(tokens)
        hall.finish(f"t{number}")
    hall.arrive("long", "list all planets")
    hall.arrive("short", "name one planet")
    assert hall.compose() == ["short"]
    assert all(belief.prediction.similar for belief in hall.discipline._beliefs.values())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "bad", [{"cost": "money"}, {"order": "random"}, {"bucket_tokens": 0}, {"noise": 1.5}, {"noise": -0.1}]
)
def test_nonsense_settings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        SageSched(Told(), **bad)


# --------------------------------------------------------------------------- FastServe


def test_a_request_sinks_level_by_level() -> None:
    hall = Hall(FastServe(levels=3, quantum_tokens=4, ratio=2.0))
    job = hall.arrive("a")
    levels = []
    for _ in range(20):
        levels.append(int(hall.table.rank[job.row]))
        hall.step()
    assert levels == [0] * 4 + [1] * 8 + [2] * 8
    hall.arrive("b")
    assert hall.compose() == ["b"], "newcomers interrupt those that have sunk"


def test_long_prefills_skip_levels() -> None:
    hall = Hall(FastServe(levels=4, quantum_tokens=4, ratio=2.0))
    jobs = [hall.arrive(name, prompt=n) for name, n in (("short", 100), ("long", 2600), ("endless", 10**7))]
    assert [int(hall.table.rank[job.row]) for job in jobs] == [0, 2, 3]


def test_who_starves_is_lifted() -> None:
    hall = Hall(FastServe(levels=2, quantum_tokens=4, starve_s=20.0))
    hall.arrive("old")
    for _ in range(4):
        hall.step()
    for number in range(30):
        hall.arrive(f"n{number}")
        ran = hall.step()
        if ran == ["old"]:
            break
        hall.finish(f"n{number}")
    assert 19 <= number <= 21


# --------------------------------------------------------------------------- SSJF, LTR, TRAIL


def test_ssjf_goes_by_the_guess_and_does_not_interrupt() -> None:
    hall = Hall(Ssjf(Told()))
    hall.arrive("long", "1000:1")
    hall.step()
    hall.arrive("medium", "100:1")
    hall.arrive("hinted", "100:1", expected_tokens=5.0)
    assert hall.step() == ["long"]
    hall.finish("long")
    assert hall.step() == ["hinted"]


def test_ltr_interrupts_by_rank_and_promotes_who_starves() -> None:
    hall = Hall(Ltr(Told(), starve_s=10.0, quantum_tokens=3))
    hall.arrive("long", "1000:1")
    assert hall.step() == ["long"]
    served = []
    for number in range(40):
        hall.arrive(f"s{number}", "2:1")
        ran = hall.step()[0]
        served.append(ran == "long")
        if ran != "long":
            hall.finish(ran)
    first = served.index(True)
    assert 9 <= first <= 11
    assert served[first : first + 4] == [True, True, True, False], "three tokens, then it waits again"


def test_trail_renews_its_guess_and_stops_interrupting_late() -> None:
    hall = Hall(Trail(Told()))
    job = hall.arrive("a", "100:1")
    hall.step(30)
    assert hall.table.rank[job.row] == 70.0
    hall.arrive("b", "60:1")
    assert hall.step(30) == ["b"], "60 are less than 70"
    assert hall.step(25) == ["b"]
    hall.arrive("c", "2:1")
    assert hall.compose() == ["b"], "b has had over 0.8 of its guess"
    hall.finish("b")
    assert hall.compose() == ["c"]


def test_trail_takes_a_refiner_that_sees_more() -> None:
    hall = Hall(Trail(Told(), refiner=lambda spec, output: 500.0 - output))
    job = hall.arrive("a", "1000:1")
    hall.step(100)
    assert hall.table.rank[job.row] == 400.0


def test_the_constants_are_the_papers() -> None:
    assert constants.SIMILARITY == 0.8  # sections 3.1 and 4.1
    assert constants.WINDOW == 10_000  # footnote 3
    assert constants.BUCKET_TOKENS == 200  # section 4.1
    assert discipline_hybrid_cost(np.array([10.0]), 7.0)[0] == 10.0**2 / 2 + 7.0 * 10.0  # section 3.2


def test_the_default_predictor_is_the_papers_and_ours_has_a_name_of_its_own() -> None:
    pytest.importorskip("wordllama", reason="needs the extra 'predict'")
    literal, smooth = SageSched().predictor, SageSchedSmooth().predictor
    assert isinstance(literal, HistoryPredictor)
    assert isinstance(smooth, HistoryPredictor)
    assert literal.embedder.name.startswith("wordllama")
    assert (literal.threshold, literal.window, literal.enough) == (0.8, 10_000, 1)
    assert smooth.embedder.name.startswith("hash")
    for text, tokens in (("bake a cake", 100), ("bake a cake", 300)):
        literal.remember(literal.embedder.embed([text])[0], 10, tokens)
    belief = literal.predict(JobSpec("x", 0.0, text="bake a cake", max_tokens=500))
    assert sorted(belief.lengths) == [100.0, 300.0], "the lengths as they are"
