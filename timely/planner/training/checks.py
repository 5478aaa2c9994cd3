"""Checks before a training: its device, the examples of a skill set, and the names that only its plans have."""

import re
from collections.abc import Iterable
from typing import Any

from timely.core.errors import InvalidInput
from timely.planner.cases.case import PlannerCase
from timely.plans.grammar import plan_grammar
from timely.plans.object_names import names_of_plan, object_names_in
from timely.plans.skill_set import SkillSet

LOOKED_AT = 2000
"""Number of generated cases to search for such names."""
SHOWN_CHARS = 60
DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?", re.ASCII)


class TrainingPlanAcceptor:
    """Tells whether a skill set's grammar accepts a plan. It needs no tokenizer."""

    def __init__(self, skills: SkillSet) -> None:
        import xgrammar

        self._xgrammar: Any = xgrammar
        # This check works on bytes, so any vocabulary is enough.
        letters = xgrammar.TokenizerInfo([*map(chr, range(32, 127)), "</s>"], stop_token_ids=[95])
        self._rules: Any = xgrammar.GrammarCompiler(letters, max_threads=1).compile_grammar(
            plan_grammar(skills)
        )

    def accepts(self, plan: str) -> bool:
        matcher = self._xgrammar.GrammarMatcher(self._rules)
        return bool(matcher.accept_string(plan) and matcher.accept_token(95))


def check_device_name(device: str) -> None:
    """Raise InvalidInput for a name that is none of a device."""
    if DEVICE.fullmatch(device) is None:
        raise InvalidInput(f"must be cpu or cuda, not {device[:140]!r}", where="device")


def check_planner_device(device: str) -> None:
    """Raise InvalidInput for a device that torch does not have here."""
    import torch

    check_device_name(device)
    if device != "cpu" and (torch.device(device).index or 0) >= torch.cuda.device_count():
        raise InvalidInput(f"torch has no {device} here", where="device")


def check_training_examples(skills: SkillSet) -> None:
    """Refuse examples that could never be served.

    Raises:
        InvalidInput: the grammar does not accept the plan of an example; the message says which.
    """
    if not skills.examples:
        return  # drawing cases from it raises the error
    acceptor = TrainingPlanAcceptor(skills)
    for number, example in enumerate(skills.examples, 1):
        if not acceptor.accepts(example.plan):
            task = example.task if len(example.task) <= SHOWN_CHARS else f"{example.task[:SHOWN_CHARS]}..."
            raise InvalidInput(
                f"the skill set's grammar does not accept its plan {example.plan!r} (task {task!r}). It has too "
                "many statements, words or characters, a skill that follows itself, a value out of range, or no name",
                where=f"skill set {skills.name}, example {number}",
            )


def training_plan_names(skills: SkillSet, cases: Iterable[PlannerCase]) -> list[str]:
    """Object names in plans that are in no scene, task or history, for instance the bin."""
    names: set[str] = set()
    for case in cases:
        prompt_names = object_names_in(case.prompt(skills).user)
        if prompt_names is not None:
            names.update(name for name in names_of_plan(case.plan, skills) if name not in prompt_names)
    return sorted(names)
