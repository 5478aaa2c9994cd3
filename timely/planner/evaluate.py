"""Judges a planner by the effects of its plans, and the untrained model with and without grammar."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from timely.core.errors import TimelyError
from timely.planner.batch_decode import PlannerAnswerer
from timely.planner.cases.case import PlannerCase, case_failure, case_plan_refuses
from timely.planner.training.checks import TrainingPlanAcceptor
from timely.plans.language.segmenter import Segmenter
from timely.plans.skill_set import SkillSet


@dataclass(frozen=True, slots=True)
class Score:
    """Scores of one way of decoding on one skill set.

    Attributes:
        success: share of cases whose plan did the task.
        refused: share of success over the cases to refuse.
        wrongly_refused: refused share of the other cases.
        valid: share of plans that the grammar accepts.
        plan_tokens, first_segment_tokens: means.
        prompt_tokens: mean length of fixed part and task.
        families: success and number of cases by kind of task.
        failures: some failures with task, plan and problem.
    """

    name: str
    skill_set: str
    cases: int
    success: float
    refused: float | None
    wrongly_refused: float
    valid: float
    plan_tokens: float
    first_segment_tokens: float
    prompt_tokens: float
    families: dict[str, tuple[float, int]] = field(default_factory=dict)
    failures: list[dict[str, str]] = field(default_factory=list)


def judge_planner_plans(
    name: str,
    answerer: PlannerAnswerer,
    skills: SkillSet,
    cases: Sequence[PlannerCase],
    plans: Sequence[str],
    *,
    examples: bool = False,
    keep: int = 20,
) -> Score:
    def count(text: str) -> int:
        return len(answerer.tokenizer.encode(text, add_special_tokens=False))

    wrongs = [case_failure(case, plan, skills) for case, plan in zip(cases, plans, strict=True)]
    families: dict[str, list[bool]] = defaultdict(list)
    for case, wrong in zip(cases, wrongs, strict=True):
        families[case.family].append(not wrong)
    to_refuse = [not wrong for case, wrong in zip(cases, wrongs, strict=True) if case.refusal]
    others = [case_plan_refuses(plan) for case, plan in zip(cases, plans, strict=True) if not case.refusal]
    prompts = [case.prompt(skills, examples=examples) for case in cases]
    acceptor = TrainingPlanAcceptor(skills)
    return Score(
        name=name,
        skill_set=skills.name,
        cases=len(cases),
        success=_mean_planner_score([not wrong for wrong in wrongs]),
        refused=_mean_planner_score(to_refuse) if to_refuse else None,
        wrongly_refused=_mean_planner_score(others) if others else 0.0,
        valid=_mean_planner_score([acceptor.accepts(plan) for plan in plans]),
        plan_tokens=_mean_planner_score([count(plan) for plan in plans]),
        first_segment_tokens=_mean_planner_score([count(_first_planner_segment(skills, plan)) for plan in plans]),
        prompt_tokens=_mean_planner_score([count(prompt.system) + count(prompt.user) for prompt in prompts]),
        families={family: (_mean_planner_score(right), len(right)) for family, right in sorted(families.items())},
        failures=[
            {"family": case.family, "task": case.task, "scene": case.scene, "history": case.history, "plan": plan,
             "wanted": case.plan, "wrong": wrong}
            for case, plan, wrong in zip(cases, plans, wrongs, strict=True)
            if wrong
        ][:keep],
    )  # fmt: skip


def _first_planner_segment(skills: SkillSet, plan: str) -> str:
    segmenter = Segmenter(skills)
    try:
        boundaries = [*segmenter.feed(plan), *segmenter.close()]
    except TimelyError:
        return plan
    return boundaries[0].text if boundaries else plan


def _mean_planner_score(values: Sequence[Any]) -> float:
    return sum(values) / len(values) if values else 0.0
