"""Real lengths and real draft acceptances: answers of a dataset, drafted for by n-grams of their own prompt.

The dataset is MTS-Dialog: a dialogue as the prompt, its written summary as the answer.
Drafts come from prompt lookup: the tokens that followed the latest earlier occurrence of the last two tokens.
A draft is accepted as long as it equals the answer, so no model is needed.
"""

from __future__ import annotations

import csv
import math
import re
from functools import cache
from pathlib import Path

import numpy as np

from timely.bench.papers.laps_sd.setting import DRAFTS, LENGTH_ERROR, SPAN_S, VARIED, latency_s, make
from timely.core.hints import RequestHints
from timely.engines.replay_types import PlannedSegment, PlannedTask

FILE = "mts_dialog/MTS-Dialog-TrainingSet.csv"
TOKEN = re.compile(r"\w+|[^\w\s]")
GRAM = 2
SHORTEST_TOKENS = 10


@cache
def samples(data: str) -> list[tuple[int, int, float]]:
    """Prompt tokens, answer tokens and acceptance of each text; tokens are words and punctuation."""
    result = []
    with (Path(data) / FILE).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            prompt, answer = (
                TOKEN.findall(row["dialogue"].lower()),
                TOKEN.findall(row["section_text"].lower()),
            )
            if len(answer) >= SHORTEST_TOKENS:
                result.append((len(prompt), len(answer), acceptance(prompt, answer)))
    return result


def acceptance(prompt: list[str], answer: list[str]) -> float:
    """Share of ``DRAFTS`` draft tokens a round that equal the answer; a round without a draft accepts none."""
    text = list(prompt)
    latest = {tuple(text[place : place + GRAM]): place + GRAM for place in range(len(text) - GRAM)}
    rounds = accepted = done = 0
    while done < len(answer):
        start = latest.get(tuple(text[-GRAM:]))
        draft = text[start : start + DRAFTS] if start is not None else []
        right = 0
        while right < min(len(draft), len(answer) - done) and draft[right] == answer[done + right]:
            right += 1
        rounds += 1
        accepted += right
        for token in answer[done : done + right + 1]:
            latest[tuple(text[-GRAM:])] = len(text)
            text.append(token)
        done += right + 1
    return accepted / (DRAFTS * rounds)


def measure_real(data: str, system: str, seed: int) -> float:
    """Mean latency of requests drawn from the dataset, seconds."""
    rng = np.random.default_rng([seed, 91])
    drawn = [samples(data)[int(place)] for place in rng.integers(len(samples(data)), size=VARIED)]
    arrivals_s = np.sort(rng.uniform(0.0, SPAN_S, VARIED))
    tasks = [
        PlannedTask(
            job=number, arrival_s=float(arrivals_s[number]), plan=(PlannedSegment("", tokens, 0.0),),
            prompt_tokens=prompt, acceptance=rate, max_tokens=4000,
            hints=RequestHints(
                expected_tokens=max(1.0, tokens * math.exp(1.25 * LENGTH_ERROR * rng.standard_normal()))
            ),
        )
        for number, (prompt, tokens, rate) in enumerate(drawn)
    ]  # fmt: skip
    return latency_s(tasks, make(system, tasks), seed)
