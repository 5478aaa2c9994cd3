"""Generates cases from a seed; every plan is parsed, checked against the robot's limits and carried out before use."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

from lrtrace.compose.tasks import TASKS
from lrtrace.profiles import find_profile
from timely.core.errors import EngineFailed, TimelyError, UnknownName
from timely.planner.cases import arm_tasks, drone_tasks
from timely.planner.cases.case import Case, Draw, failure
from timely.planner.cases.vocabulary import Split
from timely.plans.language.parser import SegmentParser
from timely.plans.skill_library import find_skill_set
from timely.plans.validation import check_segment

DRAWN: Mapping[str, Callable[[Draw], Case]] = {
    drone_tasks.NAME: drone_tasks.draw_case,
    arm_tasks.NAME: arm_tasks.draw_case,
}
"""Skill sets that come with a generator; ``from_examples`` serves all others."""

MAX_TASK_TRIES = 200

PAPER = frozenset(task.task.lower().rstrip(".!") for task in TASKS.values())
"""The benchmark's own wordings are left out: a planner is shown them for the first time when it is asked."""


def generate(
    skill_set: str,
    split: Split,
    seed: int,
    *,
    distinct: bool = True,
    coin: float = 0.0,
    coinable: tuple[str, ...] = (),
) -> Iterator[Case]:
    """Cases without end, no task twice; the same seed gives the same cases.

    Args:
        coin, coinable: share of names that are coined, so that plans learn to copy names instead of remembering
            them, and words to take for it; see ``Draw``.

    Raises:
        UnknownName: no generator for that skill set.
        EngineFailed: a generated plan does not do its own task: a mistake in a generator.
    """
    if skill_set not in DRAWN:
        raise UnknownName("skill set with a generator", skill_set, DRAWN, where="skill_set")
    skills = find_skill_set(skill_set)
    profile = find_profile(skills.profile)
    # A text seeds the same on every machine and Python; the halves must not share their draws.
    draw = Draw(random.Random(f"{skill_set} {split} {seed}"), split, coin, coinable)
    known: set[tuple[str, str, str]] = set()
    repeats = 0
    while repeats < MAX_TASK_TRIES:
        case = DRAWN[skill_set](draw)
        if case.task.lower().rstrip(".!") in PAPER:
            continue
        key = (case.task, case.scene, case.history)
        if distinct and key in known:
            repeats += 1
            continue
        repeats = 0
        known.add(key)
        try:
            check_segment(case.plan, skills, profile, parser_state=SegmentParser(skills))
            wrong = failure(case, case.plan, skills)
        except TimelyError as error:
            wrong = str(error)
        if wrong:
            raise EngineFailed(
                f"{case.plan} for {case.task!r} ({case.scene}): {wrong}", where=f"generator {skill_set}"
            )
        yield case
