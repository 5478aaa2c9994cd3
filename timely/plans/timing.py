"""Estimates a segment's execution time, and the longest segment of a skill set in tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lrtrace.errors import BadInput
from lrtrace.robot_profile import RobotProfile
from timely.core.errors import InvalidInput
from timely.plans.language.lexer import quote_plan_text
from timely.plans.language.parser import SegmentParser
from timely.plans.language.segmenter import Segmenter
from timely.plans.language.syntax import Block, If, Loop, Operation, PlanCall, Return, Statement, Value
from timely.plans.skill_set import NUMERIC, Skill, SkillArgument, SkillSet
from timely.plans.units import plan_robot_arguments

WORDS_PER_S = 300 / 60
"""Average reading speed of adults, words per second (TimelyLLM section 7.1)."""

_COMMON_WORDS = (
    *("several", "wooden", "kitchen", "chairs", "standing", "near", "the", "yellow", "window"),
    *("behind", "it"),
)
"""Words of common length that fill texts."""
_TWO_WORDS = "yellow notebook"
_THREE_WORDS = "yellow spiral notebook"


def plan_segment_execution_s(
    text_or_calls: str | Sequence[PlanCall],
    skill_set: SkillSet,
    profile: RobotProfile,
    *,
    parser_state: SegmentParser | None = None,
) -> float:
    """Expected execution time of a segment, seconds.

    It is the sum of the profile's estimates over the calls, or the reading time of prose. If the segment closes a
    loop, each further round counts too, unless a return in the loop may end the plan. An estimate may be too short
    but not too long, since the next segment must arrive in time (TimelyLLM section 4.3, "the minimum execution
    time"). So a further round takes its shortest branch, and ``a|b`` and ``a&b`` take ``a``. The first round takes
    the branches that were generated: the paper estimates each segment by what is in it.

    Args:
        text_or_calls: the segment, or its calls. Calls alone say nothing of loops.
        parser_state: the plan's parser *after* this segment. It gives the body of a loop that an earlier segment
            opened. Without it only loops inside the segment count.

    Raises:
        InvalidInput: the text does not parse, or the profile has no estimate.
    """
    if skill_set.language == "text":
        return _plan_reading_s(text_or_calls, skill_set, profile)
    if not isinstance(text_or_calls, str):
        return sum(_plan_call_s(call, skill_set, profile) for call in text_or_calls)
    parser = SegmentParser(skill_set, fragment=True)
    parser.feed(text_or_calls)
    seconds = _plan_node_once_s(parser.program.body, skill_set, profile)
    for loop in (parser_state or parser).just_closed:
        if not _does_plan_node_return(loop):
            seconds += (loop.count - 1) * _plan_node_least_s(loop.body, skill_set, profile)
    return seconds


def _plan_call_s(call: PlanCall, skill_set: SkillSet, profile: RobotProfile) -> float:
    with _plan_timing_errors(profile):
        arguments = plan_robot_arguments(call, skill_set.by_word[call.skill], profile)
        return profile.execution_s(
            call.skill, {name: _plain_plan_value(value) for name, value in arguments.items()}
        )


@contextmanager
def _plan_timing_errors(profile: RobotProfile) -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        raise InvalidInput(error.message, where=error.where or f"robot profile {profile.name}") from error


def _plain_plan_value(value: Value) -> object:
    """A literal, or an empty text for a run-time value. ``check_plan_segment`` permits no run-time numbers."""
    return value if isinstance(value, (int, float, bool, str)) else ""


def _plan_node_once_s(node: Block | Statement, skill_set: SkillSet, profile: RobotProfile) -> float:
    """Execution time of all that is written in a node, once, seconds."""
    if isinstance(node, Block):
        return sum(_plan_node_once_s(statement, skill_set, profile) for statement in node.statements)
    if isinstance(node, Loop):
        return _plan_node_once_s(node.body, skill_set, profile)
    if isinstance(node, If):
        return sum(
            _plan_value_s(branch.condition, skill_set, profile)
            + _plan_node_once_s(branch.body, skill_set, profile)
            for branch in node.branches
        )
    return _plan_value_s(node if isinstance(node, PlanCall) else node.value, skill_set, profile)


def _plan_node_least_s(node: Block | Statement, skill_set: SkillSet, profile: RobotProfile) -> float:
    """Least execution time of a node with all rounds of its loops, seconds."""
    if isinstance(node, Block):
        return sum(_plan_node_least_s(statement, skill_set, profile) for statement in node.statements)
    if isinstance(node, Loop):
        return node.count * _plan_node_least_s(node.body, skill_set, profile)
    if isinstance(node, If):
        least = 0.0  # no branch
        for branch in reversed(node.branches):
            within = _plan_node_least_s(branch.body, skill_set, profile)
            if branch.condition is None:
                least = within
            else:
                least = _plan_value_s(branch.condition, skill_set, profile) + min(within, least)
        return least
    return _plan_node_once_s(node, skill_set, profile)


def _plan_value_s(value: Value | None, skill_set: SkillSet, profile: RobotProfile) -> float:
    """Least execution time of what a value asks, seconds: ``a|b`` and ``a&b`` may be known from ``a`` alone."""
    if isinstance(value, PlanCall):
        return _plan_call_s(value, skill_set, profile) + sum(
            _plan_value_s(argument, skill_set, profile) for argument in value.args
        )
    if isinstance(value, Operation):
        right = _plan_value_s(value.right, skill_set, profile)
        return _plan_value_s(value.left, skill_set, profile) + (0.0 if value.op in "&|" else right)
    return 0.0


def _does_plan_node_return(node: Block | Statement) -> bool:
    if isinstance(node, Block):
        return any(_does_plan_node_return(statement) for statement in node.statements)
    if isinstance(node, Loop):
        return _does_plan_node_return(node.body)
    if isinstance(node, If):
        return any(_does_plan_node_return(branch.body) for branch in node.branches)
    return isinstance(node, Return)


def _plan_reading_s(
    text_or_calls: str | Sequence[PlanCall], skill_set: SkillSet, profile: RobotProfile
) -> float:
    if not isinstance(text_or_calls, str):
        raise InvalidInput("prose has no calls", where=f"skill set {skill_set.name}")
    unit = skill_set.text_rules.unit
    if unit not in profile.skills:
        return len(text_or_calls.split()) / WORDS_PER_S
    with _plan_timing_errors(profile):
        return profile.execution_s(unit, [text_or_calls])


def plan_segment_max_tokens(skill_set: SkillSet, encode: Callable[[str], list[int]]) -> int:
    """Longest ordinary segment of a skill set under a tokenizer, tokens (the bound of TimelyLLM section 4.4).

    It is measured over the segments of the examples, and over one long segment of every skill in every place of a
    segment. Numbers have their most digits, and texts are common words up to their limit. Objects have three words,
    or two in a condition with two skills. Rare words can make a longer segment. The function calls ``encode`` about
    a hundred times, so callers should keep the result.
    """
    return max(len(encode(text)) for text in longest_plan_segments(skill_set))


def longest_plan_segments(skill_set: SkillSet) -> Iterator[str]:
    """Segments for ``plan_segment_max_tokens`` to measure."""
    for example in skill_set.examples:
        segmenter = Segmenter(skill_set)
        for boundary in (*segmenter.feed(example.plan), *segmenter.close()):
            yield boundary.text
    if skill_set.language == "text":
        words = (_COMMON_WORDS[index % len(_COMMON_WORDS)] for index in range(skill_set.text_rules.max_words))
        yield " ".join(words) + ". "
        return
    for skill in skill_set.skills:
        call = f"{skill.word}({','.join(_longest_plan_argument(argument) for argument in skill.arguments)})"
        yield f"{call};"
        if skill_set.language == "calls":
            continue
        yield f";->False}}{call};"
        yield f"12{{{call};"
        if skill.returns != "none" and not skill.blocks:
            yield f"_1={call};"
            yield f"}};?{call}{_plan_comparison_text(skill)}{{"
            if all(argument.type == "object" for argument in skill.arguments):
                arguments = ",".join(quote_plan_text(_TWO_WORDS) for _ in skill.arguments)
                short = f"{skill.word}({arguments}){_plan_comparison_text(skill)}"
                yield f"}};?{short}&{short}{{"


def _plan_comparison_text(skill: Skill) -> str:
    return ">0.5" if skill.returns == "float" else "==True"


def _longest_plan_argument(argument: SkillArgument) -> str:
    if argument.choices is not None:
        texts = [
            quote_plan_text(choice) if isinstance(choice, str) else str(choice) for choice in argument.choices
        ]
        return max(texts, key=len)
    if argument.type in NUMERIC:
        low = 0 if argument.min is None else argument.min
        high = 9999 if argument.max is None else argument.max
        longest = max(str(int(low)), str(int(high)), key=len)
        return f"{longest}.5" if argument.type == "float" else longest
    if argument.type == "bool":
        return "False"
    if argument.type == "object":
        return quote_plan_text(_THREE_WORDS[: argument.chars].strip())
    words: list[str] = []
    while (
        len(" ".join([*words, following := _COMMON_WORDS[len(words) % len(_COMMON_WORDS)]])) <= argument.chars
    ):
        words.append(following)
    return quote_plan_text(" ".join(words) or _COMMON_WORDS[0][: argument.chars])
