"""Cases from the examples of a skill set of one's own: its wordings, with other objects and numbers in their slots.

What a plan quotes and its task (or scene) says too is a slot for another object; a number that stands in both is a
slot for another number in the range of the argument. A plan is right if it makes the same calls as the example's,
whatever the robot answers to its questions.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from timely.core.errors import InvalidInput, TimelyError
from timely.planner.cases.case import Case, Draw, Scene, Trial, refused_by, same_calls
from timely.planner.cases.text_noise import dressed
from timely.planner.cases.vocabulary import DRONE_OBJECTS, Split
from timely.plans.language.interpreter import Invocation, Plain
from timely.plans.language.parser import parse
from timely.plans.language.syntax import Call, Program
from timely.plans.object_names import fitting
from timely.plans.skill_set import NUMERIC, Example, SkillSet

MAX_REPEATS = 200
CHANCE_AS_WRITTEN = 0.15
COIN = 0.3
OTHERS = (0, 1, 2, 3)
FEWEST_NAMES = 20


@dataclass(slots=True)
class CallRecorder:
    """A world that answers every question alike and writes down what it is asked to do."""

    skills: SkillSet
    yes: bool = True
    calls: list[tuple[str, tuple[Plain, ...]]] = field(default_factory=list)

    def do(self, invocation: Invocation) -> Plain:
        """See ``World``."""
        self.calls.append((invocation.skill, invocation.args))
        skill = self.skills.find(invocation.skill)
        kind = skill.returns if skill else "none"
        answers: dict[str, Plain] = {
            "bool": self.yes,
            "str": "it" if self.yes else False,
            "float": 50.0 if self.yes else 5000.0,
        }
        return answers.get(kind)


def cases_of(skills: SkillSet, split: Split, seed: int) -> Iterator[Case]:
    """Cases without end, no task twice as long as there are new ones; the same seed gives the same cases.

    Raises:
        InvalidInput: the skill set is prose, or has no examples.
    """
    if skills.language == "text":
        raise InvalidInput("is prose: a planner is trained for skills", where=f"skill set {skills.name}")
    if not skills.examples:
        raise InvalidInput(
            "has no examples to train with; write some into its file", where=f"skill set {skills.name}"
        )
    draw = Draw(random.Random(f"{skills.name} {split} {seed}"), split, COIN if split == "train" else 0.0)
    known: set[tuple[str, str]] = set()
    repeats = 0
    while True:
        example = _filled(draw, skills, draw.one(skills.examples))
        # One without slots, as most refusals are, comes again and again: it is dressed anew each time.
        fixed = example in skills.examples
        if not fixed and (example.task, example.scene) in known and repeats < MAX_REPEATS:
            repeats += 1
            continue
        repeats = 0
        known.add((example.task, example.scene))
        yield _case(draw, skills, example)


def _case(draw: Draw, skills: SkillSet, example: Example) -> Case:
    def trial(yes: bool) -> Trial:
        def world() -> Scene:
            return CallRecorder(skills, yes)

        return Trial(world, same_calls)

    refusal = refused_by(example.plan)
    task = dressed(draw, example.task, example.plan, command=not example.task.endswith("?"))
    return Case(
        skills.name, "refusal" if refusal else _first_skill(example, skills), task, example.plan,
        (trial(True), trial(False)), example.scene, example.history, refusal,
    )  # fmt: skip


def _first_skill(example: Example, skills: SkillSet) -> str:
    return next(iter(parse(example.plan, skills).calls())).skill


def _filled(draw: Draw, skills: SkillSet, example: Example) -> Example:
    """The example with other things in its slots; now and then as written (training only)."""
    if draw.split == "train" and draw.chance(CHANCE_AS_WRITTEN):
        return example
    program = parse(example.plan, skills)
    made = _numbers(draw, skills, program, _objects(draw, skills, program, example))
    try:
        parse(made.plan, skills)
    except TimelyError:  # a slot in an odd place, an apostrophe say
        return example
    return made


def _slots(skills: SkillSet, program: Program, kinds: tuple[str, ...]) -> Iterator[tuple[Call, int]]:
    for call in program.calls():
        skill = skills.find(call.skill)
        for index, argument in enumerate(skill.arguments if skill else ()):
            if argument.type in kinds and argument.choices is None and index < len(call.args):
                yield call, index


def _objects(draw: Draw, skills: SkillSet, program: Program, example: Example) -> Example:
    names = {call.args[index] for call, index in _slots(skills, program, ("object",))}
    said = f"{example.task} {example.scene}".lower()
    slots = sorted(
        (name for name in names if isinstance(name, str) and name.lower() in said), key=len, reverse=True
    )
    others = draw.some(_takable(skills, DRONE_OBJECTS[draw.split]), len(slots) + max(OTHERS))
    others = list(dict.fromkeys(draw.coined() if draw.coins() else name for name in others))
    fresh = dict(zip(slots, others, strict=False))
    made = replace_all(example, fresh)
    if made.scene and draw.chance(0.5):
        scene = [made.scene, *others[len(slots) : len(slots) + draw.one(OTHERS)]]
        made = made.model_copy(update={"scene": ", ".join(scene)})
    return made


def _takable(skills: SkillSet, names: Sequence[str]) -> list[str]:
    """Those short enough for every object argument; all of them if that leaves too few."""
    kept = list(names)
    for skill in skills.skills:
        for argument in skill.arguments:
            if argument.type == "object":
                fits = set(fitting(kept, argument))
                kept = [name for name in kept if name in fits]
    return kept if len(kept) > FEWEST_NAMES else list(names)


def replace_all(example: Example, fresh: dict[str, str]) -> Example:
    """Every word of ``fresh`` (whole words, in any case) replaced at once, in all texts."""
    if not fresh:
        return example
    lower = {name.lower(): value for name, value in fresh.items()}
    pattern = re.compile(
        rf"\b({'|'.join(map(re.escape, sorted(lower, key=len, reverse=True)))})\b", re.IGNORECASE
    )

    def swap(text: str) -> str:
        return pattern.sub(lambda found: lower[found.group().lower()], text)

    return example.model_copy(
        update={
            "task": swap(example.task),
            "scene": swap(example.scene),
            "plan": swap(example.plan),
            "history": swap(example.history),
        }
    )


def _numbers(draw: Draw, skills: SkillSet, program: Program, example: Example) -> Example:
    fresh: dict[str, str] = {}
    for call, index in _slots(skills, program, NUMERIC):
        value = call.args[index]
        skill = skills.find(call.skill)
        argument = skill.arguments[index] if skill else None
        if argument is None or not isinstance(value, int) or not re.search(rf"\b{value}\b", example.task):
            continue
        low = int(argument.min) if argument.min is not None else 1
        high = int(argument.max) if argument.max is not None else 10 * max(1, value)
        # Those left over by 7 are held out.
        options = [n for n in range(low, min(high, low + 2000) + 1) if (n % 7 == 0) == (draw.split == "test")]
        if options:
            fresh[str(value)] = str(draw.one(options))
    return replace_all(example, fresh)
