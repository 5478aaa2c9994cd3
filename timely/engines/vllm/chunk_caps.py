"""vLLM's scheduler with the plan's cap for each chunk of a prompt, applied where vLLM decides its size."""

from abc import abstractmethod
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import Request


class VllmChunkCaps(AsyncScheduler):  # type: ignore[misc]
    """Caps the chunks of requests in the plan.

    The cap comes before vLLM aligns the chunk to blocks, and before it decides which images the chunk holds. Other
    chunks are capped last.
    """

    @abstractmethod
    def _chunk_cap(self, request_id: str) -> int | None:
        """Most tokens of a request in the step that is being composed; None: vLLM decides."""

    def _cap(self, request: Request, computed_tokens: int, tokens: int) -> int:
        cap = self._chunk_cap(request.request_id)
        tokens_left = request.num_tokens - computed_tokens
        if (
            cap is None
            or cap >= tokens
            or tokens_left <= 1
            or not self.scheduler_config.enable_chunked_prefill
        ):
            return tokens
        if tokens_left - cap < self.num_prefill_lookahead:
            # vLLM would shorten a chunk that leaves so few tokens, even to nothing.
            cap = tokens_left
        if self.scheduler_config.disable_chunked_mm_input:
            # An image must not be cut: a chunk that begins with one holds all of it.
            for feature in request.mm_features:
                begin, length = feature.mm_position.offset, feature.mm_position.length
                if begin <= computed_tokens < begin + length:
                    cap = max(cap, begin + length - computed_tokens)
        if self.need_mamba_block_aligned_split:
            cap = -(-cap // self.block_size) * self.block_size
        return min(cap, tokens)

    def _mamba_block_aligned_split(self, request: Request, num_new_tokens: int, *hits: int) -> int:
        computed_tokens = request.num_computed_tokens + sum(hits)
        tokens = self._cap(request, computed_tokens, num_new_tokens)
        return int(super()._mamba_block_aligned_split(request, tokens, *hits))

    def _try_schedule_encoder_inputs(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int, *args: Any, **kwargs: Any
    ) -> Any:
        if not self.need_mamba_block_aligned_split:
            num_new_tokens = self._cap(request, num_computed_tokens, num_new_tokens)
        return super()._try_schedule_encoder_inputs(
            request, num_computed_tokens, num_new_tokens, *args, **kwargs
        )

    def _reserve_prefill_lookahead(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        if num_new_tokens == 1 and self.num_prefill_lookahead <= 1:
            return 1  # neither the plan nor vLLM makes it smaller
        if not (self.need_mamba_block_aligned_split or request.has_encoder_inputs):
            num_new_tokens = self._cap(request, num_computed_tokens, num_new_tokens)
        return int(super()._reserve_prefill_lookahead(request, num_computed_tokens, num_new_tokens))
