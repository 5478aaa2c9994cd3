"""Scenes on vLLM's real scheduler: what else a user of vLLM turns on, beside parked plans."""

from __future__ import annotations

from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
from optional_packages import require_package
from packaging.version import Version
from vllm_scheduler import BLOCK_TOKENS, LONG_S, Scene, StubConnector

require_package("vllm")

pytestmark = [pytest.mark.engine]


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


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_vllms_last_resort_takes_a_parked_plan_first(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(blocks=11, policy=policy)
    scene.add("parked", 60, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["parked"] == 1)
    monkeypatch.setattr(type(scene.scheduler.blocks), "free_blocks", 1000)
    scene.add("task", 60, 60, {"task_id": "task"})
    scene.run()
    assert {name: account["preemptions"] for name, account in scene.accounts.items()} == {
        "parked": 1,
        "task": 0,
    }
    scene.check_empty()


@pytest.mark.parametrize("fields", [{"skill_set": "nonsense"}, {"skill_set": "drone", "robot": "nonsense"}])
def test_a_refused_request_never_runs(fields: dict[str, str]) -> None:
    scene = Scene()
    scene.add("plan", 20, 4, fields)
    scene.add("stock", 20, 4, extra={f"timely_{name}": value for name, value in fields.items()})
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


def test_vllms_priority_stands_above_a_shorter_request_that_runs() -> None:
    scene = Scene(policy="priority", max_num_seqs=1)
    scene.add("low", 20, 8, priority=5)
    scene.step()
    scene.add("high", 60, 30, priority=0)
    scene.run()
    assert list(scene.finished) == ["high", "low"]
    scene.check_empty()


@pytest.mark.parametrize("depth", [1, 2])
def test_the_journal_says_what_scheduling_a_step_and_taking_in_its_tokens_took(depth: int) -> None:
    scene = Scene(depth=depth)
    events: list[dict[str, Any]] = []
    scheduler, clock = scene.scheduler, scene.clock
    scheduler.controller.journal = lambda event: events.append(dict(event))

    def taking(name: str, time_s: float) -> None:
        inner = getattr(scheduler, name)

        def slow(*args: Any, **kwargs: Any) -> Any:
            clock.advance_to(clock.now() + time_s)
            return inner(*args, **kwargs)

        setattr(scheduler, name, slow)

    taking("_settle", 0.25)
    taking("_update_request_with_output", 0.5)
    scene.add("one", 20, 6)
    scene.run()
    timed_events = [event for event in events if event["event"] == "timed"]
    assert [event["loop_s"] for event in timed_events] == [0.75] * 6
    scene.check_empty()
