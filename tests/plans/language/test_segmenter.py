"""Where segments end: by example, for any cut of the text, in linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.plans.language.segmenter import Segmenter
from timely.plans.skill_library import find_skill_set
from timely.plans.skill_set import Skill, SkillArgument, SkillSet, SkillSetTextRules
from timely.plans.validation import MAX_SEGMENT_CHARS

DRONE = find_skill_set("drone")
ARM = find_skill_set("arm")
CHAT = find_skill_set("chat")


def cut(skill_set: SkillSet, text: str, sizes: list[int] | None = None) -> tuple[list[str], str]:
    """Texts of the segments (the last one by ``close``), and the tail."""
    segmenter = Segmenter(skill_set)
    boundaries = []
    at = 0
    for size in sizes or [len(text)]:
        boundaries += segmenter.feed(text[at : at + size])
        at += size
    boundaries += segmenter.feed(text[at:])
    boundaries += segmenter.close()
    tail = segmenter.finish()
    assert "".join(boundary.text for boundary in boundaries) + tail == text
    ends = [boundary.end for boundary in boundaries]
    assert ends == sorted(set(ends))
    for boundary, start in zip(boundaries, [0, *ends], strict=False):
        assert text[start : boundary.end] == boundary.text
    return [boundary.text for boundary in boundaries], tail


PLANS = [
    ("?s('cat')==True{g('cat')};", ["?s('cat')==True{", "g('cat')}"], ";"),
    ("?s('scissors')==True{g('scissors')}", ["?s('scissors')==True{", "g('scissors')}"], ""),
    (
        "mu(40);?iv('book')==True{tp()}->False",
        ["mu(40);", "?iv('book')==True{", "tp()}"],
        "->False",
    ),
    (
        "?iv('keys')&iv('wallet')->{l('Yes');->True}l('No');->False",
        ["?iv('keys')&iv('wallet')->{", "l('Yes');", "->True}l('No');"],
        "->False",
    ),
    ("4{mf(50);tc(90)}", ["4{mf(50);", "tc(90)}"], ""),
    ("_1=ox('cat');?_1>0.6{tc(15)}", ["_1=ox('cat');", "?_1>0.6{tc(15)}"], ""),
    # The brace that closes a loop makes the robot go round again.
    ("2{?iv('a')==True{g('a')}}", ["2{?iv('a')==True{", "g('a')}", "}"], ""),
    ("4{mf(50);}", ["4{mf(50);", "}"], ""),
    ("4{mf(50);}->False", ["4{mf(50);", "}"], "->False"),
    ("4 {tp;} ;mf(50);", ["4 {tp;", "}", " ;mf(50);"], ""),
    ("2{2{mf(50);}}", ["2{2{mf(50);", "}", "}"], ""),
    ("_1=ox('cat')+", [], "_1=ox('cat')+"),
    ("_1=iv('cat')== ", [], "_1=iv('cat')== "),
    ("_1=ox('cat')+'1", [], "_1=ox('cat')+'1"),
    ("4{_1=3;}mf(50);", ["4{_1=3;}mf(50);"], ""),
    ("mf(50);?_1>4{_1=3;}", ["mf(50);"], "?_1>4{_1=3;}"),
    ("?iv('a'){mf(50);}", ["?iv('a'){", "mf(50);"], "}"),
    ("?iv('a'){mf(20);}:{mb(20)}", ["?iv('a'){", "mf(20);", "}:{mb(20)}"], ""),
    ("?iv('a'){mf(20);}:{mb(20);}", ["?iv('a'){", "mf(20);", "}:{mb(20);"], "}"),
    ("?_1!=False{g(_1)};tp;", ["?_1!=False{g(_1)}", ";tp;"], ""),
    ("mf(-50)tc(90)", ["mf(-50)", "tc(90)"], ""),
    ("mf(50) ;  tc(90) }", ["mf(50) ;", "  tc(90) }"], ""),
    ("mf(50)\ntc(90)", ["mf(50)\n", "tc(90)"], ""),
    ("mf(50)->True", ["mf(50)"], "->True"),
    ("->iv('x');mf(50);", ["->iv('x');", "mf(50);"], ""),
    ("l('a;b}c{d)e\\'f;');tp()", ["l('a;b}c{d)e\\'f;');", "tp()"], ""),
    ('l("it\'s; fine");tp();', ['l("it\'s; fine");', "tp();"], ""),
    ("l('日本; ü}');g('Schlüssel');", ["l('日本; ü}');", "g('Schlüssel');"], ""),
    ("tp;{tp}", ["tp;", "{tp}"], ""),
    ("_1=ow('x')*1.2;mf(50);", ["_1=ow('x')*1.2;", "mf(50);"], ""),
    ("mf((20));", ["mf((20));"], ""),
    ("mf(50;tc(9)", ["mf(50;", "tc(9)"], ""),  # does not parse; but what follows is not swallowed
    (")mf(50)tc(90)", [")mf(50)", "tc(90)"], ""),  # nor does it; a bracket too many opens none
    ("mf(50", [], "mf(50"),
    ("?iv('a')", [], "?iv('a')"),
    ("->False;", [], "->False;"),
    ("", [], ""),
    ("4{_1=3;", [], "4{_1=3;"),
    ("l('never closed;}", [], "l('never closed;}"),
]


@pytest.mark.parametrize(("text", "segments", "tail"), PLANS)
def test_boundaries_of_minispec(text: str, segments: list[str], tail: str) -> None:
    assert cut(DRONE, text) == (segments, tail)
    assert cut(DRONE, text, [1] * len(text)) == (segments, tail)


CALLS = [
    ("pick('a');place('b');", ["pick('a');", "place('b');"], ""),
    (
        "pick(cyan_box)->place(cyan_box)->pick(red_box)",
        ["pick(cyan_box)->", "place(cyan_box)->", "pick(red_box)"],
        "",
    ),
    ("pick('a')\nplace('b')\n", ["pick('a')\n", "place('b')\n"], ""),
    ("pick('a')place('b')", ["pick('a')", "place('b')"], ""),
    ("pick('a') -", ["pick('a') -"], ""),  # does not parse, so that the plan fails
    ("pick('a') - place('b');", ["pick('a') - ", "place('b');"], ""),
    ("move_to(where('a'), where('b')); drop('c');", ["move_to(where('a'), where('b'));", " drop('c');"], ""),
    ("pick([obj],{]*);home();", ["pick([obj],{]*);", "home();"], ""),
    ("home;pick(home);", ["home;", "pick(home);"], ""),
    ("open->pick('a')->home->", ["open->", "pick('a')->", "home->"], ""),
]


@pytest.mark.parametrize(("text", "segments", "tail"), CALLS)
def test_boundaries_of_calls(text: str, segments: list[str], tail: str) -> None:
    assert cut(ARM, text) == (segments, tail)
    assert cut(ARM, text, [1] * len(text)) == (segments, tail)


SENTENCES = [
    ("It is warm today. Shall we go out? ", ["It is warm today. ", "Shall we go out? "], ""),
    ("Pi is about 3.14 I think. Yes.", ["Pi is about 3.14 I think. ", "Yes."], ""),
    ("Yes. I can do that now. Bye", ["Yes. I can do that now. ", "Bye"], ""),
    ("Go and ask Dr.  Smith now. He knows.", ["Go and ask Dr.  Smith now. ", "He knows."], ""),
    ("Here comes Mr. J. R. Smith. Then he left.", ["Here comes Mr. J. R. Smith. ", "Then he left."], ""),
    ('She said "come in now." Then we went.', ['She said "come in now." ', "Then we went."], ""),
    ("Bring me a tool, e.g. a hammer. Then go.", ["Bring me a tool, e.g. a hammer. ", "Then go."], ""),
    ("I can count to 3. You can too.", ["I can count to 3. ", "You can too."], ""),
    ("Neither you nor I. You can too.", ["Neither you nor I. ", "You can too."], ""),
    ("Wait for it... now it comes. Done", ["Wait for it... ", "now it comes. ", "Done"], ""),
    ("First do this thing\nThen do that thing\n", ["First do this thing\n", "Then do that thing\n"], ""),
    ("今日は暖かい。外に出よう！", ["今日は暖かい。", "外に出よう！"], ""),
    ("「は、い」。今日は暖かい。", ["「は、い」。今日は暖かい。"], ""),
    ("   ", [], "   "),
    (" " * 4000, [], " " * 4000),
    ("One two three. " + " " * 4000, ["One two three. "], " " * 4000),
    ("One two three. \n\n ", ["One two three. "], "\n\n "),
]


@pytest.mark.parametrize(("text", "segments", "tail"), SENTENCES)
def test_boundaries_of_sentences(text: str, segments: list[str], tail: str) -> None:
    assert cut(CHAT, text) == (segments, tail)
    assert cut(CHAT, text, [1] * len(text)) == (segments, tail)


def test_paragraphs_end_with_an_empty_line_and_long_ones_at_the_limit() -> None:
    story = SkillSet(
        name="s", language="text", text=SkillSetTextRules(unit="paragraph", min_words=2, max_words=6)
    )
    text = "One two. Three\nfour.\n \nFive\n\nsix seven eight nine ten eleven twelve. End"
    assert cut(story, text) == (
        ["One two. Three\nfour.\n \n", "Five\n\nsix seven eight nine ten ", "eleven twelve. End"],
        "",
    )
    assert cut(story, "今日。暖かい\n\n外に。") == (["今日。暖かい\n\n", "外に。"], "")


def test_prose_without_an_end_is_cut_before_it_is_too_long_for_a_robot() -> None:
    story = SkillSet(name="s", language="text", text=SkillSetTextRules(unit="paragraph", max_words=2000))
    text = f"{'x' * 40}, " * 400
    texts, tail = cut(story, text)
    assert (len(texts), tail) == (len(text) // 3024 + 1, "")
    assert max(map(len, texts)) < MAX_SEGMENT_CHARS


def test_prose_that_is_not_closed_is_the_tail() -> None:
    segmenter = Segmenter(CHAT)
    assert [b.text for b in segmenter.feed("I am here now. And")] == ["I am here now. "]
    assert segmenter.pending_text == "And"
    assert segmenter.finish() == "And"
    assert segmenter.finish() == ""
    assert segmenter.close() == []


def test_skills_and_blocking() -> None:
    segmenter = Segmenter(DRONE)
    boundaries = segmenter.feed("?iv('a')&s('b'){rp();fly(3);move_forward(20);")
    assert [(b.skills, b.blocking) for b in boundaries] == [
        (("is_visible", "scan"), False),
        (("re_plan",), True),
        (("fly",), False),
        (("move_forward",), False),
    ]
    boundaries = Segmenter(ARM).feed("look('table');pick('a');look('b')->")
    assert [b.blocking for b in boundaries] == [True, False, True]
    assert [b.skills for b in Segmenter(ARM).feed("pick(home);")] == [("pick",)]


def test_a_boundary_is_told_as_soon_as_it_is_known() -> None:
    """One character after the bracket, never later."""
    segmenter = Segmenter(DRONE)
    assert segmenter.feed("?s('cat')==True") == []
    assert len(segmenter.feed("{")) == 1
    assert segmenter.feed("g('cat')") == []
    assert [b.text for b in segmenter.feed("}")] == ["g('cat')}"]
    assert segmenter.position == len("?s('cat')==True{g('cat')}")


STATEMENTS = (
    "mf(50)",
    "tp",
    "tp()",
    "g('a;b')",
    "?iv('x')",
    "==True",
    "_1=",
    "->",
    "False",
    "4",
    "look('a')",
)
SIGNS = ("{", "}", ";", "'", '"', "\\", "(", ")", "-", ">", ",", ":", "&", ".", "! ", " ", "\n", "\n\n")
LETTERS = ("x", "ü", "日", "。", "Dr")
PIECES = st.one_of(st.sampled_from(STATEMENTS), st.sampled_from(SIGNS), st.sampled_from(LETTERS))


@settings(max_examples=examples(300))
@given(
    st.lists(PIECES, max_size=30).map("".join),
    st.lists(st.integers(0, 7), max_size=80),
    st.sampled_from(["drone", "arm", "chat", "story"]),
)
def test_boundaries_do_not_depend_on_the_cut(text: str, sizes: list[int], name: str) -> None:
    skill_set = find_skill_set(name)
    assert cut(skill_set, text, sizes) == cut(skill_set, text)


def _feed_s(pieces: list[str], skill_set: SkillSet) -> float:
    """CPU time of this thread, best of five: what else runs on the machine does not count."""
    best = float("inf")
    for _ in range(5):
        segmenter = Segmenter(skill_set)
        start = time.thread_time()
        for piece in pieces:
            segmenter.feed(piece)
        best = min(best, time.thread_time() - start)
    return best


@pytest.mark.parametrize("text", ["l('", "((((((((", "mf 50 ", "?iv('a')&", "4{_1=2;"])
def test_linear_in_the_length_also_when_no_segment_ever_closes(text: str) -> None:
    short, long = ((text * 4_000)[:size] for size in (4_000, 32_000))
    pieces = [[whole[at : at + 3] for at in range(0, len(whole), 3)] for whole in (short, long)]
    # 8 times the text; a quadratic scan would take 64 times as long.
    assert _feed_s(pieces[1], DRONE) < 30 * _feed_s(pieces[0], DRONE) + 0.02


def test_a_token_costs_microseconds() -> None:
    text = "?s('cat')==True{g('cat');_1=ox('cat');l(_1);tp};mf(100);" * 60
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    # Measured: about 1 microsecond. The bound leaves room for a busy machine.
    assert _feed_s(pieces, DRONE) / len(pieces) < 30e-6


def test_zero_argument_skill_as_a_condition_or_value() -> None:
    ready = Skill(name="ready", returns="bool")
    wave = Skill(name="wave", arguments=(SkillArgument(name="times", type="int"),))
    skill_set = SkillSet(name="t", language="minispec", skills=(ready, wave))
    assert cut(skill_set, "?ready==True{wave(2)};_1=ready;") == (
        ["?ready==True{", "wave(2)}", ";_1=ready;"],
        "",
    )
