"""SageSched on real texts: the dialogues of MTS-Dialog as prompts, their written summaries as answers.

Each discipline that predicts does so from the same history of past texts.
Arrivals are those of Mooncake's trace where it is at hand, scaled to the rate, otherwise a Poisson process.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from timely.bench.papers.claims import Claim, PaperRule, paper_claim
from timely.bench.papers.real_inputs import DIALOGUES, MOONCAKE, paper_dialogues, paper_trace_arrivals
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.sagesched.setting import (
    PROFILES,
    QWEN,
    Latency,
    measure_sagesched_paper,
    tuned_paper_fastserve,
)
from timely.bench.papers.sagesched.workloads import sagesched_paper_task
from timely.bench.papers.seed_statistics import paper_mean, paper_percent_lower
from timely.disciplines.base import Discipline
from timely.disciplines.basic import Fcfs
from timely.disciplines.predictors.history import HistoryPredictor
from timely.disciplines.sagesched.baselines import Ltr, Ssjf, Trail
from timely.disciplines.sagesched.discipline import SageSched, sagesched_discipline_history

RATE = 60.0
"""Requests a second: prompts and answers are short, and fewer leave the machine idle."""
PAST, SERVED_TEXTS = 600, 600
"""Texts of a seed. There are 1,201, so seeds share their texts and differ in order and arrivals."""

TOKENS_A_CHARACTER = 0.25
"""About four characters of English make a token."""

MAKERS: dict[str, Callable[[HistoryPredictor], Discipline]] = {
    "fcfs": lambda history: Fcfs(),
    "fastserve": lambda history: tuned_paper_fastserve(),
    "ssjf": Ssjf,
    "ltr": lambda history: Ltr(history, starve_s=1e9),
    "trail": Trail,
    "sagesched": SageSched,
}


def measure_paper_texts(dialogue_file: str, trace: str, name: str, seed: int) -> Latency:
    """TTLT and TTFT of a discipline, seconds; ``trace`` may be empty."""
    texts = paper_dialogues(Path(dialogue_file))
    rng = np.random.default_rng([seed, 97])
    places = rng.permutation(len(texts))[: PAST + SERVED_TEXTS]
    requests = [
        (texts[place][0], *(max(1, round(TOKENS_A_CHARACTER * len(text))) for text in texts[place]))
        for place in places
    ]
    history = sagesched_discipline_history()
    for text, prompt_tokens, output_tokens in requests[:PAST]:
        history.remember(history.embedder.embed([text])[0], prompt_tokens, output_tokens)
    served_requests = requests[PAST:]
    if trace:
        arrivals_s = paper_trace_arrivals(
            Path(trace), len(served_requests), len(served_requests) / RATE, skip=seed * SERVED_TEXTS
        )
    else:
        arrivals_s = np.cumsum(rng.exponential(1.0 / RATE, len(served_requests))).tolist()
    tasks = [
        sagesched_paper_task(number, arrivals_s[number], *request)
        for number, request in enumerate(served_requests)
    ]
    return measure_sagesched_paper(tasks, MAKERS[name](history), PROFILES[QWEN])


def paper_real_texts(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 8 with real prompts and answers."""
    path, trace = evaluation.input(DIALOGUES), evaluation.input(MOONCAKE)
    gain, best, note = None, "the best baseline", "needs the dataset"
    arrivals = "a Poisson process" if trace is None else "Mooncake's trace"
    if path is not None:
        names = [(str(path), str(trace or ""), name) for name in MAKERS]
        table = evaluation.all("real-texts", measure_paper_texts, names)
        ttlt = {name: [pair[0] for pair in pairs] for name, pairs in zip(MAKERS, table, strict=True)}
        best = min((name for name in MAKERS if name != "sagesched"), key=lambda name: paper_mean(ttlt[name]))
        gain = paper_percent_lower(ttlt["sagesched"], ttlt[best])
        note = ", ".join(f"{name} {paper_mean(values):.2f} s" for name, values in ttlt.items())
    yield paper_claim(
        "fig8.real", f"Fig. 8: TTLT lower than the best baseline's ({best}), MTS-Dialog", None, gain, "%",
        PaperRule.above(0.0), f"{note}; all predict from the same history; arrivals of {arrivals}",
    )  # fmt: skip
