"""Appends what a robot returned to a live context, without computing anything again."""

from collections.abc import Callable
from typing import Any

from vllm.v1.request import Request, RequestStatus, StreamingUpdate

from timely.engines.vllm.forced_decoding import remaining_vllm_parameters
from timely.engines.vllm.name_constraint import VllmPromptNames
from timely.engines.vllm.readiness import VllmReadiness
from timely.engines.vllm.request_intake import VllmRequestIntake
from timely.engines.vllm.request_state import VllmRequestState
from timely.plans.prompt_tokens import plan_prompt_encoder
from timely.plans.robot_values import plan_value_text


class VllmRobotValues:
    """Values that robots returned, appended when no step of their request is in flight.

    Args:
        scheduler: vLLM's, whose request is extended.
        resume: gives the request back to vLLM's own scheduling.
        end: ends a plan whose context has no room for the value and a token.
    """

    def __init__(
        self,
        scheduler: Any,
        readiness: VllmReadiness,
        names: VllmPromptNames,
        intake: VllmRequestIntake,
        resume: Callable[[Request, VllmRequestState], None],
        end: Callable[[VllmRequestState], None],
    ) -> None:
        self._scheduler = scheduler
        self._readiness = readiness
        self._names = names
        self._intake = intake
        self._resume = resume
        self._end = end
        self._held_states: dict[str, VllmRequestState] = {}
        """Requests with values that came while a step of theirs was in flight."""

    def take(self, state: VllmRequestState, value: str) -> None:
        """A value came from the robot; while a step of its request is in flight it waits for that step's end."""
        state.values.append(value)
        if state.request.num_in_flight_tokens:
            self._held_states[state.request.request_id] = state
            self._readiness.check(state, self._scheduler.clock())
        else:
            self._append(state)

    def append_held(self) -> None:
        """A step ended: append the values that waited for it."""
        for request_id, state in list(self._held_states.items()):
            if not state.request.num_in_flight_tokens:
                del self._held_states[request_id]
                self._append(state)

    def forget(self, request_id: str) -> None:
        self._held_states.pop(request_id, None)

    def _append(self, state: VllmRequestState) -> None:
        request = state.request
        self._resume(request, state)
        encoder = plan_prompt_encoder(self._intake.tokenizer)
        token_ids = [token for value in state.values for token in encoder.encode_text(plan_value_text(value))]
        values, state.values = state.values, []
        state.awaits_value = state.job.awaiting is not None
        if request.num_tokens + len(token_ids) >= self._scheduler.max_model_len:
            self._end(state)
            return
        append_vllm_value(self._scheduler, request, token_ids)
        for value in values:
            self._names.add_answer(request.request_id, value)
        self._scheduler.blocks.sync_context(state)


def append_vllm_value(scheduler: Any, request: Request, token_ids: list[int]) -> None:
    """Append ``token_ids`` to the context of a parked or evicted request; its KV cache is kept.

    vLLM has a way to extend a session with further input: all tokens so far become prompt. A request that holds KV
    blocks leaves ``running`` for the queue of waiting requests that hold KV blocks. It is scheduled as a short prefill.
    No step of the request may be in flight.
    """
    assert request.num_in_flight_tokens == 0
    status = request.status
    running = status == RequestStatus.RUNNING
    generated_tokens = request.num_output_tokens
    computed_tokens = request.num_computed_tokens
    # vLLM extends this list in place; with the engine in one process the front-end holds the same one.
    request.prompt_token_ids = list(request.prompt_token_ids)
    request.num_output_placeholders = 0
    request.spec_token_ids = []
    # vLLM drops the last token, which here stays, to be computed with the value: another takes its place.
    request.num_computed_tokens = request.num_tokens
    request._all_token_ids.append(0)
    events = list(request.events)
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
    # Metrics would take the time of the value for that of the request's arrival in the queue.
    request.events = events
    if status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
        request.status = status  # a plan that was resumed, whose grammar is still being compiled
    if running:
        scheduler.running.remove(request)
        scheduler._enqueue_waiting_request(request)
