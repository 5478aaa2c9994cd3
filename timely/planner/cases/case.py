"""A case: a task in words, a plan that does it, and trials that judge any plan by its effects."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from timely.core.errors import InvalidInput, TimelyError
from timely.plans.language.interpreter import PlanWorld, interpret_plan
from timely.plans.prompt import Prompt, build_prompt
from timely.plans.simulated_worlds import SimulatedArmWorld, SimulatedDroneWorld
from timely.plans.skill_set import SkillSet

Scene: TypeAlias = PlanWorld
Judge: TypeAlias = "Callable[[Scene, Scene], str]"
"""Compares the world after the reference plan with the world after another plan; returns the error, or ""."""

REFUSAL = "Sorry"
"""How every refusal begins. The rest gives the reason."""


@dataclass(frozen=True, slots=True)
class CaseTrial:
    """Makes one world to run a plan in, and judges the result."""

    world: Callable[[], Scene]
    judge: Judge


@dataclass(frozen=True, slots=True)
class PlannerCase:
    """One task.

    Attributes:
        family: the kind of task, for the breakdown of scores.
        plan: a short plan that does the task.
        trials: a plan succeeds if it succeeds in all of them.
        refusal: the right plan is to refuse.
    """

    skill_set: str
    family: str
    task: str
    plan: str
    trials: tuple[CaseTrial, ...] = field(repr=False, default=())
    scene: str = ""
    history: str = ""
    refusal: bool = False

    def prompt(self, skills: SkillSet, *, examples: bool = False) -> Prompt:
        """The prompt that the server would make."""
        return build_prompt(skills, self.task, self.scene, examples=examples, history=self.history)


def case_failure(case: PlannerCase, plan: str, skills: SkillSet) -> str:
    """Why ``plan`` does not do the task; "" if it does."""
    for trial in case.trials:
        reference, world = trial.world(), trial.world()
        interpret_plan(case.plan, skills, reference)
        try:
            interpret_plan(plan, skills, world)
        except TimelyError as error:
            return str(error)
        if problem := trial.judge(reference, world):
            return problem
    return ""


# ---------------------------------------------------------------------- judging


def same_case_effects(reference: Scene, world: Scene) -> str:
    """The plans had the same effects: position, visits, pictures, words and waiting, or the objects' places."""
    if isinstance(reference, SimulatedDroneWorld) and isinstance(world, SimulatedDroneWorld):
        return (
            same_case_words(reference, world)
            or _same_case_visits(reference, world)
            or _same_case_pose(reference, world)
        )
    if isinstance(reference, SimulatedArmWorld) and isinstance(world, SimulatedArmWorld):
        return same_case_words(reference, world) or _same_case_table(reference, world)
    raise InvalidInput("two different kinds of world", where="judge")


def same_case_calls(reference: Scene, world: Scene) -> str:
    """The plans made the same calls in the same order. For worlds that only record calls."""
    expected, actual = getattr(reference, "calls", None), getattr(world, "calls", None)
    return "" if expected == actual else f"calls {actual}, not {expected}"


def case_plan_refuses(plan: str) -> bool:
    return f"'{REFUSAL}" in plan


def same_case_words(reference: Scene, world: Scene) -> str:
    """The plans said the same words, case and punctuation aside. For yes and no the first word decides."""
    if not isinstance(reference, (SimulatedDroneWorld, SimulatedArmWorld)) or not isinstance(
        world, (SimulatedDroneWorld, SimulatedArmWorld)
    ):
        return "no scene"
    if len(reference.sayings) != len(world.sayings):
        return f"said {world.sayings}, not {reference.sayings}"
    for expected, actual in zip(
        map(_plain_case_words, reference.sayings), map(_plain_case_words, world.sayings), strict=True
    ):
        same_answer = expected in (["yes"], ["no"]) and actual[:1] == expected
        if expected != actual and not same_answer:
            return f"said {world.sayings}, not {reference.sayings}"
    return ""


def case_refused(reference: Scene, world: Scene) -> str:
    """The plan refuses in the canonical form and moves nothing."""
    if not isinstance(world, (SimulatedDroneWorld, SimulatedArmWorld)):
        return "no scene"
    if not world.sayings or not world.sayings[0].startswith(REFUSAL):
        return f"does not refuse: {world.skills}"
    return "moves although it refuses" if world.moves else ""


def _plain_case_words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _same_case_visits(reference: SimulatedDroneWorld, world: SimulatedDroneWorld) -> str:
    if reference.visits != world.visits:
        return f"went to {world.visits}, not {reference.visits}"
    if len(reference.photos) != len(world.photos):
        return f"took {len(world.photos)} pictures, not {len(reference.photos)}"
    for expected, actual in zip(reference.photos, world.photos, strict=True):
        if not expected.names <= actual.names:
            return f"the picture lacks {sorted(expected.names - actual.names)}"
    if abs(reference.waited_s - world.waited_s) > 0.1 * reference.waited_s + 0.01:
        return f"waited {world.waited_s:g} s, not {reference.waited_s:g} s"
    return ""


def _same_case_pose(reference: SimulatedDroneWorld, world: SimulatedDroneWorld) -> str:
    expected = (reference.x, reference.y, reference.z)
    off = math.dist(expected, (world.x, world.y, world.z))
    if off > max(10.0, 0.05 * math.hypot(*expected)):
        return f"ends {off:.0f} cm off"
    turn_deg = (world.heading_deg - reference.heading_deg + 180.0) % 360.0 - 180.0
    if abs(turn_deg) > 8.0:
        return f"ends {turn_deg:.0f} degrees off"
    return ""


def _same_case_table(reference: SimulatedArmWorld, world: SimulatedArmWorld) -> str:
    for what in ("on", "holding", "closed", "looked"):
        expected, actual = getattr(reference, what), getattr(world, what)
        if expected != actual:
            return f"{what}: {actual}, not {expected}"
    if reference.at_home and not world.at_home:
        return "is not at home"
    if reference.pointings[-1:] and reference.over != world.over:
        return f"is over {world.over}, not {reference.over}"
    return ""
