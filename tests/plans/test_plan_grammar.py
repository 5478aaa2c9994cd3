"""The grammar: what it accepts is a plan within limits; it cannot be followed for ever."""

from __future__ import annotations

import random
import re

import pytest

from lrtrace.profiles import load_robot_profile
from timely.core.errors import InvalidInput
from timely.plans import ebnf
from timely.plans.grammar import plan_grammar
from timely.plans.language.parser import SegmentParser, parse_plan
from timely.plans.language.segmenter import Segmenter
from timely.plans.skill_library import find_skill_set, skill_set_names
from timely.plans.skill_set import SkillSet
from timely.plans.validation import check_plan_segment

DRONE = find_skill_set("drone")
ARM = find_skill_set("arm")


def as_regex(rule: str) -> re.Pattern[str]:
    """The number rules use only literals, digit classes, alternatives and brackets."""
    return re.compile(re.sub(r'"([^"]*)"', lambda match: re.escape(match[1]), rule).replace(" ", ""))


@pytest.mark.parametrize(
    ("low", "high"), [(20, 500), (1, 360), (0, 9), (7, 7), (99, 101), (0, 1234), (-30, 15), (-9, -3)]
)
def test_whole_numbers_in_range_and_no_others(low: int, high: int) -> None:
    rule = as_regex(ebnf.ebnf_integer(low, high))
    for number in range(low - 200, high + 1200):
        assert bool(rule.fullmatch(str(number))) == (low <= number <= high), number
    assert not rule.fullmatch("007")
    assert not rule.fullmatch("")


@pytest.mark.parametrize(
    ("low", "high"), [(0.1, 60), (0, 1), (0.25, 0.9), (3, 12.5), (-1.5, 0.5), (-12.5, -3), (0, 0)]
)
def test_decimals_in_range_and_no_others(low: float, high: float) -> None:
    rule = as_regex(ebnf.ebnf_decimal(low, high))
    for tenths in range(int(low * 10) - 50, int(high * 10) + 50):
        number = tenths / 10
        assert bool(rule.fullmatch(f"{number:.1f}")) == (low <= number <= high), number
        if tenths % 10 == 0:
            assert bool(rule.fullmatch(f"{number:.0f}")) == (low <= number <= high), number


def test_a_narrow_range_has_more_decimals() -> None:
    rule = as_regex(ebnf.ebnf_decimal(-0.02, 0.05))
    written = [f"{number / 1000:.3f}" for number in range(-25, 60)]
    assert [text for text in written if rule.fullmatch(text) and text != "-0.000"] == written[5:76]
    assert as_regex(ebnf.ebnf_decimal(0.5, 0.5)).fullmatch("0.5")
    with pytest.raises(InvalidInput, match="no number of 6 decimals"):
        ebnf.ebnf_decimal(1.23e-8, 1.24e-8)


def test_a_range_beyond_four_digits_is_not_empty() -> None:
    assert as_regex(ebnf.ebnf_integer(20_000, None)).fullmatch("99999")
    assert as_regex(ebnf.ebnf_integer(None, -20_000)).fullmatch("-20000")
    assert as_regex(ebnf.ebnf_decimal(20_000, None)).fullmatch("20000.5")


def test_open_ranges_end_at_four_digits() -> None:
    rule = as_regex(ebnf.ebnf_integer(None, None))
    assert all(rule.fullmatch(str(number)) for number in (-9999, -1, 0, 9999))
    assert not rule.fullmatch("10000")


def test_prose_has_none() -> None:
    assert plan_grammar(find_skill_set("chat")) == ""


def test_the_same_skill_set_gives_the_same_grammar() -> None:
    assert plan_grammar(DRONE) == plan_grammar(DRONE)
    assert len(plan_grammar(DRONE)) < 200_000


@pytest.mark.process
@pytest.mark.parametrize("skill_set", [DRONE, ARM], ids=["drone", "arm"])
def test_a_plan_may_have_200_statements(skill_set: SkillSet) -> None:
    rules = plan_grammar(skill_set.model_copy(update={"max_statements": 200}))
    assert "s0n200v0fa ::=" in rules
    assert "::= \n" not in rules


class Matcher:
    """xgrammar over a vocabulary of single characters."""

    def __init__(self, rules: str) -> None:
        xgrammar = pytest.importorskip("xgrammar")
        self.xgrammar = xgrammar
        self.characters = [chr(code) for code in range(32, 127)] + ["\n", "ü", "日"]
        vocabulary = [*self.characters, "</s>"]
        info = xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[len(self.characters)])
        self.compiled = xgrammar.GrammarCompiler(info, max_threads=1).compile_grammar(rules)
        self.size = len(vocabulary)

    def accepts(self, text: str) -> bool:
        matcher = self.xgrammar.GrammarMatcher(self.compiled)
        return bool(matcher.accept_string(text) and matcher.is_completed())

    def write(self, rng: random.Random, stop: float) -> str:
        """A random plan: each character one of those allowed; ends with that chance where it may."""
        matcher = self.xgrammar.GrammarMatcher(self.compiled)
        mask = self.xgrammar.allocate_token_bitmask(1, self.size)
        text = ""
        while True:
            matcher.fill_next_token_bitmask(mask)
            allowed = [token for token in range(self.size) if int(mask[0, token // 32]) >> (token % 32) & 1]
            if len(allowed) > 1 and allowed[-1] == self.size - 1 and rng.random() > stop:
                allowed.pop()
            # Quotes and brackets often, so that texts end.
            favoured = [
                token for token in allowed if token < self.size - 1 and self.characters[token] in "';)}"
            ]
            token = rng.choice(favoured if favoured and rng.random() < 0.5 else allowed)
            assert matcher.accept_token(token)
            if token == self.size - 1:
                return text
            text += self.characters[token]
            assert len(text) < 5_000


@pytest.fixture(scope="module")
def drone() -> Matcher:
    return Matcher(plan_grammar(DRONE))


@pytest.fixture(scope="module")
def arm() -> Matcher:
    return Matcher(plan_grammar(ARM))


@pytest.mark.process
@pytest.mark.parametrize(
    "plan",
    [
        "?s('cat')==True{g('cat')};",
        "?iv('keys')&iv('wallet'){l('Yes');->True}l('No');->False",
        "mu(40);?iv('book')==True{tp()}->False",
        "8{_1=p('Any animal?');?_1!=False{l(_1);->True}tc(45)}->False",
        "_1=sa('Any edible thing?');?_1!=False{g(_1)}",
        "4{mf(50);tc(90)}",
        "mf(100);tu(135);mf(100);",
        "tc(180);rp();g('chair[0.6]');",
        "d(0.5);mf(500);",
        "g('Türklinke');s('日');l('Sorry, no');",
        "l('naïve 漢字 \U0001f600 …');",
    ],
)
def test_plans_that_are_wanted(drone: Matcher, plan: str) -> None:
    assert drone.accepts(plan)
    assert parse_plan(plan, DRONE)


@pytest.mark.process
@pytest.mark.parametrize(
    "plan",
    [
        "",
        "d(1);d(1);",
        "mf(19);",
        "mf(501);",
        "mf(050);",
        "mf(50)",
        "mf(50); tc(90);",
        "  mf(50);",
        "g(_1);",
        "iv('cat');",
        "?iv('a'){rp()}",
        "->True",
        "4{->True}",
        "1{tp()}",
        "10{tp()}",
        "4{4{mf(50)}}",
        "mf(50);tc(90);" * 6,
        "g('a');g('a');g('a');",
        "l('a  b');",
        "l('a\u200bb');",
        "l('a\u200db');",
        "l('\U0001f600\ufe0f');",
        "l('\ue000');",
        "l('\U000e0041');",
        "l('\U0010fffd');",
        "g(' a');",
        "g('a ');",
        "l('');",
        f"l('{'a' * 90}');",
        f"g('{'a' * 40}');",
        "fly(3);",
        "mf(50);\n\n",
    ],
)
def test_plans_that_are_not(drone: Matcher, plan: str) -> None:
    assert not drone.accepts(plan)


@pytest.mark.process
def test_arm_plans(arm: Matcher) -> None:
    assert arm.accepts("pick('red box');place('blue box');look('table');home();")
    assert arm.accepts("move_to('a');move_to('b');move_to('c');")
    assert not arm.accepts("pick('a');pick('b');")
    assert not arm.accepts("pick('a');place('b');" * 7)


@pytest.mark.process
def test_choices_and_truth_values() -> None:
    skill_set = SkillSet.model_validate(
        {
            "name": "t",
            "language": "calls",
            "skills": [
                {
                    "name": "set",
                    "arguments": [
                        {"name": "on", "type": "bool"},
                        {"name": "n", "type": "int", "choices": [1, 5]},
                    ],
                },
                {
                    "name": "play",
                    "arguments": [{"name": "song", "type": "str", "choices": ["it's", 'so "b"']}],
                },
            ],
        }
    )
    rules = Matcher(plan_grammar(skill_set))
    for plan, good in {
        "set(True,5);": True,
        "set(True,2);": False,
        "play('it\\'s');": True,
        "play('so \"b\"');": True,
        "play('x');": False,
    }.items():
        assert rules.accepts(plan) == good, plan
        if good:
            assert parse_plan(plan, skill_set)


@pytest.mark.process
def test_skills_and_arguments_with_similar_names_keep_their_rules() -> None:
    def skill(name: str, argument: str, low: int) -> dict[str, object]:
        return {
            "name": name,
            "arguments": [{"name": argument, "type": "int", "min": low, "max": low + 1}],
            "in_a_row": 9,
        }

    skills = [skill("a_b", "c", 1), skill("a", "b_c", 3), skill("call", "x", 5), skill("x", "v", 7)]
    names = [{"name": "say", "arguments": [{"name": "m", "type": "str"}]}, {"name": "say_v"}]
    skill_set = SkillSet.model_validate({"name": "t", "language": "minispec", "skills": [*skills, *names]})
    rules = Matcher(plan_grammar(skill_set))
    for plan in ("a_b(1);", "a(3);", "call(5);", "x(7);", "say('hi');", "say_v();"):
        assert rules.accepts(plan), plan
    for plan in ("a_b(3);", "a(1);", "call(x(7));", "x(5);", "say_v('hi');"):
        assert not rules.accepts(plan), plan


@pytest.mark.process
@pytest.mark.parametrize("name", ["drone", "arm"])
def test_whatever_it_accepts_is_released(name: str, request: pytest.FixtureRequest) -> None:
    """Random plans: every one parses, is safe for the default robot, keeps the bound, and ends."""
    skill_set = find_skill_set(name)
    profile = load_robot_profile(skill_set.profile)
    matcher: Matcher = request.getfixturevalue(name)
    rng = random.Random(20_241)
    most = 0
    for index in range(120):
        plan = matcher.write(rng, stop=(0.0, 0.2, 0.5)[index % 3])
        segmenter, parser = Segmenter(skill_set), SegmentParser(skill_set)
        segments = [*segmenter.feed(plan), *segmenter.close()]
        assert segments, plan
        for segment in segments:
            calls = check_plan_segment(segment.text, skill_set, profile, parser_state=parser)
            assert tuple(call.skill for call in calls) == segment.skills
        parser.feed(segmenter.finish())
        parser.finish()
        returns = plan.count("->")
        most = max(most, parser.statements - returns)
        assert parser.statements - returns <= skill_set.max_statements, plan
    assert most > skill_set.max_statements // 2


@pytest.mark.process
@pytest.mark.parametrize(
    "name", [name for name in skill_set_names() if find_skill_set(name).language != "text"]
)
def test_it_accepts_the_examples(name: str) -> None:
    skill_set = find_skill_set(name)
    profile = load_robot_profile(skill_set.profile)
    rules = Matcher(plan_grammar(skill_set))
    for example in skill_set.examples:
        assert rules.accepts(example.plan), example.plan
        segmenter, parser = Segmenter(skill_set), SegmentParser(skill_set)
        for segment in [*segmenter.feed(example.plan), *segmenter.close()]:
            check_plan_segment(segment.text, skill_set, profile, parser_state=parser)
