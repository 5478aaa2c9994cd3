"""Draws a case: a task of a random family, drafted by its generator and then written as a person types it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timely.planner.cases.case import CaseTrial, PlannerCase
from timely.planner.cases.sampler import CaseSampler
from timely.planner.cases.text_noise import add_case_noise


@dataclass(frozen=True, slots=True)
class Draft:
    """A generated task before its text gets capital letter, full stop and noise.

    Attributes:
        command: the task is an order, which politeness may surround.
        as_written: the text stays as it is, since it quotes a plan.
        family: the kind of task for the scores, if it is not the family's own name.
    """

    task: str
    plan: str
    trials: tuple[CaseTrial, ...]
    scene: str = ""
    history: str = ""
    command: bool = True
    as_written: bool = False
    refusal: bool = False
    family: str = ""


@dataclass(frozen=True, slots=True)
class CaseFamily:
    """A kind of task: its generator, its weight, and the factor on it where hard kinds are drawn more often."""

    name: str
    draft: Callable[[CaseSampler], Draft]
    weight: float
    harder: float = 1.0


def draw_case(
    sampler: CaseSampler, skill_set: str, families: Sequence[CaseFamily], *, harder: bool
) -> PlannerCase:
    weights = [family.weight * (family.harder if harder else 1.0) for family in families]
    family = sampler.rng.choices(families, weights=weights)[0]
    draft = family.draft(sampler)
    task = draft.task
    if not draft.as_written:
        sentence = f"{task[0].upper()}{task[1:]}" + ("" if task[-1] in ".?!" else ".")
        task = add_case_noise(sampler, sentence, draft.plan, command=draft.command)
    name = draft.family or family.name
    return PlannerCase(
        skill_set, name, task, draft.plan, draft.trials, draft.scene, draft.history, draft.refusal
    )
