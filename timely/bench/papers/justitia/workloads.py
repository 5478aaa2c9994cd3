"""LLM applications as Justitia evaluates them (section V-A): nine classes, their mix, and arrivals; numpy only.

The paper names its classes and how often each size comes: small 72%, medium 26%, large 2%.
Small applications take under a minute, medium ones one to ten, large ones longer.
It shows token counts of three classes (Fig. 3, 4).
The rest is made here to fit that: stages as each reference describes them, and token counts that give the size.
A hidden difficulty shapes both the words and the token counts of an instance.
So its cost can be told from its text in part, which real texts need not allow.
The paper's list of medium classes also has "CG", which it does not describe; it is left out.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from timely.core.errors import InvalidInput
from timely.core.hints import RequestHints
from timely.disciplines.justitia.constants import TRAINING_SAMPLES
from timely.disciplines.predictors.app_cost import CostModel, CostSample, predictor_kv_token_time
from timely.engines.replay_types import PlannedSegment, PlannedTask

Rng = np.random.Generator

SMALL = ("EV", "FV", "CC", "ALFWI", "KBQAV")
MEDIUM = ("PE", "SC")
LARGE = ("DM", "MRS")
KINDS = (*SMALL, *MEDIUM, *LARGE)
MIX = {"small": 0.72, "medium": 0.26, "large": 0.02}

WINDOWS_S = {"1x": 1080.0, "2x": 540.0, "3x": 360.0}
"""Submission windows of 300 applications: 18, 9 and 6 minutes."""

MAX_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class AppRequest:
    """One LLM request of an application.

    Attributes:
        after: places (in the application) of the requests whose answers it needs; after_s: time from the last of
            them until it is sent, seconds: tools, an environment, glue code.
    """

    prompt_tokens: int
    output_tokens: int
    after: tuple[int, ...] = ()
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PaperApplication:
    """An instance of a class: its text and its requests, those others wait for first."""

    kind: str
    text: str
    requests: tuple[AppRequest, ...]

    def cost(self, model: CostModel = predictor_kv_token_time) -> float:
        return math.fsum(model(r.prompt_tokens, r.output_tokens) for r in self.requests)


class _PaperApplicationDraft:
    """Builds an application request by request; ``z`` is its difficulty, standard normal."""

    def __init__(self, rng: Rng, z: float) -> None:
        self.rng = rng
        self.z = z
        self.requests: list[AppRequest] = []

    def count(self, low: int, high: int) -> int:
        """A number of requests, larger for harder instances."""
        place = 0.5 + 0.25 * self.z + 0.08 * self.rng.standard_normal()
        return round(low + (high - low) * min(1.0, max(0.0, place)))

    def tokens(self, low: float, high: float, pull: float = 0.5) -> int:
        """Tokens, log-normal with 90% within ``low..high``; ``pull`` is how much the difficulty decides."""
        middle, spread = math.sqrt(low * high), math.log(high / low) / 3.29
        deviate = pull * self.z + math.sqrt(1.0 - pull * pull) * self.rng.standard_normal()
        return max(1, min(MAX_TOKENS, round(middle * math.exp(spread * deviate))))

    def ask(self, prompt: int, output: int, after: Sequence[int] = (), after_s: float = 0.0) -> int:
        """Add a request; returns its place."""
        self.requests.append(AppRequest(max(1, prompt), max(1, output), tuple(after), after_s))
        return len(self.requests) - 1


def _draft_paper_equation_verification(d: _PaperApplicationDraft) -> None:
    first = d.ask(d.tokens(200, 400), d.tokens(40, 100))
    for _ in range(d.count(2, 4)):
        d.ask(d.tokens(180, 260, 0.0), d.tokens(30, 110), [first], 0.05)


def _draft_paper_verification_by_search(d: _PaperApplicationDraft, low: int, high: int) -> None:
    """``low`` to ``high`` tokens hold what a search returns."""
    first = d.ask(d.tokens(300, 600), d.tokens(30, 90))
    for _ in range(d.count(2, 4)):
        query = d.ask(int(d.rng.integers(360, 381)), d.tokens(10, 40, 0.0), [first])
        d.ask(d.tokens(low, high, 0.0), d.tokens(15, 50), [query], 0.5)


def _draft_paper_code_checking(d: _PaperApplicationDraft) -> None:
    first = d.ask(d.tokens(300, 700), d.tokens(50, 140))
    for _ in range(d.count(2, 4)):
        d.ask(d.tokens(350, 700, 0.0), d.tokens(25, 85), [first], 0.2)


def _draft_paper_alfworld(d: _PaperApplicationDraft) -> None:
    # Two worked examples stand in front of every step.
    previous, context = -1, d.tokens(800, 1200, 0.0)
    for _ in range(d.count(3, 9)):
        output = d.tokens(10, 28, 0.2)
        previous = d.ask(context, output, [previous] if previous >= 0 else [], 0.1 if previous >= 0 else 0.0)
        context += output + d.tokens(15, 50, 0.0)


def _draft_paper_plan_and_execute(d: _PaperApplicationDraft) -> None:
    plan = d.ask(d.tokens(300, 600), d.tokens(150, 350))
    steps: list[int] = []
    for step in range(d.count(3, 7)):
        # Every other step uses the result of the one before.
        after = [steps[-1]] if step % 2 and steps else [plan]
        steps.append(d.ask(d.tokens(250, 500, 0.0), d.tokens(150, 500), after, 0.3))
    d.ask(d.tokens(700, 1200), d.tokens(200, 450), steps, 0.1)


def _draft_paper_self_consistency(d: _PaperApplicationDraft) -> None:
    prompt = d.tokens(150, 350)
    for _ in range(d.count(4, 11)):
        d.ask(prompt, d.tokens(200, 650, 0.6))


def _draft_paper_document_merging(d: _PaperApplicationDraft) -> None:
    prompt = d.tokens(1200, 1800)
    for _ in range(d.count(6, 14)):
        merger = d.ask(prompt, d.tokens(400, 750))
        d.ask(min(2000, prompt + 300), d.tokens(20, 60, 0.0), [merger])


def _draft_paper_map_reduce(d: _PaperApplicationDraft, parts: int = 0) -> None:
    count = parts or d.count(12, 36)
    mappers = [d.ask(d.tokens(250, 600, 0.2), d.tokens(200, 900, 0.4)) for _ in range(count)]
    d.ask(min(d.tokens(2500, 4000), 150 + 120 * count), d.tokens(400, 900), mappers, 0.1)


_BUILDERS: dict[str, Callable[[_PaperApplicationDraft], None]] = {
    "EV": _draft_paper_equation_verification,
    "FV": partial(_draft_paper_verification_by_search, low=600, high=1200),
    "CC": _draft_paper_code_checking,
    "ALFWI": _draft_paper_alfworld,
    "KBQAV": partial(_draft_paper_verification_by_search, low=700, high=1300),
    "PE": _draft_paper_plan_and_execute,
    "SC": _draft_paper_self_consistency,
    "DM": _draft_paper_document_merging,
    "MRS": _draft_paper_map_reduce,
}

_TASKS = {
    "EV": "verify each equation of this derivation",
    "FV": "check the claims of this statement against the web",
    "CC": "check this code and write tests for it",
    "ALFWI": "act in the household environment until the goal is reached",
    "KBQAV": "verify this answer against the knowledge base",
    "PE": "plan the task and carry out every step with tools",
    "SC": "solve the problem in several independent ways",
    "DM": "merge these documents without losing information",
    "MRS": "summarise this book part by part",
}

_LEVELS = ("plain", "brief", "single", "usual", "several", "detailed", "long", "intricate", "exhaustive")
"""Words that tell of difficulty, from the easiest to the hardest."""


def _paper_app_text(kind: str, rng: Rng, z: float) -> str:
    """A task in words: some about its difficulty, most about its topic."""
    topic = int(rng.integers(40))
    words = [f"topic{topic}x{int(rng.integers(12))}" for _ in range(int(rng.integers(12, 30)))]
    for _ in range(6):
        difficulty = z + 1.0 * rng.standard_normal()
        level = round((difficulty + 2.0) / 4.0 * (len(_LEVELS) - 1))
        words.append(_LEVELS[min(len(_LEVELS) - 1, max(0, level))])
    rng.shuffle(words)
    return f"{_TASKS[kind]}: {' '.join(words)}"


def paper_application(kind: str, rng: Rng) -> PaperApplication:
    """A new instance of a class; raises InvalidInput without such a class."""
    if kind not in _BUILDERS:
        raise InvalidInput(f"unknown application class {kind!r}; known: {', '.join(KINDS)}", where="kind")
    z = float(np.clip(rng.standard_normal(), -2.5, 2.5))
    text = _paper_app_text(kind, rng, z)
    draft = _PaperApplicationDraft(rng, z)
    _BUILDERS[kind](draft)
    return PaperApplication(kind, text, tuple(draft.requests))


SHARES = {
    kind: MIX[size] / len(kinds)
    for size, kinds in (("small", SMALL), ("medium", MEDIUM), ("large", LARGE))
    for kind in kinds
}
"""How often an application is of a class; the classes of one size are equally likely."""


def draw_paper_application_kind(rng: Rng) -> str:
    """A class, by ``SHARES``."""
    size = rng.choice(3, p=[MIX["small"], MIX["medium"], MIX["large"]])
    kinds = (SMALL, MEDIUM, LARGE)[int(size)]
    return kinds[int(rng.integers(len(kinds)))]


def paper_workload(
    seed: int,
    *,
    applications: int = 300,
    window_s: float = WINDOWS_S["2x"],
    arrival_s: Sequence[float] | None = None,
) -> list[PlannedTask]:
    """A mixed suite of applications, in order of arrival.

    Args:
        arrival_s: of the applications; a Poisson process, given its number, when left out. The paper scales Mooncake's
            conversation trace to its windows; ``real_inputs.paper_trace_arrivals`` does that.
    """
    rng = np.random.default_rng(seed)
    times = sorted(rng.uniform(0.0, window_s, applications).tolist() if arrival_s is None else arrival_s)
    apps = [(when, paper_application(draw_paper_application_kind(rng), rng)) for when in times]
    return list(justitia_paper_tasks(apps, rng))


def paper_elephant(parts: int, rng: Rng) -> PaperApplication:
    """A map-reduce summarisation of a text of ``parts`` parts, of average difficulty."""
    draft = _PaperApplicationDraft(rng, 0.0)
    _draft_paper_map_reduce(draft, parts)
    return PaperApplication("MRS", _paper_app_text("MRS", rng, 0.0), tuple(draft.requests))


def paper_starvation_workload(seed: int, mice: int, *, parts: int = 0) -> list[PlannedTask]:
    """The micro-benchmark of section V-C: one MRS first, then ``mice`` small ones (KBQAV, CC, ALFWI), one a second.

    Args:
        parts: of the text that the MRS summarises; drawn like any other when left out.
    """
    rng = np.random.default_rng(seed)
    apps = [(0.0, paper_elephant(parts, rng) if parts else paper_application("MRS", rng))]
    for i in range(mice):
        apps.append((1.0 + i, paper_application(("KBQAV", "CC", "ALFWI")[int(rng.integers(3))], rng)))
    return list(justitia_paper_tasks(apps, rng))


def justitia_paper_tasks(
    apps: Sequence[tuple[float, PaperApplication]], rng: Rng, length_error: float = 0.6
) -> Iterator[PlannedTask]:
    """The requests of applications as planned tasks; ``app`` is the class and the instance, ``MRS/17``.

    Args:
        length_error: sigma of the log-normal error of ``expected_tokens``, for disciplines that want a predicted
            length with each request.
    """
    first = 0
    for instance, (when, app) in enumerate(apps):
        for number, request in enumerate(app.requests, first):
            error = math.exp(length_error * rng.standard_normal())
            yield PlannedTask(
                number, round(when, 6), (PlannedSegment("", request.output_tokens, 0.0),), request.prompt_tokens,
                hints=RequestHints(
                    agent=f"user-{instance}", app=f"{app.kind}/{instance}", app_requests=len(app.requests),
                    expected_tokens=round(max(1.0, request.output_tokens * error), 1),
                ),
                task=app.text, max_tokens=MAX_TOKENS, after=tuple(first + place for place in request.after),
                after_s=request.after_s, plain=True,
            )  # fmt: skip
        first += len(app.requests)


def paper_samples(
    kind: str, count: int = TRAINING_SAMPLES, seed: int = 1_000_003, cost: CostModel = predictor_kv_token_time
) -> list[CostSample]:
    """Past instances of a class for training its cost model: the paper trains on 100."""
    rng = np.random.default_rng([seed, KINDS.index(kind) if kind in KINDS else len(KINDS)])
    past = (paper_application(kind, rng) for _ in range(count))
    return [CostSample(app.text, app.requests[0].prompt_tokens, app.cost(cost)) for app in past]
