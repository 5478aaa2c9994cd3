"""A robot's pace: learned from what it reports, bounded, forgotten by nobody's garbage, and felt by its next plan."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hints import with_hints
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.core.job import Job, JobSpec
from timely.core.reports import ExecutionReport
from timely.disciplines.registry import create_discipline
from timely.engines.robot_pace import (
    FASTEST_PACE,
    GAIN,
    MAX_REPORTED,
    MOST_ROBOTS,
    MOST_SKILLS,
    PLAUSIBLE,
    SLOWEST_PACE,
    EngineRobotPaces,
    engine_pace_skills,
)
from timely.engines.scheduler_core import EngineController
from timely.engines.step_time.learned import FixedSpeed

SPEED = FixedSpeed(0.02, 0.0, 0.0003)


@pytest.mark.parametrize(
    ("text", "skills"),
    [
        ("mf(100);", "mf"),
        ("tc(180);mf(200);tc(90);", "tc+mf"),
        ("?iv('book')==True{", "iv"),
        ("->True}l('No (not here)');", "l"),
        ("move_to('red box');", "move_to"),
        ("The cup is on the table.", ""),
        ("", ""),
    ],
)
def test_what_a_segment_calls(text: str, skills: str) -> None:
    assert engine_pace_skills(text) == skills


def test_a_robot_that_is_faster_than_its_profile_is_expected_to_stay_so() -> None:
    paces = EngineRobotPaces()
    assert paces.of("drone-1", "mf(100);") == 1.0
    expected = 1.0
    for _ in range(6):
        paces.learn("drone-1", "mf(100);", 2.0, 1.4)
        expected += GAIN * (0.7 - expected)
        assert paces.of("drone-1", "mf(30);") == pytest.approx(expected)
    assert paces.of("drone-1", "mf(100);") == pytest.approx(0.7, abs=0.01)
    assert paces.of("drone-2", "mf(100);") == 1.0, "another robot's"


def test_skills_have_paces_of_their_own_and_a_new_one_begins_with_its_robots() -> None:
    paces = EngineRobotPaces()
    for _ in range(8):
        paces.learn("drone-1", "mf(100);", 2.0, 1.4)
        paces.learn("drone-1", "s('cup');", 2.0, 5.0)
    assert paces.of("drone-1", "mf(100);") == pytest.approx(0.7, abs=0.01)
    assert paces.of("drone-1", "s('cup');") == pytest.approx(1.0, abs=0.01)
    assert paces.of("drone-1", "tc(90);") == paces.robots()["drone-1"]
    assert 0.7 < paces.of("drone-1", "tc(90);") < 1.0


@pytest.mark.parametrize(
    ("expected_s", "measured_s"),
    [
        (2.0, 0.0),  # a branch that was not taken
        (2.0, 2.0 * PLAUSIBLE * 0.99),
        (0.001, 0.0005),  # what the computer does
        (0.0, 1.0),
        (-1.0, 1.0),
        (2.0, -5.0),
        (2.0, math.nan),
        (2.0, math.inf),
        (math.nan, 1.0),
        (math.inf, 1.0),
    ],
)
def test_what_is_no_measurement_teaches_nothing(expected_s: float, measured_s: float) -> None:
    paces = EngineRobotPaces()
    paces.learn("drone-1", "mf(100);", expected_s, measured_s)
    assert paces.robots() == {}
    assert paces.of("drone-1", "mf(100);") == 1.0


def test_a_robot_without_a_name_has_no_pace() -> None:
    paces = EngineRobotPaces()
    paces.learn("", "mf(100);", 2.0, 1.0)
    assert (paces.of("", "mf(100);"), paces.robots()) == (1.0, {})


def test_what_is_remembered_is_bounded() -> None:
    paces = EngineRobotPaces()
    for number in range(MOST_ROBOTS + 5):
        paces.learn(f"drone-{number}", "mf(100);", 2.0, 1.0)
    assert paces.of("drone-4", "mf(100);") == 1.0, "heard of longest ago"
    assert paces.of("drone-5", "mf(100);") < 1.0
    assert list(paces.robots()) == [
        f"drone-{n}" for n in range(MOST_ROBOTS + 5 - MAX_REPORTED, MOST_ROBOTS + 5)
    ]
    for number in range(MOST_SKILLS + 5):
        paces.learn("drone-5", f"skill{number}(1);", 2.0, 2.0)
    assert len(paces._robots["drone-5"].skills) == MOST_SKILLS


measurements = st.tuples(
    st.sampled_from(["drone-1", "drone-2", ""]),
    st.sampled_from(["mf(100);", "tc(90);", "words"]),
    st.floats(),
    st.floats(),
)


@given(st.lists(measurements, max_size=40))
def test_paces_stay_within_bounds_whatever_is_reported_and_are_the_same_every_time(
    reports: list[tuple[str, str, float, float]],
) -> None:
    paces, again = EngineRobotPaces(), EngineRobotPaces()
    for one in reports:
        paces.learn(*one)
        again.learn(*one)
        for agent in ("drone-1", "drone-2", ""):
            for text in ("mf(100);", "tc(90);", "words", "new(1);"):
                assert FASTEST_PACE <= paces.of(agent, text) <= SLOWEST_PACE
    assert paces.robots() == again.robots()


@given(st.lists(st.floats(1.0, 1e6), max_size=20))
def test_a_robot_that_is_not_faster_leaves_every_estimate_as_it_is(ratios: list[float]) -> None:
    """Bit for bit: an exact profile must give exactly what it gave without paces."""
    paces = EngineRobotPaces()
    for ratio in ratios:
        paces.learn("drone-1", "mf(100);", 2.0, 2.0 * ratio)
        assert paces.of("drone-1", "mf(100);") == 1.0


# ---------------------------------------------------------------- in the controller


def plan(controller: EngineController, name: str, now: float, **spec: Any) -> Job:
    values: dict[str, Any] = {"job_id": name, "arrival_s": now, "agent": "drone-1"}
    return controller.arrive(JobSpec(**with_hints(values | spec)))


def close(controller: EngineController, job: Job, now: float, **more: Any) -> None:
    controller.progress(job, 5, now)
    controller.close_segment(job, "mf(100);", 2.0, now, **more)


def fly(controller: EngineController, name: str, start: float, took_s: float) -> Job:
    """A plan of two segments, the first of which is done in ``took_s`` instead of 2 s; still live."""
    job = plan(controller, name, start)
    close(controller, job, start)
    controller.report(name, ExecutionReport(0, "started"), start)
    controller.report(name, ExecutionReport(0, "done", elapsed_s=took_s), start + took_s)
    return job


def test_the_next_plan_of_a_fast_robot_is_due_earlier() -> None:
    controller = EngineController(create_discipline("timely"), SPEED)
    fly(controller, "a", 10.0, 1.4)
    controller.finish("a", "complete", 12.0)
    job = plan(controller, "b", 20.0)
    close(controller, job, 20.0)
    pace = 1.0 + GAIN * (0.7 - 1.0)
    assert job.segments[0].pace == pytest.approx(pace)
    assert job.segments[0].execution_s == 2.0, "the profile's time stays as it is"
    assert job.table.due_s[job.row] == pytest.approx(20.0 + 2.0 * pace)
    other = plan(controller, "c", 20.0, agent="drone-2")
    close(controller, other, 20.0)
    assert other.table.due_s[other.row] == 22.0


def test_a_switch_of_disciplines_keeps_paces() -> None:
    controller = EngineController(create_discipline("timely"), SPEED)
    fly(controller, "a", 10.0, 1.4)
    controller.switch("pud", 12.0)
    assert controller.paces.robots() == {"drone-1": pytest.approx(0.85)}


def test_without_a_measured_time_start_and_end_are_the_measurement() -> None:
    controller = EngineController(create_discipline("timely"), SPEED)
    job = plan(controller, "a", 10.0)
    close(controller, job, 10.0)
    controller.report("a", ExecutionReport(0, "started"), 10.5)
    controller.report("a", ExecutionReport(0, "done"), 11.9)
    assert controller.paces.robots() == {"drone-1": pytest.approx(0.85)}


@pytest.mark.parametrize(
    "reports",
    [
        [ExecutionReport(0, "failed", elapsed_s=1.2, reason="blocked")],
        [ExecutionReport(0, "done")],  # when it began is not known
        [ExecutionReport(0, "progress", elapsed_s=0.5, remaining_s=0.1)],
        [ExecutionReport(0, "started")],
        [ExecutionReport(0, "done", elapsed_s=0.0)],
    ],
)
def test_what_tells_nothing_of_a_whole_segment_is_left_out(reports: list[ExecutionReport]) -> None:
    controller = EngineController(create_discipline("timely"), SPEED)
    job = plan(controller, "a", 10.0)
    close(controller, job, 10.0)
    for report in reports:
        controller.report("a", report, 11.0)
    assert controller.paces.robots() == {}


def test_a_blocking_skill_teaches_nothing() -> None:
    controller = EngineController(create_discipline("timely"), SPEED)
    job = plan(controller, "a", 10.0)
    close(controller, job, 10.0, blocking=True)
    controller.report("a", ExecutionReport(0, "done", elapsed_s=1.2), 11.2)
    controller.report("a", ExecutionReport(0, "value", value="yes"), 11.3)
    assert controller.paces.robots() == {}


def test_a_repeated_report_is_learned_from_once() -> None:
    controller = EngineController(create_discipline("timely"), SPEED)
    job = fly(controller, "a", 10.0, 1.4)
    for _ in range(5):
        controller.report("a", ExecutionReport(0, "done", elapsed_s=1.0), 12.0)
    assert controller.paces.of(job.spec.hints.agent, "mf(100);") == pytest.approx(0.85)


@settings(max_examples=examples(50))
@given(
    st.lists(
        st.builds(
            ExecutionReport,
            st.integers(0, 2),
            st.sampled_from(["started", "done", "failed"]),
            elapsed_s=st.one_of(st.none(), st.floats(0, 1e300)),
            age_s=st.floats(0, 1e300),
        ),
        max_size=12,
    )
)
def test_no_reports_make_a_plan_due_out_of_bounds(reports: list[ExecutionReport]) -> None:
    """Whatever one task reports, the robot's next one is planned with at least half of its profile's times."""
    controller = EngineController(create_discipline("timely"), SPEED)
    job = plan(controller, "a", 10.0)
    for now in (10.0, 10.1, 10.2):
        close(controller, job, now)
    for report in reports:
        controller.report("a", report, 11.0)
    controller.finish("a", "complete", 30.0)
    following = plan(controller, "b", 40.0)
    close(controller, following, 40.0)
    due = following.table.due_s[following.row]
    assert 40.0 + 2.0 * FASTEST_PACE <= due <= 40.0 + 2.0 * SLOWEST_PACE
