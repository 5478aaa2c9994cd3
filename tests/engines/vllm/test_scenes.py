"""Scenes on vLLM's real scheduler: what else a user of vLLM turns on, beside parked plans."""

from __future__ import annotations

from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

pytest.importorskip("vllm")

from vllm_scheduler import BLOCK_TOKENS, FIRST_TOKEN, Scene, StubConnector

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

LONG_S = 300.0
"""An execution time beyond every test."""


def positions(scene: Scene, request_id: str) -> list[int]:
    """Where the request's tokens stand, as the stub numbered them."""
    return [token - FIRST_TOKEN for token in scene.outputs[request_id]]


# ---------------------------------------------------------------------- KV connectors


@pytest.mark.parametrize("depth", [1, 2])
def test_a_kv_cache_on_its_way_is_waited_for_and_loaded_once(depth: int) -> None:
    connector = StubConnector({"loaded": 4 * BLOCK_TOKENS})
    scene = Scene(connector=connector, depth=depth)
    scene.add("plain", 20, 30)
    scene.add("loaded", 5 * BLOCK_TOKENS, 6, scene.plan((3, 0.1), (3, 0.1)))
    for number in range(8):
        scene.step()
        scene.check()
        assert number == 0 or "loaded" not in scene.scheduler._plan.tokens
    assert connector.loading == {"loaded"}
    assert not any("loaded" in step for step in scene.steps)
    scene.received = {"loaded"}
    scene.run()
    assert len(scene.outputs["loaded"]) == 6
    first = next(step["loaded"] for step in scene.steps if "loaded" in step)
    assert first == BLOCK_TOKENS, "only what was not loaded is computed"
    assert connector.looked_up.count("loaded") == 1
    scene.check_empty()


def test_a_load_that_is_aborted_leaves_nothing_behind() -> None:
    from vllm.v1.request import RequestStatus

    scene = Scene(connector=StubConnector({"loaded": 4 * BLOCK_TOKENS}))
    scene.add("loaded", 5 * BLOCK_TOKENS, 6)
    scene.step()
    scene.scheduler.finish_requests(["loaded"], RequestStatus.FINISHED_ABORTED)
    scene.received = {"loaded"}
    scene.schedule()
    scene.update()
    scene.check_empty()


def test_a_connector_does_not_keep_a_parked_engine_awake() -> None:
    scene = Scene(connector=StubConnector())
    scene.add("parked", 20, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.run(until=lambda: bool(scene.scheduler.live) and not scene.scheduler.has_requests())
    assert scene.scheduler.seconds_to_resume() > 100.0


@pytest.mark.parametrize("kind", ["connector", "ec_connector"])
def test_what_a_connector_has_to_send_keeps_a_parked_engine_awake(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(connector=StubConnector())
    scene.add("parked", 20, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.run(until=lambda: bool(scene.scheduler.live) and not scene.scheduler.has_requests())
    sender = SimpleNamespace(has_pending_push_work=lambda: True)
    monkeypatch.setattr(scene.scheduler, kind, sender)
    assert scene.scheduler.has_requests()


# ---------------------------------------------------------------------- LoRA


def test_adapters_in_a_step_are_counted() -> None:
    scene = Scene(enable_lora=True, max_loras=1)
    scene.add("first", 20, 40, scene.plan((4, 5.0), (36, 0.1)), adapter=1)
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["parked"] == 1)
    scene.add("second", 20, 30, adapter=2)
    scene.add("bare", 20, 30)
    scene.run(until=lambda: "second" in scene.finished)
    assert scene.scheduler.control({"kind": "stats"})["parked"] == 1
    scene.run()
    assert {name: len(tokens) for name, tokens in scene.outputs.items()} == {
        "first": 40, "second": 30, "bare": 30,
    }  # fmt: skip
    assert not any({"first", "second"} <= set(step) for step in scene.steps)
    scene.check_empty()


# ---------------------------------------------------------------------- pause and drain


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
    ended = plugin._draining_parked(lambda self: False)
    assert ended(loop), "vLLM would end its loop here"
    loop.input_queue.put(("a", "request"))
    assert ended(loop)
    assert loop.calls, "requests are taken while the drain waits"
    complete = plugin._and_nothing_held(lambda self: True)
    notify = plugin._when_nothing_is_held(lambda self: self.calls.append("notified"))
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
    assert scene.accounts["parked"]["preemptions"] == 1
    scene.check_empty()


# ---------------------------------------------------------------------- blocking skills


def give_value(scene: Scene, task_id: str, segment: int) -> None:
    answer = scene.report(task_id, segment, "value", value="box")
    assert answer == {"known": True}


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


# ---------------------------------------------------------------------- speculation


def test_a_plan_that_sat_out_a_step_resumes_without_placeholders_of_drafts() -> None:
    """Asynchronous workers replace placeholders of drafts only in the step behind the one that made the drafts."""
    scene = Scene(depth=2, drafts=3)
    scene.add("plan", 20, 12, scene.plan((4, 1.0), (8, 0.1)))
    scene.run(until=lambda: not scene.in_flight and bool(scene.outputs["plan"]))
    assert len(scene.outputs["plan"]) >= 4, "it is parked"
    before = len(scene.steps)
    scene.run()
    resumed = [step["plan"] for step in scene.steps[before:] if step]
    assert resumed[:2] == [1, 4], "drafts come again with the second step"
    assert len(scene.outputs["plan"]) == 12
    scene.check_empty()


@pytest.mark.parametrize("depth", [1, 2])
def test_of_segments_that_close_with_the_end_one_is_the_last(depth: int) -> None:
    scene = Scene(depth=depth, drafts=3, accept=lambda request_id: 3)
    scene.add("plan", 20, 5, scene.plan((1, 0.0), (2, 0.1), (2, 0.1)))
    scene.run()
    assert len(scene.outputs["plan"]) == 5
    segments = scene.accounts["plan"]["segments"]
    assert segments[1]["ready_s"] == segments[2]["ready_s"], "both came with one step"
    assert [segment["last"] for segment in segments] == [False, False, True]
    scene.check_empty()


def test_room_that_a_drafter_takes_of_the_workers_inputs_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter of parallel tokens takes inputs beside each sequence: no memory is short, so no plan is evicted."""
    scene = Scene(budget=64, drafts=3)
    drafter = scene.scheduler.vllm_config.speculative_config
    monkeypatch.setattr(type(drafter), "max_num_new_slots_for_drafting", 3)
    scene.add("plan", 20, 12, scene.plan((4, 100.0), (8, 0.1)))
    scene.run(until=lambda: len(scene.outputs["plan"]) >= 4)
    for number in range(9):
        scene.add(f"chat{number}", 3, 40)
    for _ in range(12):
        scene.step()
    scene.add("late", 16, 40)
    for _ in range(12):
        scene.step()
        assert sum(scene.steps[-1].values()) + 3 * len(scene.steps[-1]) <= 64
    assert scene.scheduler.controller.evictions == 0


def test_a_cached_prompt_without_room_for_a_full_round_of_drafts_evicts_no_plan() -> None:
    """vLLM admits a request that only decodes with a full round of drafts, or not at all."""
    scene = Scene(budget=14, drafts=3)
    scene.add("plan", 20, 12, scene.plan((4, 100.0), (8, 0.1)))
    prompt = [5] * (BLOCK_TOKENS + 1)
    scene.add("first", prompt, 2)
    scene.run(until=lambda: len(scene.outputs["plan"]) >= 4 and "first" in scene.finished)
    for number in range(3):
        scene.add(f"chat{number}", 3, 40)
    for _ in range(6):
        scene.step()
    assert [step for step in scene.steps if len(step) == 3], "all three decode together"
    scene.add("late", prompt, 8)
    for _ in range(12):
        scene.step()
    assert scene.scheduler.controller.evictions == 0
    scene.run(until=lambda: "late" in scene.finished)


def test_a_worker_without_drafts_gets_no_placeholders_when_steps_are_not_composed_ahead() -> None:
    scene = Scene(drafts=3)
    scene.add("chat", 20, 8)
    scene.schedule()
    scene.drafts = 0  # such as beyond the longest context of a draft model
    scene.update()
    assert scene.schedule() == {"chat": 1}
    scene.update()
    scene.run()
    assert positions(scene, "chat") == list(range(20, 28))
    scene.check_empty()


# ---------------------------------------------------------------------- pipeline parallelism


def test_parking_keeps_vllms_own_distance_between_decodes() -> None:
    scene = Scene(timely={"discipline": "edf"})  # no opportunistic decode
    request = scene.add("plan", 20, 12, scene.plan((4, 0.2), (8, 0.1)))
    scene.run(until=lambda: len(scene.outputs["plan"]) == 4)
    # As the newer runner sets it under pipeline parallelism: three steps between decodes of a request.
    own = request.next_decode_eligible_step = scene.scheduler.current_step + 3
    scene.add("beside", 20, 2)
    scene.scheduler.live["plan"].job.table.resume_s[0] = 100.0
    scene.step()
    assert request.next_decode_eligible_step > own
    scene.scheduler.live["plan"].job.table.resume_s[0] = 0.0
    scene.step()
    assert request.next_decode_eligible_step == own
    assert len(scene.outputs["plan"]) == 4, "vLLM skips it until then"
    scene.run()
    assert len(scene.outputs["plan"]) == 12


# ---------------------------------------------------------------------- not ready yet


def test_no_step_is_planned_for_a_grammar_that_compiles() -> None:
    from vllm.v1.request import RequestStatus

    scene = Scene(max_num_seqs=4, timely={"max_batch": 1, "discipline": "fcfs"})
    structured = SimpleNamespace(grammar=None)
    request = scene.add("compiles", 20, 4)
    scene.scheduler.waiting.remove_request(request)
    request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    request.structured_output_request = structured
    scene.scheduler.waiting.add_request(request)
    scene.scheduler._readiness.check(scene.scheduler.live["compiles"], 0.0)
    scene.add("goes", 20, 4)
    scene.run(until=lambda: "goes" in scene.finished)
    scene.step()
    assert scene.scheduler.has_requests(), "vLLM has to look whether the grammar is ready"
    request.structured_output_request = None
    request.status = RequestStatus.WAITING
    scene.run()
    assert len(scene.outputs["compiles"]) == 4


def test_an_idle_streaming_session_is_neither_planned_nor_spun_for() -> None:
    scene = Scene(blocks=20)
    scene.add("session", 20, 4, resumable=True)
    scene.run(until=lambda: len(scene.outputs["session"]) == 4)
    scene.check()
    assert not scene.scheduler.has_requests()
    steps = len(scene.steps)
    scene.add("other", 20, 4)
    scene.step()
    assert scene.scheduler._plan.tokens.keys() == {"other"}
    scene.run(until=lambda: "other" in scene.finished)
    assert not any("session" in step for step in scene.steps[steps:])
    scene.add("session", 10, 4, resumable=True)
    scene.run(until=lambda: len(scene.outputs["session"]) == 8)
    assert scene.scheduler.controller.evictions == 0
    scene.check()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_turn_of_a_session_with_a_plan_ends_among_its_drafts(depth: int) -> None:
    """Accepted drafts behind the end of a turn are dropped, and the next turn begins behind its last token."""
    scene = Scene(depth=depth, drafts=3, accept=lambda request_id: 3)
    for turn in (1, 2, 3):
        scene.add("session", BLOCK_TOKENS - 2, 6, scene.plan((40, 0.1)), resumable=True)
        scene.run(until=lambda: len(scene.outputs["session"]) == 6 * turn)  # noqa: B023 - called at once
        request = scene.scheduler.requests["session"]
        assert request.num_computed_tokens < request.num_tokens
        scene.check()


# ---------------------------------------------------------------------- priority, speculation, refused requests


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_vllms_last_resort_takes_the_end_of_the_plan(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that the plan does not count run out inside vLLM's loop: the request chosen first stays."""
    scene = Scene(blocks=11, policy=policy, timely={"discipline": "fcfs"})
    monkeypatch.setattr(type(scene.scheduler.blocks), "free_blocks", 1000)
    scene.add("first", 60, 60, {"task_id": "first"}, priority=9)
    scene.add("second", 60, 60, {"task_id": "second"}, priority=0)
    scene.run()
    assert scene.finished.keys() == {"first", "second"}
    preempted = [name for name in ("first", "second") if scene.accounts[name]["preemptions"]]
    assert preempted == ["second"]
    scene.check_empty()


def test_a_decoding_job_takes_its_drafts_of_the_budget() -> None:
    scene = Scene(budget=12, drafts=3, accept=lambda request_id: 3, max_num_seqs=8)
    for number in range(5):
        scene.add(f"r{number}", 2, 16)
    while scene.held:
        step = scene.step()
        assert sum(step.values()) <= 12
        assert step.keys() == scene.scheduler._plan.tokens.keys()
    assert max(len(step) for step in scene.steps[2:]) <= 3
    scene.run()
    scene.check_empty()


def test_only_drafts_that_a_request_has_are_taken_of_the_budget() -> None:
    scene = Scene(
        budget=8, drafts=3, accept=lambda request_id: 3, propose=lambda request_id: 3 * (request_id == "r0")
    )
    for number in range(5):
        scene.add(f"r{number}", 1, 16)
    scene.run()
    assert {name: len(tokens) for name, tokens in scene.outputs.items()} == {f"r{n}": 16 for n in range(5)}
    assert {len(step) for step in scene.steps[1:4]} == {5}
    assert {step["r0"] for step in scene.steps[1:4]} == {4}
    scene.check_empty()


def test_a_refused_request_never_runs() -> None:
    scene = Scene()
    scene.add("plan", 20, 4, {"skill_set": "nonsense"})
    scene.add("stock", 20, 4, extra={"timely_skill_set": "nonsense"})
    scene.add("plain", 20, 4)
    scene.run()
    assert scene.steps[0].keys() == {"plain"}
    assert scene.finished == {"plan": "error", "stock": "error", "plain": "length"}
    assert "nonsense" in scene.accounts["plan"]["error"]["message"]
    assert "stock" not in scene.accounts
    if Version(version("vllm")) >= Version("0.33"):
        assert scene.errors.keys() == {"stock"}
        assert scene.errors["stock"].code == "validation_error"
        assert "nonsense" in scene.errors["stock"].message
    scene.check_empty()


# ---------------------------------------------------------------------- images


def image_request(scene: Scene, request_id: str, prompt_tokens: int, begin: int, length: int) -> Any:
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

    request = scene.add(request_id, prompt_tokens, 4)
    feature = MultiModalFeatureSpec(
        data=None, modality="image", identifier=f"hash-{request_id}",
        mm_position=PlaceholderRange(offset=begin, length=length),
    )  # fmt: skip
    request.mm_features = [feature]
    return request


def with_encoder(scene: Scene, cache_tokens: int, chunked: bool = True) -> Scene:
    from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

    scene.scheduler.encoder_cache_manager = EncoderCacheManager(cache_size=cache_tokens)
    scene.scheduler.max_num_encoder_input_tokens = cache_tokens
    scene.scheduler.scheduler_config.disable_chunked_mm_input = not chunked
    return scene


@pytest.mark.parametrize("begin", [0, 16, 40])
def test_a_chunk_never_ends_inside_an_image_that_must_not_be_cut(begin: int) -> None:
    scene = with_encoder(Scene(budget=128, timely={"prefill_chunk": 32}), 200, chunked=False)
    image_request(scene, "image", 120, begin, 50)
    scene.run()
    computed = 0
    for step in scene.steps:
        computed += step.get("image", 0)
        assert not begin < computed < begin + 50, f"a chunk ends at {computed}"
    assert len(scene.outputs["image"]) == 4
    scene.check_empty()


def test_a_plan_that_cuts_an_image_computes_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as where less of its prompt is cached than was planned with."""
    scene = with_encoder(Scene(budget=128), 200, chunked=False)
    image_request(scene, "image", 120, 0, 50)
    controller = scene.scheduler.controller
    compose = controller.compose

    def cut(limits: Any) -> Any:
        plan = compose(limits)
        plan.tokens = {"image": 10}
        return plan

    monkeypatch.setattr(controller, "compose", cut)
    assert scene.step() == {"image": 50}


def test_an_image_that_must_not_be_cut_waits_for_room_in_a_step() -> None:
    scene = with_encoder(Scene(budget=64, max_num_seqs=32), 200, chunked=False)
    for number in range(16):
        scene.add(f"chat-{number}", 4, 10 + number)
    scene.step()
    image_request(scene, "image", 60, 0, 50)
    scene.run()
    first = next(step for step in scene.steps if "image" in step)
    assert first["image"] >= 50
    assert len(first) > 1, "beside chats, as soon as there is room"
    assert len(scene.outputs["image"]) == 4
    scene.check_empty()


def test_a_suspended_image_leaves_its_room_to_an_urgent_one() -> None:
    scene = with_encoder(Scene(budget=128, timely={"prefill_chunk": 32, "max_batch": 1}), 60)
    image_request(scene, "first", 120, 0, 60)
    scene.step()
    urgent = image_request(scene, "urgent", 60, 0, 60)
    scene.scheduler.controller.table.priority[scene.scheduler.live["urgent"].job.row] = -1.0
    assert urgent.has_encoder_inputs
    scene.run(until=lambda: "urgent" in scene.finished)
    assert "first" not in scene.finished
    assert all(scene.steps)
    scene.run()
    assert len(scene.outputs["first"]) == 4
    scene.check_empty()


# ---------------------------------------------------------------------- ordinary requests, beside vLLM's own scheduler


@pytest.mark.parametrize("discipline", ["timely", "fcfs"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"depth": 2},
        {"drafts": 3, "accept": lambda request_id: len(request_id) % 4},
        {"depth": 2, "drafts": 3, "accept": lambda request_id: 2},
        {"blocks": 14},
        {"blocks": 14, "depth": 2},
        {"budget": 32, "max_num_seqs": 3},
        {"policy": "priority", "blocks": 14},
    ],
    ids=["plain", "ahead", "drafts", "drafts ahead", "few blocks", "few ahead", "small", "priority"],
)
def test_ordinary_requests_get_the_outputs_of_vllms_own_scheduler(
    options: dict[str, Any], discipline: str
) -> None:
    outputs = []
    for stock in (True, False):
        scene = Scene(stock=stock, timely={} if stock else {"discipline": discipline}, **options)
        for number in range(8):
            scene.add(f"{'r' * (1 + number % 3)}{number}", 5 + 17 * number % 90, 3 + 5 * number % 20)
            scene.step()
            scene.check()
        scene.run()
        scene.check_empty()
        outputs.append((scene.outputs, scene.finished))
    assert outputs[0] == outputs[1]
