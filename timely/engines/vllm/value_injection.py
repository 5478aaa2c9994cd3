"""Appending what a robot returned to a live context, without computing anything again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timely.engines.vllm.forced_decoding import remaining_vllm_parameters

if TYPE_CHECKING:
    from vllm.v1.request import Request


def append_vllm_value(scheduler: Any, request: Request, token_ids: list[int]) -> None:
    """Append ``token_ids`` to the context of a parked or evicted request; its KV cache is kept.

    vLLM has a way to extend a session with further input: all tokens so far become prompt. A request that holds KV
    blocks leaves ``running`` for the queue of waiting requests that hold KV blocks. It is scheduled as a short prefill.
    No step of the request may be in flight.
    """
    from vllm.v1.request import RequestStatus, StreamingUpdate

    assert request.num_in_flight_tokens == 0
    running = request.status == RequestStatus.RUNNING
    generated_tokens = request.num_output_tokens
    # Void tokens behind the boundary were computed, too; their places are written again.
    computed_tokens = min(request.num_computed_tokens, request.num_tokens)
    # vLLM extends this list in place; with the engine in one process the front-end holds the same one.
    request.prompt_token_ids = list(request.prompt_token_ids)
    request.num_output_placeholders = 0
    request.spec_token_ids = []
    # vLLM drops tokens that are not computed yet; here they stay, to be computed with the value.
    request.num_computed_tokens = request.num_tokens
    scheduler._update_request_as_session(
        request,
        StreamingUpdate(
            mm_features=None,
            prompt_token_ids=token_ids,
            max_tokens=max(1, request.max_tokens - generated_tokens),
            arrival_time=request.arrival_time,
            sampling_params=remaining_vllm_parameters(request.sampling_params, generated_tokens),
        ),
    )
    request.num_computed_tokens = computed_tokens
    if running:
        scheduler.running.remove(request)
        scheduler._enqueue_waiting_request(request)
