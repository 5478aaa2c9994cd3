"""The benchmark tasks: Table 2's kinds and lengths, and plans that the skill sets cut and check as written here."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lrtrace.compose.tasks import TASKS, WorkloadPlanVariant, find_workload_task
from lrtrace.errors import UnknownName
from lrtrace.job import NORMAL, URGENT
from lrtrace.plan_text import TraceCall, count_trace_tokens, parse_trace_calls, robot_profile_execution_s
from lrtrace.profiles import find_robot_profile
from timely.plans.language.parser import SegmentParser
from timely.plans.language.segmenter import Segmenter
from timely.plans.skill_library import find_skill_set
from timely.plans.validation import check_plan_segment

VARIANTS = [(task.trace_id, index) for task in TASKS.values() for index in range(len(task.variants))]


def variant(trace_id: int, index: int) -> WorkloadPlanVariant:
    return TASKS[trace_id].variants[index]


def test_table_2() -> None:
    assert list(TASKS) == list(range(1, 12))
    assert [task.trace_id for task in TASKS.values() if task.tuf == URGENT] == [6, 7, 8]
    assert all(task.tuf == NORMAL for task in TASKS.values() if task.trace_id not in (6, 7, 8))
    assert [task.trace_id for task in TASKS.values() if task.skill_set == "arm"] == [9, 10, 11]
    assert all(len(task.variants) >= 3 for task in TASKS.values())
    with pytest.raises(UnknownName, match="unknown trace id 12"):
        find_workload_task(12)


def test_plans_are_as_long_as_the_paper_says() -> None:
    lengths = {
        task.trace_id: np.mean([count_trace_tokens(chosen.text) for chosen in task.variants])
        for task in TASKS.values()
    }
    assert np.mean([lengths[number] for number in range(1, 9)]) == pytest.approx(20, abs=4)
    assert np.mean([lengths[number] for number in range(9, 12)]) == pytest.approx(100, rel=0.2)


def test_task_2_is_over_in_milliseconds() -> None:
    tello = find_robot_profile("tello")
    for index in range(3):
        assert sum(segment.execution_s for segment in TASKS[2].plan(index, tello, how="mean")) < 0.01


@pytest.mark.parametrize(("trace_id", "index"), VARIANTS)
def test_the_segmenter_cuts_them_so_and_the_robot_may_run_them(trace_id: int, index: int) -> None:
    task, chosen = TASKS[trace_id], variant(trace_id, index)
    skill_set, profile = find_skill_set(task.skill_set), find_robot_profile(task.robot)
    segmenter = Segmenter(skill_set)
    boundaries = [*segmenter.feed(chosen.text), *segmenter.close()]
    assert tuple(boundary.text for boundary in boundaries) == chosen.segments
    assert segmenter.finish() == ""
    parser = SegmentParser(skill_set)
    for text in chosen.segments:
        calls = check_plan_segment(text, skill_set, profile, parser_state=parser)
        ours = [profile.skill_name(call.skill) for call in parse_trace_calls(text)]
        assert ours == [call.skill for call in calls]
    parser.finish()


@pytest.mark.parametrize(("trace_id", "index"), VARIANTS)
def test_execution_times_come_from_the_profile(trace_id: int, index: int) -> None:
    task, chosen = TASKS[trace_id], variant(trace_id, index)
    profile = find_robot_profile(task.robot)
    plan = task.plan(index, profile, rng=np.random.default_rng(3))
    for number, segment in enumerate(plan):
        low = robot_profile_execution_s(segment.text, profile, "minimum")
        if number in chosen.untaken:
            assert segment.execution_s == 0
        else:
            assert segment.execution_s >= low - 1e-6
        estimate = segment.extra.get("estimate_s", segment.execution_s)
        assert estimate == pytest.approx(
            robot_profile_execution_s(segment.text, profile, "estimate"), abs=1e-6
        )


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("mf(100);", [TraceCall("mf", (100.0,))]),
        ("?s('cat')==True{", [TraceCall("s", ("cat",))]),
        ("->True}?iv('a b')&iv(\"c\"){", [TraceCall("iv", ("a b",)), TraceCall("iv", ("c",))]),
        ("l('say mf(10) twice');", [TraceCall("l", ("say mf(10) twice",))]),
        ("l('it\\'s');tp()}", [TraceCall("l", ("it's",)), TraceCall("tp", ())]),
        ("_1=sa('What, now?');", [TraceCall("sa", ("What, now?",))]),
        ("g(_1)}", [TraceCall("g", ("_1",))]),
        ("pick(red_box)->place( bin )", [TraceCall("pick", ("red_box",)), TraceCall("place", ("bin",))]),
        ("l(ox('cat'));", [TraceCall("l", ()), TraceCall("ox", ("cat",))]),
        ("3mf( 10 )", [TraceCall("mf", (10.0,))]),
        ("go(10, -20.5, 'x')", [TraceCall("go", (10.0, -20.5, "x"))]),
        ("mf(10", []),
        ("4{", []),
        ("->False", []),
    ],
)
def test_calls_are_found(text: str, calls: list[TraceCall]) -> None:
    assert parse_trace_calls(text) == calls


@pytest.mark.process
def test_calls_take_linear_time() -> None:
    """A hundred thousand of the worst characters: what is quadratic would take minutes (and the test's deadline)."""
    texts = ["a(" * 50_000, "'" * 100_000, "a('" * 30_000, "a(" + "1," * 50_000, "(" * 100_000]
    for text in (*texts, "a" * 100_000, "1" * 100_000, "a(" + " " * 100_000, "a" + " b" * 50_000):
        parse_trace_calls(text)
        count_trace_tokens(text)


def test_token_counts_are_near_a_real_tokenizer() -> None:
    """Measured with SmolLM2's tokenizer over these plans and written down here: 1311 tokens."""
    total = sum(
        count_trace_tokens(text) for trace_id, index in VARIANTS for text in variant(trace_id, index).segments
    )
    # SmolLM2 spells numbers digit by digit; the estimate takes up to three digits as one, as Llama 3 does.
    digits = sum(
        len(number) - 1
        for trace_id, index in VARIANTS
        for number in re.findall(r"\d+", variant(trace_id, index).text)
    )
    assert total + digits == pytest.approx(1311, rel=0.05)
    assert count_trace_tokens("") == 1
