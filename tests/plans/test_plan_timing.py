"""Execution times of segments, and the measured bound of their length."""

from __future__ import annotations

import pytest
from crane import crane

from lrtrace.profiles import load_robot_profile
from timely.core.errors import InvalidInput
from timely.engines.vllm.boundaries import VllmTextBoundaries
from timely.plans.language.parser import SegmentParser, parse_plan_calls
from timely.plans.language.segmenter import Segmenter
from timely.plans.skill_library import find_skill_set
from timely.plans.skill_set import Example, SkillSet
from timely.plans.timing import longest_plan_segments, plan_segment_execution_s, plan_segment_max_tokens

DRONE = find_skill_set("drone")
TELLO = load_robot_profile("tello")


IV = TELLO.execution_s("is_visible", ["a"])


def forward(cm: int) -> float:
    return TELLO.execution_s("move_forward", [cm])


def test_a_segment_takes_the_sum_of_its_calls() -> None:
    turn = TELLO.execution_s("turn_cw", [90])
    assert plan_segment_execution_s("mf(50);", DRONE, TELLO) == pytest.approx(forward(50))
    assert plan_segment_execution_s("}mf(50);tc(90)}", DRONE, TELLO) == pytest.approx(forward(50) + turn)
    calls = parse_plan_calls("mf(50);tc(90)", DRONE)
    assert plan_segment_execution_s(calls, DRONE, TELLO) == pytest.approx(forward(50) + turn)
    assert plan_segment_execution_s("->False;", DRONE, TELLO) == 0
    # A variable skill counts with its minimum, a condition with what it asks.
    assert plan_segment_execution_s("?s('cat')==True{", DRONE, TELLO) == pytest.approx(1.53)
    assert plan_segment_execution_s("g(_1);", DRONE, TELLO) == pytest.approx(2.46)


def test_times_are_those_of_the_robots_own_units() -> None:
    assert plan_segment_execution_s("go(0.5,2.0);", *crane()) == pytest.approx(1.0 + 2.0)


def test_a_profile_without_a_time_for_prose_is_an_error() -> None:
    profile = load_robot_profile("chat-reader")
    entry = profile.skills["sentence"]
    broken = entry.model_copy(update={"execution": entry.execution.model_copy(update={"argument": "voice"})})
    with pytest.raises(InvalidInput, match="argument 'voice' is missing"):
        plan_segment_execution_s(
            "One two three. ",
            find_skill_set("chat"),
            profile.model_copy(update={"skills": {"sentence": broken}}),
        )


def test_the_segment_that_closes_a_loop_takes_its_further_rounds() -> None:
    assert plan_segment_execution_s("4{mf(50)}", DRONE, TELLO) == pytest.approx(4 * forward(50))
    parser = SegmentParser(DRONE)
    times = []
    for text in ("3{mf(50);", "2{mf(20)}", "mf(30)}", "mf(40);"):
        parser.feed(text)
        times.append(plan_segment_execution_s(text, DRONE, TELLO, parser_state=parser))
    inner = 2 * forward(20)
    round_ = forward(50) + inner + forward(30)
    assert times == pytest.approx([forward(50), inner, forward(30) + 2 * round_, forward(40)])


def test_a_segment_that_begins_with_another_arm_takes_its_calls() -> None:
    assert plan_segment_execution_s("}:{mf(50);", DRONE, TELLO) == pytest.approx(forward(50))


def test_a_loop_that_may_return_counts_once() -> None:
    parser = SegmentParser(DRONE)
    for text in ("12{?iv('a'){", "->True}mf(50)}"):
        parser.feed(text)
    assert plan_segment_execution_s("->True}mf(50)}", DRONE, TELLO, parser_state=parser) == pytest.approx(
        forward(50)
    )


@pytest.mark.parametrize(
    ("body", "first", "further"),
    [
        ("?iv('a'){mf(200)}", forward(200), 0.0),
        ("?iv('a'){mf(200)}:{mf(20)}", forward(200) + forward(20), forward(20)),
        ("?iv('a'){mf(20)}:?iv('b'){mf(200)}:{mf(200)}", forward(20) + 2 * forward(200), forward(20)),
        ("?iv('a'){mf(200)}:?iv('b'){mf(20)}:{mf(200)}", 2 * forward(200) + forward(20), IV + forward(20)),
        ("?iv('a'){mf(200)}:?iv('b'){mf(20)}", forward(200) + forward(20), IV),
    ],
)
def test_a_further_round_takes_the_shortest_branch(body: str, first: float, further: float) -> None:
    """Longer, and the next segment would come late (section 4.3: the minimum, for the worst case)."""
    conditions = body.count("?") * IV
    assert plan_segment_execution_s(f"3{{{body}}}", DRONE, TELLO) == pytest.approx(
        conditions + first + 2 * (IV + further)
    )


def test_a_condition_takes_what_the_robot_asks_in_any_case() -> None:
    scan = TELLO.execution_s("scan", ["a"])
    for operator in "|&":
        text = f"?s('a')==True{operator}s('b')==True{{"
        assert plan_segment_execution_s(text, DRONE, TELLO) == pytest.approx(scan)
        assert plan_segment_execution_s(f"2{{{text}mf(50)}}}}", DRONE, TELLO) == pytest.approx(
            2 * scan + forward(50)
        )
    assert plan_segment_execution_s("_1=od('a')+od('b');", DRONE, TELLO) == pytest.approx(
        2 * TELLO.execution_s("object_distance", ["a"])
    )


@pytest.mark.parametrize(
    ("name", "profile"), [("chat", "chat-reader"), ("story", "chat-reader"), ("chat", "tello")]
)
def test_prose_takes_its_reading_time(name: str, profile: str) -> None:
    text = "One two three four five six seven eight nine ten. "
    assert plan_segment_execution_s(text, find_skill_set(name), load_robot_profile(profile)) == pytest.approx(
        2.0
    )


def test_what_cannot_be_told_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="unknown skill 'move_forward'"):
        plan_segment_execution_s("mf(50);", DRONE, load_robot_profile("indy7"))
    with pytest.raises(InvalidInput):
        plan_segment_execution_s("mf(", DRONE, TELLO)
    with pytest.raises(InvalidInput, match="prose has no calls"):
        plan_segment_execution_s([], find_skill_set("chat"), load_robot_profile("chat-reader"))


def words(text: str) -> list[int]:
    """A tokenizer of sorts: a token for every four characters."""
    return list(range(-(-len(text) // 4)))


def test_the_bound_is_measured_with_the_tokenizer() -> None:
    by_character = plan_segment_max_tokens(DRONE, lambda text: list(text.encode()))
    assert 100 < by_character < 300
    assert plan_segment_max_tokens(DRONE, words) == -(-by_character // 4)
    assert plan_segment_max_tokens(find_skill_set("chat"), lambda text: list(range(len(text.split())))) == 60


def test_the_bound_covers_every_segment_of_the_examples() -> None:
    long = Example(task="x", plan=f"tp();{'tc(90)&' * 0}l('{'word ' * 17}');")
    skill_set = DRONE.model_copy(update={"examples": (long,)})
    bound = plan_segment_max_tokens(skill_set, words)
    segmenter = Segmenter(skill_set)
    assert all(len(words(b.text)) <= bound for b in segmenter.feed(long.plan))


@pytest.mark.parametrize("name", ["drone", "arm"])
def test_the_longest_segments_are_legal(name: str) -> None:
    skill_set: SkillSet = find_skill_set(name)
    for text in longest_plan_segments(skill_set):
        assert parse_plan_calls(text, skill_set)


def test_one_token_may_end_a_call_and_its_loop() -> None:
    """``;}`` is one token of many tokenizers: the second segment has none of its own, and all further rounds."""
    tokens = ["3", "{", "mf(50)", ";}", "tc(90);"]
    boundaries = VllmTextBoundaries(DRONE, TELLO, tokens.__getitem__, awaits_values=True)
    closed = [boundaries.feed(number) for number in range(len(tokens))]
    assert [[text.text for text in texts] for texts in closed] == [
        [],
        [],
        [],
        ["3{mf(50);", "}"],
        ["tc(90);"],
    ]
    assert [text.execution_s for text in closed[3]] == pytest.approx([forward(50), 2 * forward(50)])
    assert boundaries.finish() is None
    assert boundaries.tail == ""
