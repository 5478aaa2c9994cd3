"""Requests as SageSched evaluates them (section 4.1): three kinds of datasets with uncertain lengths; numpy only.

The paper samples ShareGPT, Alpaca-PubMed summarisation and Document-Write, none of which is shipped.
It shows that one prompt gets answers of very different lengths (Fig. 1a).
It shows that similar prompts share a distribution of lengths (Fig. 4), and that the datasets differ (Fig. 1b).
The requests here are made with these properties.
A prompt belongs to a family, and a family to a topic.
A family has a distribution of output lengths, often with two humps.
Families of one topic resemble each other in words and, less, in length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timely.core.errors import InvalidInput
from timely.engines.replay_types import PlannedSegment, PlannedTask

Rng = np.random.Generator

MAX_TOKENS = 2048

VOCABULARY = tuple(Path(__file__).with_name("vocabulary.txt").read_text(encoding="utf-8").split())
"""Words of the prompts: common nouns, so that sentence embeddings can tell topics apart."""


@dataclass(frozen=True, slots=True)
class SageSchedPaperDataset:
    """What a dataset's requests look like.

    Attributes:
        opening: words that every prompt of it begins with.
        input_tokens: median, sigma of the log-normal prompt length.
        output_tokens: median, sigma of the log-normal of the families' typical lengths.
        spread: range of a family's own sigma; humps: share of families with a second hump.
        topics, families: number of topics, and of families in each.
    """

    name: str
    opening: str
    input_tokens: tuple[float, float]
    output_tokens: tuple[float, float]
    spread: tuple[float, float]
    humps: float
    topics: int = 12
    families: int = 6


DATASETS = {
    "sharegpt": SageSchedPaperDataset(
        "sharegpt", "please help me with", (180.0, 0.9), (190.0, 0.7), (0.3, 0.75), 0.55
    ),
    "alpaca": SageSchedPaperDataset(
        "alpaca", "summarize this article", (1500.0, 0.45), (190.0, 0.35), (0.2, 0.45), 0.3
    ),
    "write": SageSchedPaperDataset(
        "write", "write a document about", (90.0, 0.5), (420.0, 0.5), (0.25, 0.6), 0.45
    ),
}


@dataclass(frozen=True, slots=True)
class PaperPromptFamily:
    """Prompts that ask for the same thing in other words; ``humps`` are (share, median, sigma) of output tokens."""

    dataset: str
    words: tuple[str, ...]
    input_tokens: float
    humps: tuple[tuple[float, float, float], ...]

    def lengths(self, count: int, rng: Rng) -> np.ndarray:
        """Output lengths of ``count`` independent answers, tokens, shape ``(count,)``."""
        shares = np.array([share for share, _, _ in self.humps])
        humps = rng.choice(len(self.humps), size=count, p=shares / shares.sum())
        medians = np.array([median for _, median, _ in self.humps])[humps]
        sigmas = np.array([sigma for _, _, sigma in self.humps])[humps]
        tokens = medians * np.exp(sigmas * rng.standard_normal(count))
        lengths: np.ndarray = np.clip(np.rint(tokens), 1, MAX_TOKENS).astype(np.int64)
        return lengths


@dataclass(frozen=True, slots=True)
class SyntheticRequest:
    """One request: the prompt, its length, the length of the answer it will get, and the family behind it."""

    text: str
    prompt_tokens: int
    output_tokens: int
    family: PaperPromptFamily


class PaperPromptWorld:
    """All families of some datasets: what prompts there are, and how long answers to them get.

    Args:
        seed: of the world; histories and workloads of one world share its families.
        datasets: names; their requests are mixed in equal shares.

    Raises:
        InvalidInput: an unknown dataset.
    """

    def __init__(self, seed: int, datasets: Sequence[str] = tuple(DATASETS)) -> None:
        for name in datasets:
            if name not in DATASETS:
                raise InvalidInput(f"unknown dataset {name!r}; known: {', '.join(DATASETS)}", where="dataset")
        rng, words = np.random.default_rng([seed, 17]), np.random.default_rng([seed, 19])
        self.families = {name: _draw_paper_families(DATASETS[name], rng, words) for name in datasets}
        self.names = tuple(datasets)
        # Some things are asked far more often than others.
        self._popularity = {
            name: _paper_zipf_weights(len(families), rng) for name, families in self.families.items()
        }

    def draw(self, count: int, rng: Rng) -> list[SyntheticRequest]:
        requests = []
        for _ in range(count):
            name = self.names[int(rng.integers(len(self.names)))]
            families = self.families[name]
            family = families[int(rng.choice(len(families), p=self._popularity[name]))]
            noise = [VOCABULARY[int(n)] for n in rng.integers(0, len(VOCABULARY), 3)]
            words = [word for word in family.words if rng.random() > 0.08] + noise
            prompt = family.input_tokens * float(np.exp(0.15 * rng.standard_normal()))
            requests.append(
                SyntheticRequest(
                    f"{DATASETS[name].opening} {' '.join(words)}",
                    max(4, round(prompt)),
                    int(family.lengths(1, rng)[0]),
                    family,
                )
            )
        return requests


def _draw_paper_families(dataset: SageSchedPaperDataset, rng: Rng, words: Rng) -> list[PaperPromptFamily]:
    families = []
    for _ in range(dataset.topics):
        shared = [VOCABULARY[int(n)] for n in words.integers(0, len(VOCABULARY), 5)]
        # What a topic shares of the length, and what is the family's own.
        topical = rng.standard_normal()
        for _ in range(dataset.families):
            own = [VOCABULARY[int(n)] for n in words.integers(0, len(VOCABULARY), 7)]
            median, sigma = dataset.output_tokens
            typical = median * float(np.exp(sigma * (0.6 * topical + 0.8 * rng.standard_normal())))
            spread = float(rng.uniform(*dataset.spread))
            humps = [(1.0, typical, spread)]
            if rng.random() < dataset.humps:
                # A brief answer now and then, or a long one: Fig. 1a and 6.
                factor = float(rng.uniform(0.08, 0.3) if rng.random() < 0.5 else rng.uniform(3.0, 6.0))
                humps.append((float(rng.uniform(0.25, 1.0)), typical * factor, spread))
            middle, width = dataset.input_tokens
            length = middle * float(np.exp(width * rng.standard_normal()))
            families.append(
                PaperPromptFamily(dataset.name, tuple(shared + own), min(length, 8000.0), tuple(humps))
            )
    return families


def _paper_zipf_weights(count: int, rng: Rng) -> np.ndarray:
    weights = 1.0 / (1.0 + np.arange(count)) ** 0.7
    rng.shuffle(weights)
    result: np.ndarray = weights / weights.sum()
    return result


def paper_workload(
    world: PaperPromptWorld, seed: int, requests: int, rate: float
) -> tuple[list[PlannedTask], list[SyntheticRequest]]:
    """Requests that arrive as a Poisson process of ``rate`` per second; and what was drawn."""
    rng = np.random.default_rng([seed, 29])
    sample = world.draw(requests, rng)
    times = np.cumsum(rng.exponential(1.0 / rate, requests))
    tasks = [
        sagesched_paper_task(number, float(when), request.text, request.prompt_tokens, request.output_tokens)
        for number, (when, request) in enumerate(zip(times, sample, strict=True))
    ]
    return tasks, sample


def sagesched_paper_task(
    number: int, arrival_s: float, text: str, prompt_tokens: int, output_tokens: int
) -> PlannedTask:
    return PlannedTask(
        number, round(arrival_s, 6), (PlannedSegment("", output_tokens, 0.0),), prompt_tokens, task=text,
        max_tokens=MAX_TOKENS, plain=True,
    )  # fmt: skip
