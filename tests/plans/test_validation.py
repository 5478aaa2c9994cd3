"""Only what can be shown to be safe is released."""

from __future__ import annotations

import contextlib

import pytest
from crane import crane
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from lrtrace.profiles import load_robot_profile
from lrtrace.robot_profile import ArgumentLimit, RobotProfile
from timely.core.errors import UnsafeSegment
from timely.plans.language.parser import SegmentParser
from timely.plans.language.syntax import PlanCall
from timely.plans.skill_library import find_skill_set
from timely.plans.skill_set import SkillSet
from timely.plans.units import convert_plan_unit, plan_robot_arguments
from timely.plans.validation import check_plan_segment

DRONE = find_skill_set("drone")
TELLO = load_robot_profile("tello")


def narrowed(**changes: object) -> RobotProfile:
    return TELLO.model_copy(update=changes)


def test_good_segments_give_their_calls() -> None:
    parser = SegmentParser(DRONE)
    assert check_plan_segment("?s('cat')==True{", DRONE, TELLO, parser_state=parser) == [
        PlanCall("scan", ("cat",))
    ]
    assert check_plan_segment("g('chair[0.6]')}", DRONE, TELLO, parser_state=parser) == [
        PlanCall("goto", ("chair[0.6]",))
    ]
    assert parser.depth == 0
    assert check_plan_segment("->True}l('No');", DRONE, TELLO) == [PlanCall("log", ("No",))]
    assert check_plan_segment("_1=sa('Any food?');", DRONE, TELLO, parser_state=parser)
    assert check_plan_segment("?_1!=False{g(_1)}", DRONE, TELLO, parser_state=parser)


UNSAFE = [
    ("mf(19);", "distance must be 20..500 cm, got 19"),
    ("mf(501);", "distance must be 20..500 cm, got 501"),
    ("mf(-50);", "distance must be 20..500 cm, got -50"),
    ("mf(50.5);", "distance must be a whole number"),
    ("mf('50');", "distance must be a whole number, got '50'"),
    ("mf(True);", "distance must be a whole number, got True"),
    ("mf();", "takes 1 argument(s) (distance), got 0"),
    ("mf(50,60);", "got 2"),
    ("d(61);", "seconds must be 0.1..60 s"),
    ("_1=ox('a');mf(_1);", "must be a plain value"),
    ("mf(20+20);", "must be a plain value"),
    ("mf(od('a'));", "must be a plain value"),
    ("g(3);", "object must be a text"),
    ("g('');", "must name an object"),
    ("g('../x');", "must name an object"),
    ("g('a; land');", "must name an object"),
    ("g('" + "a" * 49 + "');", "at most 48 characters, got 49"),
    ("l('" + "a " * 60 + "');", "at most 89 characters"),
    ("_1=g('a');", "goto returns nothing"),
    ("?tp(){mf(50)}", "take_picture returns nothing"),
    ("?iv('a'){rp()}", "in a block it might not run"),
    ("4{rp();", "in a block it might not run"),
    ("fly(50);", "unknown skill"),
    ("mf(50", "expected"),
    ("", "empty"),
    (" \n", "empty"),
    ("l('a\x1b[2J');", "control character U+001B"),
    ("l('a\x00');", "control character U+0000"),
    ("l('\ud800');", "control character U+D800"),
    ("l('a\u200bb');", "invisible character U+200B"),
    ("l('a\u202eb');", "invisible character U+202E"),
    ("l('a\u2028b');", "invisible character U+2028"),
    ("l('a\u200db');", "invisible character U+200D"),
    ("l('\u306a\u200d\u200d');", "invisible character U+200D"),
    ("l('\U0001f600\ufe0f\ufe0f');", "invisible character U+FE0F"),
    ("l('\u3164');", "invisible character U+3164"),
    ("g('box\u3164');", "invisible character U+3164"),
    ("g('box\u200d');", "invisible character U+200D"),
    ("\ufeffl('a');", "invisible character U+FEFF"),
    ("1000{11{mf(20);", "more than 10000 calls"),
    ("tp();" * 1000, "longer than 4000"),
]


@pytest.mark.parametrize(("text", "why"), UNSAFE, ids=[why for _, why in UNSAFE])
def test_unsafe_segments_say_what_and_where(text: str, why: str) -> None:
    with pytest.raises(UnsafeSegment) as caught:
        check_plan_segment(text, DRONE, TELLO, parser_state=SegmentParser(DRONE))
    assert why in caught.value.message
    assert caught.value.where


def test_the_robot_may_be_narrower_than_the_skill_set() -> None:
    denied = narrowed(deny=("tp",))
    with pytest.raises(UnsafeSegment, match="take_picture is not allowed on tello"):
        check_plan_segment("tp();", DRONE, denied)
    allowed = narrowed(allow=("move_forward",))
    assert check_plan_segment("mf(50);", DRONE, allowed)
    with pytest.raises(UnsafeSegment, match="not allowed"):
        check_plan_segment("mb(50);", DRONE, allowed)
    forward = TELLO.skills["move_forward"]
    limit = forward.args["distance"].model_copy(update={"unit": "m", "min": 0.2, "max": 1.0})
    metres = forward.model_copy(update={"args": {"distance": limit}})
    indoors = narrowed(skills={**TELLO.skills, "move_forward": metres})
    assert check_plan_segment("mf(100);", DRONE, indoors)
    assert check_plan_segment("mf(20);", DRONE, indoors)
    with pytest.raises(UnsafeSegment, match=r"must be 0\.2 to 1 m, got 1\.01"):
        check_plan_segment("mf(101);", DRONE, indoors)
    angle = forward.model_copy(update={"args": {"distance": limit.model_copy(update={"unit": "deg"})}})
    with pytest.raises(UnsafeSegment, match="is in cm, the robot's limit in deg"):
        check_plan_segment("mf(50);", DRONE, narrowed(skills={**TELLO.skills, "move_forward": angle}))


def test_a_robot_without_the_skill_refuses_it() -> None:
    skills = {name: entry for name, entry in TELLO.skills.items() if name != "goto"}
    with pytest.raises(UnsafeSegment, match="unknown skill 'goto'"):
        check_plan_segment("g('cat');", DRONE, narrowed(skills=skills))


def test_a_variable_cannot_dodge_the_robots_choices() -> None:
    entry = TELLO.skills["goto"]
    limit = entry.args["object"].model_copy(update={"choices": ("home",)})
    fenced = narrowed(skills={**TELLO.skills, "goto": entry.model_copy(update={"args": {"object": limit}})})
    assert check_plan_segment("g('home');", DRONE, fenced)
    with pytest.raises(UnsafeSegment, match="must be one of home"):
        check_plan_segment("g('street');", DRONE, fenced)
    with pytest.raises(UnsafeSegment, match="plain value"):
        check_plan_segment("g(_1);", DRONE, fenced)


def test_choices_and_patterns_of_the_skill_set() -> None:
    skill_set = SkillSet.model_validate(
        {
            "name": "t",
            "language": "calls",
            "skills": [
                {"name": "say", "arguments": [{"name": "message", "type": "str", "choices": ["hi", "bye"]}]},
                {
                    "name": "move_to",
                    "arguments": [{"name": "target", "type": "object"}],
                    "pattern": r"move_to\('shelf [0-9]'\)",
                },
            ],
        }
    )
    arm = load_robot_profile("indy7")
    assert check_plan_segment("say('hi');move_to('shelf 4');", skill_set, arm)
    with pytest.raises(UnsafeSegment, match="must be one of hi, bye"):
        check_plan_segment("say('ho');", skill_set, arm)
    with pytest.raises(UnsafeSegment, match="does not match the pattern"):
        check_plan_segment("move_to('shelf 44');", skill_set, arm)


@pytest.mark.parametrize(
    "word", ["می\u200cخواهم", "🧑\u200d🚀", "❤\ufe0f\u200d🔥", "1\ufe0f\u20e3", "naïve", "क्\u200dष"]
)
def test_speech_in_scripts_that_join_their_letters_passes(word: str) -> None:
    assert check_plan_segment(f"l('{word}');", DRONE, TELLO)


def test_prose_is_only_looked_at_for_characters_that_are_not_seen() -> None:
    chat, reader = find_skill_set("chat"), load_robot_profile("chat-reader")
    assert check_plan_segment("It's fine; really {so}.\n", chat, reader) == []
    with pytest.raises(UnsafeSegment, match="U\\+0007"):
        check_plan_segment("ring\a", chat, reader)
    with pytest.raises(UnsafeSegment, match="U\\+2066"):
        check_plan_segment("read \u2066this", chat, reader)


def test_the_limits_of_a_profile_hold_for_prose() -> None:
    chat, reader = find_skill_set("chat"), load_robot_profile("chat-reader")
    entry = reader.skills["sentence"]
    short = entry.model_copy(update={"args": {"text": ArgumentLimit(max_chars=9)}})
    with pytest.raises(UnsafeSegment, match="at most 9 characters, got 11"):
        check_plan_segment("Hello there", chat, reader.model_copy(update={"skills": {"sentence": short}}))
    with pytest.raises(UnsafeSegment, match="sentence is not allowed on chat-reader"):
        check_plan_segment("Hello.", chat, reader.model_copy(update={"deny": ("sentence",)}))


@settings(max_examples=examples(200))
@given(st.integers(-(10**6), 10**6))
def test_nothing_outside_the_limits_passes(distance: int) -> None:
    if 20 <= distance <= 500:
        assert check_plan_segment(f"mf({distance});", DRONE, TELLO) == [PlanCall("move_forward", (distance,))]
    else:
        with pytest.raises(UnsafeSegment):
            check_plan_segment(f"mf({distance});", DRONE, TELLO)


@settings(max_examples=examples(200))
@given(st.text(max_size=40))
def test_any_text_is_released_or_refused_with_the_one_error(text: str) -> None:
    with contextlib.suppress(UnsafeSegment):
        check_plan_segment(text, DRONE, TELLO)


def test_a_robot_takes_its_arguments_in_its_own_order_and_units() -> None:
    skills, robot = crane()
    (call,) = check_plan_segment("go(0.5,2.0);", skills, robot)
    assert list(plan_robot_arguments(call, skills.skills[0], robot).items()) == [("up", 200), ("ahead", 50)]
    with pytest.raises(UnsafeSegment, match=r"up of go must be 0 to 300 cm, got 310"):
        check_plan_segment("go(0.5,3.1);", skills, robot)


def test_units() -> None:
    assert convert_plan_unit(20, "cm", "m") == 0.2
    assert convert_plan_unit(0.2, "m", "cm") == 20
    assert convert_plan_unit(180, "deg", "rad") == pytest.approx(3.14159265, abs=1e-8)
    assert convert_plan_unit(2, "s", "ms") == 2000
    assert convert_plan_unit(5, "", "cm") == 5
    assert convert_plan_unit(5, "cm", "s") is None
