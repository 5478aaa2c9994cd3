"""Every non-public part of vLLM that we rely on, checked by name at start; and what we refuse to serve.

vLLM declares its scheduler interface non-public, so the supported range is pinned (``>=0.32,<0.34``). A vLLM that
changed shows as one clear line, not as a bug of ours.
"""

import inspect
from typing import Any

from timely.core.errors import EngineFailed, Unsupported

SUPPORTED_VERSIONS = ">=0.32,<0.34"

PLACEHOLDER = -1
"""vLLM's draft token that stands for one that is not known yet, or for none."""

SCHEDULER_METHODS: dict[str, tuple[str, ...]] = {
    "schedule": ("throttle_prefills",),
    "update_from_output": ("scheduler_output", "model_runner_output"),
    "add_request": ("request",),
    "has_requests": (),
    "has_finished_requests": (),
    "finish_requests": ("request_ids", "finished_status"),
    "set_pause_state": ("pause_state",),
    "_free_request": ("request", "delay_free_blocks"),
    "_free_request_blocks": ("request",),
    "_preempt_request": ("request", "timestamp", "drop_stale_output"),
    "_request_blocks_can_be_freed": ("request",),
    "_handle_blocked_waiting_request": ("request",),
    "_mamba_block_aligned_split": ("request", "num_new_tokens"),
    "_try_schedule_encoder_inputs": ("request", "num_computed_tokens", "num_new_tokens"),
    "_reserve_prefill_lookahead": ("request", "num_computed_tokens", "num_new_tokens"),
    "_update_after_schedule": ("scheduler_output",),
    "_update_request_with_output": ("request", "new_token_ids", "is_stale"),
    "_update_request_as_session": ("session", "update"),
    "_enqueue_waiting_request": ("request",),
    "_handle_invalid_blocks": ("invalid_block_ids", "num_scheduled_tokens"),
    "reset_prefix_cache": ("reset_running_requests", "reset_connector"),
    "get_grammar_bitmask": ("scheduler_output",),
    "update_draft_token_ids": ("draft_token_ids",),
}
GRAMMAR_FIELDS = ("structured_output_request_ids", "grammar_bitmask")
LOGGER_FIELDS = ("per_engine_labelvalues",)
STATS_FIELDS = ("num_kv_fetch_reqs_by_stage", "kv_cache_usage")
REQUEST_FIELDS = (
    *("next_decode_eligible_step", "num_computed_tokens", "num_output_placeholders", "num_in_flight_tokens"),
    *("num_stale_output_tokens", "drop_stale_output", "is_prefill_chunk", "block_hashes", "spec_token_ids"),
)
SCHEDULER_FIELDS = (
    *("kv_holding_waiting", "deferred_waiting", "requires_kv_delivery", "_pause_state", "_inflight_prefills"),
    *("reset_preempted_req_ids", "num_waiting_for_streaming_input", "grammar_compile_error_reqs"),
    *("lora_config", "num_spec_tokens"),
)
CACHE_METHODS: dict[str, tuple[str, ...]] = {
    "prefix_cache_lookup_enabled": ("request",),
    "get_blocks": ("request_id",),
    "allocate_slots": ("request", "num_new_tokens", "num_lookahead_tokens"),
    "cache_blocks": ("request", "num_computed_tokens"),
}
POOL_METHODS: dict[str, tuple[str, ...]] = {"get_cached_block": ("block_hash", "kv_cache_group_ids")}
POOL_FIELDS = ("free_block_queue",)
QUEUE_METHODS: dict[str, tuple[str, ...]] = {"remove": ("block",), "append_n": ("blocks",)}
CORE_METHODS = (
    "_handle_client_request", "_handle_shutdown", "_notify_idle_state_callbacks", "_pause_complete",
    "_send_abort_outputs", "run_busy_loop", "add_request",
)  # fmt: skip


def check_vllm() -> None:
    """Compare the installed vLLM with what the scheduler hooks into.

    Raises:
        EngineFailed: naming the absent or changed hook, the installed version and the supported range.
    """
    import vllm
    from vllm.logger import init_logger
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.output import GrammarOutput
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.core import EngineCoreProc
    from vllm.v1.engine.output_processor import RequestState
    from vllm.v1.metrics.loggers import PrometheusStatLogger
    from vllm.v1.metrics.stats import SchedulerStats
    from vllm.v1.request import Request

    version = getattr(vllm, "__version__", "unknown")
    if not _is_vllm_supported(version):
        # Parts may keep their names and change what they do.
        init_logger(__name__).warning("vLLM %s is not tested; supported: %s", version, SUPPORTED_VERSIONS)
    for owner, methods in (
        (AsyncScheduler, SCHEDULER_METHODS),
        (KVCacheManager, CACHE_METHODS),
        (BlockPool, POOL_METHODS),
        (FreeKVCacheBlockQueue, QUEUE_METHODS),
        (EngineCoreProc, dict.fromkeys(CORE_METHODS, ())),
        (RequestState, {"make_request_output": ("finish_reason", "kv_transfer_params")}),
        (PrometheusStatLogger, {"record": ("scheduler_stats", "engine_idx")}),
    ):
        for name, parameters in methods.items():
            _require_vllm_parameters(owner, name, parameters, version)
    records: dict[Any, tuple[str, ...]] = {GrammarOutput: GRAMMAR_FIELDS, SchedulerStats: STATS_FIELDS}
    for owner, fields in records.items():
        for name in fields:
            if name not in owner.__annotations__:
                raise _vllm_change_error(f"{owner.__name__}.{name}", version)
    for owner, fields in {
        Request: REQUEST_FIELDS,
        Scheduler: SCHEDULER_FIELDS,
        BlockPool: POOL_FIELDS,
        PrometheusStatLogger: LOGGER_FIELDS,
    }.items():
        source = inspect.getsource(owner.__init__)
        for name in fields:
            if f"self.{name}" not in source:
                raise _vllm_change_error(f"{owner.__name__}.{name}", version)
    if not hasattr(EngineCoreProc, "timely_control"):
        raise EngineFailed(
            f"vLLM ({version}) has not loaded the plugin timely; add timely to VLLM_PLUGINS, or unset it",
            where="vllm",
        )


def refuse_unsupported_vllm(vllm_config: Any, *, recurrent: bool) -> None:
    """Refuse what this scheduler would serve wrongly.

    Args:
        recurrent: the model has Mamba states.

    Raises:
        Unsupported: with the feature and what to do instead.
    """
    if getattr(vllm_config.model_config, "is_diffusion", False):
        raise Unsupported(
            "diffusion language models are not supported: their tokens do not come in order; "
            "leave --scheduler-cls out for them",
            where="model",
        )
    parallel = vllm_config.parallel_config.pipeline_parallel_size > 1
    ahead = vllm_config.scheduler_config.async_scheduling
    if parallel and ahead != vllm_config.use_v2_model_runner:
        raise Unsupported(
            "pipeline parallelism with asynchronous scheduling needs vLLM's newer model runner, and without it the "
            "older one: workers would get wrong input tokens; "
            f"{'add' if ahead else 'leave out'} --no-async-scheduling",
            where="pipeline_parallel_size",
        )
    if recurrent and vllm_config.speculative_config is not None:
        raise Unsupported(
            "speculative decoding of models with Mamba states is not supported: workers keep the states behind "
            "drafts for the next step only; leave --speculative-config out",
            where="speculative_config",
        )


def end_with_vllm_error(scheduler: Any, request_id: str, message: str) -> None:
    """Let vLLM end a waiting request with an error at the next step.

    Since 0.33 the client gets the message, as HTTP 400.
    """
    errors = scheduler.grammar_compile_error_reqs
    if isinstance(errors, dict):
        from vllm.outputs import RequestError

        errors[request_id] = RequestError(code="validation_error", message=message)
    else:
        errors.add(request_id)


def _is_vllm_supported(version: str) -> bool:
    # vLLM needs this package; a server without vLLM has none.
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(SUPPORTED_VERSIONS).contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _require_vllm_parameters(owner: Any, name: str, parameters: tuple[str, ...], version: str) -> None:
    method = getattr(owner, name, None)
    if not callable(method):
        raise _vllm_change_error(f"{owner.__name__}.{name}", version)
    signature = inspect.signature(method).parameters
    for parameter in parameters:
        if parameter not in signature:
            raise _vllm_change_error(f"{owner.__name__}.{name}({parameter})", version)


def _vllm_change_error(hook: str, version: str) -> EngineFailed:
    return EngineFailed(f"this vLLM ({version}) has no {hook}; supported: {SUPPORTED_VERSIONS}", where="vllm")
