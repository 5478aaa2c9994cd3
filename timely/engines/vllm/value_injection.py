"""Appending what a robot returned to a live context, without computing anything again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timely.engines.vllm.forced_decoding import continued

if TYPE_CHECKING:
    from vllm.v1.request import Request


def append_value(scheduler: Any, request: Request, token_ids: list[int], overshoot: int) -> None:
    """Append ``token_ids`` to the context of a resident, parked request; its KV cache is kept.

    vLLM has a way to extend a session with further input; it drops the last sampled token, whose KV is not
    computed yet, so that token goes in again in front of the value. The request leaves ``running`` for the
    queue of waiting requests that hold KV blocks, and is scheduled as a short prefill.

    Args:
        overshoot: output tokens sampled past the blocking skill, to be dropped (asynchronous scheduling).
    """
    from vllm.v1.request import RequestStatus, StreamingUpdate

    structured = request.structured_output_request
    if overshoot:
        del request._all_token_ids[-overshoot:]
        del request._output_token_ids[-overshoot:]
        request.num_computed_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
    generated = request.num_output_tokens
    pending = list(request._all_token_ids[request.num_computed_tokens :])
    if overshoot and structured is not None and structured.grammar is not None:
        # The matcher has walked over what is dropped. The value itself it never sees: that is no part of the plan.
        structured.grammar.rollback(overshoot)
    resident = request.status == RequestStatus.RUNNING
    if not resident:
        # Evicted while it waited: it is in the waiting queue and starts from its tokens anyway.
        request._all_token_ids.extend(token_ids)
        request._output_token_ids.extend(token_ids)
        request.max_tokens += len(token_ids)  # the value is no part of the plan's length
        request.update_block_hashes()
        return
    scheduler.running.remove(request)
    # vLLM extends this list in place; with the engine in one process the front-end holds the same one.
    request.prompt_token_ids = list(request.prompt_token_ids)
    request.num_output_placeholders = 0
    request.next_decode_eligible_step = 0
    scheduler._update_request_as_session(
        request,
        StreamingUpdate(
            mm_features=None,
            prompt_token_ids=pending + token_ids,
            max_tokens=max(1, request.max_tokens - generated),
            arrival_time=request.arrival_time,
            sampling_params=continued(request.sampling_params, generated),
        ),
    )
    scheduler._enqueue_waiting_request(request)
