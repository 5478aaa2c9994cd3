"""How long a segment keeps its robot busy, and how long a segment can get."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lrtrace.errors import BadInput
from lrtrace.profiles import RobotProfile
from timely.core.errors import InvalidInput
from timely.plans.language.lexer import quote
from timely.plans.language.parser import SegmentParser
from timely.plans.language.segmenter import Segmenter
from timely.plans.language.syntax import Block, Call, If, Loop, Return, Statement, Value, calls_of
from timely.plans.skill_set import NUMERIC, Argument, Skill, SkillSet

WORDS_PER_S = 300 / 60
"""Average reading speed of adults, words per second (TimelyLLM section 7.1)."""

_STOCK = (
    "several",
    "wooden",
    "kitchen",
    "chairs",
    "standing",
    "near",
    "the",
    "yellow",
    "window",
    "behind",
    "it",
)
"""Words of common length, to fill texts with."""
_THING = "yellow notebook"
_LONG_THING = "yellow spiral notebook"


def segment_execution_s(
    text_or_calls: str | Sequence[Call],
    skill_set: SkillSet,
    profile: RobotProfile,
    *,
    parser_state: SegmentParser | None = None,
) -> float:
    """Expected execution time of a segment, seconds.

    The sum of the profile's estimates over the calls; for prose the reading time. A loop that the segment closes
    runs its body again: what its calls take is counted for each further round, unless a return in it may end the
    plan before. (As in TimelyLLM section 4.3, better too short than too long: the next segment must be there.)

    Args:
        text_or_calls: the segment, or its calls (then nothing is known of loops).
        parser_state: the plan's parser as it is *after* this segment; gives the loop's body when that began in an
            earlier segment. Without it only loops wholly inside the segment are counted.

    Raises:
        InvalidInput: the text does not parse, or the profile cannot tell.
    """
    if skill_set.language == "text":
        return _reading_s(text_or_calls, skill_set, profile)
    if not isinstance(text_or_calls, str):
        return sum(_call_s(call, profile) for call in text_or_calls)
    parser = SegmentParser(skill_set, fragment=True)
    seconds = sum(_call_s(call, profile) for call in parser.feed(text_or_calls))
    for loop in (parser_state or parser).just_closed:
        if not _returns(loop):
            seconds += (loop.count - 1) * _work_s(loop.body, profile)
    return seconds


def _call_s(call: Call, profile: RobotProfile) -> float:
    try:
        return profile.estimate_s(call.skill, [_known(value) for value in call.args])
    except BadInput as error:
        raise InvalidInput(error.message, where=error.where or f"robot profile {profile.name}") from error


def _known(value: Value) -> object:
    """Values that only the robot will know count as an empty text; no number is ever one (``check_segment``)."""
    return value if isinstance(value, (int, float, bool, str)) else ""


def _work_s(node: Block | Statement, profile: RobotProfile) -> float:
    """Everything in a node, its loops in full, seconds."""
    if isinstance(node, Block):
        return sum(_work_s(statement, profile) for statement in node.statements)
    if isinstance(node, Loop):
        return node.count * _work_s(node.body, profile)
    if isinstance(node, If):
        conditions = [call for branch in node.branches for call in calls_of(branch.condition)]
        within = sum(_work_s(branch.body, profile) for branch in node.branches)
        return within + sum(_call_s(call, profile) for call in conditions)
    return sum(_call_s(call, profile) for call in calls_of(node))


def _returns(node: Block | Statement) -> bool:
    if isinstance(node, Block):
        return any(_returns(statement) for statement in node.statements)
    if isinstance(node, Loop):
        return _returns(node.body)
    if isinstance(node, If):
        return any(_returns(branch.body) for branch in node.branches)
    return isinstance(node, Return)


def _reading_s(text_or_calls: str | Sequence[Call], skill_set: SkillSet, profile: RobotProfile) -> float:
    if not isinstance(text_or_calls, str):
        raise InvalidInput("prose has no calls", where=f"skill set {skill_set.name}")
    unit = skill_set.text_rules.unit
    if unit not in profile.skills:
        return len(text_or_calls.split()) / WORDS_PER_S
    return profile.estimate_s(unit, [text_or_calls])


def max_segment_tokens(skill_set: SkillSet, encode: Callable[[str], list[int]]) -> int:
    """Longest segment of a skill set under a tokenizer, tokens (the bound of TimelyLLM section 4.4).

    Measured, not assumed: over the segments of the skill set's examples, and over one long segment of every skill
    in every place it can have in a segment. Its numbers are at their longest, its texts are common words up to
    their limit, its objects three words; of two skills in one condition the objects have two words. A longer
    segment is possible (rare words, a name of letters nobody has seen together) but is not what a bound on
    ordinary segments is for. Costs about a hundred calls of ``encode``: keep the result.
    """
    return max(len(encode(text)) for text in longest_segments(skill_set))


def longest_segments(skill_set: SkillSet) -> Iterator[str]:
    """The texts that ``max_segment_tokens`` measures."""
    for example in skill_set.examples:
        segmenter = Segmenter(skill_set)
        for boundary in (*segmenter.feed(example.plan), *segmenter.close()):
            yield boundary.text
    if skill_set.language == "text":
        yield " ".join(_STOCK[index % len(_STOCK)] for index in range(skill_set.text_rules.max_words)) + ". "
        return
    for skill in skill_set.skills:
        call = f"{skill.word}({','.join(_longest(argument) for argument in skill.arguments)})"
        yield f"{call};"
        if skill_set.language == "calls":
            continue
        yield f";->False}}{call};"
        yield f"12{{{call};"
        if skill.returns != "none" and not skill.blocks:
            yield f"_1={call};"
            yield f"}};?{call}{_comparison(skill)}{{"
            if all(argument.type == "object" for argument in skill.arguments):
                short = (
                    f"{skill.word}({','.join(quote(_THING) for _ in skill.arguments)}){_comparison(skill)}"
                )
                yield f"}};?{short}&{short}{{"


def _comparison(skill: Skill) -> str:
    return ">0.5" if skill.returns == "float" else "==True"


def _longest(argument: Argument) -> str:
    """The argument's longest ordinary value, as written."""
    if argument.choices is not None:
        written = [quote(choice) if isinstance(choice, str) else str(choice) for choice in argument.choices]
        return max(written, key=len)
    if argument.type in NUMERIC:
        low = 0 if argument.min is None else argument.min
        high = 9999 if argument.max is None else argument.max
        longest = max(str(int(low)), str(int(high)), key=len)
        return f"{longest}.5" if argument.type == "float" else longest
    if argument.type == "bool":
        return "False"
    if argument.type == "object":
        return quote(_LONG_THING[: argument.chars].strip())
    words: list[str] = []
    while len(" ".join([*words, following := _STOCK[len(words) % len(_STOCK)]])) <= argument.chars:
        words.append(following)
    return quote(" ".join(words) or _STOCK[0][: argument.chars])
