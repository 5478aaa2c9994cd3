"""The grammar of a skill set's plans, for constrained decoding (EBNF as xgrammar reads it).

What it accepts parses, and its arguments lie in range. It is narrower than the parser, because small models given
room repeat themselves for ever. By construction:

* a plan has at most ``max_statements`` statements, blocks and what is in them included;
* no skill follows itself more often than its ``in_a_row`` allows;
* no spaces outside quoted texts, texts and numbers of bounded length, blocks at most two deep;
* one variable, ``_1``, used after it was assigned (again in a block only for that block); a skill that blocks
  stands outside any block; a skill that only looks (``pure``) stands where its value is used.

A plan may end after any statement. Returns (``->True``) end their block and count as no statement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from lrtrace.errors import BadInput
from lrtrace.profiles import RobotProfile
from timely.core.errors import InvalidInput
from timely.plans import ebnf
from timely.plans.language.lexer import quote
from timely.plans.skill_set import NUMERIC, Argument, Skill, SkillSet
from timely.plans.units import factor
from timely.plans.validation import is_object_name

RESERVE = (4, 1)
"""Most statements in a block of the plan, and in a block of a block; they count against the plan's whether used."""
MAX_LOOP = 9
"""Most rounds of a loop: one digit. Untrained chat models love to begin with "1", and SmolLM2-135M given two digits
writes ``10{mb(100)}`` for every task; with one it writes ``?iv('cat')==True{g('cat')}``."""
MAX_OBJECTS = 64


class _At(NamedTuple):
    """Where in a plan: depth of the block, statements left, variables known (0 or 1)."""

    depth: int
    left: int
    known: int

    @property
    def name(self) -> str:
        return f"{self.depth}n{self.left}v{self.known}"

    def less(self, statements: int) -> _At:
        """The same with so many fewer left."""
        return _At(self.depth, self.left - statements, self.known)


class _Last(NamedTuple):
    """The skill used last, by its place among the statements, and how often in a row."""

    place: int
    times: int


def grammar(
    skill_set: SkillSet,
    *,
    max_statements: int | None = None,
    objects: Sequence[str] | None = None,
    profile: RobotProfile | None = None,
) -> str:
    """The EBNF of a skill set's plans; "" for prose, which has none.

    Args:
        max_statements: most statements; the skill set's own unless given.
        objects: the only names that object arguments may have (the things in the scene); any name unless given.
        profile: leaves out the skills this robot may not use and narrows the others to its limits.

    Raises:
        InvalidInput: an impossible number, a name that is no object name, or no skill is left.
    """
    if skill_set.language == "text":
        return ""
    limit = skill_set.max_statements if max_statements is None else max_statements
    if isinstance(limit, bool) or not 1 <= limit <= 200:
        raise InvalidInput(f"must be 1 to 200, got {limit}", where="max_statements")
    usable = [skill for skill in skill_set.skills if profile is None or profile.allows(skill.name)]
    if not usable:
        raise InvalidInput(
            f"robot {profile.name if profile else ''} allows none of its skills", where=skill_set.name
        )
    rules = _Rules(usable, _Arguments(objects, profile), blocks=skill_set.language == "minispec")
    if not rules.statements:
        raise InvalidInput("no skill can be used as a statement", where=f"skill set {skill_set.name}")
    return rules.text(rules.plan(limit))


class _Arguments:
    """What may stand as an argument."""

    def __init__(self, objects: Sequence[str] | None, profile: RobotProfile | None) -> None:
        self.profile = profile
        self.objects: str | None = None
        if objects is not None:
            self.objects = _objects(objects)

    def rule(self, skill: Skill, argument: Argument) -> str | None:
        """EBNF of the argument; None when no value would be allowed."""
        low, high = self._range(skill, argument)
        if argument.choices is not None:
            allowed = [
                value
                for value in argument.choices
                if isinstance(value, str)
                or ((low is None or value >= low) and (high is None or value <= high))
            ]
            written = [ebnf.literal(quote(v) if isinstance(v, str) else str(v)) for v in allowed]
            return ebnf.either(written) if written else None
        if argument.type in NUMERIC:
            if low is not None and high is not None and low > high:
                return None
            if argument.type == "float":
                return ebnf.decimal(low, high)
            return ebnf.integer(
                None if low is None else math.ceil(low), None if high is None else math.floor(high)
            )
        if argument.type == "bool":
            return ebnf.either([ebnf.literal("True"), ebnf.literal("False")])
        if argument.type == "object":
            return self.objects or ebnf.object_name(argument.chars)
        return ebnf.text(argument.chars)

    def _range(self, skill: Skill, argument: Argument) -> tuple[float | None, float | None]:
        """Range of skill set and profile together, in the skill set's unit."""
        low, high = argument.min, argument.max
        if self.profile is None:
            return low, high
        try:
            limit = self.profile.limits(skill.name).get(argument.name)
        except BadInput:
            return low, high
        if limit is None or not limit.numeric:
            return low, high
        by = factor(limit.unit, argument.unit)
        if by is None:
            raise InvalidInput(
                f"{argument.name} of {skill.name} is in {argument.unit}, robot {self.profile.name} limits {limit.unit}",
                where="profile",
            )
        lows = [
            bound
            for bound in (low, None if limit.min is None else round(limit.min * by, 9))
            if bound is not None
        ]
        highs = [
            bound
            for bound in (high, None if limit.max is None else round(limit.max * by, 9))
            if bound is not None
        ]
        return max(lows, default=None), min(highs, default=None)


def _objects(names: Sequence[str]) -> str:
    if not 1 <= len(names) <= MAX_OBJECTS:
        raise InvalidInput(f"must be 1 to {MAX_OBJECTS} names, got {len(names)}", where="objects")
    for name in names:
        if not isinstance(name, str) or not is_object_name(name):
            raise InvalidInput(f"{name!r} is no object name", where="objects")
    return ebnf.either(ebnf.literal(quote(name)) for name in names)


class _Rules:
    """Builds the rules, each once, as they are asked for.

    A sequence is a chain of rules, one per number of statements left, skill used last, and variables known. "Any
    skill but the last one" would make each of them as long as the skill set; so for each number left the skills
    hang in a binary tree, and "any but this one" is the handful of branches beside the way to it.
    """

    def __init__(self, skills: Sequence[Skill], arguments: _Arguments, *, blocks: bool) -> None:
        self.rules: dict[str, str] = {}
        self.blocks = blocks
        self.shared: dict[str, str] = {}
        self.skills = [skill for skill in skills if self._call(skill, arguments)]
        self.statements = [skill for skill in self.skills if not skill.pure]

    def text(self, start: str) -> str:
        """All rules; the first is ``root``."""
        # Where a model would rather begin a new line than stop, the line ends the plan.
        lines = [f'root ::= {start} "\\n"?', *(f"{name} ::= {body}" for name, body in self.rules.items())]
        return "\n".join(lines) + "\n"

    def plan(self, left: int) -> str:
        """One to ``left`` statements."""
        return self._sequence(_At(0, left, 0), None, first=True, acts=True)

    def _call(self, skill: Skill, arguments: _Arguments) -> bool:
        """The rule of a skill's call; False when no call of it would be allowed."""
        parts = [arguments.rule(skill, argument) for argument in skill.arguments]
        if any(part is None for part in parts):
            return False
        names = [
            self._named(f"{skill.word}-{argument.name}", part)
            for argument, part in zip(skill.arguments, parts, strict=True)
            if part is not None
        ]
        word = ebnf.literal(f"{skill.word}(")
        inside = ' "," '.join(names)
        self.rules[_call_rule(skill)] = f'{word} {inside} ")"' if inside else ebnf.literal(f"{skill.word}()")
        return True

    def _named(self, name: str, body: str) -> str:
        """A rule of that body; rules with the same body share one name."""
        name = self.shared.setdefault(body, name.replace("_", "-"))
        self.rules[name] = body
        return name

    def _sequence(self, at: _At, last: _Last | None, *, first: bool = False, acts: bool = False) -> str:
        """What may follow in a block (or the plan) up to its end; at least one statement if it is the ``first``.

        One that ``acts`` does not begin with a return.
        """
        name = f"s{at.name}{f'-{last.place}x{last.times}' if last else ''}{'f' * first}{'a' * acts}"
        if name in self.rules:
            return name
        self.rules[name] = ""
        options = [] if first else ['""']
        options += self._others(at, returns=not acts)
        if at.left > 0 and self._standing(at):
            options += self._skills(at, last)
        self.rules[name] = " | ".join(options)
        return name

    def _standing(self, at: _At) -> list[Skill]:
        """Skills that may be statements there."""
        return [skill for skill in self.statements if not (skill.blocks and at.depth)]

    def _skills(self, at: _At, last: _Last | None) -> list[str]:
        """One more call, and what follows it."""
        skills = self._standing(at)
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
            options.append(self._leaf(at, _Last(last.place, last.times + 1)))
        return options

    def _branch(self, at: _At, low: int, high: int) -> str:
        """Any of the skills ``low..high-1``, used for the first time in a row."""
        if high - low == 1:
            return self._leaf(at, _Last(low, 1))
        name = f"b{at.name}-{low}-{high}"
        if name not in self.rules:
            middle = (low + high) // 2
            self.rules[name] = ""
            self.rules[name] = f"{self._branch(at, low, middle)} | {self._branch(at, middle, high)}"
        return name

    def _leaf(self, at: _At, now: _Last) -> str:
        """That skill, and what follows it."""
        name = f"u{at.name}-{now.place}x{now.times}"
        if name not in self.rules:
            self.rules[name] = ""
            statement = self._statement(self._standing(at)[now.place], at.known)
            self.rules[name] = f"{statement} {self._then(at.less(1), now)}"
        return name

    def _others(self, at: _At, *, returns: bool) -> list[str]:
        """Statements that are no plain calls; the same whatever came before."""
        if not self.blocks:
            return []
        options = []
        if returns:
            options.append(self._return(at.known))
        if at.left > 0 and (value := self._value()):
            options.append(f'"_1=" {value} {self._then(_At(at.depth, at.left - 1, 1), None)}')
        if at.depth < len(RESERVE) and at.left > RESERVE[at.depth]:
            inner = _At(at.depth + 1, RESERVE[at.depth], at.known)
            after = self._sequence(at.less(1 + RESERVE[at.depth]), None)
            rest = f'"}}" ";"? {after}'
            if condition := self._condition(at.known):
                options.append(f'"?" {condition} "{{" {self._sequence(inner, None, first=True)} {rest}')
            if not at.depth:
                count = self._named("count", ebnf.integer(2, MAX_LOOP))
                options.append(f'{count} "{{" {self._sequence(inner, None, first=True, acts=True)} {rest}')
        return options

    def _then(self, at: _At, last: _Last | None) -> str:
        """What may follow a statement: in a block its last one needs no ``;``."""
        after = f'";" {self._sequence(at, last)}'
        return f"({after})?" if at.depth else after

    def _return(self, known: int) -> str:
        values = ['"True"', '"False"', *(['"_1"'] if known else [])]
        return self._named(f"return{known}", f'"->" {ebnf.either(values)} ";"?')

    def _statement(self, skill: Skill, known: int) -> str:
        """A call; a variable may stand for its text."""
        call = _call_rule(skill)
        if not known or len(skill.arguments) != 1 or skill.arguments[0].choices is not None:
            return call
        if skill.arguments[0].type not in ("str", "object"):
            return call
        return self._named(f"{call}-v", f"{call} | {ebnf.literal(f'{skill.word}(_1)')}")

    def _value(self) -> str | None:
        """A call that gives a value."""
        calls = [_call_rule(skill) for skill in self._giving("bool", "float", "str")]
        return self._named("value", " | ".join(calls)) if calls else None

    def _condition(self, known: int) -> str | None:
        """One comparison, or two joined."""
        options = []
        number = self._named("number", ebnf.decimal(0, 9999))
        if truths := [_call_rule(skill) for skill in self._giving("bool")]:
            options.append(f'{self._named("truth", " | ".join(truths))} ("==True" | "==False")?')
        if numbers := [_call_rule(skill) for skill in self._giving("float")]:
            options.append(f"{self._named('measure', ' | '.join(numbers))} [<>] {number}")
        if known:
            options.append(f'"_1" ("==True" | "==False" | "!=False" | "!=True" | [<>] {number})')
        if not options:
            return None
        one = self._named(f"test{known}", " | ".join(options))
        return self._named(f"condition{known}", f"{one} ([&|] {one})?")

    def _giving(self, *kinds: str) -> list[Skill]:
        return [skill for skill in self.skills if skill.returns in kinds and not skill.blocks]


def _call_rule(skill: Skill) -> str:
    return f"call-{skill.word}".replace("_", "-")
