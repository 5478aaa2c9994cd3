"""SageSched's evaluation: its models and GPUs, a world of requests, and the predictions that each baseline receives.

Qwen3-32B runs on an H800 with 96 GB: 65 GB of weights read at 2 TB/s in every step.
Its KV takes 256 KB a token, and 12 GB are free for it.
Llama3.1-8B runs on an A40: 16 GB of weights at 0.7 TB/s, 128 KB a token, 26 GB free.
Preempted requests are swapped over PCIe, four fifths of it hidden behind computing, as section 3.3 assumes.

FCFS and FastServe run as they are. The other baselines predict with a fine-tuned model each, which is not at hand.
So each receives a prediction as good as its paper or SageSched's says, made from the truth:

* SSJF: the mean of the prompt's family with an error that hits the right one of 20 buckets in 34.1% (Fig. 2a).
* LTR: a rank whose Kendall tau with the true lengths is 0.55.
* TRAIL: SSJF's first guess, then a remaining length whose error is 2.66 times smaller than SSJF's.

``trail-history`` is TRAIL on the history that SageSched itself uses.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.sagesched.workloads import (
    DATASETS,
    MAX_TOKENS,
    PaperPromptWorld,
    SyntheticRequest,
    paper_workload,
)
from timely.bench.papers.seed_statistics import paper_falls_to, paper_mean
from timely.bench.papers.serving import serve_paper_tasks
from timely.core.job import JobId, JobSpec
from timely.disciplines.base import Discipline
from timely.disciplines.basic import Fcfs
from timely.disciplines.predictors.history import HistoryPredictor, LengthPrediction
from timely.disciplines.sagesched.baselines import Ltr, Ssjf, Trail
from timely.disciplines.sagesched.discipline import SageSched, SageSchedSmooth, sagesched_discipline_history
from timely.disciplines.sagesched.fastserve import FastServe
from timely.engines.replay_types import PlannedTask
from timely.engines.step_time.profile import StepTimeProfile, load_step_profile

Lengths = np.ndarray[Any, Any]

ORDER = ("fcfs", "fastserve", "ssjf", "ltr", "trail", "sagesched")
REQUESTS = 800
PAST = 2_000
"""Requests in the history before the first one arrives (the paper fills up from public datasets)."""

BUCKETS = 20
BUCKET_TOKENS = 100
HIT_RATE = 0.341
TAU = 0.55
TRAIL_FACTOR = 2.66
"""How many times smaller TRAIL's renewed error is than SSJF's."""

FASTSERVE_QUANTA = (32, 128, 512, 1024, 2048)
FASTSERVE_QUANTUM = 1024
"""Tokens of FastServe's first quantum: the best of ``FASTSERVE_QUANTA`` on a seed of its own (``measure_quantum``)."""
TUNING_SEED = 0

FOLDER = Path(__file__).parent
QWEN, LLAMA = "Qwen3-32B", "Llama3.1-8B"
RATES = {QWEN: (4.0, 6.0, 8.0), LLAMA: (8.0,)}
MAIN_RATE = 8.0

PROFILES = {
    QWEN: load_step_profile(FOLDER / "qwen3-32b-h800.yaml"),
    LLAMA: load_step_profile(FOLDER / "llama31-8b-a40.yaml"),
}


# ---------------------------------------------------------------------- what the baselines are told


@dataclass(frozen=True, slots=True)
class Errors:
    """Sigmas of the log-normal errors of the baselines' predictions, and what they come to."""

    ssjf: float
    ltr: float
    trail: float
    hit_rate: float
    best_hit_rate: float
    tau: float


def _typical_paper_lengths(
    families: Mapping[int, Any], rng: np.random.Generator
) -> dict[int, tuple[float, int]]:
    """Mean length and likeliest bucket of each family."""
    typical = {}
    for key, family in families.items():
        lengths = family.lengths(1000, rng)
        typical[key] = (
            float(lengths.mean()),
            int(np.bincount(_paper_length_bucket(lengths), minlength=BUCKETS).argmax()),
        )
    return typical


def _paper_length_bucket(lengths: np.ndarray) -> np.ndarray:
    places: np.ndarray = np.minimum(np.asarray(lengths) // BUCKET_TOKENS, BUCKETS - 1).astype(np.int64)
    return places


def paper_kendall_tau(a: np.ndarray, b: np.ndarray) -> float:
    signs = np.sign(a[:, None] - a[None, :]) * np.sign(b[:, None] - b[None, :])
    return float(signs.sum() / (len(a) * (len(a) - 1)))


@cache
def calibrate_paper_errors(seed: int = 0, requests: int = 1500) -> Errors:
    """Find the errors that give the baselines the accuracy their papers state, on a world of their own."""
    rng = np.random.default_rng([seed, 41])
    samples = PaperPromptWorld(seed).draw(requests, rng)
    typical = _typical_paper_lengths({id(d.family): d.family for d in samples}, rng)
    truth = np.array([d.output_tokens for d in samples], dtype=np.float64)
    means = np.array([typical[id(d.family)][0] for d in samples])
    modes = np.array([typical[id(d.family)][1] for d in samples])
    z = rng.standard_normal(requests)
    place = _paper_length_bucket(truth)

    def hit(sigma: float) -> float:
        guess = (modes + 0.5) * BUCKET_TOKENS * np.exp(sigma * z)
        return float(np.mean(_paper_length_bucket(guess) == place))

    def tau(sigma: float) -> float:
        return paper_kendall_tau(means * np.exp(sigma * z), truth)

    def renewed_error(sigma: float) -> float:
        # Averaged over the tokens of all requests, of which half is left on average.
        return float(truth @ (truth / 2.0 * np.abs(np.exp(sigma * z) - 1.0)) / truth.sum())

    ssjf, ltr = paper_falls_to(hit, HIT_RATE), paper_falls_to(tau, TAU)
    first_error = float(truth @ np.abs(means * np.exp(ssjf * z) - truth) / truth.sum())
    trail = paper_falls_to(lambda sigma: -renewed_error(sigma), -first_error / TRAIL_FACTOR)
    return Errors(ssjf, ltr, trail, hit(ssjf), hit(0.0), tau(ltr))


@dataclass(slots=True)
class SageSchedPaperSetting:
    """A world, its requests, its history, and what each baseline is told of them."""

    world: PaperPromptWorld
    seed: int
    rate: float
    errors: Errors
    tasks: list[PlannedTask]
    requests: list[SyntheticRequest]
    _histories: dict[tuple[tuple[str, Any], ...], HistoryPredictor] = field(default_factory=dict)

    @classmethod
    def make(cls, seed: int, rate: float, errors: Errors, datasets: Sequence[str] = tuple(DATASETS)) -> Self:
        world = PaperPromptWorld(seed, datasets)
        return cls(world, seed, rate, errors, *paper_workload(world, seed, REQUESTS, rate))

    def history(self, **settings: Any) -> HistoryPredictor:
        """The paper's history of past requests of this world, a fresh copy each time; ``kind="smooth"`` is ours."""
        key = tuple(sorted(settings.items()))
        if key not in self._histories:
            smooth = settings.get("kind") == "smooth"
            predictor = HistoryPredictor() if smooth else sagesched_discipline_history(**settings)
            for past in self.world.draw(PAST, np.random.default_rng([self.seed, 31])):
                spec = paper_job_spec(past)
                vector = predictor.embedder.embed([past.text])[0] if predictor.by == "prompt" else None
                predictor.remember(vector, spec.prompt_tokens, past.output_tokens)
            self._histories[key] = predictor
        return copy.deepcopy(self._histories[key])

    def tasks_for(self, name: str) -> list[PlannedTask]:
        """The tasks with the length prediction that this baseline would have."""
        if name not in ("ssjf", "ltr", "trail"):
            return self.tasks
        rng = np.random.default_rng([self.seed, 43])
        typical = _typical_paper_lengths({id(d.family): d.family for d in self.requests}, rng)
        sigma = self.errors.ltr if name == "ltr" else self.errors.ssjf
        factors = np.exp(sigma * rng.standard_normal(len(self.requests)))
        return [
            replace(
                task,
                hints=replace(
                    task.hints, expected_tokens=max(1.0, typical[id(request.family)][0] * float(factor))
                ),
            )
            for task, request, factor in zip(self.tasks, self.requests, factors, strict=True)
        ]

    def refiner(self) -> Callable[[JobSpec, int], float]:
        """TRAIL's renewed prediction: what is really left, with an error that stays the same for a request."""
        rng = np.random.default_rng([self.seed, 47])
        factors = np.exp(self.errors.trail * rng.standard_normal(len(self.requests)))
        by_job: dict[JobId, tuple[int, float]] = {
            task.job: (task.output_tokens, float(factor))
            for task, factor in zip(self.tasks, factors, strict=True)
        }

        def tokens_left(spec: JobSpec, output_tokens: int) -> float:
            total, factor = by_job[spec.job_id]
            return max(0.0, total - output_tokens) * factor

        return tokens_left

    def make_discipline(self, name: str) -> Discipline:
        """One of ``DISCIPLINES``, or SageSched with another ``threshold=`` or ``bucket=``."""
        kind, _, value = name.partition("=")
        if kind == "threshold":
            return SageSched(self.history(threshold=float(value)))
        if kind == "bucket":
            return SageSched(self.history(), bucket_tokens=float(value))
        return DISCIPLINES[name](self)


@lru_cache(maxsize=2)
def _make_sagesched_paper_setting(
    seed: int, rate: float, datasets: tuple[str, ...], requests: int, past: int
) -> SageSchedPaperSetting:
    return SageSchedPaperSetting.make(seed, rate, calibrate_paper_errors(), datasets)


def paper_setting(seed: int, rate: float, dataset: str = "") -> SageSchedPaperSetting:
    """The setting of a seed, on one dataset or on all; the latest two are kept."""
    return _make_sagesched_paper_setting(
        seed, rate, (dataset,) if dataset else tuple(DATASETS), REQUESTS, PAST
    )


def paper_job_spec(request: SyntheticRequest) -> JobSpec:
    return JobSpec("", 0.0, prompt_tokens=request.prompt_tokens, max_tokens=MAX_TOKENS, text=request.text)


class PaperLengthOracle:
    """A predictor that has the output lengths of every prompt beforehand and learns nothing.

    Args:
        lengths: tokens by prompt, shape ``(k,)`` each, all equally likely.
    """

    def __init__(self, lengths: Mapping[str, Lengths]) -> None:
        self._lengths = {
            text: np.clip(each, 1, MAX_TOKENS).astype(np.float64) for text, each in lengths.items()
        }

    @classmethod
    def of_length(cls, setting: SageSchedPaperSetting) -> Self:
        return cls({request.text: np.array([request.output_tokens]) for request in setting.requests})

    @classmethod
    def of_family(cls, setting: SageSchedPaperSetting, error: float = 0.0) -> Self:
        """The true distribution of each request's family, shifted as a whole by a log-normal factor."""
        rng = np.random.default_rng([setting.seed, 53])
        lengths = {id(request.family): request.family.lengths(200, rng) for request in setting.requests}
        factors = np.exp(error * rng.standard_normal(len(setting.requests)))
        return cls(
            {
                request.text: lengths[id(request.family)] * float(factor)
                for request, factor in zip(setting.requests, factors, strict=True)
            }
        )

    def predict(self, spec: JobSpec) -> LengthPrediction:
        lengths = self._lengths[spec.words]
        return LengthPrediction(lengths, np.ones_like(lengths), len(lengths))

    def learn(self, spec: JobSpec, prediction: LengthPrediction, output_tokens: int) -> None:
        """Nothing to learn."""


VARIANTS: dict[str, Callable[[SageSchedPaperSetting], Discipline]] = {
    "history by length": lambda s: SageSched(s.history(by="length")),
    # As a language model fine-tuned to the task would predict: it errs like SSJF's.
    "fine-tuned model": lambda s: SageSched(PaperLengthOracle.of_family(s, s.errors.ssjf)),
    "output length": lambda s: SageSched(s.history(), cost="output"),
    "overall length": lambda s: SageSched(s.history(), cost="overall"),
    "Gittins": lambda s: SageSched(s.history(), bucket_tokens=np.inf),
    "Mean": lambda s: SageSched(s.history(), order="mean"),
    "SageSched, noise": lambda s: SageSched(s.history(), noise=0.2),
    "Gittins, noise": lambda s: SageSched(s.history(), noise=0.2, bucket_tokens=np.inf),
    "Mean, noise": lambda s: SageSched(s.history(), noise=0.2, order="mean"),
}
"""The ablations of section 4.3."""

DISCIPLINES: dict[str, Callable[[SageSchedPaperSetting], Discipline]] = {
    "fcfs": lambda s: Fcfs(),
    "fastserve": lambda s: tuned_paper_fastserve(),
    "fastserve-default": lambda s: FastServe(),
    "ssjf": lambda s: Ssjf(),
    # Starvation is a matter of the stream going on; here it ends.
    "ltr": lambda s: Ltr(starve_s=1e9),
    "trail": lambda s: Trail(refiner=s.refiner()),
    "trail-history": lambda s: Trail(s.history()),
    "sagesched": lambda s: SageSched(s.history()),
    "sagesched-smooth": lambda s: SageSchedSmooth(s.history(kind="smooth")),
    "true family": lambda s: SageSched(PaperLengthOracle.of_family(s)),
    "true length": lambda s: SageSched(PaperLengthOracle.of_length(s)),
    "true length, shortest first": lambda s: SageSched(PaperLengthOracle.of_length(s), cost="output"),
    **VARIANTS,
}


class Latency(NamedTuple):
    """Averages over the requests of a run: to the last and to the first token, seconds."""

    ttlt_s: float
    ttft_s: float


def measure_sagesched_paper(
    tasks: Sequence[PlannedTask], discipline: Discipline, profile: StepTimeProfile
) -> Latency:
    """Run the requests and average."""
    run = serve_paper_tasks(tasks, discipline, profile, eviction="swap")
    return Latency(
        paper_mean([record.last_token_s - record.task.arrival_s for record in run.records]),
        paper_mean([record.first_token_s - record.task.arrival_s for record in run.records]),
    )


def tuned_paper_fastserve() -> FastServe:
    """FastServe at its best setting here."""
    return FastServe(quantum_tokens=FASTSERVE_QUANTUM)


def measure_paper_quantum(quantum_tokens: float) -> float:
    """TTLT of FastServe on the tuning seed, seconds."""
    setting = paper_setting(TUNING_SEED, MAIN_RATE)
    return measure_sagesched_paper(
        setting.tasks, FastServe(quantum_tokens=quantum_tokens), PROFILES[QWEN]
    ).ttlt_s


def sagesched_paper_latency(model: str, rate: float, dataset: str, name: str, seed: int) -> Latency:
    """TTLT and TTFT of one discipline of the comparison."""
    setting = paper_setting(seed, rate, dataset)
    return measure_sagesched_paper(setting.tasks_for(name), setting.make_discipline(name), PROFILES[model])


def sagesched_paper_ttlt(evaluation: PaperEvaluation, names: Iterable[str]) -> dict[str, list[float]]:
    """TTLT of disciplines on all datasets at the main rate, seconds, one a seed."""
    arguments = [(QWEN, MAIN_RATE, "", name) for name in names]
    table = evaluation.all("fig7", sagesched_paper_latency, arguments)
    return {args[-1]: [pair[0] for pair in pairs] for args, pairs in zip(arguments, table, strict=True)}
