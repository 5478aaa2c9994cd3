"""The fixed part of a prompt survives ordinary requests that fill the cache, holds no block, and does not crowd."""

from __future__ import annotations

import pytest
from optional_packages import require_package
from vllm_scheduler import BLOCK_TOKENS, Scene

require_package("vllm")

pytestmark = pytest.mark.engine

FIXED = [5] * (4 * BLOCK_TOKENS)
BLOCKS = 40


def cached_after_chats(*, keep: bool, fixed: list[int] = FIXED) -> tuple[int, Scene]:
    """Prompt tokens that a robot's task finds after chats that together need every block several times."""
    # Not at collection: vLLM warns about itself, and only tests may ignore that.
    from timely.engines.vllm import kept_prefixes

    scene = Scene(blocks=BLOCKS)
    scene.add("warm-up", [*fixed, 1], 1, {"keep_prompt": keep})
    scene.run()
    for number in range(12):
        scene.clock.advance_to(scene.clock.now() + kept_prefixes.REFRESH_S)
        scene.add(f"chat-{number}", 10 * BLOCK_TOKENS, 2)
        scene.run()
    request = scene.add("task", [*fixed, 2, 2], 2)
    cached = scene.scheduler.blocks.cached_blocks(request) * BLOCK_TOKENS
    scene.run()
    scene.check_empty()
    return cached, scene


def test_a_kept_prompt_survives_chats() -> None:
    assert cached_after_chats(keep=False)[0] == 0
    assert cached_after_chats(keep=True)[0] == len(FIXED)


def test_a_prompt_over_the_share_is_left_to_vllm() -> None:
    from timely.engines.vllm.kept_prefixes import MOST_SHARE

    assert cached_after_chats(keep=True, fixed=[5] * (int(MOST_SHARE * BLOCKS) + 2) * BLOCK_TOKENS)[0] == 0


def test_kept_blocks_go_when_a_request_needs_them_and_the_cache_can_be_reset() -> None:
    _, scene = cached_after_chats(keep=True)
    assert scene.scheduler.kv_cache_manager.reset_prefix_cache()
    scene.add("large", BLOCK_TOKENS * (BLOCKS - 1), 2)
    scene.run()
    scene.check_empty()


def test_the_end_of_a_kept_prompt_goes_first() -> None:
    from timely.engines.vllm import kept_prefixes

    _, scene = cached_after_chats(keep=True)
    scene.clock.advance_to(scene.clock.now() + kept_prefixes.REFRESH_S)
    one_too_many = BLOCKS - len(FIXED) // BLOCK_TOKENS + 1
    scene.add("large", BLOCK_TOKENS * one_too_many - 1, 1)
    scene.run()
    request = scene.add("task", [*FIXED, 2, 2], 2)
    assert scene.scheduler.blocks.cached_blocks(request) * BLOCK_TOKENS == len(FIXED) - BLOCK_TOKENS


def test_keeping_a_prompt_is_no_use_of_its_blocks_in_vllms_metrics() -> None:
    from timely.engines.vllm import kept_prefixes

    scene = Scene(log_stats=True, kv_cache_metrics=True, kv_cache_metrics_sample=1.0)
    scene.add("warm-up", [*FIXED, 1], 1, {"keep_prompt": True})
    scene.run()
    for number in range(3):
        scene.clock.advance_to(scene.clock.now() + kept_prefixes.REFRESH_S)
        scene.add(f"chat-{number}", 10, 2)
        scene.run()
    stored = scene.scheduler.kv_metrics_collector.block_metrics.values()
    assert len(stored) >= len(FIXED) / BLOCK_TOKENS
    assert not any(block.access_history for block in stored)
