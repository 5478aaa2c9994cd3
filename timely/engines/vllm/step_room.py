"""What the next step may hold, as vLLM will allow it: tokens, sequences, blocks, adapters and encoder inputs."""

from typing import Any

import numpy as np
from vllm.v1.request import RequestStatus

from timely.core.job import JobTable
from timely.disciplines.base import StepLimits
from timely.engines.vllm.block_manager import VllmBlockManager
from timely.engines.vllm.encoder_inputs import VllmEncoderInputs
from timely.engines.vllm.request_state import VllmLiveRequests
from timely.engines.vllm.settings import SchedulerSettings
from timely.engines.vllm.step_timing import VllmStepTiming


class VllmStepRoom:
    """Reads the limits of the next step from vLLM's scheduler.

    Args:
        scheduler: vLLM's, with our controller.
        steps: in flight; a step may end requests that the next one leaves out.
    """

    def __init__(
        self,
        scheduler: Any,
        settings: SchedulerSettings,
        live: VllmLiveRequests,
        blocks: VllmBlockManager,
        steps: VllmStepTiming,
    ) -> None:
        self._scheduler = scheduler
        self._settings = settings
        self._blocks = blocks
        self._steps = steps
        self._encoder = VllmEncoderInputs(scheduler, live)

    def limits(self, now: float, *, throttle_prefills: bool) -> StepLimits:
        """The limits of a step that is composed now.

        Args:
            throttle_prefills: vLLM defers prompts, to balance engines of data parallelism.
        """
        scheduler, controller = self._scheduler, self._scheduler.controller
        most: int = scheduler.max_num_active_reqs
        drafter = scheduler.vllm_config.speculative_config
        if scheduler.num_spec_tokens:
            self._note_drafts(controller.table)
        return StepLimits(
            now=now,
            token_budget=min(
                scheduler.max_num_scheduled_tokens, scheduler.scheduler_config.max_num_batched_tokens
            ),
            max_batch=min(self._settings.max_batch or most, most),
            max_resident=max(0, most - self._kept_slots()),
            prefill_chunk=self._longest_chunk(),
            free_blocks=self._blocks.free_blocks,
            cache_blocks=self._blocks.all_blocks,
            headroom_blocks=scheduler.kv_cache_manager.watermark_blocks if scheduler.running else 0,
            block_tokens=self._blocks.block_tokens,
            speed=controller.speed,
            ending_rows=self._steps.ending_rows(controller.table),
            max_adapters=scheduler.max_adapters,
            encoder=self._encoder.limits,
            defers_prompts=throttle_prefills and self._defers_prompts(),
            drafter_tokens=drafter.max_num_new_slots_for_drafting if drafter is not None else 0,
        )

    def _kept_slots(self) -> int:
        """Slots of the model runner that no job in the table holds: of idle streaming sessions, and for loads."""
        scheduler = self._scheduler
        loading = RequestStatus.WAITING_FOR_REMOTE_KVS
        loads = [request for request in scheduler.kv_holding_waiting if request.status == loading]
        return int(scheduler.num_waiting_for_streaming_input) + len(loads)

    def _note_drafts(self, table: JobTable) -> None:
        """Requests that wait, also with KV blocks, have a part of their prompt to compute, and that without drafts."""
        running = self._scheduler.running
        rows = table.rows([request.request_id for request in running])
        drafts = np.fromiter((len(request.spec_token_ids) for request in running), np.int64, len(running))
        is_planned = rows >= 0
        table.draft_tokens[rows[is_planned]] = drafts[is_planned]

    def _defers_prompts(self) -> bool:
        """Whether vLLM defers prompts beside decoding requests in a throttled step."""
        decoding = (not request.is_prefill_chunk for request in self._scheduler.running)
        return not self._scheduler.prefill_capacity_bound and any(decoding)

    def _longest_chunk(self) -> int:
        """Most prompt tokens of a request that vLLM will compute in this step: more must not be planned."""
        scheduler = self._scheduler
        chunk: int = self._settings.prefill_chunk or scheduler.max_num_scheduled_tokens
        longest = scheduler.scheduler_config.long_prefill_token_threshold
        requests = sum(scheduler.get_request_counts())
        if longest <= 0 or requests <= 1:
            return chunk
        if getattr(scheduler, "adaptive_long_prefill_threshold", False):
            longest = max(longest, scheduler.scheduler_config.max_num_batched_tokens // requests)
        return int(min(chunk, longest))
