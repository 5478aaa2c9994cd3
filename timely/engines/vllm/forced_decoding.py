"""Forced decoding for replays: vLLM computes every token, and the token that comes out is the recorded one.

vLLM has two model runners. The newer one, of GPUs, replays recorded tokens itself and refuses custom logits processors.
The older one, of CPUs, takes ours, ``ForcedTokens``. It is exact for parked batches, too. vLLM refuses custom
processors together with speculative decoding.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from timely.core.errors import InvalidInput
from timely.engines.vllm.params import parse_vllm_extra_args

PROCESSOR = "timely.engines.vllm.forced_decoding:ForcedTokens"


def uses_newer_vllm_runner() -> bool:
    """Whether vLLM will run its newer model runner, by vLLM's own rule (``VllmConfig.use_v2_model_runner``)."""
    from vllm import envs
    from vllm.platforms import current_platform
    from vllm.triton_utils import HAS_TRITON

    choice = envs.VLLM_USE_V2_MODEL_RUNNER
    return bool(HAS_TRITON and not current_platform.is_cpu()) if choice is None else bool(choice)


def vllm_engine_keywords() -> dict[str, Any]:
    """Keywords for ``vllm.LLM``: an engine that takes recorded tokens."""
    return {"enable_trace_replay": True} if uses_newer_vllm_runner() else {"logits_processors": [PROCESSOR]}


def vllm_engine_arguments() -> tuple[str, ...]:
    """The same for ``vllm serve``'s command line."""
    return ("--enable-trace-replay",) if uses_newer_vllm_runner() else ("--logits-processors", PROCESSOR)


def vllm_sampling_keywords(timely: Mapping[str, Any], *, trace_replay: bool) -> dict[str, Any]:
    """Keywords for ``SamplingParams`` of a request whose scheduler parameters may have ``forced_ids``.

    Args:
        trace_replay: the engine runs with vLLM's own replay; our processor reads ``forced_ids`` itself.
    """
    forced_ids = timely.get("forced_ids")
    return {"trace_decode_token_ids": list(forced_ids)} if forced_ids and trace_replay else {}


def remaining_vllm_parameters(parameters: Any, generated_tokens: int) -> Any:
    """The parameters of a replayed request without its generated tokens, which are prompt from now on."""
    timely = (parameters.extra_args or {}).get("timely") or {}
    if not timely.get("forced_ids"):
        return parameters
    rest = timely["forced_ids"][generated_tokens:]
    parameters = parameters.clone()
    parameters.extra_args = {**parameters.extra_args, "timely": {**timely, "forced_ids": rest}}
    if parameters.trace_decode_token_ids is not None:
        parameters.trace_decode_token_ids = rest or None
    return parameters


def __getattr__(name: str) -> Any:
    if name == "ForcedTokens":
        return _vllm_processor_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _vllm_processor_class() -> type:
    """The logits processor; made at first use, because its base class imports torch, which takes seconds."""
    import torch
    from vllm import SamplingParams
    from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

    class ForcedTokens(AdapterLogitsProcessor):  # type: ignore[misc]
        """Leaves one finite logit: that of the next recorded token."""

        @classmethod
        def validate_params(cls, sampling_params: SamplingParams) -> None:
            try:
                parse_vllm_extra_args(sampling_params.extra_args)
            except InvalidInput as error:
                raise ValueError(str(error)) from error

        def is_argmax_invariant(self) -> bool:
            return False

        def new_req_logits_processor(self, params: SamplingParams) -> Any:
            """A processor for requests that carry ``forced_ids``; None for all others."""
            timely = parse_vllm_extra_args(params.extra_args)
            if timely is None or not timely.forced_ids:
                return None
            forced_ids = timely.forced_ids

            def force(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
                position = len(output_ids)
                if position < len(forced_ids):
                    logit = logits[forced_ids[position]].clone()
                    logits.fill_(float("-inf"))
                    # A finite value even where the model's own is not.
                    logits[forced_ids[position]] = torch.nan_to_num(logit, nan=0.0, neginf=0.0, posinf=0.0)
                return logits

            return force

    ForcedTokens.__module__, ForcedTokens.__qualname__ = __name__, "ForcedTokens"
    return ForcedTokens
