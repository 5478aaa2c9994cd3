"""Where vLLM's manager of the KV cache is not asked for the slot of a decoded token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from optional_packages import require_package
from vllm_scheduler import BLOCK_TOKENS, Scene, StubConnector

require_package("vllm")

pytestmark = [pytest.mark.engine]


def test_inside_a_block_vllms_manager_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    coordinator = scene.scheduler.kv_cache_manager.coordinator
    request = scene.add("chat", 20, 3 * BLOCK_TOKENS)
    context_tokens: list[int] = []

    def noting(answer: Callable[..., Any]) -> Callable[..., Any]:
        def note(*arguments: Any) -> Any:
            context_tokens.append(request.num_computed_tokens)
            return answer(*arguments)

        return note

    for name in ("allocate_new_blocks", "cache_blocks"):
        monkeypatch.setattr(coordinator, name, noting(getattr(coordinator, name)))
    scene.run()
    assert {tokens % BLOCK_TOKENS for tokens in context_tokens if tokens > 20} == {0, BLOCK_TOKENS - 1}
    scene.check_empty()


def speculate(scheduler: Any) -> None:
    scheduler.num_spec_tokens = 2


def connect(scheduler: Any) -> None:
    scheduler.connector = StubConnector()


def group(scheduler: Any, **changes: Any) -> None:
    """Change what the scheduler's one group of KV blocks is."""
    groups = scheduler.kv_cache_config.kv_cache_groups
    groups[0] = replace(groups[0], kv_cache_spec=replace(groups[0].kv_cache_spec, **changes))


def compress(scheduler: Any) -> None:
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec, MLAAttentionSpec

    spec = scheduler.kv_cache_config.kv_cache_groups[0].kv_cache_spec
    layer: dict[str, Any] = {
        "block_size": spec.block_size,
        "num_kv_heads": 1,
        "head_size": 8,
        "dtype": spec.dtype,
    }
    scheduler.kv_cache_config.kv_cache_groups[0] = KVCacheGroupSpec(["layer"], MLAAttentionSpec(**layer))


@pytest.mark.parametrize(
    ("change", "plain"),
    [
        (lambda scheduler: None, True),
        (lambda scheduler: group(scheduler, sliding_window=BLOCK_TOKENS), True),
        (speculate, False),
        (connect, False),
        (compress, False),
        (lambda scheduler: group(scheduler, block_size=BLOCK_TOKENS // 2), False),
    ],
    ids=["attention", "window that keeps its blocks", "drafts", "connector", "other specification", "context parallel"],
)  # fmt: skip
def test_which_engines_fill_blocks_token_by_token(change: Callable[[Any], None], plain: bool) -> None:
    from timely.engines.vllm.decode_slots import has_plain_vllm_blocks

    scheduler = Scene().scheduler
    change(scheduler)
    assert has_plain_vllm_blocks(scheduler) is plain
