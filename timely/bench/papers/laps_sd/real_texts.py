"""Real texts: lengths of their answers, and how often drafts by n-grams of the prompt fit them.

The texts are the dialogues of MTS-Dialog.
Their answers are the written summaries, or what the packaged model (SmolLM2-135M) answered, measured once.
Drafts come from prompt lookup: the tokens that followed the latest earlier occurrence of the last two tokens.
A draft is accepted as long as it equals the answer.
Under greedy decoding that is what a speculating engine accepts, so counting needs no second run.
"""

import json
import math
import re
from collections.abc import Hashable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from timely.bench.papers.laps_sd.setting import (
    DRAFTS,
    LENGTH_ERROR,
    SPAN_S,
    VARIATION_REQUESTS,
    laps_paper_latency_s,
    laps_paper_task,
    make_paper_discipline,
)
from timely.bench.papers.real_inputs import paper_dialogues

TOKEN = re.compile(r"\w+|[^\w\s]")
GRAM = 2
SHORTEST_TOKENS = 10

ACCEPTANCE_FILE = "draft_acceptance.json"
"""What ``timely bench drafts`` measured with the packaged model."""

Sample = tuple[int, int, float]
"""Prompt tokens, answer tokens and acceptance of a text."""


@cache
def paper_text_samples(data: str) -> list[Sample]:
    """Each text of the dataset ``data`` with its written answer; of the packaged model where ``data`` is empty."""
    if not data:
        text = resources.files(__package__ or "").joinpath(ACCEPTANCE_FILE).read_text(encoding="utf-8")
        return [(int(row[0]), int(row[1]), float(row[2])) for row in json.loads(text)["samples"]]
    result = []
    for dialogue, summary in paper_dialogues(Path(data)):
        prompt, answer = TOKEN.findall(dialogue.lower()), TOKEN.findall(summary.lower())
        if len(answer) >= SHORTEST_TOKENS:
            result.append((len(prompt), len(answer), paper_draft_acceptance(prompt, answer)))
    return result


def paper_draft_acceptance(prompt: Sequence[Hashable], answer: Sequence[Hashable]) -> float:
    """Share of ``DRAFTS`` draft tokens a round that equal the answer; a round without a draft accepts none."""
    text = list(prompt)
    latest = {tuple(text[place : place + GRAM]): place + GRAM for place in range(len(text) - GRAM)}
    rounds = right_drafts = position = 0
    while position < len(answer):
        start = latest.get(tuple(text[-GRAM:]))
        draft = text[start : start + DRAFTS] if start is not None else []
        right = 0
        while right < min(len(draft), len(answer) - position) and draft[right] == answer[position + right]:
            right += 1
        rounds += 1
        right_drafts += right
        for token in answer[position : position + right + 1]:
            latest[tuple(text[-GRAM:])] = len(text)
            text.append(token)
        position += right + 1
    return right_drafts / (DRAFTS * rounds)


def measure_paper_texts(data: str, system: str, seed: int) -> float:
    """Mean latency of requests drawn from ``samples(data)``, seconds."""
    rng = np.random.default_rng([seed, 91])
    samples = [
        paper_text_samples(data)[int(place)]
        for place in rng.integers(len(paper_text_samples(data)), size=VARIATION_REQUESTS)
    ]
    arrivals_s = np.sort(rng.uniform(0.0, SPAN_S, VARIATION_REQUESTS))
    tasks = [
        laps_paper_task(
            number, float(arrivals_s[number]), prompt, tokens, rate,
            tokens * math.exp(1.25 * LENGTH_ERROR * rng.standard_normal()),
        )
        for number, (prompt, tokens, rate) in enumerate(samples)
    ]  # fmt: skip
    return laps_paper_latency_s(tasks, make_paper_discipline(system, tasks), seed)
