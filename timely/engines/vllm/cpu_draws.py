"""Draws of tokens on CPUs by inverse transform sampling: one random number a request.

vLLM 0.32 and 0.33 draw a number for each token of the vocabulary there (Gumbel-max).
That takes a tenth of a step in which 24 requests sample.
Seeded requests draw as in vLLM, so their answers stay the same.
Measured: docs/experiments/2026-11-28-one-draw-a-token.md.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from vllm.platforms import current_platform

BLOCK_TOKENS = 256
"""Tokens of the vocabulary whose probabilities are summed first, if so many divide it."""


def draw_cpu_tokens_by_inversion() -> None:
    """Let samplers that this process makes next draw so, where it computes on a CPU."""
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler as sampler

    if current_platform.is_cpu() and not hasattr(sampler.forward_cpu, "__wrapped__"):
        sampler.forward_cpu = with_draws_by_inversion(sampler.forward_cpu)


def with_draws_by_inversion(draw: Callable[..., Any]) -> Callable[..., Any]:
    """vLLM's draws, which remain for seeded requests and for log-probabilities of processed logits."""
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

    @functools.wraps(draw)
    def forward_cpu(
        self: Any,
        logits: Tensor,
        generators: Mapping[int, torch.Generator],
        k: Tensor | None,
        p: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Of logits, [requests, vocabulary], a token each, [requests]."""
        if self.use_fp64_gumbel or self.logprobs_mode.startswith("processed"):
            return draw(self, logits, generators, k, p)  # type: ignore[no-any-return]
        logits = apply_top_k_top_p(logits, k, p)
        tokens = draw_tokens(logits)
        if generators:
            rows = [*generators]
            by_row = dict(enumerate(generators.values()))
            tokens[rows] = draw(self, logits[rows], by_row, None, None)[0].to(tokens.dtype)
        return tokens, None

    return forward_cpu


def draw_tokens(logits: Tensor) -> Tensor:
    """A token of each row, with the probabilities of its softmax.

    Args:
        logits: [requests, vocabulary].

    Returns:
        Token ids, [requests]; none has the probability 0.
    """
    vocabulary = logits.shape[-1]
    blocks = logits.softmax(-1, dtype=torch.float32).unflatten(-1, (-1, math.gcd(vocabulary, BLOCK_TOKENS)))
    totals = blocks.sum(-1).double()
    points = torch.rand(len(logits), dtype=torch.float64) * totals.sum(-1)
    block, points = _invert_distribution(totals, points)
    token, _ = _invert_distribution(blocks[torch.arange(len(logits)), block].double(), points)
    return block * blocks.shape[-1] + token


def _invert_distribution(weights: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """The entry of each row that holds its point of the cumulative sum, and how far in it the point is.

    Args:
        weights: at least 0, [rows, entries], float64.
        points: from 0 to the sum of the row, [rows], float64.
    """
    ends = weights.cumsum(-1)
    # A point beyond the sum by rounding belongs to the last entry with a weight.
    points = torch.minimum(points, ends[:, -1].nextafter(ends.new_zeros(()))).unsqueeze(-1)
    # Sums of logits that are not numbers hold no point; vLLM draws any token of them.
    entry = torch.searchsorted(ends, points, right=True).clamp_(max=weights.shape[-1] - 1)
    begins = ends.gather(-1, entry) - weights.gather(-1, entry)
    return entry.squeeze(-1), (points - begins).clamp_(min=0.0).squeeze(-1)
