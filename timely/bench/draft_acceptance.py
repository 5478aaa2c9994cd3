"""How often n-gram drafts fit what the packaged model answers to real texts, counted from greedy answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from timely.bench.papers.laps_sd.real_texts import GRAM, SHORTEST_TOKENS, acceptance
from timely.bench.papers.laps_sd.setting import DRAFTS
from timely.bench.papers.real_inputs import dialogues
from timely.core.errors import EngineFailed
from timely.engines.vllm.model import NAME, NO_PLANNER, resolve_model

QUESTION = "Summarise this conversation between a doctor and a patient for the patient's record.\n\n"
MAX_CONTEXT_TOKENS = 2048
MAX_ANSWER_TOKENS = 160


def measure_draft_acceptance(path: Path, texts: int, *, batch: int = 16, seed: int = 0) -> dict[str, Any]:
    """Prompt tokens, answer tokens and acceptance of ``texts`` dialogues drawn from the dataset.

    A greedy answer does not depend on drafts, so each is generated once, without drafts.

    Raises:
        EngineFailed: no answer is long enough to count drafts.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM, SamplingParams

    llm = LLM(
        str(resolve_model(planner=NO_PLANNER)), enforce_eager=True, max_num_seqs=batch,
        max_model_len=MAX_CONTEXT_TOKENS, disable_log_stats=True,
    )  # fmt: skip
    try:
        tokenizer = llm.get_tokenizer()
        prompts: list[dict[str, list[int]]] = []
        for place in np.random.default_rng(seed).permutation(len(dialogues(path))):
            message = {"role": "user", "content": QUESTION + dialogues(path)[place][0]}
            text = tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
            tokens = tokenizer.encode(text, add_special_tokens=False)
            if len(tokens) <= MAX_CONTEXT_TOKENS - MAX_ANSWER_TOKENS and len(prompts) < texts:
                prompts.append({"prompt_token_ids": list(tokens)})
        answers = llm.generate(
            prompts, SamplingParams(temperature=0.0, max_tokens=MAX_ANSWER_TOKENS), use_tqdm=False
        )
    finally:
        llm.llm_engine.engine_core.shutdown()
    samples = []
    for prompt, answer in zip(prompts, answers, strict=True):
        tokens = list(answer.outputs[0].token_ids)
        if len(tokens) >= SHORTEST_TOKENS:
            rate = acceptance(prompt["prompt_token_ids"], tokens)
            samples.append([len(prompt["prompt_token_ids"]), len(tokens), round(rate, 4)])
    if not samples:
        raise EngineFailed("no answer is long enough", where="bench drafts")
    return {
        "model": NAME, "texts": path.name, "draft_tokens": DRAFTS, "gram": GRAM,
        "max_answer_tokens": MAX_ANSWER_TOKENS, "samples": samples,
    }  # fmt: skip
