"""How often n-gram drafts fit what the packaged model answers to real texts, counted from greedy answers."""

from pathlib import Path
from typing import Any

import numpy as np

from timely.bench.papers.laps_sd.real_texts import GRAM, SHORTEST_TOKENS, paper_draft_acceptance
from timely.bench.papers.laps_sd.setting import DRAFTS
from timely.bench.papers.real_inputs import paper_dialogues
from timely.core.errors import EngineFailed
from timely.engines.vllm.greedy import vllm_greedy_answers
from timely.engines.vllm.model import NAME

QUESTION = "Summarise this conversation between a doctor and a patient for the patient's record.\n\n"
MAX_ANSWER_TOKENS = 160


def bench_draft_acceptance(path: Path, texts: int, *, seed: int = 0) -> dict[str, Any]:
    """Prompt tokens, answer tokens and acceptance of ``texts`` dialogues drawn from the dataset.

    A greedy answer does not depend on drafts, so each is generated once, without drafts.

    Raises:
        EngineFailed: no answer is long enough to count drafts.
    """
    order = np.random.default_rng(seed).permutation(len(paper_dialogues(path)))
    questions = (QUESTION + paper_dialogues(path)[place][0] for place in order)
    samples = [
        [len(prompt), len(answer), round(paper_draft_acceptance(prompt, answer), 4)]
        for prompt, answer in vllm_greedy_answers(questions, texts, max_answer_tokens=MAX_ANSWER_TOKENS)
        if len(answer) >= SHORTEST_TOKENS
    ]
    if not samples:
        raise EngineFailed("no answer is long enough", where="bench drafts")
    return {
        "model": NAME, "texts": path.name, "draft_tokens": DRAFTS, "gram": GRAM,
        "max_answer_tokens": MAX_ANSWER_TOKENS, "samples": samples,
    }  # fmt: skip
