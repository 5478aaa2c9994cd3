"""Plans go on behind the segments that were sent before a restart: same tokens, same segments, nothing twice."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from vllm_scheduler import Scene

from timely.core.errors import Conflict, EngineFailed
from timely.core.reports import ExecutionReport
from timely.engines.base import GenerationRequest, PastReport, PlanHistory, SegmentReady
from timely.engines.vllm.boundaries import VllmTextBoundaries, vllm_skill_set
from timely.engines.vllm.engine_events import vllm_error_from_data, vllm_segment_ready
from timely.engines.vllm.resumed_plan import vllm_resumed_context, vllm_resumed_end, vllm_tokens_left
from timely.plans.robot_values import plan_value_text

pytestmark = pytest.mark.engine

PLAN = ((4, 0.05), (5, 0.05, True), (3, 0.05), (2, 0.05))
TOKENS = sum(segment[0] for segment in PLAN)
PROMPT = [7] * 20


def value(text: str) -> ExecutionReport:
    return ExecutionReport(1, "value", value=text)


def encode(text: str) -> list[int]:
    from timely.engines.vllm.request_intake import VllmRequestIntake
    from timely.plans.prompt_tokens import plan_prompt_encoder

    intake: VllmRequestIntake = Scene().scheduler._intake
    return list(plan_prompt_encoder(intake.tokenizer).encode_text(text))


def undisturbed() -> tuple[list[int], list[SegmentReady]]:
    """The tokens of a plan, and its segments as they left."""
    scene = Scene()
    scene.add("plan", PROMPT, TOKENS, scene.plan(*PLAN))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["blocked"] == 1)
    scene.report("plan", 1, "value", value="cup")
    scene.run()
    segments = [vllm_segment_ready("plan", data) for data in scene.accounts["plan"]["segments"]]
    return scene.outputs["plan"], segments


def resume(history: PlanHistory) -> Scene:
    """Another engine that goes on with the plan."""
    scene = Scene()
    context = vllm_resumed_context(history, "segmented", encode)
    generated = sum(segment.tokens for segment in history.own_segments)
    params = {**scene.plan(*PLAN), "history": asdict(history), "resumed_tokens": len(context)}
    scene.clock.advance_to(100.0)
    scene.add("plan", [*PROMPT, *context], TOKENS - generated, params)
    return scene


@pytest.mark.parametrize("sent", [0, 1, 2, 3])
def test_the_rest_is_what_it_would_have_been(sent: int) -> None:
    tokens, segments = undisturbed()
    assert [len(segment.token_ids) for segment in segments] == [4, 5, 3, 2]
    assert [segment.last for segment in segments] == [False, False, False, True]
    events: list[SegmentReady | PastReport] = list(segments[:sent])
    if sent >= 2:
        events.insert(2, PastReport(value("cup"), 1.0))
    scene = resume(PlanHistory(0.0, tuple(events)))
    if sent < 2:
        scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["blocked"] == 1)
        scene.report("plan", 1, "value", value="cup")
    scene.run()
    sent_tokens = sum(segment.tokens for segment in segments[:sent])
    assert scene.outputs["plan"] == tokens[sent_tokens:]
    account = scene.accounts["plan"]
    assert [part["index"] for part in account["segments"]] == list(range(sent, 4))
    assert (account["tokens"], account["prompt_tokens"]) == (TOKENS, len(PROMPT))
    scene.check_empty()


def test_a_value_that_was_awaited_still_is() -> None:
    tokens, segments = undisturbed()
    scene = resume(PlanHistory(0.0, tuple(segments[:2])))
    assert scene.scheduler.control({"kind": "stats"})["blocked"] == 1
    assert not scene.scheduler.has_requests()
    assert scene.report("plan", 1, "value", value="cup") == {"known": True}
    scene.run()
    assert scene.outputs["plan"] == tokens[9:]
    scene.check_empty()


def test_tokens_that_give_other_segments_are_refused() -> None:
    segments: list[Any] = undisturbed()[1]
    wrong = PlanHistory(0.0, (vllm_segment_ready("plan", {**asdict(segments[0]), "text": "stop();"}),))
    scene = resume(wrong)
    scene.run()
    assert scene.finished == {"plan": "error"}
    assert scene.accounts["plan"]["error"]["where"] == "timely.history"
    scene.check_empty()
    with pytest.raises(Conflict, match="not recorded"):
        resume(PlanHistory(0.0, (SegmentReady("plan", 0, "go();", 4, 1.0, 0.05, 1.05),)))


def test_behind_the_last_segment_there_is_only_the_end() -> None:
    segments = undisturbed()[1]
    request = GenerationRequest("plan", "x", max_tokens=100)
    for sent_count in (0, 3):
        assert vllm_resumed_end(request, PlanHistory(0.0, tuple(segments[:sent_count]))) is None
    end = vllm_resumed_end(request, PlanHistory(0.0, tuple(segments)))
    assert end is not None
    assert (end.reason, end.text, end.tokens) == ("complete", "go();" * 4, TOKENS)
    assert end.last_token_s == segments[-1].ready_s


def test_a_plan_that_its_limit_of_tokens_ended_goes_on_no_more() -> None:
    segments = undisturbed()[1]
    request = GenerationRequest("plan", "x", max_tokens=TOKENS)
    end = vllm_resumed_end(request, PlanHistory(0.0, tuple(segments)))
    assert end is not None
    assert (end.reason, end.tokens) == ("length", TOKENS)


def test_a_value_that_filled_the_context_ends_a_plan_that_would_go_on() -> None:
    history = PlanHistory(0.0, tuple(undisturbed()[1][:3]))
    request = GenerationRequest("plan", "x", max_tokens=100)
    assert vllm_resumed_end(request, history, room_tokens=1) is None
    end = vllm_resumed_end(request, history, room_tokens=0)
    assert end is not None
    assert (end.reason, end.text, end.tokens) == ("length", "go();" * 3, 12)


def test_an_engine_process_with_another_copy_of_the_skill_set_refuses_a_plan() -> None:
    scene = Scene()
    own = vllm_skill_set("arm").fingerprint
    for name, fingerprint in (("other", "0123456789abcdef"), ("same", own)):
        params = {"task_id": name, "skill_set": "arm", "skill_set_fingerprint": fingerprint}
        scene.add(name, PROMPT, 2, params)
    scene.run()
    assert scene.finished == {"other": "error", "same": "length"}
    with pytest.raises(EngineFailed, match=f"arm is {own} here, 0123456789abcdef where"):
        raise vllm_error_from_data(scene.accounts["other"]["error"])
    scene.check_empty()


def test_a_word_that_the_limit_of_tokens_cut_off_is_no_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    from timely.engines.vllm.request_intake import VllmRequestIntake

    def finder(*_: Any) -> tuple[VllmTextBoundaries, int]:
        texts = iter(["pick('a')", ";home"])  # of homeward()
        return VllmTextBoundaries(vllm_skill_set("arm"), None, lambda _: next(texts), awaits_values=True), 4

    monkeypatch.setattr(VllmRequestIntake, "_boundaries", finder)
    scene = Scene()
    scene.add("plan", PROMPT, 2, {"task_id": "plan"})
    scene.run()
    account = scene.accounts["plan"]
    assert scene.finished["plan"] == "length"
    assert ([segment["text"] for segment in account["segments"]], account["tail"]) == (["pick('a');"], "home")
    scene.check_empty()


def test_one_token_that_closes_two_blocking_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a tokenizer that has words of plans. Both values are awaited, and a restarted plan can go on."""
    from timely.engines.vllm.request_intake import VllmRequestIntake

    def finder(*_: Any) -> tuple[VllmTextBoundaries, int]:
        texts = iter(["look('a')", ";look('b');", "home()", ";"])
        return VllmTextBoundaries(vllm_skill_set("arm"), None, lambda _: next(texts), awaits_values=True), 4

    monkeypatch.setattr(VllmRequestIntake, "_boundaries", finder)

    def blocked() -> bool:
        return bool(scene.scheduler.control({"kind": "stats"})["blocked"] == 1)

    scene = Scene()
    scene.add("plan", PROMPT, 4, {"task_id": "plan"})
    scene.run(until=blocked)
    assert "awaited is that of 0" in str(scene.report("plan", 1, "value", value="cup"))
    assert scene.report("plan", 0, "value", value="cup") == {"known": True}
    scene.run(until=lambda: not scene.scheduler.has_requests())
    assert blocked(), "the value of the second one is awaited, too"
    assert scene.report("plan", 1, "value", value="box") == {"known": True}
    scene.run()
    scene.check_empty()
    tokens = scene.outputs["plan"]
    both = [*encode(plan_value_text("cup")), *encode(plan_value_text("box"))]
    assert tokens == [1020, 1021, 1022 + len(both), 1023 + len(both)]
    segments = [vllm_segment_ready("plan", data) for data in scene.accounts["plan"]["segments"]]
    assert [segment.tokens for segment in segments] == [2, 0, 2]

    for sent in (1, 2):
        events: list[SegmentReady | PastReport] = list(segments[:sent])
        events += [PastReport(ExecutionReport(n, "value", value=["cup", "box"][n]), 1.0) for n in range(sent)]
        history = PlanHistory(0.0, tuple(events))
        context = vllm_resumed_context(history, "segmented", encode)
        scene = Scene()
        params = {"task_id": "plan", "history": asdict(history), "resumed_tokens": len(context)}
        scene.add("plan", [*PROMPT, *context], 2, params)
        scene.run()
        assert (scene.outputs["plan"], scene.finished["plan"]) == (
            ([], "error") if sent == 1 else (tokens[2:], "length")
        )
        scene.check_empty()


def test_values_that_come_during_one_step_are_all_in_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token closed two blocking segments, and both reports came at once."""
    from timely.engines.vllm.request_intake import VllmRequestIntake

    def finder(*_: Any) -> tuple[VllmTextBoundaries, int]:
        texts = iter(["look('a')", ";look('b');", "home()", ";"])
        return VllmTextBoundaries(vllm_skill_set("arm"), None, lambda _: next(texts), awaits_values=True), 4

    monkeypatch.setattr(VllmRequestIntake, "_boundaries", finder)
    scene = Scene(depth=2)
    request = scene.add("plan", PROMPT, 4, {"task_id": "plan"})
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["blocked"] == 1)
    assert request.num_in_flight_tokens
    for segment, text in enumerate(("cup", "box")):
        assert scene.report("plan", segment, "value", value=text) == {"known": True}
    scene.run()
    both = [*encode(plan_value_text("cup")), *encode(plan_value_text("box"))]
    assert scene.outputs["plan"] == [1020, 1021, 1022 + len(both), 1023 + len(both)]
    scene.check_empty()


@pytest.mark.parametrize("max_tokens", [2, 4])
def test_a_segment_that_was_closed_and_not_sent_before_a_restart_is_sent_after_it(
    max_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token closed two segments, and the server wrote down only the first. It may be the last token."""
    from timely.engines.vllm.request_intake import VllmRequestIntake

    def finder(*_: Any) -> tuple[VllmTextBoundaries, int]:
        texts = iter(["pick('a')", ";home();", "pick(", "'b');"])
        return VllmTextBoundaries(vllm_skill_set("arm"), None, lambda _: next(texts), awaits_values=True), 4

    monkeypatch.setattr(VllmRequestIntake, "_boundaries", finder)
    scene = Scene()
    scene.add("plan", PROMPT, max_tokens, {"task_id": "plan"})
    scene.run()
    written = [(part["index"], part["text"], part["tokens"]) for part in scene.accounts["plan"]["segments"]]
    assert written == [(0, "pick('a');", 2), (1, "home();", 0), (2, "pick('b');", 2)][: max_tokens // 2 + 1]

    first = vllm_segment_ready("plan", scene.accounts["plan"]["segments"][0])
    history = PlanHistory(0.0, (first,))
    request = GenerationRequest("plan", "x", max_tokens=max_tokens, history=history)
    assert vllm_resumed_end(request, history) is None
    scene = Scene()
    params = {"task_id": "plan", "history": asdict(history), "resumed_tokens": 2}
    scene.add("plan", [*PROMPT, *first.token_ids], vllm_tokens_left(request), params)
    scene.run()
    segments = scene.accounts["plan"]["segments"]
    assert [(part["index"], part["text"], part["tokens"]) for part in segments] == written[1:]
    scene.check_empty()
