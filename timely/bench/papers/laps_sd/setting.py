"""The setting of LAPS-SD's evaluation: machine, requests, systems, and what a run measures.

The machine is an NVIDIA L20 with LLaMA-7B, drafted for by LLaMA-68M.
The paper gives no times.
A step takes 20 ms: 13.5 GB of weights at 864 GB/s and some overhead.
A draft token takes 1.5 ms, and a round has four.
A switch moves a cache out and in: 0.5 ms a token each way, from the 14.21% of Fig. 2.
One request's cache is on the accelerator at a time (section 3).

The paper gives neither lengths nor acceptances of its three datasets.
It says that MBPP's drafts are accepted more often and that MiniThinky is longer.
All other numbers in ``DATASETS`` are ours, and so is the error of predicted lengths.
Lengths that differ little were chosen so that the claims have a chance.
With lengths that differ as in chats and are predicted well, shortest predicted length first is near the best order.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from timely.bench.papers.seed_statistics import paper_mean
from timely.bench.papers.serving import serve_paper_tasks
from timely.core.hints import RequestHints
from timely.core.job import Job, JobId, JobTable
from timely.disciplines.base import Discipline, DisciplineInfo, Floats, StepLimits
from timely.disciplines.basic import Fcfs
from timely.disciplines.laps_sd.baselines import Las, LpSjf
from timely.disciplines.laps_sd.discipline import LapsSd, LapsSdPrior
from timely.disciplines.step_builder import KeyedDiscipline
from timely.engines.replay_types import PlannedSegment, PlannedTask
from timely.engines.sim.speculation import SimSpeculation
from timely.engines.step_time.profile import DraftTerms, KvCache, ProfileLimits, StepTerms, StepTimeProfile

SYSTEMS = ("laps-sd", "laps-sd-prior", "lp-sjf", "las", "fcfs", "clairvoyant")

DRAFTS = 4
VERIFY_S = 0.020
DRAFT_S = 0.0015
SWAP_S = 5e-4

LAS_QUANTUM_S = 1.0
"""As much service as LAPS-SD's first queue holds. With 0.1 s LAS spends its time switching.

The longer the quantum, the better LAS does here; without an end it is first come, first served.
"""

VARIATION_REQUESTS = 30
"""Requests of each run where something else is varied."""
SPAN_S = 1.0
"""Requests arrive "in sequence at almost the same time" (section 1)."""

LENGTH_ERROR = 0.05
"""Mean relative error of the predicted length."""


@dataclass(frozen=True, slots=True)
class LapsPaperDataset:
    """How requests are drawn.

    Attributes:
        prompt, output: mean tokens.
        spread: sigma of the log-normal output length.
        acceptance, acceptance_spread: mean and deviation of a request's acceptance (a beta distribution).
    """

    prompt: int
    output: int
    spread: float
    acceptance: float
    acceptance_spread: float = 0.3


DATASETS = {
    "CP": LapsPaperDataset(prompt=60, output=250, spread=0.15, acceptance=0.50),
    "MBPP": LapsPaperDataset(prompt=120, output=150, spread=0.15, acceptance=0.65),
    "MiniThinky": LapsPaperDataset(prompt=150, output=500, spread=0.15, acceptance=0.50),
}
CHAT = LapsPaperDataset(prompt=60, output=250, spread=0.8, acceptance=0.50)
"""Lengths as they are in logs of chats."""

MACHINE = StepTimeProfile(
    name="l20-llama-7b",
    source="LAPS-SD, sections 3 and 5.1; times from the card's memory bandwidth",
    step_s=StepTerms(
        base=VERIFY_S,
        per_sequence=0.0,
        per_prefill_token=1.5e-4,
        per_prefill_token_sq=0.0,
        per_context_token=0.0,
    ),
    kv=KvCache(blocks=4000, block_tokens=16, swap_s_per_token=SWAP_S),
    limits=ProfileLimits(max_batch=1, token_budget=8192),
    speculation=DraftTerms(draft_tokens=DRAFTS, draft_s=DRAFT_S),
)


class ClairvoyantPaperOrder(KeyedDiscipline):
    """Shortest true execution time first: lengths and acceptances known."""

    info = DisciplineInfo(name="clairvoyant", summary="true execution time first", source="bound")

    def __init__(self, tasks: Sequence[PlannedTask]) -> None:
        self._rounds: dict[JobId, float] = {
            task.job: task.output_tokens / (DRAFTS * (task.acceptance or 0.0) + 1.0) for task in tasks
        }

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        """The shorter first."""
        return -np.array([self._rounds[job.job_id] for job in table.jobs], dtype=np.float64)


class PaperRecordingLapsSd(LapsSd):
    """LAPS-SD that notes, when a request becomes perceptible, what Eq. 6 says of it, and how many rounds it took."""

    def __init__(self, **parameters: float) -> None:
        super().__init__(draft_s=DRAFT_S, verify_s=VERIFY_S, **parameters)  # type: ignore[arg-type]
        self.estimates: dict[object, tuple[float, int]] = {}
        """Job -> estimated rounds of all its output, and rounds at which that was known."""
        self.rounds: dict[object, int] = {}

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        super().progressed(job, tokens, now)
        rounds = self._rounds_by_job[job.job_id]
        self.rounds[job.job_id] = rounds.rounds
        if rounds.rate is not None and job.job_id not in self.estimates:
            whole = float(job.table.rank[job.row]) / (rounds.drafts * rounds.rate + 1.0)
            self.estimates[job.job_id] = (whole, rounds.rounds)

    @property
    def errors(self) -> list[float]:
        return [
            abs(whole - self.rounds[name]) / self.rounds[name] for name, (whole, _) in self.estimates.items()
        ]


def paper_workload(
    dataset: LapsPaperDataset,
    count: int,
    seed: int,
    *,
    length_error: float = LENGTH_ERROR,
    span_s: float = SPAN_S,
) -> list[PlannedTask]:
    """Requests in order of arrival."""
    rng = np.random.default_rng([seed, count, dataset.output])
    arrivals = np.sort(rng.uniform(0.0, span_s, count))
    weight = dataset.acceptance * (1.0 - dataset.acceptance) / dataset.acceptance_spread**2 - 1.0
    tasks = []
    for number in range(count):
        tokens = int(
            np.clip(rng.lognormal(math.log(dataset.output) - dataset.spread**2 / 2, dataset.spread), 10, 4000)
        )
        acceptance = float(rng.beta(dataset.acceptance * weight, (1.0 - dataset.acceptance) * weight))
        # sqrt(pi / 2): the mean of a normal's absolute value is that much less than its deviation.
        wrong = math.exp(length_error * math.sqrt(math.pi / 2) * rng.standard_normal())
        prompt = int(np.clip(rng.lognormal(math.log(dataset.prompt) - 0.125, 0.5), 5, 2000))
        arrival_s = float(arrivals[number])
        tasks.append(laps_paper_task(number, arrival_s, prompt, tokens, acceptance, tokens * wrong))
    return tasks


def laps_paper_task(
    number: int, arrival_s: float, prompt: int, output: int, acceptance: float, expected: float
) -> PlannedTask:
    """A request; ``prompt``, ``output`` and the ``expected`` output are tokens."""
    return PlannedTask(
        number, arrival_s, (PlannedSegment("", output, 0.0),), prompt, acceptance=acceptance,
        hints=RequestHints(expected_tokens=max(1.0, expected)), max_tokens=4000,
    )  # fmt: skip


def make_paper_discipline(
    system: str, tasks: Sequence[PlannedTask], queues: int = 4, first_s: float = 1.0
) -> Discipline:
    if system == "laps-sd":
        return LapsSd(queues=queues, first_s=first_s, draft_s=DRAFT_S, verify_s=VERIFY_S)
    makers: dict[str, Callable[[], Discipline]] = {
        "laps-sd-prior": LapsSdPrior,
        "lp-sjf": LpSjf,
        "las": lambda: Las(LAS_QUANTUM_S),
        "las-fine": lambda: Las(0.1),
        "fcfs": Fcfs,
        "clairvoyant": lambda: ClairvoyantPaperOrder(tasks),
    }
    return makers[system]()


def laps_paper_latency_s(
    tasks: Sequence[PlannedTask], discipline: Discipline, seed: int, *, swap_s: float = SWAP_S
) -> float:
    """Mean inference latency: completion minus arrival, seconds."""
    profile = MACHINE.model_copy(update={"kv": MACHINE.kv.model_copy(update={"swap_s_per_token": swap_s})})
    run = serve_paper_tasks(tasks, discipline, profile, max_resident=1, eviction="swap", seed=seed)
    return paper_mean([record.last_token_s - record.arrived_s for record in run.records])


# ---------------------------------------------------------------------- measurements


def measure_laps_paper_latency(
    name: str, count: int, system: str, queues: int, first_s: float, seed: int
) -> float:
    tasks = paper_workload(DATASETS[name], count, seed)
    return laps_paper_latency_s(tasks, make_paper_discipline(system, tasks, queues, first_s), seed)


def measure_paper_variation(
    spread: float,
    acceptance_spread: float,
    length_error: float,
    span_s: float,
    swap_s: float,
    system: str,
    seed: int,
) -> float:
    dataset = LapsPaperDataset(60, 250, spread, 0.5, acceptance_spread)
    tasks = paper_workload(dataset, VARIATION_REQUESTS, seed, length_error=length_error, span_s=span_s)
    return laps_paper_latency_s(tasks, make_paper_discipline(system, tasks), seed, swap_s=swap_s)


def measure_paper_errors(
    name: str, rounds: int, spread: float, length_error: float, seed: int
) -> list[float]:
    """Mean error of the estimates, rounds until they were there, share of requests that had one, mean latency."""
    tasks = paper_workload(DATASETS[name], VARIATION_REQUESTS, seed, length_error=length_error)
    laps = PaperRecordingLapsSd(rounds=rounds, spread=spread)
    latency_s = laps_paper_latency_s(tasks, laps, seed)
    at = [float(number) for _, number in laps.estimates.values()]
    return [paper_mean(laps.errors), paper_mean(at), len(laps.estimates) / len(tasks), latency_s]


SHOWN_TOKENS = 400
"""Tokens of the requests that Fig. 3 shows."""


def measure_paper_alone_s(tokens: int, seed: int) -> float:
    """Inference time of a request of CP's kind on an idle machine, seconds."""
    dataset = DATASETS["CP"]
    task = laps_paper_task(0, 0.0, dataset.prompt, tokens, dataset.acceptance, float(tokens))
    return laps_paper_latency_s([task], Fcfs(), seed)


def measure_paper_acceptance(acceptance: float, seed: int) -> list[float]:
    """Share of a request's drafts accepted so far, after every ten tokens."""
    rounds = SimSpeculation(DRAFTS, None, seed)
    drafts = right_drafts = tokens = 0
    rates: list[float] = []
    while tokens < SHOWN_TOKENS:
        right = rounds.round("request", acceptance, DRAFTS)
        drafts, right_drafts, tokens = drafts + DRAFTS, right_drafts + right, tokens + right + 1
        while len(rates) < min(tokens, SHOWN_TOKENS) // 10:
            rates.append(right_drafts / drafts)
    return rates


def paper_acceptance_settled(so_far: Sequence[float], within: float) -> int:
    """Tokens after which what is known every ten tokens stays ``within`` of where it ends."""
    for place in reversed(range(len(so_far))):
        if abs(so_far[place] - so_far[-1]) > within:
            return 10 * (place + 2)
    return 10
