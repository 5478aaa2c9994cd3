"""Every part of vLLM that is not public and that we rely on, checked by name at start-up.

vLLM declares its scheduler interface non-public, so the supported range is pinned (``>=0.32,<0.34``) and a
vLLM that changed underneath is told apart from a bug of ours by one clear line.
"""

from __future__ import annotations

import inspect
from typing import Any

from timely.core.errors import EngineFailed

SUPPORTED = ">=0.32,<0.34"

SCHEDULER_METHODS: dict[str, tuple[str, ...]] = {
    "schedule": ("throttle_prefills",),
    "update_from_output": ("scheduler_output", "model_runner_output"),
    "add_request": ("request",),
    "has_requests": (),
    "has_finished_requests": (),
    "has_unfinished_requests": (),
    "finish_requests": ("request_ids", "finished_status"),
    "_free_request": ("request", "delay_free_blocks"),
    "_preempt_request": ("request", "timestamp"),
    "_handle_blocked_waiting_request": ("request",),
    "_reserve_prefill_lookahead": ("request", "num_computed_tokens", "num_new_tokens"),
    "_update_request_as_session": ("session", "update"),
    "_enqueue_waiting_request": ("request",),
    "get_grammar_bitmask": ("scheduler_output",),
}
GRAMMAR_FIELDS = ("structured_output_request_ids", "grammar_bitmask")
REQUEST_FIELDS = (
    "next_decode_eligible_step",
    "num_computed_tokens",
    "num_output_placeholders",
    "num_in_flight_tokens",
    "is_prefill_chunk",
    "block_hashes",
)
CACHE_METHODS: dict[str, tuple[str, ...]] = {
    "prefix_cache_lookup_enabled": ("request",),
    "get_blocks": ("request_id",),
}
POOL_METHODS: dict[str, tuple[str, ...]] = {"get_cached_block": ("block_hash", "kv_cache_group_ids")}
CORE_METHODS = ("_handle_client_request", "_send_abort_outputs", "run_busy_loop", "add_request")


def check() -> None:
    """Compare the installed vLLM with what the scheduler hooks into.

    Raises:
        EngineFailed: naming the hook that is missing or changed, the version found and the range supported.
    """
    import vllm
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.output import GrammarOutput
    from vllm.v1.engine.core import EngineCoreProc
    from vllm.v1.request import Request

    version = getattr(vllm, "__version__", "unknown")
    for name, parameters in SCHEDULER_METHODS.items():
        _require(AsyncScheduler, name, parameters, version)
    for owner, methods in ((KVCacheManager, CACHE_METHODS), (BlockPool, POOL_METHODS)):
        for name, parameters in methods.items():
            _require(owner, name, parameters, version)
    for name in CORE_METHODS:
        _require(EngineCoreProc, name, (), version)
    for name in GRAMMAR_FIELDS:
        if name not in GrammarOutput.__annotations__:
            raise _changed(f"GrammarOutput.{name}", version)
    source = inspect.getsource(Request.__init__)
    for name in REQUEST_FIELDS:
        if f"self.{name}" not in source:
            raise _changed(f"Request.{name}", version)


def _require(owner: Any, name: str, parameters: tuple[str, ...], version: str) -> None:
    method = getattr(owner, name, None)
    if not callable(method):
        raise _changed(f"{owner.__name__}.{name}", version)
    known = inspect.signature(method).parameters
    for parameter in parameters:
        if parameter not in known:
            raise _changed(f"{owner.__name__}.{name}({parameter})", version)


def _changed(hook: str, version: str) -> EngineFailed:
    return EngineFailed(f"this vLLM ({version}) has no {hook}; supported: {SUPPORTED}", where="vllm")
