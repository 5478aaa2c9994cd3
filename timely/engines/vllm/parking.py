"""Parks the requests of ``running`` that take no part in a step, and puts the others in the order of the plan."""

from collections.abc import Mapping
from typing import Any

from vllm.v1.request import Request, RequestStatus

from timely.engines.vllm.request_state import VllmLiveRequests, VllmRequestState

PARKED_STEP = 1 << 62
"""``next_decode_eligible_step`` of a request that takes no part: a step that never comes."""


class VllmParking:
    """Parks and resumes requests inside vLLM's ``running``.

    Args:
        scheduler: vLLM's, whose queues are read and whose ``running`` is put in order.
    """

    def __init__(self, scheduler: Any, live: VllmLiveRequests) -> None:
        self._scheduler = scheduler
        self._live = live
        self._any_parked = False
        """Whether a request in ``running`` took no part in the last plan."""

    def order_running(self, plan_tokens: Mapping[str, int]) -> list[Request]:
        """Chosen requests first, in plan order; vLLM's own eligibility check skips the others.

        The order also makes vLLM's last resort, preempting the end of ``running``, take an unchosen request first.

        Args:
            plan_tokens: request id -> tokens in the step.

        Returns:
            The chosen requests that wait, with or without KV blocks, in plan order.
        """
        running: list[Request] = self._scheduler.running
        members: list[Request] = []
        waiting: list[Request] = []
        places, ids = list(plan_tokens), [request.request_id for request in running]
        if not self._any_parked and places[: len(ids)] == ids:
            # As in the step before: nothing to put in order or to resume.
            members, places = running, places[len(ids) :]
        for state in self._live.select(places):
            request = state.request
            if request.status is RequestStatus.RUNNING:
                members.append(request)
                if state.eligible_step is not None:
                    self.resume(request, state)
            else:
                self._scheduler.deferred_waiting.discard(request)
                waiting.append(request)
        self._any_parked = len(members) < len(running)
        if self._any_parked:
            others = [request for request in running if request.request_id not in plan_tokens]
            for request in others:
                if request.next_decode_eligible_step != PARKED_STEP:
                    self._park(request)
            members += others
        self._scheduler.running = members
        return waiting

    def _park(self, request: Request) -> None:
        state = self._live.get(request.request_id)
        if state is None:
            return
        state.eligible_step = request.next_decode_eligible_step
        request.next_decode_eligible_step = PARKED_STEP
        if request.has_encoder_inputs and not self._scheduler.is_encoder_decoder:
            # Its images stay in the encoder cache until their room is needed.
            self._scheduler.encoder_cache_manager.free(request)

    @staticmethod
    def resume(request: Request, state: VllmRequestState) -> None:
        """Give the request back to vLLM's own scheduling; one that is not parked stays as it is."""
        if state.eligible_step is not None:
            request.next_decode_eligible_step, state.eligible_step = state.eligible_step, None
