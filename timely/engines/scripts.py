"""Scripts: what the scripted engine generates instead of a model, by default the nearest example of the skill set."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from timely.core.errors import InvalidInput
from timely.engines.base import GenerationRequest
from timely.plans.language.parser import SegmentParser
from timely.plans.language.segmenter import Segmenter
from timely.plans.robot_profiles import RobotProfile, find_plan_robot_profile
from timely.plans.skill_library import find_skill_set_copy
from timely.plans.skill_set import SkillSet
from timely.plans.timing import plan_segment_execution_s

CHARS_A_TOKEN = 3.0
"""Rough length of a token of plan text, characters."""

WORD = r"\w+"

DEFAULT_EXECUTION_S = 2.0
"""Execution time of a scripted segment that names none, seconds."""


@dataclass(frozen=True, slots=True)
class ScriptedSegment:
    """One segment of a script.

    Attributes:
        tokens: its length; None: from the length of the text.
        blocking: the plan goes on only when the robot has returned a value.
    """

    text: str
    execution_s: float = DEFAULT_EXECUTION_S
    tokens: int | None = None
    blocking: bool = False

    @property
    def length(self) -> int:
        """Tokens, at least one."""
        return self.tokens or max(1, math.ceil(len(self.text) / CHARS_A_TOKEN))


PROSE = "This is a dry run, so no model has read your question. The words are always these. Only their times are real. "
"""What a reader gets from a skill set without examples."""

Script = Sequence[ScriptedSegment | str]
Planner = Callable[[GenerationRequest], Script]


def engine_script_segments(
    request: GenerationRequest, plans: Mapping[str, Script], planner: Planner
) -> list[ScriptedSegment]:
    """The script of a request: what a replay forces, else the listed or planned one.

    Args:
        plans: task text -> its segments.

    Raises:
        InvalidInput: the script is empty.
    """
    if request.forced:
        return [
            ScriptedSegment(text, seconds, tokens, bool(more and more[0]))
            for text, tokens, seconds, *more in request.forced.segments
        ]
    script = plans.get(request.words)
    if script is None and not request.task:
        # A prompt holds more than the task: take the longest listed task that occurs in it.
        words = f" {' '.join(re.findall(WORD, request.prompt))} "
        matches = [name for name in plans if f" {' '.join(re.findall(WORD, name))} " in words]
        script = plans[max(matches, key=len)] if matches else None
    if script is None:
        script = planner(request)
    segments = [ScriptedSegment(part) if isinstance(part, str) else part for part in script]
    if not segments:
        raise InvalidInput("the script of this task has no segments", where="task")
    return segments


def joined_engine_script(segments: Sequence[ScriptedSegment]) -> ScriptedSegment:
    """Mode ``whole``: the segments as one."""
    return ScriptedSegment(
        "".join(segment.text for segment in segments),
        sum(segment.execution_s for segment in segments),
        sum(segment.length for segment in segments),
    )


def count_engine_script_tokens(text: str) -> int:
    """Rough length of a text, tokens."""
    return math.ceil(len(text) / CHARS_A_TOKEN)


def nearest_engine_script(request: GenerationRequest) -> Script:
    """The plan of the skill set's example whose task shares most words with the request's, cut into segments.

    Raises:
        UnknownName: no such skill set or robot. InvalidInput: the skill set has no example to play.
        EngineFailed: plans of the skill set are checked by another copy.
    """
    skill_set = find_skill_set_copy(request.skill_set, request.skill_set_fingerprint)
    robot = request.robot or skill_set.profile
    profile = find_plan_robot_profile(robot) if robot else None
    if skill_set.language == "text" and not skill_set.examples:
        return _parse_engine_script(skill_set, profile, PROSE)
    if not skill_set.examples:
        raise InvalidInput(
            f"skill set {skill_set.name} has no examples and no plan was scripted", where="skill_set"
        )
    words = _engine_script_words(request.words)
    example = max(
        skill_set.examples,
        key=lambda example: (
            len(words & _engine_script_words(example.task))
            / (1 + len(words | _engine_script_words(example.task)))
        ),
    )
    return _parse_engine_script(skill_set, profile, example.plan)


def _parse_engine_script(skill_set: SkillSet, profile: RobotProfile | None, plan: str) -> Script:
    segmenter = Segmenter(skill_set)
    parser = SegmentParser(skill_set) if skill_set.language != "text" else None
    script = []
    for boundary in (*segmenter.feed(plan), *segmenter.close()):
        execution_s = DEFAULT_EXECUTION_S
        if profile is not None:
            if parser is not None:
                parser.feed(boundary.text)
            execution_s = plan_segment_execution_s(boundary.text, skill_set, profile, parser_state=parser)
        script.append(ScriptedSegment(boundary.text, execution_s, blocking=boundary.blocking))
    return script


def _engine_script_words(text: str) -> frozenset[str]:
    return frozenset(re.findall(WORD, text.lower()))
