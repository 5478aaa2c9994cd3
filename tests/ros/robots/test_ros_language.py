"""Plans as a robot reads them: segment by segment, blocks left open, values computed, limits kept."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from crane import crane
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import random_minispec_plans
from timely_robots import language
from timely_robots.error_codes import ErrorCode
from timely_robots.language import RobotPlanInterpreter, RobotProseReader
from timely_robots.segments import MotionError, SegmentOrder, SkillCall, SkillValue

from examples import examples
from lrtrace.profiles import load_robot_profile
from timely.core.errors import InvalidInput, UnsafeSegment
from timely.plans.language.interpreter import Interpreter
from timely.plans.language.parser import SegmentParser
from timely.plans.language.segmenter import Segmenter
from timely.plans.skill_library import load_skill_set
from timely.plans.skill_set import SkillSet
from timely.plans.validation import check_plan_segment

DRONE = load_robot_profile("sim-drone")
ARM = load_robot_profile("sim-arm")


class Hands:
    """Performs calls by writing them down; queries are answered from a table."""

    def __init__(self, **answers: SkillValue) -> None:
        self.calls: list[str] = []
        self.args: list[tuple[object, ...]] = []
        self.answers = answers

    def execute(self, plan: RobotPlanInterpreter | RobotProseReader, segment: str) -> None:
        plan.feed(segment)
        while (call := plan.next()) is not None:
            self.calls.append(call.text)
            self.args.append(call.args)
            plan.answer(self.answers.get(call.skill))


def run(segments: list[str], skills: str = "drone", **answers: SkillValue) -> Hands:
    hands = Hands(**answers)
    plan = RobotPlanInterpreter(load_skill_set(skills))
    for segment in segments:
        hands.execute(plan, segment)
    return hands


CHOICE = ["?iv('a'){mf(20)}", ":?s('b'){mb(20)}", ":{mu(20)}", "md(20);"]
BOTH = ["?iv('keys')&iv('wallet')->{l('Yes');->True}", "l('No');->False"]
SIDE = ["_1=ox('cat');", "?_1>0.6{tc(15)}", ":?_1<0.4{tu(15)}"]


@pytest.mark.parametrize(
    ("segments", "answers", "calls"),
    [
        (["mf(100);", "tc(90);"], {}, ["mf(100)", "tc(90)"]),
        (["?s('dog')==True{", "g('dog')}"], {"scan": True}, ["s('dog')", "g('dog')"]),
        (["?s('dog')==True{", "g('dog')}"], {"scan": False}, ["s('dog')"]),
        (["?s('dog')==True{g('dog')}", "mf(50);"], {"scan": False}, ["s('dog')", "mf(50)"]),
        # Arms come in later segments; the first that holds is taken, and no condition after it is asked.
        (CHOICE, {"scan": True}, ["iv('a')", "s('b')", "mb(20)", "md(20)"]),
        (CHOICE, {"is_visible": True}, ["iv('a')", "mf(20)", "md(20)"]),
        (CHOICE, {}, ["iv('a')", "s('b')", "mu(20)", "md(20)"]),
        # A loop runs once as it arrives, and the rest when its brace has come.
        (["3{mf(20);", "tc(30);", "}"], {}, ["mf(20)", "tc(30)"] * 3),
        (["2{2{mf(20)}tc(30)}"], {}, ["mf(20)", "mf(20)", "tc(30)"] * 2),
        # A return ends the plan, also out of a loop, and in later segments.
        (["4{mf(20);->True}", "mu(40);"], {}, ["mf(20)"]),
        (BOTH, {"is_visible": True}, ["iv('keys')", "iv('wallet')", "l('Yes')"]),
        (BOTH, {}, ["iv('keys')", "l('No')"]),
        # Either side of | is enough.
        (["?iv('a')|s('b'){mf(20)}"], {"is_visible": True}, ["iv('a')", "mf(20)"]),
        (SIDE, {"object_x": 0.7}, ["ox('cat')", "tc(15)"]),
        (SIDE, {"object_x": 0.3}, ["ox('cat')", "tu(15)"]),
        (["?od('cat')/2+10>=85{mf(20)}"], {"object_distance": 150.0}, ["od('cat')", "mf(20)"]),
    ],
)
def test_plans_are_executed_as_written(
    segments: list[str], answers: dict[str, Any], calls: list[str]
) -> None:
    assert run(segments, **answers).calls == calls


def test_any_cut_into_segments_gives_the_same_calls() -> None:
    cuts = [
        ["?iv('a')==True{mf(20);2{tc(30);mu(20)}}:{md(20);}l('x');"],
        ["?iv('a')==True{", "mf(20);", "2{", "tc(30);", "mu(20)}", "}", ":{", "md(20);}", "l('x');"],
        ["?iv('a')==True{mf(20);2{tc(30);", "mu(20)}}:{md(20);", "}l('x');"],
    ]
    calls = [run(cut, is_visible=True).calls for cut in cuts]
    assert calls == [["iv('a')", "mf(20)", "tc(30)", "mu(20)", "tc(30)", "mu(20)", "l('x')"]] * 3


def test_a_variable_reaches_the_call() -> None:
    hands = run(["_1=sa('a tool');", "g(_1);"], scan_abstract="pen")
    assert hands.args == [("a tool",), ("pen",)]


@pytest.mark.parametrize(
    "segment",
    ["zz(3);", "mf(;", "}", "_1=", "g(_7);", "?ox('a')<'b'{mf(20)}", "?ox('a')/0>1{mf(20)}"],
)
def test_what_cannot_be_executed_is_a_typed_error(segment: str) -> None:
    with pytest.raises(MotionError) as caught:
        run([segment], object_x=0.5)
    assert caught.value.code == ErrorCode.SEGMENT_INVALID


@pytest.mark.parametrize(
    ("segments", "why"),
    [
        (["100{101{iv('a');}}"], "more than 10000 calls"),
        (["1000{11{mf(20);", "}}"], "more than 10000 calls"),
        (["_1=1;1000{101{_1=2;}}mf(20);"], "more than 100000 steps"),
    ],
)
def test_a_plan_that_never_ends_does_not_begin(segments: list[str], why: str) -> None:
    hands = Hands()
    with pytest.raises(MotionError, match=why) as caught:
        hands.execute(RobotPlanInterpreter(load_skill_set("drone")), segments[0])
    assert caught.value.code == ErrorCode.SEGMENT_INVALID
    assert hands.calls == []


def test_a_loop_with_as_many_calls_as_are_allowed_runs() -> None:
    assert len(run(["1000{5{mf(20);", "mb(20);", "}}"]).calls) == 10_000


def test_prose_is_read_out_in_one_piece() -> None:
    hands = Hands()
    hands.execute(language.robot_plan("chat"), " A short sentence. ")
    assert hands.args == [("A short sentence.",)]


def order(text: str, skill_set: str = "drone") -> SegmentOrder:
    return SegmentOrder("t", 0, text, skill_set)


@pytest.mark.parametrize(
    "text", ["mf(100);", "?s('dog')==True{", "g('dog')}", "mu(40);?iv('vase')==True{tp()}"]
)
def test_good_segments_pass(text: str) -> None:
    language.check_robot_segment(order(text), DRONE)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("mf(10);", ErrorCode.OUT_OF_LIMITS),
        ("mf(501);", ErrorCode.OUT_OF_LIMITS),
        ("mf(-20);", ErrorCode.OUT_OF_LIMITS),
        ("tc(361);", ErrorCode.OUT_OF_LIMITS),
        ("zz(1);", ErrorCode.SEGMENT_INVALID),
        ("mf(100", ErrorCode.SEGMENT_INVALID),
        ("", ErrorCode.OUT_OF_LIMITS),
        ("g('\x1b[2J');", ErrorCode.OUT_OF_LIMITS),
    ],
)
def test_bad_segments_are_refused_with_a_code(text: str, code: int) -> None:
    with pytest.raises(MotionError) as caught:
        language.check_robot_segment(order(text), DRONE)
    assert caught.value.code == code


def test_an_unknown_skill_set_is_refused() -> None:
    with pytest.raises(MotionError) as caught:
        language.check_robot_segment(order("mf(100);", "nope"), DRONE)
    assert caught.value.code == ErrorCode.UNKNOWN_NAME


def test_a_segment_of_another_copy_of_the_skill_set_is_refused() -> None:
    own = load_skill_set("drone").fingerprint
    for fingerprint in ("", own):
        same = SegmentOrder("t", 0, "mf(100);", "drone", skill_set_fingerprint=fingerprint)
        language.check_robot_segment(same, DRONE)
    other = SegmentOrder("t", 0, "mf(100);", "drone", skill_set_fingerprint="0123456789abcdef")
    with pytest.raises(MotionError, match=f"drone 0123456789abcdef, this driver has {own}") as caught:
        language.check_robot_segment(other, DRONE)
    assert caught.value.code == ErrorCode.SKILL_SET_MISMATCH


def test_a_skill_the_robot_may_not_use_is_forbidden() -> None:
    tame = DRONE.model_copy(update={"deny": ("move_up",)})
    with pytest.raises(MotionError) as caught:
        language.check_robot_segment(order("mu(40);"), tame)
    assert caught.value.code == ErrorCode.SKILL_FORBIDDEN
    language.check_robot_segment(order("mf(40);"), tame)


def test_a_computed_argument_is_checked_when_it_is_known() -> None:
    skills = load_skill_set("drone")
    with pytest.raises(MotionError) as caught:
        language.approve_robot_call(SkillCall("move_forward", (9999,), "mf(_1)"), skills, DRONE)
    assert caught.value.code == ErrorCode.OUT_OF_LIMITS
    assert language.approve_robot_call(SkillCall("move_forward", (100,), "mf(100)"), skills, DRONE).args == (
        100,
    )


@pytest.mark.parametrize("text", ["a\x1b[2J", "a\u202eb", "a\u200bb", "a\ue000"])
@pytest.mark.parametrize("skill", ["log", "goto"])
def test_a_value_of_a_robot_brings_no_unseen_characters_into_speech_or_names(skill: str, text: str) -> None:
    with pytest.raises(MotionError) as caught:
        language.approve_robot_call(SkillCall(skill, (text,), "l(_1)"), load_skill_set("drone"), DRONE)
    assert caught.value.code == ErrorCode.OUT_OF_LIMITS


def test_arguments_arrive_in_the_units_of_the_profile() -> None:
    skills = load_skill_set("drone")
    data = DRONE.model_dump()
    data["skills"]["move_forward"]["args"]["distance"] = {"unit": "m", "min": 0.2, "max": 5.0}
    data["skills"]["move_forward"]["execution"] |= {"unit": "m"}
    metric = type(DRONE).model_validate(data)
    assert language.approve_robot_call(SkillCall("move_forward", (150,), "mf(150)"), skills, metric).args == (
        1.5,
    )


@pytest.mark.parametrize(
    ("limit", "line", "plan", "args", "units"),
    [
        ("m", "m", "cm", (1.5,), ("m",)),
        ("", "m", "cm", (1.5,), ("m",)),
        ("m", "", "cm", (1.5,), ("m",)),
        ("", "", "cm", (150,), ("cm",)),
        ("cm", "cm", "", (150,), ("cm",)),
        ("", "", "m", (150,), ("m",)),
    ],
)
def test_a_call_says_the_unit_of_each_number(
    limit: str, line: str, plan: str, args: tuple[float], units: tuple[str]
) -> None:
    data = DRONE.model_dump()
    move = data["skills"]["move_forward"]
    move["args"]["distance"] = {"unit": limit}
    move["execution"] |= {"unit": line}
    skills = load_skill_set("drone").model_dump()
    forward = next(skill for skill in skills["skills"] if skill["name"] == "move_forward")
    forward["arguments"][0]["unit"] = plan
    call = language.approve_robot_call(
        SkillCall("move_forward", (150,), "mf(150)"),
        SkillSet.model_validate(skills),
        type(DRONE).model_validate(data),
    )
    assert (call.args, call.units) == (args, units)


def test_arguments_arrive_in_the_order_of_the_profile() -> None:
    skills, robot = crane()
    call = language.approve_robot_call(SkillCall("go", (0.5, 2.0), "go(0.5,2.0)"), skills, robot)
    assert call.args == (200, 50)


@pytest.mark.parametrize("name", ["drone", "arm"])
def test_every_example_plan_runs_on_the_simulated_robot(name: str) -> None:
    profile = DRONE if name == "drone" else ARM
    skills = load_skill_set(name)
    for example in skills.examples:
        language.check_robot_segment(order(example.plan, name), profile)
        for answer in (True, False):
            hands = Hands(
                scan=answer, is_visible=answer, scan_abstract="pen", look=answer, probe="yes", object_x=0.5
            )
            hands.execute(RobotPlanInterpreter(skills), example.plan)
            assert hands.calls


ODDITIES = (
    *("\u00a0", "\u2028", "\x85", "\ufeff", "\uff11", "\u00b2", "\u0308", "\u202e", "\ue000", "\x1c", "\r"),
    *("'", '"', "\\", "\n", ",", ";", "{", "}", "(", ")", "->", ":", "?", "_1", "#", "&&", "."),
    *("e9", "1e400", "-0", "00", "nan", "inf", "True", "0.", "-", "9" * 14, "9" * 16, "50cm"),
)
DRIVER_ONLY = ("in a block", "has no value yet", "without a", "makes more than", "takes more than")
"""Errors that the driver sees only when it interprets the segment behind those before it."""


@pytest.mark.process
@settings(max_examples=examples(300))
@given(
    random_minispec_plans(),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 2), st.sampled_from(ODDITIES)), max_size=2),
)
def test_a_driver_takes_the_segments_that_the_server_releases(
    plan: str, changes: list[tuple[int, int, str]]
) -> None:
    """And no others, and understands them as the server does."""
    for at, width, oddity in changes:
        plan = plan[:at] + oddity + plan[at + width :]
    skills = load_skill_set("drone")
    parser, hands, segmenter = SegmentParser(skills), Hands(), Segmenter(skills)
    expected, driver = Interpreter(skills), RobotPlanInterpreter(skills)
    for boundary in (*segmenter.feed(plan), *segmenter.close()):
        problem = refusal = ""
        try:
            check_plan_segment(boundary.text, skills, DRONE, parser_state=parser)
        except UnsafeSegment as error:
            problem = error.message
        try:
            language.check_robot_segment(order(boundary.text), DRONE)
        except MotionError as error:
            refusal = error.message
        assert bool(refusal) == bool(problem) or (problem and any(why in problem for why in DRIVER_ONLY))
        if problem:
            break
        expected.feed(boundary.text)
        done: list[str] = []
        with suppress(InvalidInput, MotionError):
            while (call := expected.next()) is not None:
                done.append(call.text)
                expected.answer()
        before = len(hands.calls)
        with suppress(InvalidInput, MotionError):
            hands.execute(driver, boundary.text)
        assert hands.calls[before:] == done
