"""Skill sets and what follows from them: prompt, grammar, segment boundaries, validation, execution times.

::

    skill_set = find_skill_set("drone")
    prompt = build_prompt(skill_set, "Look for the cat.")        # fixed part first, for the prefix cache
    ebnf = plan_grammar(skill_set)                               # for constrained decoding
    segmenter = Segmenter(skill_set)                             # feed it text; it returns the closed segments
    parser = SegmentParser(skill_set)
    calls = check_plan_segment(segment, skill_set, profile, parser_state=parser)
    seconds = plan_segment_execution_s(segment, skill_set, profile, parser_state=parser)
"""

from timely.plans.grammar import plan_grammar as plan_grammar
from timely.plans.language.parser import SegmentParser as SegmentParser
from timely.plans.language.segmenter import Segmenter as Segmenter
from timely.plans.prompt import build_prompt as build_prompt
from timely.plans.skill_library import find_skill_set as find_skill_set
from timely.plans.timing import plan_segment_execution_s as plan_segment_execution_s
from timely.plans.validation import check_plan_segment as check_plan_segment
