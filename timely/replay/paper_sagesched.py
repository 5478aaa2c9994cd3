"""SageSched's evaluation in the simulator: its figures and its claims, with its own models and GPUs.

Constants, from the data sheets of the hardware the paper names. Qwen3-32B on an H800 with 96 GB: 65 GB of weights
read at 2 TB/s in every step, 256 KB of KV a token and 12 GB for it (3,000 blocks), prompts at 0.12 ms a token.
Llama3.1-8B on an A40: 16 GB at 0.7 TB/s, 128 KB a token, 26 GB (13,000 blocks), 0.2 ms. Preempted requests are swapped
over PCIe, four fifths of it hidden behind computing, as section 3.3 assumes.

Baselines. FCFS and FastServe are run as they are. The others predict with a fine-tuned model each, which is not there;
each is given a prediction as good as its paper or SageSched's says: SSJF the mean of the family a prompt belongs to
times a log-normal error that lets it hit the right one of 20 buckets in 34.1% (Fig. 2a); LTR a rank whose Kendall tau
with the true lengths is 0.55; TRAIL, beyond SSJF's first guess, a remaining length renewed with every token whose
error, averaged over the tokens, is 2.66 times smaller than SSJF's. All three are emulated from the truth, which a
server does not have; TRAIL as it can be run, on the history that SageSched itself uses, is named beside. The workload
is that of ``workloads_sagesched``.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from lrtrace.trace import Job as TraceJob
from timely.core.job import JobSpec, JobTable
from timely.disciplines.base import Discipline, StepLimits
from timely.disciplines.mlfq import FastServe
from timely.disciplines.point_baselines import Ltr, Ssjf, Trail
from timely.disciplines.predictors.history import HistoryPredictor, Prediction
from timely.disciplines.sagesched import SageSched
from timely.disciplines.simple import Fcfs
from timely.disciplines.step_time import FixedSpeed
from timely.engines.sim.profile import KvCache, Limits, StepTerms, StepTimeProfile
from timely.replay import paper_plots as plots
from timely.replay.claims import Claim, claim, interval, mean, over_seeds, simulate
from timely.replay.pieces import Pieces
from timely.replay.trace import planned
from timely.replay.workloads_sagesched import DATASETS, MAX_TOKENS, Drawn, World, workload

Say = Callable[[str], None]

ORDER = ("fcfs", "fastserve", "ssjf", "ltr", "trail", "sagesched")
REQUESTS = 800
PAST = 2_000
"""Requests in the history before the first one arrives (the paper fills up from public datasets)."""

BUCKETS = 20
BUCKET_TOKENS = 100
HIT_RATE = 0.341
TAU = 0.55
TRAIL_FACTOR = 2.66

RATES = {"Qwen3-32B": (2.0, 4.0, 6.0, 8.0), "Llama3.1-8B": (2.0, 4.0, 6.0, 8.0)}
MAIN_RATE = 8.0

PROFILES = {
    "Qwen3-32B": StepTimeProfile(
        name="qwen3-32b-h800",
        source="H800 96 GB: 2 TB/s, 540 TFLOP/s on prompts; SageSched section 4.1",
        step_s=StepTerms(
            base=0.034,
            per_sequence=5e-5,
            per_prefill_token=1.2e-4,
            per_prefill_token_sq=0.0,
            per_context_token=1.3e-7,
        ),
        kv=KvCache(blocks=3_000, block_tokens=16, swap_s_per_token=2e-6),
        limits=Limits(max_batch=256, token_budget=2048),
    ),
    "Llama3.1-8B": StepTimeProfile(
        name="llama31-8b-a40",
        source="A40 48 GB: 0.7 TB/s, 80 TFLOP/s on prompts; SageSched section 4.1",
        step_s=StepTerms(
            base=0.026,
            per_sequence=5e-5,
            per_prefill_token=2e-4,
            per_prefill_token_sq=0.0,
            per_context_token=1.9e-7,
        ),
        kv=KvCache(blocks=13_000, block_tokens=16, swap_s_per_token=1.3e-6),
        limits=Limits(max_batch=256, token_budget=2048),
    ),
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


def _typical(families: Mapping[int, Any], rng: np.random.Generator) -> dict[int, tuple[float, int]]:
    """Mean length and likeliest bucket of each family."""
    found = {}
    for key, family in families.items():
        lengths = family.lengths(1000, rng)
        found[key] = (float(lengths.mean()), int(np.bincount(_bucket(lengths), minlength=BUCKETS).argmax()))
    return found


def _bucket(lengths: np.ndarray) -> np.ndarray:
    places: np.ndarray = np.minimum(np.asarray(lengths) // BUCKET_TOKENS, BUCKETS - 1).astype(np.int64)
    return places


def kendall_tau(a: np.ndarray, b: np.ndarray) -> float:
    """Kendall's tau-a of two rankings, by counting pairs."""
    signs = np.sign(a[:, None] - a[None, :]) * np.sign(b[:, None] - b[None, :])
    return float(signs.sum() / (len(a) * (len(a) - 1)))


def calibrate(seed: int = 0, requests: int = 1500, trail_factor: float = TRAIL_FACTOR) -> Errors:
    """Find the errors that give the baselines the accuracy their papers state, on a world of their own.

    Args:
        trail_factor: how many times smaller TRAIL's renewed error is than SSJF's.
    """
    rng = np.random.default_rng([seed, 41])
    drawn = World(seed).draw(requests, rng)
    typical = _typical({id(d.family): d.family for d in drawn}, rng)
    truth = np.array([d.output_tokens for d in drawn], dtype=np.float64)
    means = np.array([typical[id(d.family)][0] for d in drawn])
    modes = np.array([typical[id(d.family)][1] for d in drawn])
    z = rng.standard_normal(requests)
    place = _bucket(truth)

    def hit(sigma: float) -> float:
        guess = (modes + 0.5) * BUCKET_TOKENS * np.exp(sigma * z)
        return float(np.mean(_bucket(guess) == place))

    def tau(sigma: float) -> float:
        return kendall_tau(means * np.exp(sigma * z), truth)

    def renewed(sigma: float) -> float:
        # Averaged over the tokens of all requests, of which half is left on average.
        return float(truth @ (truth / 2.0 * np.abs(np.exp(sigma * z) - 1.0)) / truth.sum())

    ssjf, ltr = _down_to(hit, HIT_RATE), _down_to(tau, TAU)
    kept = float(truth @ np.abs(means * np.exp(ssjf * z) - truth) / truth.sum())
    trail = _down_to(lambda sigma: -renewed(sigma), -kept / trail_factor)
    return Errors(ssjf, ltr, trail, hit(ssjf), hit(0.0), tau(ltr))


def _down_to(score: Callable[[float], float], wanted: float) -> float:
    """The sigma at which a score that falls with it comes down to ``wanted``; 0 when it never was higher."""
    if score(0.0) <= wanted:
        return 0.0
    low, high = 0.0, 4.0
    for _ in range(30):
        middle = (low + high) / 2.0
        low, high = (middle, high) if score(middle) > wanted else (low, middle)
    return low


@dataclass(slots=True)
class Setting:
    """A world, its requests, its history, and what each baseline is told of them."""

    world: World
    seed: int
    rate: float
    errors: Errors
    jobs: list[dict[str, Any]]
    drawn: list[Drawn]
    _histories: dict[tuple[tuple[str, Any], ...], HistoryPredictor] = field(default_factory=dict)

    @classmethod
    def make(
        cls, seed: int, rate: float, errors: Errors, datasets: Sequence[str] = tuple(DATASETS)
    ) -> Setting:
        """The setting of one seed."""
        world = World(seed, datasets)
        jobs, drawn = workload(world, seed, REQUESTS, rate)
        return cls(world, seed, rate, errors, jobs, drawn)

    def history(self, **settings: Any) -> HistoryPredictor:
        """A history of past requests of this world; a fresh copy each time."""
        key = tuple(sorted(settings.items()))
        if key not in self._histories:
            predictor = HistoryPredictor(**settings)
            for past in self.world.draw(PAST, np.random.default_rng([self.seed, 31])):
                spec = _spec(past)
                vector = predictor.embedder.embed([past.text])[0] if predictor.by == "prompt" else None
                predictor.remember(vector, spec.prompt_tokens, past.output_tokens)
            self._histories[key] = predictor
        return copy.deepcopy(self._histories[key])

    def told(self, name: str) -> list[dict[str, Any]]:
        """The jobs with the length prediction that this baseline would have."""
        if name not in ("ssjf", "ltr", "trail"):
            return self.jobs
        rng = np.random.default_rng([self.seed, 43])
        typical = _typical({id(d.family): d.family for d in self.drawn}, rng)
        sigma = self.errors.ltr if name == "ltr" else self.errors.ssjf
        factors = np.exp(sigma * rng.standard_normal(len(self.drawn)))
        return [
            {**job, "expected_tokens": max(1.0, typical[id(drawn.family)][0] * float(factor))}
            for job, drawn, factor in zip(self.jobs, self.drawn, factors, strict=True)
        ]

    def refiner(self, trail_factor: float = TRAIL_FACTOR) -> Callable[[JobSpec, int], float]:
        """TRAIL's renewed prediction: what is really left, with an error that stays the same for a request."""
        rng = np.random.default_rng([self.seed, 47])
        factors = np.exp(errors_of_baselines(trail_factor).trail * rng.standard_normal(len(self.drawn)))
        known = {
            job["job"]: (drawn.output_tokens, float(factor))
            for job, drawn, factor in zip(self.jobs, self.drawn, factors, strict=True)
        }

        def left(spec: JobSpec, output_tokens: int) -> float:
            total, factor = known[spec.job_id]
            return max(0.0, total - output_tokens) * factor

        return left

    def make_discipline(self, name: str) -> Discipline:
        """A discipline of the comparison."""
        plain: dict[str, Callable[[], Discipline]] = {
            "fcfs": Fcfs,
            "fastserve": FastServe,
            "ssjf": Ssjf,
            # Starvation is a matter of the stream going on; here it ends.
            "ltr": lambda: Ltr(starve_s=1e9),
            "trail": lambda: Trail(refiner=self.refiner()),
            "trail-history": lambda: Trail(self.history()),
            "sagesched": lambda: SageSched(self.history()),
        }
        return plain[name]()


@cache
def errors_of_baselines(trail_factor: float = TRAIL_FACTOR) -> Errors:
    """``calibrate``, once a process."""
    return calibrate(trail_factor=trail_factor)


@lru_cache(maxsize=2)
def _made(seed: int, rate: float, datasets: tuple[str, ...], requests: int, past: int) -> Setting:
    return Setting.make(seed, rate, errors_of_baselines(), datasets)


def setting(seed: int, rate: float, dataset: str = "") -> Setting:
    """The setting of a seed, on one dataset or on all; the latest two are kept."""
    return _made(seed, rate, (dataset,) if dataset else tuple(DATASETS), REQUESTS, PAST)


def _spec(drawn: Drawn) -> JobSpec:
    return JobSpec("", 0.0, prompt_tokens=drawn.prompt_tokens, max_tokens=MAX_TOKENS, text=drawn.text)


class Family:
    """A predictor that emulates a language model fine-tuned to the task: the family's distribution, misplaced.

    The whole distribution is shifted by the error of the model, which is the same as SSJF's.
    """

    def __init__(self, setting: Setting) -> None:
        rng = np.random.default_rng([setting.seed, 53])
        lengths = {id(d.family): d.family.lengths(200, rng) for d in setting.drawn}
        factors = np.exp(setting.errors.ssjf * rng.standard_normal(len(setting.drawn)))
        self._known = {
            drawn.text: np.clip(lengths[id(drawn.family)] * float(factor), 1, MAX_TOKENS).astype(np.float64)
            for drawn, factor in zip(setting.drawn, factors, strict=True)
        }

    def predict(self, spec: JobSpec) -> Prediction:
        """See ``LengthPredictor.predict``."""
        lengths = self._known[spec.text]
        return Prediction(lengths, np.ones_like(lengths), len(lengths))

    def learn(self, spec: JobSpec, prediction: Prediction, output_tokens: int) -> None:
        """Fine-tuned once and for all."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Averages over the requests of a run: to the last and to the first token, seconds."""

    ttlt_s: float
    ttft_s: float


def measure(jobs: Sequence[Mapping[str, Any]], discipline: Discipline, profile: StepTimeProfile) -> Latency:
    """Run the requests and average."""
    run = simulate([planned(TraceJob.from_dict(dict(job))) for job in jobs], discipline, profile)
    return Latency(
        mean([record.last_token_s - record.task.arrival_s for record in run.records]),
        mean([record.first_token_s - record.task.arrival_s for record in run.records]),
    )


# ---------------------------------------------------------------------- the experiments


def run(
    seeds: Sequence[int],
    out_dir: Path,
    say: Say = lambda line: None,
    pieces: Pieces | None = None,
) -> list[Claim]:
    """Reproduce the evaluation; plots go to ``out_dir`` (which exists), claims come back.

    Args:
        seeds: of the worlds; the paper's comparison asks for ten at least.
        say: told what has been measured, a line at a time.
        pieces: what earlier runs have measured, and where to keep what this one does.

    Raises:
        OutOfTime: the budget of ``pieces`` is used up.
    """
    pieces = Pieces() if pieces is None else pieces
    errors = errors_of_baselines()
    say(
        f"baselines: SSJF hits {100 * errors.hit_rate:.1f}% of buckets (no error: {100 * errors.best_hit_rate:.1f}%),"
        f" LTR tau {errors.tau:.2f}; sigmas {errors.ssjf:.2f}, {errors.ltr:.2f}, {errors.trail:.2f}"
    )
    return [
        *_end_to_end(seeds, pieces, out_dir, say),
        *_why(seeds, pieces, say),
        *_datasets(seeds, pieces, out_dir, say),
        *_ablations(seeds, pieces, out_dir, say),
        *_sensitivity(seeds, pieces, out_dir, say),
        *_overhead(setting(seeds[0], MAIN_RATE), out_dir, say),
    ]


def _latency(model: str, rate: float, dataset: str, name: str, seed: int) -> list[float]:
    """TTLT and TTFT of one discipline of the comparison."""
    made = setting(seed, rate, dataset)
    latency = measure(made.told(name), made.make_discipline(name), PROFILES[model])
    return [latency.ttlt_s, latency.ttft_s]


def _end_to_end(seeds: Sequence[int], pieces: Pieces, out_dir: Path, say: Say) -> list[Claim]:
    """Fig. 7: all disciplines over the load, on both models."""
    found: list[Claim] = []
    best_everywhere, cells = 0, 0
    for model, rates in RATES.items():
        curves: dict[str, list[list[Latency]]] = {name: [] for name in ORDER}
        for rate in rates:
            # Seed by seed, so that a setting is made once.
            asked = [(model, rate, "", name, seed) for seed in seeds for name in ORDER]
            measured = [Latency(*pair) for pair in pieces.map("fig7", _latency, asked)]
            for place, name in enumerate(ORDER):
                curves[name].append(measured[place :: len(ORDER)])
            ttlt = {name: mean([x.ttlt_s for x in column[-1]]) for name, column in curves.items()}
            cells += 1
            # Without a queue there is nothing to decide and all are equal.
            best_everywhere += ttlt["sagesched"] <= 1.005 * min(ttlt.values())
            say(f"{model} {rate:g}/s: " + ", ".join(f"{n} {v:.1f} s" for n, v in ttlt.items()))
        short = "a" if model == "Llama3.1-8B" else "b"
        for measure_name, title in (("ttlt_s", "TTLT"), ("ttft_s", "TTFT")):
            plots.lines(
                out_dir / f"fig7{short}_{title.lower()}.png",
                f"SageSched Fig7: {title}, {model}",
                rates,
                {n: [interval([getattr(x, measure_name) for x in v]) for v in c] for n, c in curves.items()},
                "requests a second",
                f"average {title} (s)",
            )
        if model == "Qwen3-32B":
            found += _headline(curves, seeds)
    found.append(
        claim(
            "fig7.best_ttlt",
            "loads and models at which SageSched has the least TTLT, to half a percent",
            100.0,
            100.0 * best_everywhere / cells,
            "%",
            best_everywhere == cells,
            "at the lightest loads there is no queue to order",
        )
    )
    return found


def _headline(curves: Mapping[str, Sequence[Sequence[Latency]]], seeds: Sequence[int]) -> list[Claim]:
    ttlt = {name: mean([x.ttlt_s for x in column[-1]]) for name, column in curves.items()}
    ttft = {name: mean([x.ttft_s for x in column[-1]]) for name, column in curves.items()}
    others = {name: value for name, value in ttlt.items() if name != "sagesched"}
    second = min(others, key=lambda name: others[name])
    gain = [100.0 * (1.0 - a.ttlt_s / b.ttlt_s)
            for a, b in zip(curves["sagesched"][-1], curves[second][-1], strict=True)]  # fmt: skip
    lowest = [100.0 * (1.0 - mean([x.ttlt_s for x in curves["sagesched"][i]])
                       / min(mean([x.ttlt_s for x in curves[n][i]]) for n in others))
              for i in range(len(curves["sagesched"]))]  # fmt: skip
    rates = RATES["Qwen3-32B"]
    by_rate = ", ".join(f"{rate:g}/s {value:.1f}%" for rate, value in zip(rates, lowest, strict=True))
    return [
        claim(
            "fig7.ttlt",
            f"TTLT lower than the best baseline's ({second}), Qwen3-32B at {MAIN_RATE:g}/s",
            28.7,
            100.0 * (1.0 - ttlt["sagesched"] / others[second]),
            "%",
            ttlt["sagesched"] <= (1.0 - 0.287) * others[second],
            f"by seed {over_seeds(gain)}; {by_rate}",
        ),
        claim(
            "fig7.ttft",
            f"TTFT over the least of all but FastServe's, at {MAIN_RATE:g}/s",
            1.0,
            ttft["sagesched"] / min(v for n, v in ttft.items() if n not in ("sagesched", "fastserve")),
            "ratio",
            all(ttft["sagesched"] <= v for n, v in ttft.items() if n != "fastserve"),
            ", ".join(f"{n} {v:.1f} s" for n, v in ttft.items()),
        ),
        claim(
            "fig7.fastserve",
            f"FastServe has the best TTFT and the worst TTLT, at {MAIN_RATE:g}/s",
            None,
            ttlt["fastserve"] / max(v for n, v in ttlt.items() if n != "fastserve"),
            "ratio",
            ttft["fastserve"] == min(ttft.values()) and ttlt["fastserve"] == max(ttlt.values()),
            "its TTLT over the worst other's: " + ", ".join(f"{n} {v:.1f} s" for n, v in ttlt.items()),
        ),
    ]


class Known:
    """A predictor that knows: the true length of each request, or the true distribution of its family."""

    def __init__(self, setting: Setting, *, exactly: bool) -> None:
        rng = np.random.default_rng([setting.seed, 53])
        lengths = {id(d.family): d.family.lengths(200, rng) for d in setting.drawn}
        self._known = {
            drawn.text: np.clip(
                np.array([drawn.output_tokens]) if exactly else lengths[id(drawn.family)], 1, MAX_TOKENS
            ).astype(np.float64)
            for drawn in setting.drawn
        }

    def predict(self, spec: JobSpec) -> Prediction:
        """See ``LengthPredictor.predict``."""
        lengths = self._known[spec.text]
        return Prediction(lengths, np.ones_like(lengths), len(lengths))

    def learn(self, spec: JobSpec, prediction: Prediction, output_tokens: int) -> None:
        """Nothing to learn."""


TRAIL_FACTORS = (1.0, 1.5, TRAIL_FACTOR)
HEAVIER = (12.0, 16.0)


def _trail(factor: float, seed: int) -> float:
    made = setting(seed, MAIN_RATE)
    discipline = Trail(made.history()) if factor == 0.0 else Trail(refiner=made.refiner(factor))
    return measure(made.told("trail"), discipline, PROFILES["Qwen3-32B"]).ttlt_s


def _knowing(what: str, seed: int) -> float:
    made = setting(seed, MAIN_RATE)
    discipline = SageSched(Known(made, exactly=what == "length"))
    return measure(made.jobs, discipline, PROFILES["Qwen3-32B"]).ttlt_s


def _why(seeds: Sequence[int], pieces: Pieces, say: Say) -> list[Claim]:
    """Where the headline number comes from: what TRAIL knows, what SageSched could know at most, and the load."""

    def ttlt(name: str, rate: float) -> float:
        asked = [("Qwen3-32B", rate, "", name, seed) for seed in seeds]
        return mean([pair[0] for pair in pieces.map("fig7", _latency, asked)])

    def gain(ours: float, other: float) -> float:
        return 100.0 * (1.0 - ours / other)

    ours = ttlt("sagesched", MAIN_RATE)
    trail = {f: mean(pieces.map("trail", _trail, [(f, seed) for seed in seeds])) for f in TRAIL_FACTORS}
    runnable = mean(pieces.map("trail", _trail, [(0.0, seed) for seed in seeds]))
    knowing = {
        w: mean(pieces.map("knowing", _knowing, [(w, s) for s in seeds])) for w in ("family", "length")
    }
    heavier = {rate: gain(ttlt("sagesched", rate), ttlt("trail", rate)) for rate in HEAVIER}
    best = trail[TRAIL_FACTOR]
    listed = (
        "TTLT lower than TRAIL's, by how much smaller TRAIL's error is than SSJF's: "
        + ", ".join(f"{factor:g} times {gain(ours, value):.1f}%" for factor, value in trail.items())
        + f"; TRAIL as it can be run, on the same history: {gain(ours, runnable):.1f}%. SageSched knowing the true"
        f" distribution of each prompt {gain(knowing['family'], best):.1f}%, the true length"
        f" {gain(knowing['length'], best):.1f}%. At "
        + ", ".join(f"{rate:g}/s {value:.1f}%" for rate, value in heavier.items())
    )
    say(f"why: {listed}")
    return [
        claim(
            "fig7.why",
            "the headline against TRAIL on the same history, which is told nothing of the truth",
            28.7,
            gain(ours, runnable),
            "%",
            gain(ours, runnable) >= 28.7,
            listed,
        )
    ]


def _datasets(seeds: Sequence[int], pieces: Pieces, out_dir: Path, say: Say) -> list[Claim]:
    """Fig. 8: each dataset by itself."""
    table: dict[str, dict[str, list[float]]] = {}
    names = (*ORDER, "trail-history")
    for dataset in DATASETS:
        asked = [("Qwen3-32B", MAIN_RATE, dataset, name, seed) for seed in seeds for name in names]
        measured = [pair[0] for pair in pieces.map("fig8", _latency, asked)]
        table[dataset] = {name: measured[place :: len(names)] for place, name in enumerate(names)}
        say(f"{dataset}: " + ", ".join(f"{n} {mean(v):.1f} s" for n, v in table[dataset].items()))
    plots.bars(
        out_dir / "fig8.png",
        f"SageSched Fig8: TTLT by dataset at {MAIN_RATE:g}/s",
        list(table),
        {name: [interval(table[dataset][name]) for dataset in table] for name in ORDER},
        "average TTLT (s)",
    )
    gains = {
        dataset: 100.0 * (1.0 - mean(v["sagesched"]) / min(mean(v[n]) for n in ORDER if n != "sagesched"))
        for dataset, v in table.items()
    }
    listed = ", ".join(f"{dataset} {gain:.1f}%" for dataset, gain in gains.items())
    history = ", ".join(
        f"{dataset} {100.0 * (1.0 - mean(v['sagesched']) / mean(v['trail-history'])):.1f}%"
        for dataset, v in table.items()
    )
    return [
        claim(
            "fig8.best",
            "datasets on which SageSched has the least TTLT",
            3.0,
            float(sum(gain > 0.0 for gain in gains.values())),
            "of 3",
            all(gain > 0.0 for gain in gains.values()),
            f"TTLT lower than the best baseline's: {listed}; than that of TRAIL on the same history: {history}",
        ),
        claim(
            "fig8.alpaca",
            "the gain is largest on the dataset with long prompts",
            None,
            gains["alpaca"],
            "%",
            gains["alpaca"] == max(gains.values()),
            listed,
        ),
    ]


def _variant(what: str, seed: int) -> float:
    """TTLT of a variant of SageSched, named as ``VARIANTS`` and ``_sensitivity`` name them."""
    made = setting(seed, MAIN_RATE)
    kind, _, value = what.partition("=")
    if kind == "threshold":
        discipline = SageSched(made.history(threshold=float(value)))
    elif kind == "bucket":
        discipline = SageSched(made.history(), bucket_tokens=float(value))
    else:
        discipline = VARIANTS[what](made)
    return measure(made.jobs, discipline, PROFILES["Qwen3-32B"]).ttlt_s


VARIANTS: dict[str, Callable[[Setting], SageSched]] = {
    "semantic history": lambda s: SageSched(s.history()),
    "history by length": lambda s: SageSched(s.history(by="length")),
    "fine-tuned model": lambda s: SageSched(Family(s)),
    "output length": lambda s: SageSched(s.history(), cost="output"),
    "overall length": lambda s: SageSched(s.history(), cost="overall"),
    "Gittins": lambda s: SageSched(s.history(), bucket_tokens=np.inf),
    "Mean": lambda s: SageSched(s.history(), order="mean"),
    "SageSched, noise": lambda s: SageSched(s.history(), noise=0.2),
    "Gittins, noise": lambda s: SageSched(s.history(), noise=0.2, bucket_tokens=np.inf),
    "Mean, noise": lambda s: SageSched(s.history(), noise=0.2, order="mean"),
}
"""The ablations of section 4.3."""


def _ablations(seeds: Sequence[int], pieces: Pieces, out_dir: Path, say: Say) -> list[Claim]:
    """Fig. 9, 10 and 11: predictor, cost and policy, the last also with noise."""
    asked = [(name, seed) for seed in seeds for name in VARIANTS]
    measured = pieces.map("variants", _variant, asked)
    ttlt = {name: measured[place :: len(VARIANTS)] for place, name in enumerate(VARIANTS)}
    full = ttlt["semantic history"]
    predictors = {name: ttlt[name] for name in ("semantic history", "history by length", "fine-tuned model")}
    costs = {"resource-bound": full} | {name: ttlt[name] for name in ("output length", "overall length")}
    policies = {"SageSched": full, "Gittins": ttlt["Gittins"], "Mean": ttlt["Mean"]}
    noisy = {name: ttlt[f"{name}, noise"] for name in policies}
    for figure, groups in (("fig9", predictors), ("fig10", costs), ("fig11", policies)):
        say(f"{figure}: " + ", ".join(f"{name} {mean(v):.1f} s" for name, v in groups.items()))
        systems = {name: [interval(values)] for name, values in groups.items()}
        labels = ["clear"]
        if figure == "fig11":
            labels = ["clear", "with noise"]
            systems = {name: [interval(v), interval(noisy[name])] for name, v in groups.items()}
        plots.bars(out_dir / f"{figure}.png", f"SageSched {figure.capitalize()}", labels, systems, "TTLT (s)")
    worse = {name: 100.0 * (mean(noisy[name]) / mean(policies[name]) - 1.0) for name in policies}
    return [
        *_worse("fig9", "predictor", predictors),
        *_worse("fig10", "cost", costs),
        *_worse("fig11", "policy", policies),
        claim(
            "fig11.noise",
            "TTLT grows by noise (a uniform distribution mixed in, 1:4), SageSched",
            None,
            worse["SageSched"],
            "%",
            worse["SageSched"] <= worse["Mean"] + 0.5,
            ", ".join(f"{name} {value:+.1f}%" for name, value in worse.items()),
        ),
    ]


def _worse(figure: str, what: str, groups: Mapping[str, Sequence[float]]) -> list[Claim]:
    (first, ours), *rest = groups.items()
    found = []
    for name, values in rest:
        worse = 100.0 * (mean(values) / mean(ours) - 1.0)
        paired = [100.0 * (b / a - 1.0) for a, b in zip(ours, values, strict=True)]
        found.append(
            claim(
                f"{figure}.{name.replace(' ', '_').lower()}",
                f"TTLT worse with {what} '{name}' than with '{first}'",
                None,
                worse,
                "%",
                worse > 0.0,
                f"by seed {over_seeds(paired)}",
            )
        )
    return found


THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
HASHED = "; cosines are those of hashed words, whose 0.7 is as selective as 0.8 of sentence vectors"
BUCKET_SIZES = (50.0, 100.0, 200.0, 400.0, 800.0)


def _sensitivity(seeds: Sequence[int], pieces: Pieces, out_dir: Path, say: Say) -> list[Claim]:
    """Fig. 13: similarity threshold and bucket size."""

    def ttlt(kind: str, values: Sequence[float]) -> list[list[float]]:
        asked = [(f"{kind}={value:g}", seed) for seed in seeds for value in values]
        found = pieces.map("variants", _variant, asked)
        return [found[place :: len(values)] for place in range(len(values))]

    by_threshold, by_bucket = ttlt("threshold", THRESHOLDS), ttlt("bucket", BUCKET_SIZES)
    found = []
    for part, what, values, measured, paper, default, remark in (
        ("a", "similarity threshold", THRESHOLDS, by_threshold, 0.8, 0.7, HASHED),
        ("b", "bucket size", BUCKET_SIZES, by_bucket, 200.0, 200.0, ""),
    ):
        averages = [mean(v) for v in measured]
        best = values[int(np.argmin(averages))]
        chosen = averages[values.index(default)]
        say(f"fig13{part}: " + ", ".join(f"{x:g} {y:.1f} s" for x, y in zip(values, averages, strict=True)))
        plots.lines(
            out_dir / f"fig13{part}.png",
            f"SageSched Fig13{part}: {what}",
            values,
            {"SageSched": [interval(v) for v in measured]},
            what,
            "average TTLT (s)",
        )
        found.append(
            claim(
                f"fig13{part}.{what.replace(' ', '_')}",
                f"best {what}",
                paper,
                best,
                "cosine" if part == "a" else "tokens",
                chosen <= 1.01 * min(averages),
                ", ".join(f"{x:g}: {y:.1f} s" for x, y in zip(values, averages, strict=True))
                + f"; holds means our default {default:g} is within 1% of the best{remark}",
            )
        )
    return found


NODES = (1, 2, 4, 8, 16, 32, 64)
QUEUED = 1_000
"""Requests queued for each engine (section 4.4)."""


def _overhead(setting: Setting, out_dir: Path, say: Say) -> list[Claim]:
    """Fig. 12, and the predictor's latency of section 4.3.1: one scheduler for 1 to 64 engines."""
    predictor = setting.history(window=10_000)
    world_rng = np.random.default_rng([setting.seed, 59])
    for past in setting.world.draw(10_000 - PAST, world_rng):
        predictor.remember(predictor.embedder.embed([past.text])[0], past.prompt_tokens, past.output_tokens)
    fresh = [_spec(drawn) for drawn in setting.world.draw(1_000, world_rng)]
    begun = time.perf_counter()
    for spec in fresh:
        predictor.embedder.embed([spec.text])
    embed_ms = 1000.0 * (time.perf_counter() - begun) / len(fresh)
    begun = time.perf_counter()
    for spec in fresh:
        predictor.predict(spec)
    predict_ms = 1000.0 * (time.perf_counter() - begun) / len(fresh)
    arrive_ms, decide_ms = [], []
    for nodes in NODES:
        arrival, decision = _scheduling(predictor, setting.world, nodes * QUEUED)
        arrive_ms.append(arrival)
        decide_ms.append(decision)
    listed = ", ".join(f"{n}: {a + d:.2f}" for n, a, d in zip(NODES, arrive_ms, decide_ms, strict=True))
    say(f"fig12, ms by engines: {listed}")
    plots.lines(
        out_dir / "fig12.png",
        "SageSched Fig12: overhead of one scheduler",
        NODES,
        {
            "predicting": [interval([v]) for v in arrive_ms],
            "scheduling": [interval([v]) for v in decide_ms],
        },
        "engines, 1,000 requests queued for each",
        "ms",
    )
    return [
        claim(
            "sec431.prediction",
            "time of one length prediction, 10,000 requests remembered",
            0.37,
            predict_ms,
            "ms",
            predict_ms <= 0.5,
            f"embedding {embed_ms:.3f} ms (paper 0.22), search and distribution {predict_ms - embed_ms:.3f} ms"
            " (paper 0.15); one CPU core; the claim is below 0.5 ms",
        ),
        claim(
            "fig12.overhead",
            "predicting and scheduling at 64 engines",
            100.0,
            arrive_ms[-1] + decide_ms[-1],
            "ms",
            arrive_ms[-1] + decide_ms[-1] <= 100.0,
            f"ms by engines: {listed}; {1000 * NODES[-1]} requests queued at the last",
        ),
    ]


def _scheduling(predictor: HistoryPredictor, world: World, queued: int) -> tuple[float, float]:
    """Milliseconds of an arrival and of a scheduling point with that many requests queued."""
    discipline = SageSched(predictor)
    table = JobTable(capacity=queued + 200)
    rng = np.random.default_rng([queued, 61])
    pool = world.draw(500, rng)
    for number in range(queued):
        drawn = pool[number % len(pool)]
        job = table.add(
            JobSpec(number, 0.0, prompt_tokens=drawn.prompt_tokens, max_tokens=MAX_TOKENS, text=drawn.text)
        )
        if number < 500:
            discipline.arrived(job, 0.0)
        else:
            table.rank[job.row] = table.rank[number % len(pool)]
    limits = StepLimits(0.0, 2048, 256, queued, 2048, 5_000, 16, FixedSpeed(0.04, 5e-5, 1e-4))
    decided = []
    for _ in range(15):
        begun = time.perf_counter()
        discipline.compose(table, limits)
        decided.append(time.perf_counter() - begun)
    arrived = []
    for number in range(queued, queued + 100):
        drawn = pool[number % len(pool)]
        job = table.add(
            JobSpec(number, 0.0, prompt_tokens=drawn.prompt_tokens, max_tokens=MAX_TOKENS, text=drawn.text)
        )
        begun = time.perf_counter()
        discipline.arrived(job, 0.0)
        arrived.append(time.perf_counter() - begun)
    return 1000.0 * float(np.median(arrived)), 1000.0 * float(np.median(decided))
