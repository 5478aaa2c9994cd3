"""The interpreter: what it does, in which order, and that a plan cut anywhere does the same."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_plans import random_call_lists, random_minispec_plans

from examples import examples
from lrtrace.profiles import load_robot_profile
from timely.core.errors import Conflict, InvalidInput, UnknownName
from timely.plans.language.interpreter import Interpreter, Invocation, Plain, SkillFailed, interpret_plan
from timely.plans.language.parser import SegmentParser, parse_plan
from timely.plans.language.segmenter import Segmenter
from timely.plans.skill_library import find_skill_set
from timely.plans.skill_set import SkillSet
from timely.plans.validation import check_plan_segment

DRONE = find_skill_set("drone")
ARM = find_skill_set("arm")
TELLO, INDY7 = load_robot_profile("tello"), load_robot_profile("indy7")


class Recorder:
    """A world that answers from a table and writes down what it did."""

    def __init__(self, **answers: Plain) -> None:
        self.answers = answers
        self.done: list[str] = []

    def do(self, invocation: Invocation) -> Plain:
        self.done.append(f"{invocation.skill}({', '.join(map(str, invocation.args))})")
        return self.answers.get(invocation.skill)


def done(plan: str, **answers: Plain) -> list[str]:
    world = Recorder(**answers)
    interpret_plan(plan, DRONE, world)
    return world.done


@pytest.mark.parametrize(
    ("plan", "answers", "calls"),
    [
        ("mf(100);tc(90);", {}, ["move_forward(100)", "turn_cw(90)"]),
        ("?s('cat')==True{g('cat')};tp();", {"scan": True}, ["scan(cat)", "goto(cat)", "take_picture()"]),
        ("?s('cat')==True{g('cat')};tp();", {"scan": False}, ["scan(cat)", "take_picture()"]),
        ("?iv('a'){l('Yes');->True}l('No');", {"is_visible": True}, ["is_visible(a)", "log(Yes)"]),
        ("?iv('a'){l('Yes');->True}l('No');", {"is_visible": False}, ["is_visible(a)", "log(No)"]),
        ("?iv('a'){tp()}:?od('b')<50{mb(20)}:{mu(20)}", {"is_visible": False, "object_distance": 40.0},
         ["is_visible(a)", "object_distance(b)", "move_backward(20)"]),
        ("?iv('a'){tp()}:?od('b')<50{mb(20)}:{mu(20)}", {"is_visible": False, "object_distance": 60.0},
         ["is_visible(a)", "object_distance(b)", "move_up(20)"]),
        ("3{tp();d(1)}", {}, ["take_picture()", "delay(1)"] * 3),
        ("2{2{tp()}mu(20)}", {}, ["take_picture()", "take_picture()", "move_up(20)"] * 2),
        ("_1=sa('a tool');?_1!=False{g(_1)}", {"scan_abstract": "pen"}, ["scan_abstract(a tool)", "goto(pen)"]),
        ("_1=sa('a tool');?_1!=False{g(_1)}", {"scan_abstract": False}, ["scan_abstract(a tool)"]),
        ("_1=sa('a tool');?_1==True{g(_1)}", {"scan_abstract": "False"}, ["scan_abstract(a tool)"]),
        ("_1=p('is it open?');?_1==True{mf(20)}", {"probe": "no"}, ["probe(is it open?)"]),
        ("_1=p('any cat?');?_1!=False{mf(20)}", {"probe": "No."}, ["probe(any cat?)"]),
        ("_1=p('is it open?');?_1==True{mf(20)}", {"probe": "yes"}, ["probe(is it open?)", "move_forward(20)"]),
        ("_1=p('what?');?_1=='cat'{mf(20)}", {"probe": "cat"}, ["probe(what?)", "move_forward(20)"]),
        ("_1=p('what?');?_1=='cat'{mf(20)}", {"probe": "dog"}, ["probe(what?)"]),
        ("?iv('a')=='True'{tp()}", {"is_visible": True}, ["is_visible(a)", "take_picture()"]),
        ("9{?iv('a'){->True}mf(20);}", {"is_visible": True}, ["is_visible(a)"]),
        ("l(p('what?'));", {"probe": "a cat"}, ["probe(what?)", "log(a cat)"]),
        ("?ox('a')*0==0{tp()}", {"object_x": 0.6}, ["object_x(a)", "take_picture()"]),
        ("?ox('a')*2>1&oy('a')-1<0{tp()}", {"object_x": 0.6, "object_y": 0.5},
         ["object_x(a)", "object_y(a)", "take_picture()"]),
    ],
)  # fmt: skip
def test_what_a_plan_does(plan: str, answers: dict[str, Plain], calls: list[str]) -> None:
    assert done(plan, **answers) == calls


def test_and_and_or_look_right_only_if_they_must() -> None:
    assert done("?iv('a')&s('b'){tp()}", is_visible=False) == ["is_visible(a)"]
    assert done("?iv('a')|s('b'){tp()}", is_visible=True) == ["is_visible(a)", "take_picture()"]


def test_the_value_of_a_plan() -> None:
    assert interpret_plan("_1=p('x');->_1;", DRONE, Recorder(probe="blue")).return_value == "blue"
    assert interpret_plan("mf(20);", DRONE, Recorder()).return_value is None


def test_a_flat_list_of_calls() -> None:
    world = Recorder()
    interpret_plan("pick('cup');place('tray');", ARM, world)
    assert world.done == ["pick(cup)", "place(tray)"]


def segments(plan: str) -> Iterator[str]:
    segmenter = Segmenter(DRONE)
    for boundary in (*segmenter.feed(plan), *segmenter.close()):
        yield boundary.text


PLANS = (
    "?s('cat')==True{g('cat');tp()}l('x');",
    "2{?iv('a'){tp();}:{mu(20);d(1)}}tc(90);",
    "?iv('a'){l('Yes');->True}l('No');",
    "_1=sa('x');?_1!=False{g(_1);3{tp()}}mb(20);",
    "3{mf(20);}",
    "2{?iv('a')==True{g('a')}}",
    "2{_1=ox('a');?_1>0.6{tc(20)};3{tp;};}->False",
)


@given(plan=st.sampled_from(PLANS), yes=st.booleans())
@settings(max_examples=examples(30))
def test_segment_by_segment_is_the_same_as_at_once(plan: str, yes: bool) -> None:
    answers: dict[str, Plain] = {
        "scan": yes,
        "is_visible": yes,
        "scan_abstract": "pen" if yes else False,
        "object_x": 0.7,
    }
    whole, piecewise = Recorder(**answers), Recorder(**answers)
    interpret_plan(plan, DRONE, whole)
    interpreter = Interpreter(DRONE)
    for segment in segments(plan):
        interpreter.feed(segment)
        interpreter.run(piecewise)
    # The tail never reaches a robot.
    assert piecewise.done == whole.done


def test_it_acts_before_the_block_is_complete() -> None:
    interpreter, world = Interpreter(DRONE), Recorder(scan=True)
    interpreter.feed("?s('cat')==True{")
    interpreter.run(world)
    assert world.done == ["scan(cat)"]
    interpreter.feed("g('cat');")
    interpreter.run(world)
    assert world.done == ["scan(cat)", "goto(cat)"]
    assert not interpreter.finished
    interpreter.feed("tp()}")
    interpreter.end()
    interpreter.run(world)
    assert world.done[-1] == "take_picture()"
    assert interpreter.finished


def test_after_a_return_nothing_more_is_done() -> None:
    interpreter, world = Interpreter(DRONE), Recorder(is_visible=True)
    interpreter.feed("?iv('a'){->True}")
    interpreter.run(world)
    assert interpreter.finished
    assert interpreter.return_value is True
    interpreter.feed("mf(100);")
    interpreter.run(world)
    assert world.done == ["is_visible(a)"]


def test_each_invocation_is_answered_once() -> None:
    interpreter = Interpreter(DRONE)
    interpreter.feed("mf(20);")
    with pytest.raises(Conflict):
        interpreter.answer()
    assert interpreter.next() == Invocation("move_forward", (20,), "mf(20)", 0)
    with pytest.raises(Conflict):
        interpreter.next()
    interpreter.answer()
    assert interpreter.next() is None


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ("?iv('a'){_1=p('x');}l(_1);", "was not assigned"),
        ("?p('x')<3{tp()}", "is no number"),
        ("?iv('a')<1{tp()}", "is no number"),
        ("?ox('a')/0>1{tp()}", "divides by zero"),
        ("1000{11{tp()}}", "more than 10000 calls"),
        ("_1=1;1000{101{_1=2;}}", "more than 100000 steps"),
        ("1000{100{}}", "more than 100000 steps"),
        ("1000{9{_1=1+1+1+1+1+1+1+1+1+1+1+1;}}", "more than 100000 steps"),
        ("1000{9{?1+1+1+1+1+1+1+1+1+1+1>12{}}}", "more than 100000 steps"),
        ("_1=2;20{_1=_1*_1;}", r"over 1e\+15"),
        ("?ow('a')<1{tp()}", "or none"),
    ],
)
def test_what_cannot_run_says_why(plan: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        done(plan, probe="blue", object_x=1.0, object_width=math.nan, is_visible=False)


def test_a_plan_that_is_none() -> None:
    with pytest.raises(InvalidInput):
        interpret_plan("?iv('a'){tp()", DRONE, Recorder())
    with pytest.raises(UnknownName):
        interpret_plan("fly(100);", DRONE, Recorder())


def test_a_failing_skill_ends_the_plan() -> None:
    class Stuck(Recorder):
        def do(self, invocation: Invocation) -> Plain:
            super().do(invocation)
            raise SkillFailed("stuck", where=invocation.text)

    world = Stuck()
    with pytest.raises(SkillFailed, match="stuck"):
        interpret_plan("mf(20);tp();", DRONE, world)
    assert world.done == ["move_forward(20)"]


class Answers:
    """A world whose answers depend on the number of the call alone."""

    def __init__(self, skills: SkillSet, seed: int) -> None:
        self.skills = skills
        self.rng = random.Random(seed)
        self.done: list[tuple[str, tuple[Plain, ...]]] = []

    def do(self, invocation: Invocation) -> Plain:
        self.done.append((invocation.skill, invocation.args))
        answers: dict[str, Plain] = {
            "none": None,
            "bool": self.rng.random() < 0.5,
            "float": self.rng.choice((0.1, 0.5, 60.0)),
            "str": self.rng.choice(("pen", "False", "x")),
        }
        skill = self.skills.find(invocation.skill)
        assert skill is not None
        return answers[skill.returns]


@pytest.mark.process
@settings(max_examples=examples(300))
@given(
    random_minispec_plans().map(lambda plan: ("drone", plan))
    | random_call_lists().map(lambda plan: ("arm", plan)),
    st.lists(st.integers(0, 9), max_size=60),
    st.integers(0, 99),
)
def test_the_segments_of_a_plan_do_what_the_plan_does(
    named_plan: tuple[str, str], sizes: list[int], seed: int
) -> None:
    """Whatever its cut into tokens: what the server releases makes a robot do what the whole plan says."""
    name, plan = named_plan
    skills, profile = (DRONE, TELLO) if name == "drone" else (ARM, INDY7)
    try:
        parse_plan(plan, skills)
    except InvalidInput:
        assume(False)
    segmenter, parser, interpreter = Segmenter(skills), SegmentParser(skills), Interpreter(skills)
    boundaries, at = [], 0
    for size in (*sizes, len(plan)):
        boundaries += segmenter.feed(plan[at : at + size])
        at += size
    boundaries += segmenter.close()
    whole, piecewise = Answers(skills, seed), Answers(skills, seed)
    for boundary in boundaries:
        calls = check_plan_segment(boundary.text, skills, profile, parser_state=parser)
        assert sorted(call.skill for call in calls) == sorted(boundary.skills)
        interpreter.feed(boundary.text)
        with contextlib.suppress(InvalidInput):  # a text as a number: the plan is over
            interpreter.run(piecewise)
    with contextlib.suppress(InvalidInput):
        interpret_plan(plan, skills, whole)
    assert piecewise.done == whole.done
