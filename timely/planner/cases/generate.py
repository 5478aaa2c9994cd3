"""Generates cases from a seed. Every plan is parsed, checked against the robot's limits and carried out before use."""

import random
from collections.abc import Callable, Iterator, Mapping

from lrtrace.compose.tasks import TASKS
from lrtrace.profiles import find_robot_profile
from timely.core.errors import EngineFailed, TimelyError, check_name
from timely.planner.cases import arm_tasks, drone_tasks
from timely.planner.cases.case import PlannerCase, case_failure
from timely.planner.cases.sampler import CaseSampler
from timely.planner.cases.vocabulary import Split
from timely.plans.language.parser import SegmentParser
from timely.plans.skill_library import find_skill_set
from timely.plans.validation import check_plan_segment

GENERATORS: Mapping[str, Callable[[CaseSampler], PlannerCase]] = {
    drone_tasks.NAME: drone_tasks.draw_drone_case,
    arm_tasks.NAME: arm_tasks.draw_arm_case,
}
"""Skill sets with a generator of their own. ``from_examples`` makes cases for all others."""

MAX_TASK_TRIES = 200

PAPER_TASKS = frozenset(task.task.lower().rstrip(".!") for task in TASKS.values())
"""Wordings of the benchmark. No case has them, so that a planner never saw them before it is measured."""


def generate_cases(
    skill_set: str, split: Split, seed: int, *, coin_share: float = 0.0, coinable: tuple[str, ...] = ()
) -> Iterator[PlannerCase]:
    """Yield cases, no task twice, until there are no new ones. The same seed gives the same cases.

    Args:
        coin_share: share of names that are coined, so that a planner learns to copy names instead of recalling them.
        coinable: words that coined names are drawn from.

    Raises:
        UnknownName: no generator for that skill set.
        EngineFailed: a generated plan does not do its own task, which is a mistake in a generator.
    """
    check_name("skill set with a generator", skill_set, GENERATORS, where="skill_set")
    skills = find_skill_set(skill_set)
    profile = find_robot_profile(skills.profile)
    # A text seeds the same on every machine and Python; the halves must not share their draws.
    sampler = CaseSampler(random.Random(f"{skill_set} {split} {seed}"), split, coin_share, coinable)
    keys: set[tuple[str, str, str]] = set()
    repeats = 0
    while repeats < MAX_TASK_TRIES:
        case = GENERATORS[skill_set](sampler)
        if case.task.lower().rstrip(".!") in PAPER_TASKS:
            continue
        key = (case.task, case.scene, case.history)
        if key in keys:
            repeats += 1
            continue
        repeats = 0
        keys.add(key)
        try:
            check_plan_segment(case.plan, skills, profile, parser_state=SegmentParser(skills))
            problem = case_failure(case, case.plan, skills)
        except TimelyError as error:
            problem = str(error)
        if problem:
            raise EngineFailed(
                f"{case.plan} for {case.task!r} ({case.scene}): {problem}", where=f"generator {skill_set}"
            )
        yield case
