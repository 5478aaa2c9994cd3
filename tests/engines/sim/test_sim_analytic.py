"""Cases worked out by hand: every time of the simulator follows from the profile and the trace alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sim_cases import profile, run, task

from timely.core.errors import InvalidInput
from timely.core.hints import RequestHints
from timely.core.utility import URGENT
from timely.engines.replay_estimates import ReplayEstimates
from timely.engines.replay_types import PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator

approx = pytest.approx


def test_one_task_alone() -> None:
    # One step of 10 ms computes the prompt and yields token 1; segment 0 is 2 tokens: ready at 20 ms.
    (record,) = run([task(0, network_s=0.008)], discipline="fcfs").records
    assert record.outcome == "complete"
    assert record.first_token_s == approx(0.01)
    assert record.ready_s == approx([0.02, 0.05])
    assert record.start_s == approx([0.028, 1.028])
    assert record.end_s == approx([1.028, 2.028])
    assert record.response_time_s == approx(0.028)
    assert record.waiting_time_s == approx(0.028)


def test_robot_waits_when_the_next_segment_is_late() -> None:
    # Segment 0 executes in 1 ms: the robot waits for segment 1 (3 tokens, 30 ms) and the network again.
    (record,) = run([task(0, plan=((2, 0.001), (3, 1.0)), network_s=0.008)], discipline="fcfs").records
    assert record.start_s == approx([0.028, 0.058])
    assert record.waiting_time_s == approx(0.028 + (0.058 - 0.029))


def test_whole_sends_the_plan_at_its_end() -> None:
    (record,) = run([task(0, network_s=0.008)], discipline="fcfs", mode="whole").records
    assert record.ready_s == approx([0.05, 0.05])
    assert record.response_time_s == approx(0.058)
    assert record.end_s == approx([1.058, 2.058])


def test_stream_generates_on() -> None:
    (record,) = run([task(0, network_s=0.008)], discipline="pud", mode="stream").records
    assert record.ready_s == approx([0.02, 0.05])


def test_segmented_parks_until_the_robot_runs_dry() -> None:
    # timely resumes lead_s before the end of segment 0 at 1.028. The lead is 2 * 10 tokens at the learned speed and
    # 58 ms: not at once, and in time.
    (record,) = run([task(0, network_s=0.008)], discipline="timely").records
    assert 0.3 < record.ready_s[1] < 1.028
    assert record.waiting_time_s == approx(0.028)


def test_step_time_adds_up() -> None:
    shape = profile(
        per_sequence=0.001, per_prefill_token=0.0001, per_prefill_token_sq=1e-6, per_context_token=1e-5
    )
    (record,) = run([task(0, plan=((2, 0.0),))], shape, discipline="fcfs").records
    prefill = 0.01 + 0.001 + 32 * 0.0001 + 32 * 32 * 1e-6
    decode = 0.01 + 0.001 + 33 * 1e-5  # attends to 32 prompt tokens and the first output token
    assert record.first_token_s == approx(prefill)
    assert record.last_token_s == approx(prefill + decode)


def test_prompt_in_chunks_costs_as_much_attention_as_in_one() -> None:
    shape = profile(base=1e-9, per_prefill_token_sq=1e-6)
    one = run([task(0, plan=((1, 0.0),))], shape, discipline="fcfs").records[0]
    four = run([task(0, plan=((1, 0.0),))], shape, discipline="fcfs", prefill_chunk=8).records[0]
    assert four.first_token_s == approx(one.first_token_s, rel=1e-4)


def test_token_budget_splits_prompts() -> None:
    # 32 prompt tokens under a budget of 10: four steps before the first token.
    (record,) = run([task(0)], discipline="fcfs", token_budget=10).records
    assert record.first_token_s == approx(0.04)


def test_batch_limit_queues() -> None:
    records = run([task(0), task(1)], discipline="fcfs", mode="whole", max_batch=1).records
    assert records[0].last_token_s == approx(0.05)
    assert records[1].admitted_s == approx(0.05)
    assert records[1].last_token_s == approx(0.10)


def test_through_a_door_tasks_come_one_after_the_other() -> None:
    # The first is known at 3 ms and begins a step of its own, which the others, known at 6 and 9 ms, wait for.
    records = run([task(0), task(1), task(2)], discipline="fcfs", mode="whole", admission_s=0.003).records
    assert [record.arrived_s for record in records] == [0.0, 0.0, 0.0]
    assert [record.admitted_s for record in records] == approx([0.003, 0.013, 0.013])
    assert records[0].response_time_s == approx(0.053)
    # Without one all three are in the first step.
    assert [record.admitted_s for record in run([task(0), task(1), task(2)], discipline="fcfs").records] == [
        0
    ] * 3


def test_urgent_task_overtakes_under_edf() -> None:
    tasks = [task(0), task(1), task(2, utility=URGENT)]
    records = run(tasks, discipline="edf", max_batch=1).records
    assert records[2].ready_s[0] == approx(0.02)


def test_arrival_during_a_step_joins_the_next() -> None:
    records = run([task(0), task(1, 0.004)], discipline="fcfs").records
    assert records[1].admitted_s == approx(0.01)
    assert records[1].first_token_s == approx(0.02)
    assert records[1].response_time_s == approx(0.03 - 0.004)


def test_estimates_are_replaced_by_reports() -> None:
    # Estimated 30 s, in truth 1 s: only a report tells the server that the robot is done.
    plan = (PlannedSegment("a", 2, 1.0, estimate_s=30.0), PlannedSegment("b", 2, 1.0))
    tasks = [
        PlannedTask(job=0, arrival_s=0.0, plan=plan, prompt_tokens=32, hints=RequestHints(network_s=0.008))
    ]
    closed = run(tasks, discipline="timely").records[0]
    opened = run(tasks, discipline="timely", closed_loop=False).records[0]
    # The report of the end leaves the robot at 1.028 and arrives 8 ms later; then two tokens and the way back.
    assert closed.start_s[1] == approx(1.036 + 0.02 + 0.008)
    assert opened.start_s[1] > 25.0


@pytest.mark.parametrize(
    ("options", "events"),
    [
        ({}, [(0, "started")]),
        ({"estimate_factor": 1.5}, [(0, "started"), (0, "done"), (1, "started"), (1, "done")]),
        ({"closed_loop": False}, []),
        ({"mode": "stream", "estimate_factor": 1.5}, []),
    ],
)
def test_what_robots_report(options: dict[str, object], events: list[tuple[int, str]]) -> None:
    """That they do, by their first start, also where estimates are exact; the rest where it is news."""
    simulator = Simulator(ReplayOptions(discipline="timely", **options), profile())  # type: ignore[arg-type]
    heard: list[Any] = []
    simulator.controller.journal = heard.append
    simulator.run([task(0, plan=((2, 1.0), (2, 1.0), (2, 1.0)), network_s=0.008)])
    reports = [event for event in heard if event["event"] == "report"]
    assert [(event["segment"], event["kind"]) for event in reports] == events


def test_blocking_segment_waits_for_the_value() -> None:
    plan = (PlannedSegment("iv", 2, 1.0, blocking=True), PlannedSegment("b", 2, 1.0))
    tasks = [
        PlannedTask(job=0, arrival_s=0.0, plan=plan, prompt_tokens=32, hints=RequestHints(network_s=0.008))
    ]
    (record,) = run(tasks, discipline="pud").records
    assert record.ready_s[1] == approx(1.028 + 0.008 + 0.02)


def test_estimate_error_is_seeded() -> None:
    tasks = [task(0, plan=((2, 1.0), (3, 1.0), (3, 2.0)), network_s=0.008)]

    def ready(seed: int) -> list[float]:
        return run(tasks, discipline="timely", estimate_noise=0.5, seed=seed).records[0].ready_s

    assert ready(1) == ready(1)
    assert ready(1) != ready(2)


def test_estimate_errors_of_jobs_with_long_names_are_independent() -> None:
    """Only the first eight bytes of a name counted: ``request-1`` and ``request-2`` met the same error."""
    estimates = ReplayEstimates(ReplayOptions(estimate_noise=0.5))
    tasks = [replace(task(0), job=f"request-{number}") for number in range(20)]
    assert len({estimates.estimate_s(one, 0) for one in tasks}) == 20


def test_too_large_for_the_cache_is_refused_not_lost() -> None:
    records = run([task(0, prompt_tokens=500), task(1)], profile(blocks=10), discipline="timely").records
    assert records[0].outcome == "refused"
    assert "505 tokens" in records[0].note
    assert records[1].outcome == "complete"


def test_until_leaves_the_rest_unfinished_and_counted() -> None:
    run_ = run([task(0), task(1, 5.0)], discipline="fcfs", until_s=0.03)
    assert [record.outcome for record in run_.records] == ["unfinished"]
    assert run_.records[0].output_tokens in (2, 3)


def test_a_task_may_bring_its_own_time_at_the_door() -> None:
    # Both arrive at 0 and each takes 3 ms; the second may also be through at once, or long after the first.
    def served(admission_s: float | None) -> float:
        tasks = [task(0, plan=((1, 1.0),)), task(1, plan=((1, 1.0),), admission_s=admission_s)]
        return float(run(tasks, discipline="fcfs", admission_s=0.003).records[1].first_token_s)

    assert served(None) == approx(0.023)
    assert served(0.003) == approx(0.013)
    assert served(0.001) == approx(0.013)  # it is behind the first
    assert served(0.5) == approx(0.51)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_jobs_that_end_in_a_step_leave_after_the_others_have_parked(asynchronous: bool) -> None:
    """As in vLLM: a discipline learns from the segments of a step in the same order."""
    machine = profile()
    machine = machine.model_copy(
        update={"limits": machine.limits.model_copy(update={"asynchronous": asynchronous})}
    )
    simulator = Simulator(ReplayOptions(), machine)
    events: list[tuple[str, object]] = []
    simulator.controller.journal = lambda event: events.append((event["event"], event.get("job")))
    simulator.run([task(0, plan=((3, 1.0),)), task(1, plan=((3, 1.0),)), task(2, plan=((3, 1.0), (2, 1.0)))])
    ends = [event for event in events if event[0] in ("segment", "finish")]
    assert ends[:5] == [("segment", 0), ("segment", 1), ("segment", 2), ("finish", 0), ("finish", 1)]


@pytest.mark.parametrize("base_s", [0.0, 1e300])
def test_a_step_that_no_machine_has_is_an_error_of_the_profile(base_s: float) -> None:
    with pytest.raises(InvalidInput, match=r"^profile test: step_s: a step takes (0.0|1e\+300) s$"):
        run([task(0)], profile(base=base_s), discipline="fcfs")


def test_a_machine_that_drifts() -> None:
    """Twice as slow from 25 ms on: the steps that begin at 10 and 20 ms take 10 ms, the others 20."""
    tasks = [task(0, plan=((5, 1.0),), network_s=0.0)]
    options = ReplayOptions(discipline="fcfs")
    drifting = Simulator(options, profile(), drift=lambda now: 2.0 if now > 0.025 else 1.0)
    assert drifting.run(tasks).records[0].ready_s == approx([0.07])


@pytest.mark.parametrize("repeat_steps", [False, True])
def test_disciplines_do_not_learn_what_the_engines_loop_takes(repeat_steps: bool) -> None:
    shape = profile()
    shape = shape.model_copy(update={"limits": shape.limits.model_copy(update={"between_s": 0.002})})
    simulator = Simulator(ReplayOptions(discipline="fcfs"), shape, repeat_steps=repeat_steps)
    (record,) = simulator.run([task(0, plan=((200, 1.0),), network_s=0.0)]).records
    assert record.ready_s == approx([2.0])
    assert simulator.controller.speed.step_s(1, 0) == approx(0.008, rel=1e-3)
