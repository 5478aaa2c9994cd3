"""Drafts the tokens of a plan that its grammar and its object names leave no choice about.

Such tokens need no step of their own ("jump ahead"). The scheduler proposes them as drafts of vLLM's speculative
decoding, and the next step verifies them beside its own token. So the plan stays token for token what the model
writes without drafts. Also where a tokenizer could encode the same text in another way, the model decides.

vLLM asks the scheduler for drafts only where steps are not composed ahead. With asynchronous scheduling the workers
draft alone, and nothing is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from timely.engines.vllm.compatibility import PLACEHOLDER
from timely.engines.vllm.name_constraint import VllmPromptNames
from timely.plans.forced_text import MOST_DRAFTS, forced_plan_text

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

    from timely.engines.vllm.request_state import VllmLiveRequests

SPECULATIVE_CONFIG = {
    "method": "custom_class",
    "model": "timely.engines.vllm.forced_drafts.NoDrafts",
    "num_speculative_tokens": MOST_DRAFTS,
}
"""vLLM's ``--speculative-config`` for an engine whose only drafts are forced tokens."""


def drafts_forced_tokens_only(speculative_config: Any) -> bool:
    """Whether an engine's only drafts are forced tokens. ``speculative_config``: vLLM's, or None."""
    return getattr(speculative_config, "model", None) == SPECULATIVE_CONFIG["model"]


class NoDrafts:
    """A drafter of vLLM's workers that drafts nothing, so that all drafts are the scheduler's."""

    def __init__(self, vllm_config: Any) -> None:
        """vLLM makes it with its configuration."""

    def load_model(self, *_: Any) -> None:
        """It has no model; vLLM's runner of CPUs asks every drafter."""

    def propose(self, sampled_token_ids: Sequence[Sequence[int]], *_: Any, **__: Any) -> list[list[int]]:
        return [[] for _ in sampled_token_ids]


def takes_no_drafts(request: Any) -> bool:
    """Whether its sampling parameters exclude drafts.

    ``min_p`` and ``logit_bias`` are not applied to drafts. With a seed the tokens are draws that must be the same in
    another run, with other steps. Where a draft stands, vLLM draws whether to accept it, and else it draws the token.
    So with drafts a draw depends on where steps end, unless the grammar allows no other token.
    """
    sampling = request.sampling_params
    draws_by_seed = sampling.seed is not None and sampling.temperature > 0
    return bool(draws_by_seed or sampling.min_p or sampling.logit_bias)


class ForcedDrafts:
    """Puts forced tokens in the place of the drafts of vLLM's own drafter.

    Args:
        scheduler: vLLM's.
        tokenizer: returns the model's tokenizer.
        on_cpu: whether vLLM's kernels are those of CPUs.
    """

    def __init__(
        self,
        scheduler: Any,
        live: VllmLiveRequests,
        names: VllmPromptNames,
        tokenizer: Callable[[], Any],
        *,
        on_cpu: bool,
    ) -> None:
        self._scheduler = scheduler
        self._live = live
        self._names = names
        self._on_cpu = on_cpu
        # Plans of a skill set repeat the same few texts.
        self._encode: Callable[[str], list[int]] = lru_cache(maxsize=1024)(
            lambda text: tokenizer().encode(text, add_special_tokens=False)
        )

    def propose(self, request_ids: Sequence[str]) -> None:
        """Draft for the plans among these requests, after vLLM has taken its own drafts."""
        for request_id in request_ids:
            state = self._live.with_boundaries.get(request_id)
            if state is None or state.awaits_value:
                continue
            request = state.request
            if request.is_finished() or request.is_prefill_chunk or takes_no_drafts(request):
                continue
            token_ids = self._token_ids(request)
            if token_ids and request.spec_token_ids[: len(token_ids)] != token_ids:
                request.spec_token_ids = self._scheduler.structured_output_manager.validate_tokens(
                    request, token_ids
                )

    def take_out(self, step: SchedulerOutput) -> None:
        """Take placeholders out of a step on a CPU; vLLM pads the last token of a prompt with them, for CUDA graphs."""
        drafts = step.scheduled_spec_decode_tokens
        if not (self._on_cpu and drafts):
            return
        for request_id, token_ids in list(drafts.items()):
            if PLACEHOLDER in token_ids:
                del drafts[request_id]
                step.num_scheduled_tokens[request_id] -= len(token_ids)
                step.total_num_scheduled_tokens -= len(token_ids)

    def _forced_text(self, request: Any) -> str:
        grammar_request = request.structured_output_request
        matcher = getattr(grammar_request and grammar_request.grammar, "matcher", None)
        if matcher is None:
            return ""  # no grammar, or one of another backend
        return forced_plan_text(matcher, lambda text: self._names.forced_text(request.request_id, text))

    def _token_ids(self, request: Any) -> list[int]:
        """Tokens that spell the forced text; none where the tokenizer adds something, such as a space before it."""
        text = self._forced_text(request)
        vocabulary = self._names.vocabulary(request.request_id) if text else None
        if vocabulary is None:
            return []
        token_ids = self._encode(text)
        return (
            list(token_ids[: self._scheduler.num_spec_tokens]) if vocabulary.text(token_ids) == text else []
        )
