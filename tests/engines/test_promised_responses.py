"""Whether a new task fits behind the responses that are promised; expected values by hand."""

from dataclasses import replace

import pytest
from utility_scene import limits

from timely.core.hints import RequestHints
from timely.core.job import JobSpec
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines.tardiness.segment_lengths import TardinessSegmentLengths
from timely.disciplines.timely.discipline import Timely
from timely.engines.promised_responses import engine_response_behind_promises_s
from timely.engines.scheduler_core import EngineController
from timely.engines.step_time.learned import FixedSpeed

SPEED = FixedSpeed(0.02, 0.0, 0.00005)
"""Tasks have prompts of 256 tokens, which take 12.8 ms, and first segments of 5 tokens."""

PROMISED = RequestHints(utility=URGENT, promised=True)


def step_in_flight(
    ages_s: list[float], utility: TimeUtility = URGENT, *, promised: bool = True, counted: bool = False,
    token_budget: int = 4096, max_batch: int = 32,
) -> EngineController:  # fmt: skip
    """An engine that computes the prompts of tasks that came so long ago.

    Args:
        counted: prompts count as computed when their step begins, as in vLLM.
    """
    controller = EngineController(Timely(), SPEED)
    hints = RequestHints(utility=utility, promised=promised)
    for number, age_s in enumerate(ages_s):
        controller.arrive(JobSpec(number, -age_s, hints, prompt_tokens=256, segment_tokens=10))
    plan = controller.compose(replace(limits(max_batch=max_batch, token_budget=token_budget), speed=SPEED))
    assert len(plan.tokens) == len(ages_s)
    for job in controller.table:
        controller.started(job)
        if counted:
            controller.table.prefill_left[job.row] = 0
    return controller


def upper_s(controller: EngineController, utility: TimeUtility = URGENT, now: float = 0.004) -> float:
    return controller.predict_response(utility, now).upper_s


@pytest.mark.parametrize("counted", [False, True])
def test_a_task_is_refused_whose_prompt_an_older_one_cannot_bear(*, counted: bool) -> None:
    # The step ends at 32.8 ms and the segment at 112.8 ms, of which 12.6 ms may be missing at worst.
    late, early = (step_in_flight([age_s], counted=counted) for age_s in (0.07, 0.05))
    # With 17.2 ms left it cannot bear the new prompt, which comes after the segment then.
    assert upper_s(late) == pytest.approx((0.1128 + 0.0128 + 0.1 - 0.004) / 0.9)
    assert upper_s(early) == pytest.approx((0.0328 + 0.0128 + 0.1 - 0.004) / 0.9)


@pytest.mark.parametrize(("budget", "steps"), [(514, 1), (513, 2)])
def test_a_queue_of_prompts_takes_steps_beside_its_tokens(budget: int, steps: int) -> None:
    controller = step_in_flight([0.0], token_budget=budget)
    controller.arrive(JobSpec("waiting", 0.002, PROMISED, prompt_tokens=256, segment_tokens=10))
    # The two sequences take a token each of a step, and the prompts 512.
    assert upper_s(controller) == pytest.approx((0.0328 + 0.02 * (steps - 1) + 0.0256 + 0.1 - 0.004) / 0.9)


@pytest.mark.parametrize(("max_batch", "end_s"), [(3, 0.0456), (2, 0.0456 + 0.08)])
def test_a_task_that_a_step_has_no_place_for_waits_for_one(max_batch: int, end_s: float) -> None:
    # Both others have four tokens left when their prompts are computed.
    controller = step_in_flight([0.0, 0.0], max_batch=max_batch)
    assert upper_s(controller) == pytest.approx((end_s + 0.0128 + 0.1 - 0.004) / 0.9)


def test_decoding_tasks_wait_for_a_place_too() -> None:
    table = step_in_flight([0.0] * 4, NORMAL, counted=True).table
    spec = JobSpec("new", 0.0, replace(PROMISED, utility=NORMAL), prompt_tokens=256, segment_tokens=10)
    two_places = replace(limits(max_batch=2, token_budget=4096), speed=SPEED)
    # Two have five tokens left, and two have five behind them; then the new one begins.
    end_s = engine_response_behind_promises_s(spec, table, TardinessSegmentLengths(), two_places, None, 0.0)
    assert end_s == pytest.approx((0.1 + 0.1 + 0.0128 + 0.1) / 0.9)


def test_a_promised_prompt_that_has_to_wait_keeps_a_new_one_waiting() -> None:
    controller = step_in_flight([0.057])
    controller.arrive(JobSpec("waiting", -0.011, PROMISED, prompt_tokens=256, segment_tokens=10))
    # The first segment ends at 112.8 ms and is due at 143 ms; with 13.9 ms for longer steps it bears one prompt.
    assert upper_s(controller) > 0.2
    # It alone bears the new one.
    controller.finish("waiting", "cancelled", 0.004)
    assert upper_s(controller) == pytest.approx((0.0328 + 0.0128 + 0.1 - 0.004) / 0.9)


@pytest.mark.parametrize(("utility", "promised"), [(NORMAL, True), (URGENT, False)])
def test_a_task_that_nothing_was_promised_to_bounds_no_other(utility: TimeUtility, *, promised: bool) -> None:
    controller = step_in_flight([0.07], utility, promised=promised)
    prediction = controller.predict_response(URGENT, 0.004)
    assert prediction.upper_s == prediction.eta_s < 0.2


def test_a_promised_task_counts_before_it_can_run() -> None:
    controller = step_in_flight([0.057])
    alone_s = upper_s(controller)
    on_its_way_s = controller.predict_response(URGENT, 0.004, [PROMISED]).upper_s
    assert on_its_way_s > alone_s == upper_s(controller)
    # Its grammar is being compiled.
    job = controller.arrive(JobSpec("coming", 0.004, PROMISED, prompt_tokens=256, segment_tokens=10))
    controller.set_ready(job, 0.004, ready=False)
    assert upper_s(controller) == pytest.approx(on_its_way_s, rel=0.01)


def test_a_promise_that_is_lost_anyway_refuses_no_task() -> None:
    assert upper_s(step_in_flight([0.1])) == upper_s(step_in_flight([0.0]))


def test_a_step_that_is_over_is_not_waited_for() -> None:
    controller = step_in_flight([0.0], counted=True)
    before = upper_s(controller, now=0.0328)
    controller.ran(1, 256, 0.0328)
    controller.progress(controller.table[0], 1, 0.0328)
    assert upper_s(controller, now=0.0328) == pytest.approx(before)
