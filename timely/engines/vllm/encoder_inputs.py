"""Images and other encoder inputs of vLLM's requests, as the step builder counts them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from timely.core.job import Job
from timely.disciplines.base import EncoderInput
from timely.engines.vllm.request_state import VllmLiveRequests


class VllmEncoderInputs:
    """Reads the encoder's budget and cache, and which inputs lie ahead of each request.

    Args:
        scheduler: vLLM's. Encoder-decoder models are not read: vLLM alone limits their encoder.
    """

    def __init__(self, scheduler: Any, live: VllmLiveRequests) -> None:
        self._scheduler = scheduler
        self._live = live

    @property
    def limits(self) -> VllmEncoderInputs | None:
        """Itself; None for a model without such inputs."""
        return self if self.budget and not self._scheduler.is_encoder_decoder else None

    @property
    def budget(self) -> int:
        return int(self._scheduler.max_num_encoder_input_tokens)

    @property
    def cache(self) -> int:
        # A request that takes no part gives its inputs free; see ``VllmParking``.
        return int(self._scheduler.encoder_cache_manager.cache_size)

    @property
    def whole(self) -> bool:
        return bool(self._scheduler.scheduler_config.disable_chunked_mm_input)

    def inputs(self, job: Job) -> Iterator[EncoderInput]:
        request = self._live[str(job.job_id)].request
        cached_keys = self._scheduler.encoder_cache_manager.cached
        computed_tokens = request.num_tokens - int(job.table.prefill_left[job.row])
        for feature in request.mm_features:
            place = feature.mm_position
            begin, end = place.offset - computed_tokens, place.offset + place.length - computed_tokens
            if end > 0:
                yield EncoderInput(
                    begin, end, place.get_num_embeds(), feature.identifier, feature.identifier in cached_keys
                )
