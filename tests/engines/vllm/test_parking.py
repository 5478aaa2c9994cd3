"""Parking on the real engine: nothing changes in the text, nothing is computed twice, memory pressure is survived."""

from __future__ import annotations

import re
from typing import Any

import pytest

from timely.engines.service_time import EngineServiceTime

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

SEGMENTS, SEGMENT_TOKENS = 5, 6
TOKENS = SEGMENTS * SEGMENT_TOKENS


def parked(execution_s: float = 0.05, segments: int = SEGMENTS) -> Any:
    """A plan of ``segments``, and a robot that needs ``execution_s`` for each."""
    return lambda number: {
        "task_id": f"task-{number}",
        "agent": f"robot-{number}",
        "forced": [["move", SEGMENT_TOKENS, execution_s]] * segments,
    }


def plain(number: int) -> None:
    return None


def tokens(outputs: dict[str, Any]) -> dict[str, list[int]]:
    return {name: list(output.outputs[0].token_ids) for name, output in outputs.items()}


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("engine_name", ["sync_engine", "async_engine"])
def test_parked_text_equals_unparked_text(
    request: pytest.FixtureRequest, engine_name: str, count: int
) -> None:
    engine = request.getfixturevalue(engine_name)
    unparked = engine.texts(count, TOKENS, plain)
    outputs = engine.texts(count, TOKENS, parked())
    assert tokens(outputs) == tokens(unparked)
    for output in outputs.values():
        account = output.kv_transfer_params["timely"]
        assert [segment["index"] for segment in account["segments"]] == list(range(SEGMENTS))
        assert account["suspensions"] == SEGMENTS - 1
        assert account["recomputed_tokens"] == 0
        assert account["preemptions"] == 0


def test_tokens_computed_are_prompt_plus_output_less_one(sync_engine: Any) -> None:
    with sync_engine.step_tokens() as computed:
        sync_engine.add("count", "Count my tokens, please.", TOKENS, parked()(0))
        done = sync_engine.run()["count"]
    assert sum(computed) == len(done.prompt_token_ids) + TOKENS - 1


def test_under_pressure_everything_finishes_with_the_same_text(tight_engine: Any) -> None:
    # Eight requests of 60 tokens need more blocks than there are.
    unparked = tight_engine.texts(8, 60, plain)
    before = tight_engine.scheduler.controller.evictions
    outputs = tight_engine.texts(8, 60, parked(0.3, segments=10))
    assert tokens(outputs) == tokens(unparked)
    assert tight_engine.scheduler.controller.evictions > before
    assert sum(o.kv_transfer_params["timely"]["recomputed_tokens"] for o in outputs.values()) > 0
    assert tight_engine.scheduler.kv_cache_manager.usage == 0.0


def test_a_parked_engine_has_nothing_to_do_until_due(
    sync_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = sync_engine.scheduler
    # Predictions are corrected by what other tests left, and longer ones by other tests than shorter ones.
    monkeypatch.setattr(scheduler.controller, "_service_time", EngineServiceTime())
    sync_engine.add("sleeper", "Sleep.", TOKENS, parked(300.0)(0))
    sync_engine.run(until=lambda: scheduler.control({"kind": "stats"})["parked"] == 1)
    try:
        prediction = scheduler.control({"kind": "eta", "tuf": [1.0, -2.0, 1.0]})
        assert prediction["eta_s"] > 0.0
        # Of the tasks that may be on their way, the one that is here already counts once.
        coming, here = ([task_id, [1.0, -2.0, 1.0], 0.0, True] for task_id in ("coming", "task-0"))
        etas_s = [
            scheduler.control({"kind": "eta", "tuf": [1.0, -2.0, 1.0], "ahead": [ahead]})["eta_s"]
            for ahead in ([here], [here, coming])
        ]
        assert etas_s[0] == pytest.approx(prediction["eta_s"], rel=0.01)
        assert etas_s[1] > etas_s[0]
        assert len(scheduler.controller.table) == 1
        assert not scheduler.has_requests()
        wait = scheduler.seconds_to_resume()
        assert 200.0 < wait < 300.0
    finally:
        sync_engine.llm.llm_engine.abort_request(["sleeper"])
        sync_engine.run()
    assert scheduler.kv_cache_manager.usage == 0.0
    assert scheduler.seconds_to_resume() is None
    assert len(scheduler.controller.table) == 0


def test_a_report_makes_a_parked_generation_due(sync_engine: Any) -> None:
    scheduler = sync_engine.scheduler
    sync_engine.add("early", "Be early.", TOKENS, parked(300.0)(0))
    sync_engine.run(until=lambda: scheduler.control({"kind": "stats"})["parked"] == 1)
    answer = scheduler.control(
        {"kind": "report", "task_id": "task-0", "report": {"segment": 0, "kind": "done", "elapsed_s": 0.1}}
    )
    assert answer == {"known": True}
    assert scheduler.has_requests()
    again = scheduler.control(
        {"kind": "report", "task_id": "task-0", "report": {"segment": 0, "kind": "done", "elapsed_s": 0.1}}
    )
    assert again == {"known": True}
    ahead = scheduler.control(
        {"kind": "report", "task_id": "task-0", "report": {"segment": 4, "kind": "done"}}
    )
    assert ahead["error"]["code"] == "conflict"
    stranger = scheduler.control(
        {"kind": "report", "task_id": "nobody", "report": {"segment": 0, "kind": "done"}}
    )
    assert stranger == {"known": False}
    sync_engine.llm.llm_engine.abort_request(["early"])
    sync_engine.run()


@pytest.mark.parametrize(
    ("ago_s", "counts"),
    [(None, False), (2.0, True), (-5.0, False), (1e6, False)],
    ids=["not said", "waited for a step", "a clock ahead", "a clock of another host"],
)
def test_a_report_is_as_old_as_it_waited_for_the_step(
    sync_engine: Any, ago_s: float | None, counts: bool
) -> None:
    """Steps of a slow machine last; a robot's 'two seconds left' is not two seconds from their end."""
    scheduler = sync_engine.scheduler
    sync_engine.add("late", "Be late.", TOKENS, parked(300.0)(0))
    sync_engine.run(until=lambda: scheduler.control({"kind": "stats"})["parked"] == 1)
    real, now = scheduler.clock, scheduler.clock()
    scheduler.clock = lambda: now
    try:
        report = {"segment": 0, "kind": "progress", "remaining_s": 100.0, "age_s": 1.0}
        sent = {} if ago_s is None else {"sent_s": now - ago_s}
        event = {"kind": "report", "task_id": "task-0", "report": report, **sent}
        assert scheduler.control(event) == {"known": True}
        (job,) = scheduler.controller.table
        expected = now + 100.0 - 1.0 - (ago_s if counts and ago_s else 0.0)
        assert float(job.table.due_s[job.row]) == pytest.approx(expected)
    finally:
        scheduler.clock = real
        sync_engine.llm.llm_engine.abort_request(["late"])
        sync_engine.run()


def test_switching_the_discipline_while_serving_loses_and_repeats_nothing(sync_engine: Any) -> None:
    scheduler = sync_engine.scheduler
    unparked = sync_engine.texts(6, TOKENS, plain)
    names = ["fcfs", "edf", "pud", "priority", "weighted-tardiness", "timely"]
    for number in range(6):
        sync_engine.add(
            f"r{number}", f"Tell me a story about number {number} and a robot.", TOKENS, parked()(number)
        )
    done: dict[str, Any] = {}
    for name in names:
        steps = scheduler.controller.steps
        done |= sync_engine.run(until=lambda steps=steps: scheduler.controller.steps >= steps + 5)
        assert scheduler.control({"kind": "discipline", "name": name}) == {"known": True}
    done |= sync_engine.run()
    assert tokens(done) == tokens(unparked)
    wrong = scheduler.control({"kind": "discipline", "name": "nonsense"})
    assert wrong["error"]["code"] == "unknown_name"
    needy = scheduler.control({"kind": "discipline", "name": "laps-sd"})
    assert needy["error"]["code"] == "unsupported"
    assert "speculat" in needy["error"]["message"]
    assert scheduler.controller.discipline.info.name == "timely"


def test_bad_parameters_fail_their_request_alone(sync_engine: Any) -> None:
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match=r"timely\.tuf\.alpha"):
        sync_engine.add("bad", "x", 4, {"tuf": {"ert_s": 1.0, "alpha": 2.0, "beta": 1.0}})
    with pytest.raises(VLLMValidationError, match="unknown skill set"):
        sync_engine.add("bad", "x", 4, {"skill_set": "nonsense"})
    with pytest.raises(VLLMValidationError, match=r"timely\.surprise"):
        sync_engine.add("bad", "x", 4, {"surprise": 1})
    assert len(sync_engine.texts(1, 4, plain)) == 1


@pytest.mark.parametrize("engine_name", ["sync_engine", "async_engine"])
def test_plans_under_a_grammar_are_the_same_parked_and_not(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, engine_name: str
) -> None:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    from timely.plans.grammar import plan_grammar
    from timely.plans.skill_library import find_skill_set

    engine = request.getfixturevalue(engine_name)
    rules = plan_grammar(find_skill_set("arm"))
    texts: dict[bool, dict[str, str]] = {}
    suspensions = 0
    for segmented in (False, True):
        for number in range(4):
            timely = {"skill_set": "arm", "robot": "sim-arm", "task_id": f"t{number}"} if segmented else None
            parameters = SamplingParams(
                temperature=0.0,
                max_tokens=180,
                structured_outputs=StructuredOutputsParams(grammar=rules),
                extra_args={"timely": timely} if timely else None,
            )
            prompt = f"pick('box');place('tray');pick('cup {number}');place("
            engine.llm.llm_engine.add_request(f"g{number}", prompt, parameters)
        if segmented:
            # Robots that are done at once: nobody waits seconds for a simulated arm.
            close = engine.scheduler.controller.close_segment
            monkeypatch.setattr(
                engine.scheduler.controller,
                "close_segment",
                lambda job, text, execution_s, now, _close=close, **more: _close(
                    job, text, 0.02, now, **more
                ),
            )
        outputs = engine.run()
        texts[segmented] = {name: output.outputs[0].text for name, output in outputs.items()}
        if segmented:
            suspensions = sum(o.kv_transfer_params["timely"]["suspensions"] for o in outputs.values())
    assert texts[True] == texts[False]
    assert suspensions > 0


def test_a_plan_writes_only_names_of_its_prompt(sync_engine: Any) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    names = ["tin of paint", "kettle"]
    grammar = 'root ::= call call call call\ncall ::= ("pick" | "place") "(\'" [a-z ]{1,20} "\');"'
    sync_engine.add(
        "named", "pick('tin of paint');place('tray');", 100, {"skill_set": "arm", "task_id": "t", "names": names},
        structured_outputs=StructuredOutputsParams(grammar=grammar),
    )  # fmt: skip
    # The robot is done with each segment at once.
    controller = sync_engine.scheduler.controller
    close = controller.close_segment
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            controller, "close_segment", lambda job, text, _, now, **more: close(job, text, 0.0, now, **more)
        )
        written = re.findall("'([a-z ]+)'", sync_engine.run()["named"].outputs[0].text)
    assert written
    assert set(written) <= set(names)
