"""Greedy answers of the packaged model to plain questions, many at once, without a server."""

import os
from collections.abc import Iterable

from timely.engines.vllm.arguments import fastest_vllm_dtype
from timely.engines.vllm.model import NO_PLANNER, resolve_vllm_model

MAX_CONTEXT_TOKENS = 2048
MAX_BATCH = 16


def vllm_greedy_answers(
    questions: Iterable[str], count: int, *, max_answer_tokens: int
) -> list[tuple[list[int], list[int]]]:
    """Prompt and answer as token ids, of the first ``count`` questions that fit the context."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM, SamplingParams

    llm = LLM(
        str(resolve_vllm_model(planner=NO_PLANNER)), enforce_eager=True, max_num_seqs=MAX_BATCH,
        max_model_len=MAX_CONTEXT_TOKENS, disable_log_stats=True, dtype=fastest_vllm_dtype(),
    )  # fmt: skip
    try:
        tokenizer = llm.get_tokenizer()
        prompts: list[list[int]] = []
        for question in questions:
            message = {"role": "user", "content": question}
            text = tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
            tokens = list(tokenizer.encode(str(text), add_special_tokens=False))
            if len(tokens) <= MAX_CONTEXT_TOKENS - max_answer_tokens:
                prompts.append(tokens)
            if len(prompts) == count:
                break
        parameters = SamplingParams(temperature=0.0, max_tokens=max_answer_tokens)
        answers = llm.generate(
            [{"prompt_token_ids": tokens} for tokens in prompts], parameters, use_tqdm=False
        )
    finally:
        llm.llm_engine.engine_core.shutdown()
    return [(tokens, list(a.outputs[0].token_ids)) for tokens, a in zip(prompts, answers, strict=True)]
