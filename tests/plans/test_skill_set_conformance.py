"""Every skill set that can be found: its own plans go the whole way."""

from __future__ import annotations

import pytest

from lrtrace.profiles import load_robot_profile
from timely.plans.language.parser import SegmentParser, parse_plan, parse_plan_calls
from timely.plans.language.segmenter import Segmenter
from timely.plans.skill_library import find_skill_set, skill_set_names
from timely.plans.timing import plan_segment_execution_s, plan_segment_max_tokens
from timely.plans.validation import check_plan_segment

NAMES = skill_set_names()
PLANNERS = [name for name in NAMES if find_skill_set(name).language != "text"]


@pytest.mark.parametrize("name", PLANNERS)
def test_example_plans_segment_parse_and_validate(name: str) -> None:
    skill_set = find_skill_set(name)
    profile = load_robot_profile(skill_set.profile)
    assert len(skill_set.examples) >= 4
    for example in skill_set.examples:
        program = parse_plan(example.plan, skill_set)
        segmenter, parser = Segmenter(skill_set), SegmentParser(skill_set)
        segments = [*segmenter.feed(example.plan), *segmenter.close()]
        calls = []
        for segment in segments:
            calls += check_plan_segment(segment.text, skill_set, profile, parser_state=parser)
            assert plan_segment_execution_s(segment.text, skill_set, profile, parser_state=parser) > 0
        parser.feed(segmenter.finish())
        assert parser.finish() == program
        assert calls == list(program.calls())


@pytest.mark.parametrize("name", PLANNERS)
def test_every_skill_is_described_shown_and_known_to_the_robot(name: str) -> None:
    skill_set = find_skill_set(name)
    profile = load_robot_profile(skill_set.profile)
    for skill in skill_set.skills:
        assert skill.description
        assert [call.skill for call in parse_plan_calls(skill.example, skill_set)] == [skill.name]
        assert check_plan_segment(f"{skill.example};", skill_set, profile)
        assert skill.matches(skill.example)
        assert list(profile.limits(skill.name)) == [argument.name for argument in skill.arguments]


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_usable(name: str) -> None:
    skill_set = find_skill_set(name)
    assert skill_set.description
    assert skill_set.name == name
    assert load_robot_profile(skill_set.profile)
    assert 1 <= plan_segment_max_tokens(skill_set, lambda text: text.split()) <= 300  # type: ignore[arg-type, return-value]
