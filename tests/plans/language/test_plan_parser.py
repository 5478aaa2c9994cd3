"""Plans as trees: whole, segment by segment, and as fragments; and what does not parse."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.core.errors import InvalidInput, TimelyError, UnknownName, Unsupported
from timely.plans.language.lexer import quote_plan_text, unquote_plan_text
from timely.plans.language.parser import SegmentParser, parse_plan, parse_plan_calls
from timely.plans.language.segmenter import Segmenter
from timely.plans.language.syntax import (
    Assign,
    Branch,
    If,
    Loop,
    Operation,
    PlanCall,
    Return,
    Variable,
    plan_node_calls,
)
from timely.plans.skill_library import find_skill_set

DRONE = find_skill_set("drone")
ARM = find_skill_set("arm")


def body(text: str, skill_set: object = DRONE) -> list[object]:
    return list(parse_plan(text, skill_set).body.statements)  # type: ignore[arg-type]


def test_calls_are_named_in_full_and_know_where_they_stand() -> None:
    (up, conditional) = body("mu(40);?iv('book')==True{tp()}")
    assert up == PlanCall("move_up", (40,))
    assert isinstance(up, PlanCall)
    assert (up.text, up.at, up.depth, up.role) == ("mu(40)", 0, 0, "statement")
    assert isinstance(conditional, If)
    (photo,) = conditional.branches[0].body.statements
    assert photo == PlanCall("take_picture")
    assert isinstance(photo, PlanCall)
    assert (photo.text, photo.at, photo.depth) == ("tp()", 25, 1)
    assert conditional.branches[0].condition == Operation("==", PlanCall("is_visible", ("book",)), True)


def test_everything_the_language_has() -> None:
    statements = body(
        "_1=ox('cat');12{?_1>0.5+0.1*2&iv('a')|iv('b')!=True{->_1}:?_1<-3{tc(15)}:{tp;rp}}d(.5);->False;"
    )
    assign, loop, wait, end = statements
    assert assign == Assign("_1", PlanCall("object_x", ("cat",)))
    assert isinstance(loop, Loop)
    assert loop.count == 12
    (conditional,) = loop.body.statements
    assert isinstance(conditional, If)
    assert conditional.closed
    first, second, rest = conditional.branches
    sum_ = Operation("+", 0.5, Operation("*", 0.1, 2))
    assert first.condition == Operation(
        "|",
        Operation("&", Operation(">", Variable("_1"), sum_), PlanCall("is_visible", ("a",))),
        Operation("!=", PlanCall("is_visible", ("b",)), True),
    )
    assert first.body.statements == [Return(Variable("_1"))]
    assert second.condition == Operation("<", Variable("_1"), -3)
    assert rest.condition is None
    assert rest.body.statements == [PlanCall("take_picture"), PlanCall("re_plan")]
    assert wait == PlanCall("delay", (0.5,))
    assert end == Return(False)


@pytest.mark.parametrize(
    "text", ["?iv('a')&&iv('b')->{tp()}", "?iv('a')&iv('b'){tp()};;", "?(iv('a')&iv('b')){tp}"]
)
def test_what_models_add_without_meaning_is_tolerated(text: str) -> None:
    assert body(text) == body("?iv('a')&iv('b'){tp()}")


def test_flat_lists_of_calls() -> None:
    expected = [PlanCall("pick", ("red_box",)), PlanCall("place", ("blue box",)), PlanCall("home")]
    for text in ("pick('red_box');place('blue box');home();", "pick(red_box)->place('blue box')->home()"):
        assert body(text, ARM) == expected
    assert body("pick('red_box')\nplace(\"blue box\")\nhome", ARM) == expected
    assert body("say(True);say(look(table));", ARM) == [
        PlanCall("say", (True,)),
        PlanCall("say", (PlanCall("look", ("table",)),)),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("home pick('red_box')", "expected ';'"),
        ("pick(", "ends where a value should be"),
        ("pick(red_box", "expected ','"),
    ],
)
def test_what_is_no_flat_list_of_calls(text: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        parse_plan(text, ARM)


def test_a_return_may_have_no_value() -> None:
    assert body("->") == body("->;") == [Return(None)]
    (conditional,) = body("?iv('a'){->}")
    assert isinstance(conditional, If)
    assert conditional.branches[0].body.statements == [Return(None)]


@pytest.mark.parametrize(
    "text",
    [
        "1000{tp}",
        "1{" * 16 + "tp" + "}" * 16,
        "l(" + "(" * 11 + "'a'" + ")" * 12,
        "->1" + "+1" * 200,
        "->" + "+".join(["(1)"] * 13),
        "tp()" * 13,
    ],
)
def test_what_is_within_the_limits_parses(text: str) -> None:
    assert body(text)


BAD = [
    ("fly(3);", "unknown skill 'fly'; known: a, d,"),
    ("mf(50", "expected ',' after an argument"),
    ("mf(50,);", "expected a value"),
    ("mf 50;", "expected '(' after mf"),
    ("mf(50cm);", "expected ',' after an argument"),
    ("?iv('a')==True g('a');", "expected '{' after a condition"),
    ("}", "closing brace without a block"),
    ("{tp}", "expected a statement"),
    ("?iv('a'){tp", "ends inside 1 open block"),
    (":{tp}", "':' without a conditional"),
    ("?iv('a'){tp};:{tp}", "':' without a conditional"),
    ("?iv('a'){tp}mf(50):{tp}", "':' without a conditional"),
    ("g(_1);", "_1 has no value yet"),
    ("0{tp}", "a loop runs 1 to 1000 times"),
    ("1001{tp}", "a loop runs 1 to 1000 times"),
    ("1.5{tp}", "a loop runs 1 to 1000 times"),
    ("mf(1234567890123456);", "too many digits"),
    ("l('open", "without its closing quote"),
    ("l('a')$", "unexpected '$'"),
    ("_1=;", "expected a value"),
    ("_1=2 tp", "expected ';'"),
    ("->True tp", "expected ';'"),
    ("tp tp", "expected ';'"),
    ("I think mf(50) is right", "unknown skill 'I'"),
    ("1{" * 17 + "tp" + "}" * 17, "nested deeper than 16"),
    ("l(" + "(" * 13 + "'a'" + ")" * 14, "nested deeper than 12"),
    ("?1" + "+1" * 201 + "{tp}", "more than 200 operators"),
    ("tp;" * 40_000, "longer than 100000 characters"),
]


@pytest.mark.parametrize(("text", "why"), BAD, ids=[why for _, why in BAD])
def test_what_does_not_parse_says_what_and_where(text: str, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_plan(text, DRONE)
    assert why in caught.value.message
    assert caught.value.where


def test_unknown_skills_are_unknown_names() -> None:
    with pytest.raises(UnknownName, match="known: close, drop, home"):
        parse_plan("grab('a');", ARM)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("mf(50);tc(90) = 3", "character 14, at '= 3'"),
        ("tp;}", "character 3, at '}'"),
        ("mf(;", "character 3, at ';'"),
        ("g(_1);", "character 2, at '_1);'"),
    ],
)
def test_the_place_of_an_error_is_exact(text: str, where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_plan(text, DRONE)
    assert caught.value.where == where


def test_the_place_of_an_error_tells_the_segment() -> None:
    parser = SegmentParser(DRONE)
    parser.feed("mf(50);")
    with pytest.raises(InvalidInput, match="in the segment from character 7"):
        parser.feed("tc(;")


def test_prose_is_not_parsed() -> None:
    with pytest.raises(Unsupported):
        SegmentParser(find_skill_set("chat"))
    assert parse_plan_calls("Hello there.", find_skill_set("chat")) == []


WHOLE = [
    "?s('cat')==True{g('cat')};",
    "?iv('keys')&iv('wallet')->{l('Yes');->True}l('No');->False",
    "12{_1=p('Any animal?');?_1!=False{l(_1);->True}tc(30)}->False",
    "2{?iv('a'){g('a')}:?iv('b'){g('b')}:{tc(90)}}tp;",
    "mf(50)tc(90)",
]


@pytest.mark.parametrize("text", WHOLE)
def test_segment_by_segment_gives_the_tree_of_the_whole(text: str) -> None:
    segmenter, parser = Segmenter(DRONE), SegmentParser(DRONE)
    calls = []
    for boundary in (*segmenter.feed(text), *segmenter.close()):
        calls += parser.feed(boundary.text)
        fragment = parse_plan_calls(boundary.text, DRONE)
        assert fragment == calls[len(calls) - len(fragment) :]
        assert tuple(call.skill for call in fragment) == boundary.skills
    parser.feed(segmenter.finish())
    whole = parse_plan(text, DRONE)
    assert parser.finish() == whole
    assert calls == list(whole.calls())
    assert [call.at for call in calls] == [call.at for call in whole.calls()]
    assert all(text[call.at :].startswith(call.text) for call in calls)


def test_the_tree_grows_in_place_while_blocks_are_open() -> None:
    parser = SegmentParser(DRONE)
    parser.feed("3{mf(20);")
    (loop,) = parser.program.body.statements
    assert isinstance(loop, Loop)
    assert (parser.depth, loop.body.closed) == (1, False)
    parser.feed("?iv('a')==True{")
    conditional = loop.body.statements[1]
    assert isinstance(conditional, If)
    parser.feed("tp()}")
    assert (conditional.branches[0].body.closed, conditional.closed) == (True, False)
    parser.feed(":{")
    assert conditional.branches[1] == Branch(None, conditional.branches[1].body)
    parser.feed("}}")
    assert (parser.depth, loop.body.closed, conditional.closed) == (0, True, True)
    assert parser.just_closed == [loop]
    assert not parser.program.body.closed
    assert parser.finish().body.closed


def test_fragments_may_start_anywhere() -> None:
    assert parse_plan_calls("->True}l('No');", DRONE) == [PlanCall("log", ("No",))]
    assert parse_plan_calls("}:{g(_3)}", DRONE) == [PlanCall("goto", (Variable("_3"),))]
    with pytest.raises(InvalidInput):
        SegmentParser(DRONE).feed("->True}l('No');")


def test_arguments_come_before_the_call_that_takes_them() -> None:
    (call,) = body("l(ox('cat'));")
    assert [inner.skill for inner in plan_node_calls(call)] == ["object_x", "log"]  # type: ignore[arg-type]
    assert [(inner.skill, inner.role) for inner in parse_plan_calls("l(ox('cat'));", DRONE)] == [
        ("object_x", "value"),
        ("log", "statement"),
    ]


@given(st.text())
def test_quoted_texts_come_back_unchanged(text: str) -> None:
    assert unquote_plan_text(quote_plan_text(text)) == text
    (call,) = parse_plan_calls(f"l({quote_plan_text(text)});", DRONE)
    assert call.args == (text,)


@settings(max_examples=examples(300))
@given(st.text(alphabet="mftpg?s('at')=={};->1_ T,.&|:\n\\\"ü+", max_size=60) | st.text(max_size=60))
def test_any_text_parses_or_is_refused_with_a_place(text: str) -> None:
    for skill_set in (DRONE, ARM):
        problem = None
        try:
            parse_plan(text, skill_set)
        except TimelyError as error:
            problem = error
        assert problem is None or (isinstance(problem, InvalidInput) and problem.where)
