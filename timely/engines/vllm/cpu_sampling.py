"""Sampling in vLLM's workers on CPUs, where vLLM 0.32 and 0.33 do less than their kernels can.

What is mended there:

* vLLM spreads temperatures, ``top_p`` and ``top_k`` over the drafts of a step into a copy, and verifies with whatever
  its memory held. So drafts were judged wrongly once any request of the step sampled.
* With speculative decoding vLLM makes no processors for ``min_p`` and ``logit_bias``, since it does not apply them to
  drafts. A request without drafts takes its token from all processors, so forced drafts of plans exclude neither.
  Its front-end accepts both beside forced drafts (``plugin.py``).
* An engine that may speculate verifies in each step, and draws a number a request and token of the vocabulary for it.
  For 24 requests that sample, that is a third of a step. Nothing is drawn where no drafting request samples.
* A step with drafts copies the logits of all requests once more, in case one asks for their log-probabilities.
* A grammar's mask takes the logits of all requests to 32 bits and back, and a third of a millisecond a row.
"""

import functools
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm.platforms import current_platform

from timely.engines.vllm.forced_drafts import drafts_forced_tokens_only

GREEDY_TEMPERATURE = 0
"""vLLM's, of a request that does not sample."""


def mend_cpu_sampling() -> None:
    """Mend the model runner that this process makes next, where it computes on a CPU."""
    if not current_platform.is_cpu():
        return
    from vllm.v1.sample import rejection_sampler
    from vllm.v1.worker import gpu_model_runner

    rejection_sampler.expand_batch_to_tokens = spread_over_drafts
    build = gpu_model_runner.build_logitsprocs
    runner = gpu_model_runner.GPUModelRunner
    if not hasattr(build, "__wrapped__"):
        gpu_model_runner.build_logitsprocs = _with_all_processors(build)
        gpu_model_runner.apply_grammar_bitmask = mask_logits_by_grammar
        rejection_sampler.rejection_sample = verify_without_draws(rejection_sampler.rejection_sample)
        rejection_sampler.replace = replace_where_logprobs_are_asked
        runner._sample = sample_plainly_without_drafts(runner._sample)


def spread_over_drafts(
    x: Tensor, cu_num_tokens: Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
) -> Tensor:
    """A value of each request to each of its drafts, with vLLM's own signature.

    Args:
        x: of the requests, [requests].
        cu_num_tokens: drafts of each request and of those before it, [requests].
        num_tokens: all drafts.
        replace_from: this value becomes ``replace_to``.

    Returns:
        Of the drafts, [num_tokens].
    """
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    spread = x.repeat_interleave(counts, output_size=num_tokens)
    return spread.masked_fill(spread == replace_from, replace_to)


def _with_all_processors(build: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(build)
    def build_logitsprocs(
        vllm_config: Any, device: Any, pin: bool, pooling: bool, custom: Sequence[Any] = ()
    ) -> Any:
        # Custom processors may apply to plans, too, whose drafts they would not see; vLLM refuses them.
        if not custom and drafts_forced_tokens_only(vllm_config.speculative_config):
            vllm_config = copy(vllm_config)  # ``replace`` would prepare the engine's configuration anew
            vllm_config.speculative_config = None
        return build(vllm_config, device, pin, pooling, custom)

    return build_logitsprocs


def mask_logits_by_grammar(scheduler_output: Any, grammar_output: Any, batch: Any, logits: Tensor) -> None:
    """Give tokens that a grammar excludes the logit -inf, with vLLM's own signature.

    Args:
        scheduler_output: has the drafts of each request.
        grammar_output: requests with a grammar, and for each of their rows a bit for each token, [rows, words].
        batch: has all requests in order; each has a row for each draft and one more.
        logits: of all requests, [rows, vocabulary]; changed in place.
    """
    drafts = scheduler_output.scheduled_spec_decode_tokens
    counts = {request_id: 1 + len(drafts.get(request_id, ())) for request_id in batch.req_ids}
    first_rows = dict(zip(counts, accumulate(counts.values(), initial=0), strict=False))
    request_ids = grammar_output.structured_output_request_ids
    mask_counts = [1 + len(drafts.get(request_id, ())) for request_id in request_ids]
    if len(grammar_output.grammar_bitmask) > sum(mask_counts):
        # Since vLLM 0.33 each request has the rows of the most drafts.
        mask_counts = [len(grammar_output.grammar_bitmask) // len(request_ids)] * len(request_ids)
    rows: list[int] = []
    mask_rows: list[int] = []
    for request_id, next_row in zip(request_ids, accumulate(mask_counts, initial=0), strict=False):
        if request_id in first_rows:
            rows += range(first_rows[request_id], first_rows[request_id] + counts[request_id])
            mask_rows += range(next_row, next_row + counts[request_id])
    words = grammar_output.grammar_bitmask[mask_rows]
    is_allowed = np.unpackbits(words.view(np.uint8), axis=-1, count=logits.shape[-1], bitorder="little")
    penalties = torch.from_numpy(is_allowed).to(logits.dtype).reciprocal_() - 1  # 0 or infinite
    for row, penalty in zip(rows, penalties, strict=True):
        logits[row] -= penalty


def replace_where_logprobs_are_asked(metadata: Any, **changes: Any) -> Any:
    """vLLM's change of sampling metadata, by which a step with drafts keeps the logits of all requests."""
    return metadata if metadata.max_num_logprobs is None else replace(metadata, **changes)


def sample_plainly_without_drafts(sample: Callable[..., Any]) -> Callable[..., Any]:
    """A model runner's sampling, whose steps without a draft are as in an engine that does not speculate."""

    @functools.wraps(sample)
    def _sample(self: Any, logits: Tensor, drafts: Any) -> Any:
        return sample(self, logits, drafts if drafts is not None and drafts.max_spec_len else None)

    return _sample


def verify_without_draws(verify: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """vLLM's verification of drafts, which draws nothing where no drafting request samples."""

    @functools.wraps(verify)
    def rejection_sample(*arguments: Any, **options: Any) -> Tensor:
        """The tokens of each request, [requests, drafts and one]."""
        *others, sampling = arguments
        if not sampling.all_greedy:
            draft_counts = torch.tensor(arguments[1])
            # Tokens of requests without drafts are drawn before.
            if (sampling.temperature[draft_counts > 0] == GREEDY_TEMPERATURE).all():
                sampling = replace(sampling, all_greedy=True, all_random=False)
        return verify(*others, sampling, **options)

    return rejection_sample
