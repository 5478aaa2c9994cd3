"""Skill sets and what follows from them: prompt, grammar, segment boundaries, validation, execution times.

::

    skill_set = find_skill_set("drone")
    prompt = build_prompt(skill_set, "Look for the cat.")        # fixed part first, for the prefix cache
    ebnf = grammar(skill_set)                                    # for constrained decoding
    segmenter = Segmenter(skill_set)                             # feed it text; it returns the closed segments
    parser = SegmentParser(skill_set)
    calls = check_plan_segment(segment, skill_set, profile, parser_state=parser)
    seconds = segment_execution_s(segment, skill_set, profile, parser_state=parser)
"""

from timely.plans.grammar import plan_grammar
from timely.plans.language.parser import SegmentParser, parse_plan, parse_plan_calls
from timely.plans.language.segmenter import Boundary, Segmenter
from timely.plans.language.syntax import Call, Program
from timely.plans.prompt import Prompt, build_prompt, fixed_prompt_part
from timely.plans.skill_library import find_skill_set, load_skill_set, skill_folders, skill_set_names
from timely.plans.skill_set import Argument, Example, Skill, SkillSet, TextRules
from timely.plans.timing import plan_segment_max_tokens, segment_execution_s
from timely.plans.validation import check_call, check_plan_segment

__all__ = [
    "Argument",
    "Boundary",
    "Call",
    "Example",
    "Program",
    "Prompt",
    "SegmentParser",
    "Segmenter",
    "Skill",
    "SkillSet",
    "TextRules",
    "build_prompt",
    "check_call",
    "check_plan_segment",
    "find_skill_set",
    "fixed_prompt_part",
    "load_skill_set",
    "parse_plan",
    "parse_plan_calls",
    "plan_grammar",
    "plan_segment_max_tokens",
    "segment_execution_s",
    "skill_folders",
    "skill_set_names",
]
