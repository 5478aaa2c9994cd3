"""Sampling beside drafts in vLLM's workers on CPUs, where vLLM 0.32 and 0.33 do less than their kernels can.

Three things are mended there:

* vLLM spreads temperatures, ``top_p`` and ``top_k`` over the drafts of a step into a copy, and verifies with whatever
  its memory held. So drafts were judged wrongly once any request of the step sampled.
* With speculative decoding vLLM makes no processors for ``min_p`` and ``logit_bias``, since it does not apply them to
  drafts. A request without drafts takes its token from all processors, so forced drafts of plans exclude neither.
* For the same reason its front-end refuses both parameters.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from vllm.platforms import current_platform

from timely.engines.vllm.forced_drafts import drafts_forced_tokens_only


def mend_cpu_sampling() -> None:
    """Mend the model runner that this process makes next, where it computes on a CPU."""
    if not current_platform.is_cpu():
        return
    from vllm.v1.sample import rejection_sampler
    from vllm.v1.worker import gpu_model_runner

    rejection_sampler.expand_batch_to_tokens = spread_over_drafts
    build = gpu_model_runner.build_logitsprocs
    if not hasattr(build, "__wrapped__"):
        gpu_model_runner.build_logitsprocs = _with_all_processors(build)


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
            vllm_config = replace(vllm_config, speculative_config=None)
        return build(vllm_config, device, pin, pooling, custom)

    return build_logitsprocs
