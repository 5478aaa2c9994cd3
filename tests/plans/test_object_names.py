"""Names of a prompt, where a plan writes one, and the tokens that are left to it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.plans.ebnf import ebnf_object_pattern
from timely.plans.name_mask import Bits, NameMaskGuide, NameMaskVocabulary
from timely.plans.object_names import (
    MAX_NAMES,
    fitting_object_names,
    names_of_plan,
    object_names_in,
    open_plan_argument,
)
from timely.plans.skill_library import find_skill_set

DRONE, ARM = find_skill_set("drone"), find_skill_set("arm")
TOKENS = [
    b"", *(bytes([byte]) for byte in range(32, 127)), b"fl", b"aming", b"flamo", b"go", b"')", b"');", b"'){",
    b" hanger", b"coat", b"'s", b"('", b"('sofa", b"('fox", b"<end>",
]  # fmt: skip
VOCABULARY = NameMaskVocabulary(TOKENS)


def said(*texts: str) -> frozenset[str]:
    result = object_names_in(*texts)
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Find the flamingo.", {"flamingo"}),
        ("Scene: sofa, coat hanger\nTask: go there\nPlan:", {"sofa", "coat hanger", "hanger"}),
        ("Where is my red first aid kit?", {"first aid kit", "red first aid", "kit"}),
        ("Cat, come here", {"Cat", "cat"}),
        ("two bananas, three knives, glasses", {"banana", "bananas", "glasses"}),
        ("the red or the blue box", {"red box", "blue box"}),
        ("fruit into the left basket, the rest into the right one", {"left basket", "right basket"}),
        ("chair[0.6], t-shirt, café", {"chair[0.6]", "chair", "t-shirt", "café"}),
        ("g('lamp');tp(); failed", {"lamp"}),
        ("grandfather's chair", {"grandfather", "chair"}),
    ],
)
def test_names_stand_in_the_text(text: str, names: set[str]) -> None:
    assert names <= said(text)


def test_small_words_and_labels_are_no_names() -> None:
    result = said("Scene: sofa\nTask: Is there a cup on the sofa?\nPlan:")
    assert not result & {"Scene", "Task", "Plan", "the sofa", "a cup", "cup on", "there", "is", "glasse"}
    assert "glasse" not in said("my glasses"), "only what is counted loses its s"


@pytest.mark.parametrize("text", ["去找苹果", "りんごを探して", "사과를 찾아", "find the apple (사과)"])
def test_where_spaces_do_not_say_what_a_name_is_any_name_may_be_written(text: str) -> None:
    assert object_names_in(text) is None


def test_a_long_text_names_nothing_in_particular() -> None:
    assert object_names_in(" ".join(f"thing{i}" for i in range(MAX_NAMES))) is None


@pytest.mark.parametrize(
    ("plan", "written"),
    [
        ("?s(", None), ("?s('", ""), ("?s('ca", "ca"), ("?iv('cat')&iv('d", "d"), ("mu(40);g('a b", "a b"),
        ("goto('ca", "ca"), ("?od('", ""), ("_1=sa('what');g(", None), ("4{tp();g('x", "x"),
    ],
)  # fmt: skip
def test_at_an_object_argument(plan: str, written: str | None) -> None:
    result = open_plan_argument(plan, DRONE)
    assert result is not None
    assert result[0].type == "object"
    assert result[1] == written


@pytest.mark.parametrize(
    "plan",
    [
        "",
        "?",
        "?s",
        "?s('cat'",
        "?s('cat')",
        "mu(",
        "mu(4",
        "l('",
        "l('g(",
        "l('say g(\"",
        "zz('",
        "tp(",
        "d(",
    ],
)
def test_at_no_object_argument(plan: str) -> None:
    assert open_plan_argument(plan, DRONE) is None


def test_the_names_of_a_plan() -> None:
    assert list(names_of_plan("?s('cat')==True{g('cat')}l('no cat');g(_1);", DRONE)) == ["cat", "cat"]
    assert list(names_of_plan("pick('red box');place('bin');say('Here it is');", ARM)) == ["red box", "bin"]


def test_a_quotation_mark_in_a_text_ends_no_text() -> None:
    plan = "l('it\\'s (a dog)');g('cat"
    result = open_plan_argument(plan, DRONE)
    assert result is not None
    assert (result[0].type, result[1]) == ("object", "cat")
    assert open_plan_argument("l('it\\'s (a dog)');g('cat')", DRONE) is None
    assert list(names_of_plan(f"{plan}');", DRONE)) == ["cat"]


def test_only_what_the_grammar_takes_is_a_name() -> None:
    argument = DRONE.by_word["g"].arguments[0]
    names = ["cat", "2 cats", "a b c d", "x" * 200, "chair[0.6]", "first aid kit", "café"]
    assert fitting_object_names(names, argument) == ["café", "cat", "chair[0.6]", "first aid kit"]
    assert ebnf_object_pattern(5)


def bits() -> Bits:
    return np.full(-(-len(TOKENS) // 32), -1, dtype=np.int32)


def left(plan: str, names: set[str], *, taken: bool = True) -> set[bytes]:
    row = bits()
    assert NameMaskGuide(names, DRONE, VOCABULARY).narrow(plan, row) == taken
    return {text for token, text in enumerate(TOKENS) if row[token >> 5] >> (token & 31) & 1}


def test_a_name_cannot_be_misspelt() -> None:
    names = {"flamingo", "coat hanger"}
    assert left("?s('", names) == {b"f", b"fl", b"c", b"coat"}
    assert left("?s('fl", names) == {b"a", b"aming"}
    assert left("?s('flamingo", names) == {b"'", b"')", b"');", b"'){", b"'s"}, (
        "the grammar judges what follows"
    )
    assert left("?s('coat", names) == {b" ", b" hanger"}


def test_what_is_no_name_is_left_to_the_grammar() -> None:
    everything = set(TOKENS)
    assert left("mu(", {"cat"}, taken=False) == everything
    assert left("l('", {"cat"}, taken=False) == everything
    assert left("g('", {"2 cats", "a b c d"}, taken=False) == everything, "no name would do"
    assert left("g('dog", {"cat"}, taken=False) == everything, "nothing would remain"
    assert left("g('chair[0.", {"chair"}, taken=False) == everything


def test_before_the_quotation_mark() -> None:
    kept = left("g(", {"sofa"})
    assert {b"_", b"'", b"('", b"'s"} <= kept, "a variable may stand there, too"
    assert not kept & {b"')", b"'){"}
    kept = left("g", {"sofa"})
    assert b"('sofa" in kept
    assert b"('fox" not in kept


def test_an_answer_brings_names() -> None:
    guide = NameMaskGuide({"cat"}, DRONE, VOCABULARY)
    guide.add({"dog"})
    row = bits()
    assert guide.narrow("g('", row)
    assert {TOKENS[t] for t in range(len(TOKENS)) if row[t >> 5] >> (t & 31) & 1} == {b"c", b"d"}


@given(
    st.sets(st.from_regex(r"[a-z]{1,8}( [a-z]{1,8}){0,2}", fullmatch=True), min_size=1, max_size=6),
    st.integers(0, 2**32),
)
def test_whatever_is_chosen_a_name_comes_of_it(names: set[str], seed: int) -> None:
    """Any walk through the tokens that are left ends with one of the names."""
    rng = random.Random(seed)
    guide = NameMaskGuide(names, DRONE, VOCABULARY)
    plan = "g('"
    while plan.count("'") < 2:
        row = bits()
        assert guide.narrow(plan, row)
        able = [t for t in range(1, len(TOKENS)) if row[t >> 5] >> (t & 31) & 1]
        plan += VOCABULARY.text([rng.choice(able)])
    assert plan.split("'")[1] in names
