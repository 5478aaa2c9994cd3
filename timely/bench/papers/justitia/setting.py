"""Justitia's evaluation: its machine, the cost models it trains, and the disciplines it compares.

LLaMA-7B on one A100-40GB; blocks and steps are the paper's (``disciplines.justitia.constants``).
Swapping runs at 10 GB/s, 0.5 MB a token.
For LLaMA-13B the paper gives no constants, so it is not run.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from timely.bench.papers.justitia.workloads import KINDS, paper_samples
from timely.bench.papers.seed_statistics import paper_falls_to
from timely.bench.papers.serving import serve_paper_tasks
from timely.core.job import Job, JobSpec
from timely.disciplines import registry
from timely.disciplines.base import Discipline, DisciplineInfo
from timely.disciplines.heap_queue import Group, QueueDiscipline
from timely.disciplines.justitia.app_groups import DisciplineAppAccounts
from timely.disciplines.justitia.baselines import Parrot, Srjf, VllmSjf
from timely.disciplines.justitia.constants import BLOCK_TOKENS, KV_BLOCKS
from timely.disciplines.justitia.discipline import Justitia, JustitiaC
from timely.disciplines.justitia.vtc import Vtc
from timely.disciplines.predictors.app_cost import (
    AppCosts,
    CostModel,
    OnlineAppCosts,
    TrainedAppCosts,
    predictor_app_cost_model,
    predictor_kv_token_time,
    predictor_weighted_tokens,
)
from timely.disciplines.timely.discipline import Timely
from timely.engines.replay_types import PlannedTask
from timely.engines.step_time.profile import KvCache, ProfileLimits, StepTerms, StepTimeProfile

ORDER = ("justitia", "vllm", "vllm-sjf", "parrot", "vtc", "srjf")
"""The bars of Fig. 8 and 9."""

NAMES = (*ORDER, "justitia-c")

MACHINE = StepTimeProfile(
    name="llama-7b-a100",
    source="Justitia, section III-A and Fig. 3; swapping at PCIe 3 speed",
    step_s=StepTerms(
        base=0.040,
        per_sequence=0.0005,
        per_prefill_token=0.00012,
        per_prefill_token_sq=0.0,
        per_context_token=3.4e-7,
    ),
    kv=KvCache(blocks=KV_BLOCKS, block_tokens=BLOCK_TOKENS, swap_s_per_token=5e-5),
    limits=ProfileLimits(max_batch=256, token_budget=4096),
)


class ExactPaperCosts:
    """An oracle: the true cost of every application of a workload."""

    def __init__(self, tasks: Sequence[PlannedTask], model: CostModel = predictor_kv_token_time) -> None:
        self.costs: dict[str, float] = {}
        """By the application's name."""
        for task in tasks:
            app, cost = task.hints.app or "", model(task.prompt_tokens, task.output_tokens)
            self.costs[app] = self.costs.get(app, 0.0) + cost

    def predict(self, kind: str, spec: JobSpec) -> float:
        return self.costs[spec.hints.app or ""]

    def learn(self, kind: str, spec: JobSpec, cost: float) -> None:
        """Nothing to learn."""


class NoisyPaperCosts(ExactPaperCosts):
    """The oracle made wrong: the truth times a log-normal factor that errs by ``error`` on average.

    Stands for the fine-tuned DistilBERT of Table II.
    """

    def __init__(self, tasks: Sequence[PlannedTask], error: float, rng: np.random.Generator) -> None:
        super().__init__(tasks)
        self._rng = rng
        self._sigma = _paper_error_sigma(error)

    def predict(self, kind: str, spec: JobSpec) -> float:
        return super().predict(kind, spec) * math.exp(self._sigma * self._rng.standard_normal())


def _paper_error_sigma(error: float) -> float:
    """Sigma of a log-normal factor of median 1 that errs by ``error`` of the truth on average."""
    z = np.linspace(-6.0, 6.0, 4001)
    density = np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum()
    return paper_falls_to(
        lambda sigma: -float(density @ np.abs(np.exp(sigma * z) - 1.0)), -error, most=5.0, halvings=60
    )


@dataclass(frozen=True, slots=True)
class PaperPredictors:
    """The trained cost models, one for each class, and the seconds that training Justitia's took."""

    memory: TrainedAppCosts
    compute: TrainedAppCosts
    train_s: float


@cache
def trained_paper_models() -> PaperPredictors:
    """The cost models, trained once a process on 100 instances of each class, as section IV-B does."""
    begin_s = time.perf_counter()
    memory = {kind: predictor_app_cost_model(paper_samples(kind)) for kind in KINDS}
    train_s = time.perf_counter() - begin_s
    compute = {
        kind: predictor_app_cost_model(paper_samples(kind, cost=predictor_weighted_tokens)) for kind in KINDS
    }
    return PaperPredictors(
        TrainedAppCosts(memory, "kv", OnlineAppCosts(predictor_kv_token_time)),
        TrainedAppCosts(compute, "weighted", OnlineAppCosts(predictor_weighted_tokens)),
        train_s,
    )


def make_paper_discipline(name: str, costs: AppCosts | None = None) -> Discipline:
    """A discipline of the comparison, set up as the paper has it; ``costs`` instead of the trained models.

    ``timely`` and its ablations get the trained models, too, and all others what they learn while serving.
    """
    if name == "justitia":
        return Justitia(DisciplineAppAccounts(costs or trained_paper_models().memory))
    if name == "justitia-c":
        compute = costs or trained_paper_models().compute
        return JustitiaC(DisciplineAppAccounts(compute, cost=predictor_weighted_tokens))
    if name == "srjf":
        return Srjf(DisciplineAppAccounts(costs or trained_paper_models().memory))
    plain: dict[str, Callable[[], Discipline]] = {
        "vllm": _PaperVllmFcfs, "vllm-sjf": VllmSjf, "parrot": Parrot, "vtc": Vtc,
    }  # fmt: skip
    if name in plain:
        return plain[name]()
    kind = registry.load_discipline(name)
    if issubclass(kind, Timely):
        return kind(costs=costs or trained_paper_models().memory)
    return registry.create_discipline(name)


class _PaperVllmFcfs(QueueDiscipline):
    """vLLM's default: requests by arrival, swapped ones first, running ones not interrupted."""

    info = DisciplineInfo(name="vllm", summary="vLLM's own order", source="Justitia, section V-A")

    def group(self, job: Job) -> Group:
        """One group: its jobs go by arrival."""
        return ""

    def rank(self, group: Group) -> float:
        return 0.0

    def age(self, group: Group) -> int:
        return 0


def paper_completion_s(tasks: Sequence[PlannedTask], discipline: Discipline) -> dict[str, float]:
    """Completion time of every application: from its arrival to the end of its last request, seconds."""
    run = serve_paper_tasks(tasks, discipline, MACHINE, eviction="swap")
    begin: dict[str, float] = {}
    end: dict[str, float] = {}
    for record in run.records:
        app = record.task.hints.app or ""
        begin[app] = record.task.arrival_s
        end[app] = max(end.get(app, 0.0), record.last_token_s)
    return {app: end[app] - begin[app] for app in begin}
