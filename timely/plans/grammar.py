"""Writes the grammar of a skill set's plans for constrained decoding, as EBNF for xgrammar.

A plan that the grammar accepts parses, and its arguments lie in range. The grammar is narrower than the parser,
because small models with more freedom repeat themselves without end. By construction:

* a plan has at most ``max_statements`` statements, those in blocks included;
* no skill follows itself more often than its ``in_a_row`` allows;
* there are no spaces outside quoted texts, and texts and numbers have bounded length;
* blocks are at most two deep, and a skill that blocks stands outside any block;
* the only variable ``_1`` is assigned before use, and an assignment in a block holds for that block;
* a ``pure`` skill stands where its value is used.

A plan may end after any statement. Returns (``->True``) end their block and do not count as statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from timely.core.errors import InvalidInput
from timely.plans import ebnf
from timely.plans.language.lexer import quote_plan_text
from timely.plans.skill_set import Skill, SkillArgument, SkillSet

RESERVE = (4, 1)
"""Maximum statements in a block, and in a block of a block. They count against the plan's limit even if unused."""
MAX_LOOP = 9
"""Maximum rounds of a loop: one digit. Untrained chat models tend to start with "1". SmolLM2-135M with two digits
writes ``10{mb(100)}`` for every task; with one digit it writes ``?iv('cat')==True{g('cat')}``."""


class _GrammarPosition(NamedTuple):
    """A position in a plan: depth of the block, number of statements left, number of variables (0 or 1)."""

    depth: int
    left: int
    variables: int

    @property
    def name(self) -> str:
        return f"{self.depth}n{self.left}v{self.variables}"

    def after(self, statements: int) -> _GrammarPosition:
        return _GrammarPosition(self.depth, self.left - statements, self.variables)


class _GrammarPrevious(NamedTuple):
    """The previous skill: its index among the statements, and its repetitions in a row."""

    place: int
    times: int


def plan_grammar(skill_set: SkillSet) -> str:
    """The EBNF of a skill set's plans; "" for prose, which has none.

    Raises:
        InvalidInput: no skill can be used as a statement.
    """
    if skill_set.language == "text":
        return ""
    rules = _GrammarRules(skill_set.skills, blocks=skill_set.language == "minispec")
    if not rules.statements:
        raise InvalidInput("no skill can be used as a statement", where=f"skill set {skill_set.name}")
    return rules.text(
        rules.sequence(_GrammarPosition(0, skill_set.max_statements, 0), None, first=True, acts=True)
    )


def _grammar_argument_rule(argument: SkillArgument) -> str:
    low, high = argument.min, argument.max
    if argument.choices is not None:
        return ebnf.ebnf_either(
            ebnf.ebnf_literal(quote_plan_text(choice) if isinstance(choice, str) else str(choice))
            for choice in argument.choices
        )
    if argument.type == "float":
        return ebnf.ebnf_decimal(low, high)
    if argument.type == "int":
        return ebnf.ebnf_integer(None if low is None else int(low), None if high is None else int(high))
    if argument.type == "bool":
        return ebnf.ebnf_either([ebnf.ebnf_literal("True"), ebnf.ebnf_literal("False")])
    if argument.type == "object":
        return ebnf.ebnf_object_name(argument.chars)
    return ebnf.ebnf_text(argument.chars)


class _GrammarRules:
    """Builds each rule once, on demand.

    A sequence is a chain of rules: one per number of statements left, previous skill and number of variables. "Any
    skill but the previous one" would make each rule as long as the skill set. So the skills form a binary tree, and
    that rule lists the few branches beside the path to the previous skill.
    """

    def __init__(self, skills: Sequence[Skill], *, blocks: bool) -> None:
        self.rules: dict[str, str] = {}
        self.blocks = blocks
        self.names_by_body: dict[str, str] = {}
        self._unwritten: list[tuple[str, _GrammarPosition, _GrammarPrevious | None, bool, bool]] = []
        """Sequences with a name and no rule yet: each leads to others, deeper than Python recurs."""
        self.skills = skills
        self.statements = [skill for skill in skills if not skill.pure]
        for skill in skills:
            self._add_call(skill)

    def text(self, start: str) -> str:
        while self._unwritten:
            name, at, last, first, acts = self._unwritten.pop()
            self.rules[name] = self._sequence_body(at, last, first, acts)
        # Some models start a new line instead of stopping; the line break ends the plan.
        lines = [f'root ::= {start} "\\n"?', *(f"{name} ::= {body}" for name, body in self.rules.items())]
        return "\n".join(lines) + "\n"

    def _add_call(self, skill: Skill) -> None:
        names = [
            self._rule_name(
                f"arg-{_grammar_rule_part(skill.word)}-{_grammar_rule_part(argument.name)}",
                _grammar_argument_rule(argument),
            )
            for argument in skill.arguments
        ]
        word = ebnf.ebnf_literal(f"{skill.word}(")
        inside = ' "," '.join(names)
        self.rules[_grammar_call_rule(skill)] = (
            f'{word} {inside} ")"' if inside else ebnf.ebnf_literal(f"{skill.word}()")
        )

    def _rule_name(self, name: str, body: str) -> str:
        name = self.names_by_body.setdefault(body, name)
        self.rules[name] = body
        return name

    def sequence(
        self, at: _GrammarPosition, last: _GrammarPrevious | None, *, first: bool = False, acts: bool = False
    ) -> str:
        """The rest of a block or of the plan.

        Args:
            first: at least one statement must follow.
            acts: it may not start with a return.
        """
        name = f"s{at.name}{f'-{last.place}x{last.times}' if last else ''}{'f' * first}{'a' * acts}"
        if name not in self.rules:
            self.rules[name] = ""
            self._unwritten.append((name, at, last, first, acts))
        return name

    def _sequence_body(
        self, at: _GrammarPosition, last: _GrammarPrevious | None, first: bool, acts: bool
    ) -> str:
        options = [] if first else ['""']
        options += self._others(at, returns=not acts)
        if at.left > 0 and self._statement_skills(at):
            options += self._skills(at, last)
        return " | ".join(options)

    def _statement_skills(self, at: _GrammarPosition) -> list[Skill]:
        return [skill for skill in self.statements if not (skill.blocks and at.depth)]

    def _skills(self, at: _GrammarPosition, last: _GrammarPrevious | None) -> list[str]:
        """One more call and the rest of the sequence."""
        skills = self._statement_skills(at)
        if last is None or last.place >= len(skills):
            return [self._branch(at, 0, len(skills))]
        options = []
        low, high = 0, len(skills)
        while high - low > 1:
            middle = (low + high) // 2
            if last.place < middle:
                options.append(self._branch(at, middle, high))
                high = middle
            else:
                options.append(self._branch(at, low, middle))
                low = middle
        if last.times < skills[last.place].in_a_row:
            options.append(self._leaf(at, _GrammarPrevious(last.place, last.times + 1)))
        return options

    def _branch(self, at: _GrammarPosition, low: int, high: int) -> str:
        """Any of the skills ``low..high-1``, each the first in a row."""
        if high - low == 1:
            return self._leaf(at, _GrammarPrevious(low, 1))
        name = f"b{at.name}-{low}-{high}"
        if name not in self.rules:
            middle = (low + high) // 2
            self.rules[name] = ""
            self.rules[name] = f"{self._branch(at, low, middle)} | {self._branch(at, middle, high)}"
        return name

    def _leaf(self, at: _GrammarPosition, now: _GrammarPrevious) -> str:
        """That skill and the rest of the sequence."""
        name = f"u{at.name}-{now.place}x{now.times}"
        if name not in self.rules:
            self.rules[name] = ""
            statement = self._statement(self._statement_skills(at)[now.place], at.variables)
            self.rules[name] = f"{statement} {self._then(at.after(1), now)}"
        return name

    def _others(self, at: _GrammarPosition, *, returns: bool) -> list[str]:
        """Statements other than plain calls. They do not depend on the previous skill."""
        if not self.blocks:
            return []
        options = []
        if returns:
            options.append(self._return(at.variables))
        if at.left > 0 and (value := self._value()):
            options.append(f'"_1=" {value} {self._then(_GrammarPosition(at.depth, at.left - 1, 1), None)}')
        if at.depth < len(RESERVE) and at.left > RESERVE[at.depth]:
            inner = _GrammarPosition(at.depth + 1, RESERVE[at.depth], at.variables)
            after = self.sequence(at.after(1 + RESERVE[at.depth]), None)
            rest = f'"}}" ";"? {after}'
            if condition := self._condition(at.variables):
                options.append(f'"?" {condition} "{{" {self.sequence(inner, None, first=True)} {rest}')
            if not at.depth:
                count = self._rule_name("count", ebnf.ebnf_integer(2, MAX_LOOP))
                options.append(f'{count} "{{" {self.sequence(inner, None, first=True, acts=True)} {rest}')
        return options

    def _then(self, at: _GrammarPosition, last: _GrammarPrevious | None) -> str:
        """The rest of a sequence after a statement. The last statement of a block needs no ``;``."""
        after = f'";" {self.sequence(at, last)}'
        return f"({after})?" if at.depth else after

    def _return(self, variables: int) -> str:
        values = ['"True"', '"False"', *(['"_1"'] if variables else [])]
        return self._rule_name(f"return{variables}", f'"->" {ebnf.ebnf_either(values)} ";"?')

    def _statement(self, skill: Skill, variables: int) -> str:
        """A call, whose text argument may be a variable."""
        call = _grammar_call_rule(skill)
        if not variables or len(skill.arguments) != 1 or skill.arguments[0].choices is not None:
            return call
        if skill.arguments[0].type not in ("str", "object"):
            return call
        return self._rule_name(f"{call}-v", f"{call} | {ebnf.ebnf_literal(f'{skill.word}(_1)')}")

    def _value(self) -> str | None:
        calls = [_grammar_call_rule(skill) for skill in self._returning("bool", "float", "str")]
        return self._rule_name("value", " | ".join(calls)) if calls else None

    def _condition(self, variables: int) -> str | None:
        """One comparison, or two with an operator between."""
        options = []
        number = self._rule_name("number", ebnf.ebnf_decimal(0, 9999))
        if truths := [_grammar_call_rule(skill) for skill in self._returning("bool")]:
            options.append(f'{self._rule_name("truth", " | ".join(truths))} ("==True" | "==False")?')
        if numbers := [_grammar_call_rule(skill) for skill in self._returning("float")]:
            options.append(f"{self._rule_name('measure', ' | '.join(numbers))} [<>] {number}")
        if variables:
            options.append(f'"_1" ("==True" | "==False" | "!=False" | "!=True" | [<>] {number})')
        if not options:
            return None
        one = self._rule_name(f"test{variables}", " | ".join(options))
        return self._rule_name(f"condition{variables}", f"{one} ([&|] {one})?")

    def _returning(self, *kinds: str) -> list[Skill]:
        return [skill for skill in self.skills if skill.returns in kinds and not skill.blocks]


def _grammar_call_rule(skill: Skill) -> str:
    return f"call-{_grammar_rule_part(skill.word)}"


def _grammar_rule_part(word: str) -> str:
    """A word in the name of a rule, which GBNF writes without underscores. No two names become the same."""
    return word.replace("_", "--")
