"""What segmenting costs on the real engine: the same tokens, parked at every boundary and not, in turn.

TimelyLLM Table 4 reports 2.6 to 5.6%. Robots here need no time at all for a segment, so a parked generation is
runnable again at once and only the cost of segmenting itself is left: detokenizing and scanning each token,
closing, parking, composing the next step.
"""

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from timely.core.errors import EngineFailed
from timely.engines.vllm.arguments import fastest_vllm_dtype
from timely.engines.vllm.forced_decoding import vllm_engine_keywords, vllm_sampling_keywords
from timely.engines.vllm.model import resolve_vllm_model

PLAN = "mf(50);tc(30);mu(40);ml(60);tu(45);md(30);mr(80);mf(120);tc(90);mb(25);"
"""About 50 tokens and ten segments."""
DEADLINE_S = 120.0


def vllm_segmentation_cost(
    repetitions: int = 15, batch: int = 1, model: str | None = None, load_format: str = "auto"
) -> dict[str, Any]:
    """Ratio of run times, segmented over unsegmented, pair by pair.

    Args:
        repetitions: counted pairs; one more warms up.
        batch: requests at once.
        load_format: vLLM's; ``dummy`` makes the weights up.

    Returns:
        ``{"median", "p10", "p90", "pairs", "tokens", "segments", "unsegmented_s"}``.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM

    llm = LLM(
        str(resolve_vllm_model(model)),
        load_format=load_format,
        dtype=fastest_vllm_dtype(),
        enforce_eager=True,
        scheduler_cls="timely.engines.vllm.scheduler.TimelyScheduler",
        block_size=32,
        max_num_seqs=max(16, batch),
        max_model_len=1024,
        **vllm_engine_keywords(),
        disable_log_stats=True,
    )
    try:
        return _measure_vllm_segmentation(llm, repetitions, batch)
    finally:
        llm.llm_engine.engine_core.shutdown()


def _measure_vllm_segmentation(llm: Any, repetitions: int, batch: int) -> dict[str, Any]:
    token_ids = list(llm.get_tokenizer().encode(PLAN, add_special_tokens=False))
    prompt = list(range(1000, 1200))
    ratios: list[float] = []
    plain_times: list[float] = []
    segments = 0
    for pair in range(repetitions + 1):
        # The order alternates, so that a machine that drifts hurts neither side.
        order = (True, False) if pair % 2 else (False, True)
        times: dict[bool, float] = {}
        for segmented in order:
            times[segmented], closed = _generate_vllm_once(llm, prompt, token_ids, batch, segmented, pair)
            segments = max(segments, closed)
        if pair > 0:
            ratios.append(times[True] / times[False])
            plain_times.append(times[False])
    if segments == 0:
        raise EngineFailed("no segment was closed, so nothing was measured", where="bench overhead")
    return {
        "median": float(np.median(ratios)),
        "p10": float(np.quantile(ratios, 0.1)),
        "p90": float(np.quantile(ratios, 0.9)),
        "pairs": len(ratios),
        "tokens": len(token_ids),
        "segments": segments,
        "unsegmented_s": float(np.median(plain_times)),
    }


def _generate_vllm_once(
    llm: Any, prompt: Sequence[int], token_ids: list[int], batch: int, segmented: bool, pair: int
) -> tuple[float, int]:
    from vllm import SamplingParams

    engine = llm.llm_engine
    for number in range(batch):
        timely: dict[str, Any] = {"forced_ids": token_ids}
        if segmented:
            # No robot profile: every segment is expected to take no time, so it is runnable again at once.
            timely |= {"skill_set": "drone"}
        parameters = SamplingParams(
            temperature=0.0, max_tokens=len(token_ids), ignore_eos=True, extra_args={"timely": timely},
            **vllm_sampling_keywords(timely, trace_replay=engine.model_config.enable_trace_replay),
        )  # fmt: skip
        engine.add_request(f"{pair}-{segmented}-{number}", {"prompt_token_ids": list(prompt)}, parameters)
    segments = 0
    begin_s = time.perf_counter()
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                account = (output.kv_transfer_params or {}).get("timely", {"segments": []})
                segments = max(segments, len(account["segments"]))
        if time.perf_counter() - begin_s > DEADLINE_S:
            raise EngineFailed(f"a run took over {DEADLINE_S:.0f} s", where="bench overhead")
    return time.perf_counter() - begin_s, segments
