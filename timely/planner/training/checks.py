"""What is looked at before a training begins: the examples of a skill set, and the names its plans bring along."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from timely.core.errors import InvalidInput
from timely.planner.cases.case import Case
from timely.plans.grammar import grammar
from timely.plans.object_names import names_in, names_of_plan
from timely.plans.skill_set import SkillSet

LOOKED_AT = 2000
"""Generated cases in which names are looked for that stand in no prompt."""
SHOWN_CHARS = 60


class Acceptor:
    """Says whether a plan is one of a skill set's grammar; needs no tokenizer."""

    def __init__(self, skills: SkillSet) -> None:
        import xgrammar

        self._xgrammar: Any = xgrammar
        # The grammar is read by the byte here, so any vocabulary will do.
        letters = xgrammar.TokenizerInfo([*map(chr, range(32, 127)), "</s>"], stop_token_ids=[95])
        self._rules: Any = xgrammar.GrammarCompiler(letters, max_threads=1).compile_grammar(grammar(skills))

    def accepts(self, plan: str) -> bool:
        """The plan, whole."""
        matcher = self._xgrammar.GrammarMatcher(self._rules)
        return bool(matcher.accept_string(plan) and matcher.accept_token(95))


def check_examples(skills: SkillSet) -> None:
    """Refuse to train what could never be served.

    Raises:
        InvalidInput: the plan of an example is none that the grammar accepts; says of which.
    """
    if not skills.examples:
        return  # whoever draws cases from it says so
    acceptor = Acceptor(skills)
    for number, example in enumerate(skills.examples, 1):
        if not acceptor.accepts(example.plan):
            task = example.task if len(example.task) <= SHOWN_CHARS else f"{example.task[:SHOWN_CHARS]}..."
            raise InvalidInput(
                f"the skill set's grammar does not accept its plan {example.plan!r} (task {task!r}): too many "
                "statements, words or characters, a skill that follows itself, a value out of range, or no name",
                where=f"skill set {skills.name}, example {number}",
            )


def names_brought(skills: SkillSet, cases: Iterable[Case]) -> list[str]:
    """Names in plans that stand neither in the scene nor in the task nor in the history (the bin, say)."""
    found: set[str] = set()
    for case in cases:
        said = names_in(case.prompt(skills).user)
        if said is not None:
            found.update(name for name in names_of_plan(case.plan, skills) if name not in said)
    return sorted(found)
