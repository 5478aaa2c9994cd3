"""How vLLM is made to yield recorded tokens: by its own trace replay, or by our logits processor.

vLLM has two model runners. The newer one, of GPUs, replays recorded tokens itself and refuses processors of the older
interface; the older one, of CPUs, knows nothing of the kind. Both compute every token all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROCESSOR = "timely.engines.vllm.forced:ForcedTokens"


def newer_runner() -> bool:
    """Whether vLLM will run its newer model runner, by the rule it has itself (``VllmConfig.use_v2_model_runner``)."""
    from vllm import envs
    from vllm.platforms import current_platform
    from vllm.triton_utils import HAS_TRITON

    chosen = envs.VLLM_USE_V2_MODEL_RUNNER
    return bool(HAS_TRITON and not current_platform.is_cpu()) if chosen is None else bool(chosen)


def engine_keywords() -> dict[str, Any]:
    """For ``vllm.LLM``: an engine that takes recorded tokens."""
    return {"enable_trace_replay": True} if newer_runner() else {"logits_processors": [PROCESSOR]}


def engine_arguments() -> tuple[str, ...]:
    """The same for ``vllm serve``'s command line."""
    return ("--enable-trace-replay",) if newer_runner() else ("--logits-processors", PROCESSOR)


def sampling_keywords(timely: Mapping[str, Any], *, trace_replay: bool) -> dict[str, Any]:
    """For ``SamplingParams`` of a request whose parameters for the scheduler may have ``forced_ids``.

    Args:
        trace_replay: the engine runs with vLLM's own replay; our processor reads ``forced_ids`` itself.
    """
    forced = timely.get("forced_ids")
    return {"trace_decode_token_ids": list(forced)} if forced and trace_replay else {}


def continued(parameters: Any, generated: int) -> Any:
    """The parameters of a replayed request without the tokens that are generated already: they are prompt now."""
    timely = (parameters.extra_args or {}).get("timely") or {}
    if not timely.get("forced_ids"):
        return parameters
    rest = timely["forced_ids"][generated:]
    parameters = parameters.clone()
    parameters.extra_args = {**parameters.extra_args, "timely": {**timely, "forced_ids": rest}}
    if parameters.trace_decode_token_ids is not None:
        parameters.trace_decode_token_ids = rest or None
    return parameters
