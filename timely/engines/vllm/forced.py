"""Forced decoding for replays: vLLM computes every token for real, the token that comes out is the recorded one.

Given to vLLM as ``--logits-processors timely.engines.vllm.forced:ForcedTokens``. Exact for parked batches too.
vLLM refuses custom processors together with speculative decoding.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from timely.core.errors import InvalidInput
from timely.engines.vllm.params import parse


class ForcedTokens(AdapterLogitsProcessor):  # type: ignore[misc]
    """Leaves one finite logit: that of the next recorded token."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse unusable parameters before they reach the engine."""
        try:
            parse(sampling_params.extra_args)
        except InvalidInput as error:
            raise ValueError(str(error)) from error

    def is_argmax_invariant(self) -> bool:
        """It decides the argmax."""
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Any:
        """A processor for requests that carry ``forced_ids``; None for all others."""
        timely = parse(params.extra_args)
        if timely is None or not timely.forced_ids:
            return None
        forced = timely.forced_ids

        def force(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            position = len(output_ids)
            if position < len(forced):
                kept = logits[forced[position]].clone()
                logits.fill_(float("-inf"))
                # A finite value even where the model's own is not.
                logits[forced[position]] = torch.nan_to_num(kept, nan=0.0, neginf=0.0, posinf=0.0)
            return logits

        return force
