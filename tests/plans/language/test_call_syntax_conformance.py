"""One corpus of plans for every reader of the call syntax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lrtrace.plan_text import parse_trace_calls
from timely.engines.vllm.boundaries import VllmTextBoundaries
from timely.plans.language.interpreter import Interpreter
from timely.plans.language.parser import SegmentParser, parse_plan
from timely.plans.language.segmenter import Segmenter
from timely.plans.language.syntax import PlanCall, Variable
from timely.plans.object_names import names_of_plan
from timely.plans.skill_library import find_skill_set
from timely.plans.skill_set import SkillSet

CORPUS = yaml.safe_load(
    (Path(__file__).parents[2] / "support" / "call_syntax.yaml").read_text(encoding="utf-8")
)
ROWS = [
    pytest.param(find_skill_set(name), row, id=row["plan"]) for name, rows in CORPUS.items() for row in rows
]
every_plan = pytest.mark.parametrize(("skills", "row"), ROWS)


def written(calls: list[PlanCall]) -> list[list[object]]:
    """Name and arguments of each call; a variable by its name."""
    return [[c.skill, *(a.name if isinstance(a, Variable) else a for a in c.args)] for c in calls]


@every_plan
def test_the_parser(skills: SkillSet, row: dict[str, Any]) -> None:
    assert written(list(parse_plan(row["plan"], skills).calls())) == row["calls"]


@every_plan
def test_the_parser_segment_by_segment(skills: SkillSet, row: dict[str, Any]) -> None:
    parser = SegmentParser(skills)
    assert written([call for segment in row["segments"] for call in parser.feed(segment)]) == row["calls"]


@every_plan
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_segmenter(skills: SkillSet, row: dict[str, Any], size: int) -> None:
    segmenter = Segmenter(skills)
    parts = [row["plan"][at : at + size] for at in range(0, len(row["plan"]), size)]
    boundaries = [boundary for part in parts for boundary in segmenter.feed(part)] + segmenter.close()
    assert [boundary.text for boundary in boundaries] == row["segments"]
    assert [name for boundary in boundaries for name in boundary.skills] == [call[0] for call in row["calls"]]


@every_plan
@pytest.mark.parametrize("truncated", [False, True])
def test_the_boundaries_of_the_engine(skills: SkillSet, row: dict[str, Any], truncated: bool) -> None:
    boundaries = VllmTextBoundaries(skills, None, chr, awaits_values=True)
    texts = [closed.text for letter in row["plan"] for closed in boundaries.feed(ord(letter))]
    last = boundaries.finish(truncated=truncated)
    segments = row.get("truncated", row["segments"]) if truncated else row["segments"]
    assert [*texts, *([last.text] if last else [])] == segments


@every_plan
def test_the_reader_of_traces(skills: SkillSet, row: dict[str, Any]) -> None:
    if row.get("bare"):
        pytest.skip("execution times are read from calls with brackets only")
    calls = [[skills.by_word[call.skill].name, *call.args] for call in parse_trace_calls(row["plan"])]
    assert calls == row["calls"]


@pytest.mark.process
@every_plan
def test_the_grammar(skills: SkillSet, row: dict[str, Any]) -> None:
    pytest.importorskip("xgrammar")
    from timely.planner.training.checks import TrainingPlanAcceptor

    assert TrainingPlanAcceptor(skills).accepts(row["plan"]) == row["grammar"]


@every_plan
def test_the_object_names(skills: SkillSet, row: dict[str, Any]) -> None:
    objects = [
        value
        for skill, *args in row["calls"]
        for argument, value in zip(skills.by_word[skill].arguments, args, strict=True)
        if argument.type == "object" and f"'{value}'" in row["plan"]
    ]
    assert list(names_of_plan(row["plan"], skills)) == objects


def executed(interpreter: Any, segments: list[str]) -> list[str]:
    texts = []
    for segment in segments:
        interpreter.feed(segment)
        while (invocation := interpreter.next()) is not None:
            texts.append(invocation.text)
            interpreter.answer(True)
    return texts


@every_plan
def test_the_interpreter(skills: SkillSet, row: dict[str, Any]) -> None:
    assert executed(Interpreter(skills), row["segments"]) == row["run"]


@every_plan
def test_the_robots_language(skills: SkillSet, row: dict[str, Any]) -> None:
    language = pytest.importorskip("timely_robots.language")
    assert executed(language.robot_plan(skills.name), row["segments"]) == row["run"]
