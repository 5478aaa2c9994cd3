"""Sampling beside drafts in vLLM's workers on CPUs, where vLLM 0.32 and 0.33 do less than their kernels can.

What is mended there:

* vLLM spreads temperatures, ``top_p`` and ``top_k`` over the drafts of a step into a copy, and verifies with whatever
  its memory held. So drafts were judged wrongly once any request of the step sampled.
* With speculative decoding vLLM makes no processors for ``min_p`` and ``logit_bias``, since it does not apply them to
  drafts. A request without drafts takes its token from all processors, so forced drafts of plans exclude neither.
  Its front-end accepts both beside forced drafts (``plugin.py``).
* An engine that may speculate verifies in each step, and draws a number a request and token of the vocabulary for it.
  For 24 requests that sample, that is a third of a step. No draw is made where no drafting request samples.
"""

import functools
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

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
    build, draw = gpu_model_runner.build_logitsprocs, rejection_sampler.sample_recovered_tokens
    runner = gpu_model_runner.GPUModelRunner
    if not hasattr(build, "__wrapped__"):
        gpu_model_runner.build_logitsprocs = _with_all_processors(build)
        rejection_sampler.sample_recovered_tokens = draw_where_needed(draw)
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


def sample_plainly_without_drafts(sample: Callable[..., Any]) -> Callable[..., Any]:
    """A model runner's sampling, whose steps without a draft are as in an engine that does not speculate."""

    @functools.wraps(sample)
    def _sample(self: Any, logits: Tensor, drafts: Any) -> Any:
        return sample(self, logits, drafts if drafts is not None and drafts.max_spec_len else None)

    return _sample


def draw_where_needed(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """vLLM's draw of tokens in the place of rejected drafts, left out where no drafting request samples."""

    @functools.wraps(draw)
    def sample_recovered_tokens(*arguments: Any) -> Tensor:
        """By draft; those of greedy requests are not read."""
        _, draft_counts, _, draft_token_ids, _, _, sampling, *_ = arguments
        drafting = torch.tensor(draft_counts) > 0
        if (sampling.temperature[drafting] == GREEDY_TEMPERATURE).all():
            return torch.zeros_like(draft_token_ids)
        return draw(*arguments)

    return sample_recovered_tokens
