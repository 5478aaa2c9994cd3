"""Skill sets and what follows from them: prompt, grammar, segment boundaries, validation, execution times."""

from collections.abc import Callable

from lrtrace.profiles import RobotProfile
from timely.plans.check import check_segment
from timely.plans.grammar import grammar
from timely.plans.library import find_skill_set, load_skill_set, skill_set_names
from timely.plans.parser import parse
from timely.plans.prompt import Prompt, build_prompt
from timely.plans.segmenter import Boundary, Segmenter
from timely.plans.skillset import SkillSet


def max_segment_tokens(skill_set: SkillSet, encode: Callable[[str], list[int]]) -> int:
    """PROVISIONAL (lead, to unblock): longest example segment."""
    longest = 8
    for example in skill_set.examples:
        s = Segmenter(skill_set)
        for b in s.feed(example.plan):
            longest = max(longest, len(encode(b.text)))
    return longest


def segment_execution_s(text: str, skill_set: SkillSet, profile: RobotProfile) -> float:
    """PROVISIONAL (lead, to unblock)."""
    from timely.plans.segmenter import Segmenter as S

    if skill_set.language == "text":
        return len(text.split()) / 5.0
    calls = [c for c in check_segment(text, skill_set, profile)]
    return sum(profile.estimate_s(c.skill, [a for a in c.args]) for c in calls)
