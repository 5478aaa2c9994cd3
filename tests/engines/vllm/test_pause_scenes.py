"""Scenes of pauses, drains and resets on vLLM's real scheduler, beside parked plans."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from optional_packages import require_package
from vllm_scheduler import BLOCK_TOKENS, LONG_S, Scene, StubConnector, positions

require_package("vllm")

pytestmark = [pytest.mark.engine]


def test_parked_requests_are_held_while_the_engine_sleeps() -> None:
    scene = Scene()
    scene.add("parked", 20, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["parked"] == 1)
    assert not scene.scheduler.has_requests()
    assert scene.scheduler.holds_requests()


class Loop:
    """As much of vLLM's engine loop as a shutdown and a pause need."""

    def __init__(self, scene: Scene) -> None:
        import queue

        self.scheduler = scene.scheduler
        self.input_queue: queue.Queue[Any] = queue.Queue()
        self.calls: list[str] = []

    def _handle_client_request(self, *request: Any) -> None:
        self.calls.append(str(request))


def test_a_drain_waits_for_parked_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    from timely.engines.vllm import plugin

    monkeypatch.setattr(plugin, "LONGEST_DRAIN_WAIT_S", 0.01)
    scene = Scene()
    scene.add("parked", 20, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["parked"] == 1)
    loop = Loop(scene)
    ended = plugin._vllm_draining_with_parked(lambda self: False)
    assert ended(loop), "vLLM would end its loop here"
    loop.input_queue.put(("a", "request"))
    assert ended(loop)
    assert loop.calls, "requests are taken while the drain waits"
    complete = plugin._complete_when_vllm_holds_nothing(lambda self: True)
    notify = plugin._when_vllm_holds_nothing(lambda self: self.calls.append("notified"))
    notify(loop)
    assert not complete(loop)
    assert "notified" not in loop.calls
    scene.clock.advance_to(2 * LONG_S)
    scene.run()
    assert not ended(loop)
    assert complete(loop)
    notify(loop)
    assert "notified" in loop.calls


@pytest.mark.parametrize("grammar", [False, True])
def test_a_pause_of_new_requests_evicts_no_parked_one(grammar: bool) -> None:
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.request import RequestStatus

    scene = Scene(blocks=12)
    scene.add("parked", 100, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["parked"] == 1)
    scene.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    new = scene.add("new", 100, 4)
    if grammar:
        new.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        new.structured_output_request = SimpleNamespace(grammar=None)
        assert not scene.scheduler.has_requests()
        new.structured_output_request.grammar = object()
    for _ in range(8):
        scene.step()
    assert not scene.scheduler.has_requests(), "nothing can run, so the loop sleeps"
    assert scene.scheduler.controller.evictions == 0
    new.status, new.structured_output_request = RequestStatus.WAITING, None
    scene.scheduler.set_pause_state(PauseState.UNPAUSED)
    scene.run(until=lambda: "new" in scene.finished)
    scene.check()


def test_a_pause_of_new_requests_holds_for_those_that_waited() -> None:
    from vllm.v1.core.sched.interface import PauseState

    scene = Scene()
    scene.add("runs", 20, 8)
    scene.step()
    scene.add("waits", 20, 4)
    scene.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    while "runs" not in scene.finished:
        scene.step()
        assert scene.scheduler._plan.tokens.keys() == {"runs"}
    assert not scene.step()
    assert not scene.scheduler.has_requests()
    scene.scheduler.set_pause_state(PauseState.UNPAUSED)
    scene.run()
    assert scene.finished.keys() == {"runs", "waits"}


@pytest.mark.parametrize("stock", [True, False])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_load_that_fails_during_a_pause_does_not_keep_the_pause_from_its_end(
    depth: int, stock: bool
) -> None:
    """vLLM counts the request among those that the pause waits for, so it has to run."""
    from vllm.v1.core.sched.interface import PauseState

    connector = StubConnector({"loads": 2 * BLOCK_TOKENS})
    scene = Scene(stock=stock, depth=depth, connector=connector)
    scene.add("loads", 60, 4)
    scene.schedule()
    scene.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    connector.external_tokens = {}
    scene.failed_blocks = set(scene.scheduler.kv_cache_manager.get_block_ids("loads")[0])
    scene.received = {"loads"}
    scene.update()
    scene.run(until=lambda: "loads" in scene.finished, most=20)
    assert len(scene.outputs["loads"]) == 4
    assert not scene.scheduler.has_unfinished_requests()


@pytest.mark.parametrize("stock", [True, False])
def test_a_pause_after_a_failed_load_lets_its_request_run(stock: bool) -> None:
    """It holds blocks, of which none is computed."""
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.request import RequestStatus

    connector = StubConnector({"loads": 2 * BLOCK_TOKENS}, asynchronous=False)
    scene = Scene(stock=stock, connector=connector)
    request = scene.add("loads", 60, 4)
    scene.schedule()
    scene.failed_blocks = set(scene.scheduler.kv_cache_manager.get_block_ids("loads")[0])
    scene.update()
    assert (request.status, request.num_computed_tokens) == (RequestStatus.RUNNING, 0)
    scene.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    scene.run(until=lambda: "loads" in scene.finished, most=20)
    assert len(scene.outputs["loads"]) == 4


def test_a_full_pause_with_a_runnable_request_sleeps() -> None:
    from vllm.v1.core.sched.interface import PauseState

    scene = Scene()
    scene.add("plain", 20, 8)
    scene.step()
    scene.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    assert not scene.scheduler.has_requests()
    assert scene.scheduler.seconds_to_resume() is None
    assert not scene.schedule()
    scene.update()
    assert not scene.scheduler._plan.tokens, "a plan could evict parked ones"
    scene.scheduler.set_pause_state(PauseState.UNPAUSED)
    scene.run()
    assert positions(scene, "plain") == list(range(20, 28))


def test_a_reset_of_the_prefix_cache_takes_the_blocks_of_parked_plans_too() -> None:
    scene = Scene()
    scene.add("parked", 50, 8, scene.plan((4, 0.5), (4, 0.1)))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["parked"] == 1)
    assert scene.scheduler.reset_prefix_cache(reset_running_requests=True)
    (job,) = scene.scheduler.controller.table
    assert not job.table.resident[job.row]
    scene.run()
    assert positions(scene, "parked") == list(range(50, 58))
    account = scene.accounts["parked"]
    assert (account["preemptions"], account["recomputed_tokens"]) == (1, 53), (
        "the last of 54 was not computed"
    )
    scene.check_empty()


def test_a_reset_of_the_prefix_cache_takes_the_blocks_of_a_plan_that_waits_with_its_value() -> None:
    scene = Scene()
    scene.add("asks", 50, 8, scene.plan((4, 0.5, True), (4, 0.1), task_id="asks"))
    scene.run(
        until=lambda: scene.scheduler.control({"kind": "stats"})["blocked"] == 1 and not scene.in_flight
    )
    assert scene.report("asks", 0, "value", value="cup") == {"known": True}
    assert scene.scheduler.kv_holding_waiting
    assert scene.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert scene.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == scene.blocks
    scene.run()
    assert len(scene.outputs["asks"]) == 8
    account = scene.accounts["asks"]
    assert (account["preemptions"], account["recomputed_tokens"]) == (1, 53), (
        "the last of 54 was not computed"
    )
    scene.check_empty()


@pytest.mark.parametrize(
    ("event", "runs", "tokens"),
    [("arrival", "urgent", 4), ("input", "session", 8), ("end", "big", 4), ("report", "parked", 8)],
)
def test_an_engine_that_waits_for_memory_wakes_up_for_what_can_run(
    event: str, runs: str, tokens: int
) -> None:
    """Nothing fits until a parked plan resumes, so the engine sleeps until then; unless something happens."""
    from vllm.v1.request import RequestStatus

    scene = Scene(blocks=20)
    scene.add("session", 200, 4, resumable=True)
    scene.run(until=lambda: len(scene.outputs["session"]) == 4)
    scene.add("parked", 20, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["parked"] == 1)
    scene.add("big", 150, 4)
    scene.step()
    assert not scene.scheduler.has_requests()
    if event == "arrival":
        scene.add("urgent", 20, 4, {"tuf": {"ert_s": 0.2, "alpha": -6.67, "beta": 4.0}})
    elif event == "input":
        scene.add("session", 10, 4, resumable=True)
    elif event == "report":
        scene.report("parked", 0)
    else:
        scene.scheduler.finish_requests(["session"], RequestStatus.FINISHED_ABORTED)
    scene.run(until=lambda: len(scene.outputs[runs]) == tokens)
    assert scene.clock.now() < LONG_S
    scene.scheduler.finish_requests(["session"], RequestStatus.FINISHED_ABORTED)
    scene.run()
    scene.check_empty()
