"""Scenes of plans that await the value of a skill, on vLLM's real scheduler."""

from __future__ import annotations

from typing import Any

import pytest
from optional_packages import require_package
from vllm_scheduler import BLOCK_TOKENS, FIRST_TOKEN, Scene, give_value, positions

require_package("vllm")

pytestmark = [pytest.mark.engine]


@pytest.mark.parametrize(("depth", "drafts"), [(1, 0), (2, 0), (1, 3), (2, 3)])
@pytest.mark.parametrize("moment", ["late", "at once"])
def test_tokens_behind_a_blocking_boundary_are_void(depth: int, drafts: int, moment: str) -> None:
    scene = Scene(depth=depth, drafts=drafts, accept=lambda request_id: drafts)
    # With drafts the second boundary lies in the same round as the first.
    scene.add("asks", 20, 14, scene.plan((5, 0.1, True), (2, 0.1, True), (7, 0.1), task_id="asks"))
    blocked = lambda: scene.scheduler.control({"kind": "stats"})["blocked"] == 1  # noqa: E731
    for segment in (0, 1):
        scene.run(until=blocked)
        if moment == "late":
            for _ in range(5):
                scene.step()
            assert not scene.scheduler.has_requests()
        give_value(scene, "asks", segment)
        scene.check()
    scene.run()
    assert [s["tokens"] for s in scene.accounts["asks"]["segments"]] == [5, 2, 7]
    assert len(scene.outputs["asks"]) == 14
    places = positions(scene, "asks")
    value_tokens = (places[5] - places[4] - 1, places[7] - places[6] - 1)
    assert value_tokens[0] == value_tokens[1] > 0, "each value stands right behind its boundary"
    assert places[:5] == list(range(20, 25))
    scene.check_empty()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("end", ["max_tokens", "stop"])
def test_a_void_token_does_not_end_a_plan_that_awaits_a_value(depth: int, end: str) -> None:
    scene = Scene(depth=depth)
    stop: dict[str, Any] = (
        {"stop_token_ids": [FIRST_TOKEN + 25], "ignore_eos": False} if end == "stop" else {}
    )
    most = 6 if end == "max_tokens" else 14
    request = scene.add("asks", 20, most, scene.plan((5, 0.1, True), (9, 0.1), task_id="asks"), **stop)
    if stop:
        request.sampling_params._all_stop_token_ids = {FIRST_TOKEN + 25}
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["blocked"] == 1)
    for _ in range(4):
        scene.step()
    assert "asks" not in scene.finished
    give_value(scene, "asks", 0)
    scene.run()
    assert len(scene.outputs["asks"]) == most
    scene.check_empty()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_plan_evicted_while_it_awaits_a_value_goes_on_behind_it(depth: int) -> None:
    scene = Scene(depth=depth, blocks=8)
    scene.add("asks", 40, 10, scene.plan((5, 0.1, True), (5, 0.1), task_id="asks"))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["blocked"] == 1)
    scene.add("big", 100, 4)
    scene.run(until=lambda: "big" in scene.finished)
    assert scene.scheduler.controller.evictions == 1
    give_value(scene, "asks", 0)
    scene.run()
    places = positions(scene, "asks")
    assert len(places) == 10
    assert places[5] - places[4] > 1
    assert places[5:] == list(range(places[5], places[5] + 5))
    scene.check_empty()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_repeated_value_is_not_taken_for_the_one_that_is_awaited(depth: int) -> None:
    """A report whose answer was late is sent again, and the plan has come to its next question meanwhile."""
    scene = Scene(depth=depth)
    request = scene.add("asks", 20, 9, scene.plan((3, 0.05, True), (3, 0.05, True), (3, 0.05)))

    def blocked() -> bool:
        return bool(scene.scheduler.control({"kind": "stats"})["blocked"] == 1)

    scene.run(until=blocked)
    give_value(scene, "asks", 0)
    scene.run(until=lambda: len(scene.outputs["asks"]) >= 6 and blocked())
    give_value(scene, "asks", 0)
    for _ in range(4):
        scene.step()
    assert (request.num_prompt_tokens + 3, blocked()) == (request.num_tokens, True)
    give_value(scene, "asks", 1)
    scene.run()
    assert len(scene.outputs["asks"]) == 9
    scene.check_empty()


def test_a_value_is_no_second_arrival_in_vllms_metrics() -> None:
    """vLLM takes the last such event for the begin of a wait that ended with the first step: below zero seconds."""
    scene = Scene(log_stats=True)
    request = scene.add("asks", 20, 9, scene.plan((3, 0.1, True), (6, 0.1), task_id="asks"))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["blocked"] == 1)
    give_value(scene, "asks", 0)
    assert request.take_events() is None
    scene.run()
    scene.check_empty()


def test_a_request_that_waits_with_its_value_gives_up_its_blocks() -> None:
    """The only victim is one that vLLM does not count as running: an urgent request gets its room all the same."""
    scene = Scene(blocks=8)
    scene.add("asks", 60, 10, scene.plan((5, 0.1, True), (5, 0.1), task_id="asks"))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["blocked"] == 1)
    give_value(scene, "asks", 0)
    state = scene.scheduler.live["asks"]
    assert state.request in list(scene.scheduler.kv_holding_waiting)
    scene.scheduler.blocks.evict(state, scene.clock.now())
    assert scene.scheduler.blocks.free_blocks == 8
    scene.check()
    scene.run()
    assert len(scene.outputs["asks"]) == 10
    scene.check_empty()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_request_evicted_while_it_waits_with_its_value_leaves_its_slot_to_another(depth: int) -> None:
    """The workers have to hear of it: a connector may still read its blocks, and each request has a slot there."""
    scene = Scene(max_num_seqs=1, depth=depth)
    scene.add("asks", 60, 10, scene.plan((5, 0.1, True), (5, 0.1), task_id="asks"))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["blocked"] == 1)
    give_value(scene, "asks", 0)
    scene.add("urgent", 20, 4, {"tuf": {"ert_s": 0.05, "alpha": -50.0, "beta": 50.0}, **scene.plan((4, 0.1))})
    scene.run()
    assert scene.scheduler.controller.evictions == 1
    assert (len(scene.outputs["asks"]), len(scene.outputs["urgent"])) == (10, 4)
    scene.check_empty()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("tokens", range(2 * BLOCK_TOKENS - 22, 2 * BLOCK_TOKENS - 18))
def test_no_block_hash_that_looks_ahead_holds_a_void_token(depth: int, tokens: int) -> None:
    """As with EAGLE and MTP from vLLM 0.33 on: a block's hash covers the token behind the block, too."""
    scene = Scene(depth=depth, enable_prefix_caching=False)

    def hashes_ahead(request: Any) -> list[bytes]:
        whole_blocks = (request.num_tokens - 1) // BLOCK_TOKENS
        ends = [BLOCK_TOKENS * (block + 1) + 1 for block in range(len(request.block_hashes), whole_blocks)]
        return [repr(list(request.all_token_ids[:end])).encode() for end in ends]

    scene.hasher = hashes_ahead
    request = scene.add("asks", 20, tokens + 9, scene.plan((tokens, 0.1, True), (9, 0.1), task_id="asks"))
    scene.run(
        until=lambda: scene.scheduler.control({"kind": "stats"})["blocked"] == 1 and not scene.in_flight
    )
    give_value(scene, "asks", 0)
    hashes, request.block_hashes[:] = list(request.block_hashes), []
    assert hashes == hashes_ahead(request)
    assert len(hashes) >= 2
    request.block_hashes[:] = hashes
    scene.run()
    assert len(scene.outputs["asks"]) == tokens + 9
    scene.check_empty()
