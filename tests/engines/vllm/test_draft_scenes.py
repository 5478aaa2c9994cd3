"""Scenes of speculation on vLLM's real scheduler: drafts beside parked plans."""

from __future__ import annotations

from typing import Any

import pytest
from optional_packages import require_package
from vllm_scheduler import BLOCK_TOKENS, STEP_S, Scene, positions

require_package("vllm")

pytestmark = [pytest.mark.engine]


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


def test_drafts_stay_beside_a_request_that_samples() -> None:
    scene = Scene(drafts=3, accept=lambda request_id: 3)
    for name, temperature in (("greedy", 0.0), ("samples", 1.0)):
        scene.add(name, 20, 24).sampling_params.temperature = temperature
    scene.run()
    assert max(step["greedy"] for step in scene.steps[1:] if step.keys() == {"greedy", "samples"}) == 4
    assert positions(scene, "greedy") == [20 + number for number in range(24)]
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


@pytest.mark.parametrize(
    ("right", "steps", "decoding_steps"), [(0, [4, 3, 2], [3, 2, 1]), (3, [2, 2, 1], [1, 1, 0])]
)
def test_a_segment_says_how_many_steps_gave_its_tokens(
    right: int, steps: list[int], decoding_steps: list[int]
) -> None:
    """With right drafts the steps have 1, 4, 3 and 1 tokens."""
    scene = Scene(drafts=3, accept=lambda request_id: right)
    scene.add("plan", 20, 9, scene.plan((4, 0.0), (3, 0.0), (2, 0.0)))
    scene.run()
    segments = scene.accounts["plan"]["segments"]
    assert [segment["steps"] for segment in segments] == steps
    taken_s = [segment["ready_s"] - segment["first_token_s"] for segment in segments]
    assert taken_s == pytest.approx([count * STEP_S for count in decoding_steps])


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


def test_a_plan_whose_last_token_is_void_verifies_no_drafts_of_that_step() -> None:
    """From 0.33 on, vLLM's newer runner makes none in a step behind which all its requests end or go on with a prompt.

    The last token of the plan is void, so it does not end there. Behind the value it must wait for fresh drafts.
    """
    scene = Scene(depth=2, drafts=3)
    scheduler, schedule = scene.scheduler, scene.scheduler.schedule
    has_no_drafts: dict[str, bool] = {}
    """By request: its last step was one that makes none."""
    skipping_steps: list[set[str]] = []

    def watching_schedule(*arguments: Any) -> Any:
        output = schedule(*arguments)
        drafts = output.scheduled_spec_decode_tokens
        assert not any(has_no_drafts[name] for name in drafts), "drafts that were never made"
        members = [scheduler.requests[name] for name in output.num_scheduled_tokens]
        skips = all(
            member.is_prefill_chunk
            or member.num_output_tokens
            + 1
            + (member.num_output_placeholders > 1 + len(drafts.get(member.request_id, ())))
            >= member.max_tokens
            for member in members
        )
        has_no_drafts.update((member.request_id, skips) for member in members)
        if skips and members:
            skipping_steps.append({member.request_id for member in members})
        return output

    scheduler.schedule = watching_schedule
    scene.add("plan", 20, 5, scene.plan((4, 0.1, True), (1, 0.1), task_id="plan"))
    scene.run(until=lambda: scheduler.control({"kind": "stats"})["blocked"] == 1 and not scene.in_flight)
    assert {"plan"} in skipping_steps, "the void token would have been its last"
    assert len(scene.outputs["plan"]) == 4
    assert scene.report("plan", 0, "value", value="cup") == {"known": True}
    scene.run()
    assert len(scene.outputs["plan"]) == 5
    scene.check_empty()


@pytest.mark.parametrize("depth", [1, 2])
def test_the_discipline_learns_how_many_drafts_were_right(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(depth=depth, drafts=3, accept=lambda request_id: 2)
    notes: list[tuple[int, int]] = []
    monkeypatch.setattr(
        scene.scheduler.controller, "accepted", lambda job, drafts, right, now: notes.append((drafts, right))
    )
    scene.add("chat", 20, 30)
    scene.run(until=lambda: len(notes) >= 3)
    assert set(notes[:3]) == {(3, 2)}
