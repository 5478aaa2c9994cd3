"""Steps composed while another runs, as vLLM does on a GPU: worked out by hand, and the books under load."""

from __future__ import annotations

import numpy as np
import pytest
from sim_cases import profile, run, task

from examples import examples
from timely.core.hints import RequestHints
from timely.core.utility import NORMAL, URGENT
from timely.disciplines.registry import discipline_names
from timely.engines.replay_types import PlannedSegment, PlannedTask
from timely.engines.step_time.profile import StepTimeProfile

approx = pytest.approx


def ahead(shape: StepTimeProfile | None = None, **limits: float) -> StepTimeProfile:
    """The same machine with asynchronous scheduling."""
    shape = shape or profile()
    changed = shape.limits.model_copy(update={"asynchronous": True, **limits})
    return shape.model_copy(update={"limits": changed})


def test_one_task_alone_is_served_as_ever() -> None:
    (record,) = run([task(0, network_s=0.008)], ahead(), discipline="fcfs").records
    assert record.first_token_s == approx(0.01)
    assert record.ready_s == approx([0.02, 0.05])


def test_a_newcomer_waits_a_step_longer() -> None:
    # It comes in the middle of step 1, when step 2 is composed already: its prompt is in step 3.
    tasks = [task(0, plan=((10, 1.0),)), task(1, arrival_s=0.005, plan=((1, 1.0),))]
    assert run(tasks, discipline="fcfs").records[1].first_token_s == approx(0.02)
    assert run(tasks, ahead(), discipline="fcfs").records[1].first_token_s == approx(0.03)


def test_a_task_that_comes_while_an_idle_engine_launches_is_in_the_second_step() -> None:
    tasks = [task(0, plan=((10, 1.0),)), task(1, arrival_s=0.005, plan=((1, 1.0),))]
    quick, slow = (
        run(tasks, ahead(launch_prompts_s=launch_s), discipline="fcfs").records[1].first_token_s
        for launch_s in (0.004, 0.006)
    )
    assert quick == approx(0.03)
    assert slow == approx(0.02)


def test_who_parks_has_computed_one_token_more() -> None:
    # The third token is in flight when the first segment closes: of the second, two are left to compute.
    tasks = [task(0, network_s=0.008)]
    (before,) = run(tasks, discipline="timely").records
    (record,) = run(tasks, ahead(), discipline="timely").records
    assert record.ready_s[0] == before.ready_s[0]
    assert record.ready_s[1] == approx(before.ready_s[1] - 0.01, abs=1e-3)
    assert record.output_tokens == 5


def test_a_token_after_a_blocking_skill_is_void() -> None:
    plan = (PlannedSegment("look", 2, 0.5, blocking=True), PlannedSegment("go", 3, 1.0))
    tasks = [PlannedTask(job=0, arrival_s=0.0, plan=plan, prompt_tokens=32, max_tokens=5)]
    done = run(tasks, ahead(), discipline="timely")
    (record,) = done.records
    assert record.outcome == "complete"
    assert record.output_tokens == 5
    assert record.ready_s[1] >= record.end_s[0] + 0.03
    assert done.counters["computed_tokens"] == 32 + 4 + 1  # the first comes with the prompt


def test_what_ends_leaves_its_tokens_to_others_and_steps_keep_to_the_budget() -> None:
    tasks = [task(job, plan=((2 + 8 * (job > 1), 0.0),), prompt_tokens=2) for job in range(4)]
    tasks.append(task(4, arrival_s=0.021, plan=((1, 0.0),), prompt_tokens=9))
    for discipline in ("fcfs", "timely", "qoserve"):
        done = run(tasks, ahead(profile(token_budget=5)), discipline=discipline)
        assert done.counters["computed_tokens"] <= 5 * done.counters["steps"]
        assert [record.outcome for record in done.records] == ["complete"] * 5


def test_nothing_is_computed_beyond_the_limit_that_a_request_names() -> None:
    done = run([task(0, plan=((5, 1.0),), max_tokens=5)], ahead(), discipline="fcfs")
    assert done.counters["computed_tokens"] == 32 + 4
    assert done.counters["steps"] == 5


def test_a_token_behind_the_end_is_computed_for_the_engine_does_not_know_the_end() -> None:
    """As on the live engine, where the last token is seen when the next one is on its way."""
    done = run([task(0, plan=((5, 1.0),))], ahead(), discipline="fcfs")
    (record,) = done.records
    assert record.output_tokens == 5
    assert record.last_token_s == approx(0.05)
    assert done.counters["computed_tokens"] == 32 + 5
    assert done.counters["steps"] == 6


def test_launching_prompts_hides_the_end_of_the_step_before() -> None:
    # Step 1 is the first prompt: launched for 50 ms, and no end is seen before. Then a step ends each 10 ms.
    # Step 6 with the second prompt is composed at 80 ms and launched for 50.
    # So the end of step 5 is seen at 130, and that of step 6, which ran meanwhile, at once. Six steps follow.
    tasks = [task(0, plan=((12, 1.0),)), task(1, arrival_s=0.075, plan=((1, 1.0),))]
    done = run(tasks, ahead(launch_prompts_s=0.05), discipline="fcfs", mode="stream")
    first, second = done.records
    assert first.first_token_s == approx(0.05)
    assert second.first_token_s == approx(0.13)
    assert first.ready_s == approx([0.19])


def test_an_engine_that_is_bound_by_launching_composes_one_step_a_launch() -> None:
    """Steps take 10 ms and launches 16. Where two steps ended in one launch, two were composed after it at once."""
    shape = ahead(launch_s=0.016, launch_prompts_s=0.016)
    (record,) = run([task(0, plan=((10, 1.0),), network_s=0.0)], shape, discipline="fcfs").records
    assert record.first_token_s == approx(0.016)
    assert record.ready_s == approx([0.16])


def load(seed: int) -> list[PlannedTask]:
    """Bursts that share a prefix, with blocking skills among them."""
    rng = np.random.default_rng(seed)
    tasks, now = [], 0.0
    for job in range(examples(40)):
        now += float(rng.exponential(0.15)) * (job % 4 == 0)
        plan = tuple(
            PlannedSegment(
                f"s{k};", int(rng.integers(1, 12)), float(rng.uniform(0.0, 0.6)), bool(rng.random() < 0.2)
            )
            for k in range(int(rng.integers(1, 5)))
        )
        utility = URGENT if rng.random() < 0.4 else NORMAL
        tasks.append(
            PlannedTask(
                job=job,
                arrival_s=now,
                plan=plan,
                prompt_tokens=int(rng.integers(40, 90)),
                prefix="p",
                shared_prefix_tokens=32,
                hints=RequestHints(utility=utility, app=f"app-{job // 2}", app_requests=2),
                acceptance=0.5,
            )
        )
    return tasks


@pytest.mark.parametrize("discipline", [name for name in discipline_names() if not name.startswith("laps")])
@pytest.mark.parametrize("blocks", [1000, 24])
def test_nothing_is_lost_under_any_discipline(discipline: str, blocks: int) -> None:
    """With ample memory and with room for a few; the simulator checks its books at every step."""
    tasks = load(3)
    shape = ahead(
        profile(blocks=blocks, per_sequence=0.001, per_prefill_token=1e-4),
        launch_s=0.002,
        launch_prompts_s=0.02,
    )
    done = run(tasks, shape, discipline=discipline)
    assert [record.outcome for record in done.records] == ["complete"] * len(tasks)
    for record in done.records:
        assert record.output_tokens == record.task.output_tokens
        assert len(record.ready_s) == len(record.task.plan)
        assert record.ready_s == sorted(record.ready_s)


def test_the_same_seed_gives_the_same_run() -> None:
    first, again = (run(load(5), ahead(launch_prompts_s=0.02), discipline="timely") for _ in range(2))
    assert [record.ready_s for record in first.records] == [record.ready_s for record in again.records]
