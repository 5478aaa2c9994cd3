"""From a request of vLLM to a job: its parameters, its segment boundaries, and what predictors may read of it."""

from copy import copy
from functools import partial
from typing import Any

from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.engine.detokenizer import IncrementalDetokenizer
from vllm.v1.request import Request

from timely.core.errors import InvalidInput
from timely.core.job import JobSpec
from timely.engines.base import engine_job_spec
from timely.engines.vllm.boundaries import (
    VllmBoundaryFinder,
    VllmCountedBoundaries,
    VllmSegmentBounds,
    VllmTextBoundaries,
    vllm_robot_profile,
    vllm_skill_set,
)
from timely.engines.vllm.params import ORDINARY, TimelyParams, ordinary_vllm_hints
from timely.engines.vllm.resumed_plan import vllm_resumed_tokens
from timely.engines.vllm.settings import SchedulerSettings

PREDICTED_TOKENS = 256
"""The end of a prompt that came without text, as much as predictors read of it."""


class VllmRequestIntake:
    """Makes jobs of requests.

    Args:
        heed_priority: vLLM's own ``priority`` counts; vLLM ignores it under its policy ``fcfs``.
    """

    def __init__(self, model_config: Any, settings: SchedulerSettings, *, heed_priority: bool) -> None:
        self._model_config = model_config
        self._settings = settings
        self._heed_priority = heed_priority
        self._tokenizer: Any = None
        self._bounds: VllmSegmentBounds | None = None

    def job_spec(
        self, request: Request, params: TimelyParams, now: float, *, cached_tokens: int
    ) -> tuple[JobSpec, VllmBoundaryFinder | None]:
        """The job of a request, and the finder of its boundaries; None for an ordinary request.

        Raises:
            InvalidInput: unknown skill set or robot, or segments without a tokenizer.
            EngineFailed: plans of its skill set are checked by another copy than this process has.
        """
        boundaries, segment_tokens = self._boundaries(request, params)
        priority = float(request.priority) if self._heed_priority else 0.0
        lora = request.lora_request
        recorded_tokens = len(vllm_resumed_tokens(params.history)) if params.history is not None else 0
        arrival_s = params.history.arrival_s if params.history is not None else params.arrival_s
        spec = engine_job_spec(
            request.request_id,
            now if arrival_s is None else min(now, arrival_s),
            ordinary_vllm_hints(priority) if params is ORDINARY else params.hints(priority),
            self._settings.mode,
            prompt_tokens=request.num_prompt_tokens - params.resumed_tokens,
            cached_tokens=cached_tokens,
            max_tokens=request.max_tokens + recorded_tokens,
            segment_tokens=segment_tokens,
            plain=boundaries is None,
            whole_answer=params.whole_answer,
            acceptance=params.acceptance,
            # The prompt of a replay is made up: no predictor may learn from it.
            text=params.text or (partial(self._prompt_end, request) if params.forced_ids is None else ""),
            adapter=lora.lora_int_id if lora is not None else 0,
        )
        return spec, boundaries

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer, loaded at first use.

        Raises:
            InvalidInput: the engine runs without one.
        """
        if self._tokenizer is None:
            self._tokenizer = cached_tokenizer_from_config(self._model_config)
            if self._tokenizer is None:
                raise InvalidInput(
                    "segmented plans need a tokenizer; the engine runs without one", where="skill_set"
                )
        return self._tokenizer

    def _boundaries(self, request: Request, params: TimelyParams) -> tuple[VllmBoundaryFinder | None, int]:
        """The finder and the longest segment, tokens."""
        if params.forced:
            longest = max(segment[1] for segment in params.forced)
            return VllmCountedBoundaries(params.forced), params.segment_tokens or longest
        if not params.skill_set:
            return None, self._settings.plain_segment_tokens
        skill_set = vllm_skill_set(params.skill_set, params.skill_set_fingerprint)
        profile = vllm_robot_profile(params.robot) if params.robot else None
        detokenizer = IncrementalDetokenizer.from_new_request(
            self.tokenizer, _bare_vllm_request(request, params.resumed_tokens)
        )

        def detokenize(token_id: int) -> str:
            before = len(detokenizer.output_text)
            if token_id not in request.sampling_params.all_stop_token_ids:
                detokenizer.update([token_id], False)
            return str(detokenizer.output_text[before:])

        if self._bounds is None:
            self._bounds = VllmSegmentBounds(self.tokenizer)
        boundaries = VllmTextBoundaries(skill_set, profile, detokenize, awaits_values=params.awaits_values)
        return boundaries, self._bounds.tokens(skill_set)

    def _prompt_end(self, request: Request) -> str:
        """The end of a prompt that came without text, as under stock ``vllm serve``."""
        token_ids = request.prompt_token_ids[-PREDICTED_TOKENS:] if request.prompt_token_ids else []
        if not token_ids or self._model_config.skip_tokenizer_init:
            return ""
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=True))


def _bare_vllm_request(request: Request, resumed_tokens: int) -> Request:
    """The request as it was before its plan was begun: the detokenizer reads the end of the prompt."""
    if not resumed_tokens:
        return request
    bare = copy(request)
    bare.prompt_token_ids = request.prompt_token_ids[:-resumed_tokens]
    return bare
