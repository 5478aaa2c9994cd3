"""Requests that the engine cannot run yet, so that no step is planned for them.

A request is not ready while its grammar compiles, while a connector loads its KV cache, or while its streaming session
waits for input. Neither is a request whose value waits for a step in flight, nor a new one during a pause. The same
holds for one that was evicted while a step computes its token, until that token is there.
"""

from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import Request, RequestStatus

from timely.engines.scheduler_core import EngineController
from timely.engines.vllm.block_manager import VllmBlockManager
from timely.engines.vllm.request_state import VllmLiveRequests, VllmRequestState

POLLED_STATUSES = (RequestStatus.WAITING_FOR_REMOTE_KVS, RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR)
"""Statuses that end without an event: the engine has to look."""


class VllmReadiness:
    """Keeps the table's view of which requests can run.

    Args:
        scheduler: vLLM's, of which the pause state is read.
    """

    def __init__(self, scheduler: Any, live: VllmLiveRequests, blocks: VllmBlockManager) -> None:
        self._scheduler = scheduler
        self._live = live
        self._blocks = blocks
        self._unready: dict[str, None] = {}

    @property
    def polls(self) -> bool:
        """Whether a request waits for what only a further step of the engine can show."""
        return any(
            self._is_ready(state)
            or (state.request.status in POLLED_STATUSES and not self._is_held_back(state.request))
            for state in self._live.select(self._unready)
        )

    def check(self, state: VllmRequestState, now: float) -> None:
        """The request may have become unready."""
        if not self._is_ready(state):
            self._unready[state.request.request_id] = None
            self._controller.set_ready(state.job, now, ready=False)
            if state.request.status == RequestStatus.WAITING_FOR_STREAMING_REQ:
                # Its blocks cannot be taken while the session is idle.
                state.job.table.resident[state.job.row] = False

    def refresh(self, now: float) -> None:
        """Requests that have become ready can be planned again."""
        for request_id in list(self._unready):
            state = self._live.get(request_id)
            if state is None:
                del self._unready[request_id]
                continue
            request = state.request
            if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS:
                # vLLM looks when it admits; the plan has to know before what was loaded.
                self._scheduler.promote_loaded(request)
            if self._is_ready(state):
                del self._unready[request_id]
                self._controller.set_ready(state.job, now, ready=True)
                self._blocks.sync_context(state)

    @property
    def _controller(self) -> EngineController:
        controller: EngineController = self._scheduler.controller
        return controller

    def _is_ready(self, state: VllmRequestState) -> bool:
        request = state.request
        if state.values or self._is_held_back(request):
            return False
        if request.num_stale_output_tokens and not request.drop_stale_output:
            return False  # vLLM keeps the token, and admits the request once it is there
        if request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
            grammar_request = request.structured_output_request
            return grammar_request is not None and grammar_request.grammar is not None
        return request.status not in (
            RequestStatus.WAITING_FOR_REMOTE_KVS,
            RequestStatus.WAITING_FOR_STREAMING_REQ,
        )

    def _is_held_back(self, request: Request) -> bool:
        """A pause lets requests that hold KV blocks go on, and no others."""
        scheduler = self._scheduler
        # A request whose load failed has lost its blocks, and vLLM's pause waits for it all the same.
        return scheduler.pause_state != PauseState.UNPAUSED and not (
            request.num_computed_tokens > 0
            or request.status == RequestStatus.RUNNING
            or request in scheduler.kv_holding_waiting
        )
