"""Makes cases from the examples of a skill set, with other objects and numbers in their slots.

An object that stands both in a plan and in its task or scene is a slot for another object. A number that stands in
both is a slot for another number in the range of the argument. A plan is right if it makes the same calls as the
example's, whatever the robot answers to its questions.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from timely.core.errors import InvalidInput, TimelyError
from timely.planner.cases.case import CaseTrial, PlannerCase, Scene, case_plan_refuses, same_case_calls
from timely.planner.cases.sampler import CaseSampler
from timely.planner.cases.text_noise import add_case_noise
from timely.planner.cases.vocabulary import WORDS, Split
from timely.plans.language.interpreter import Invocation, Plain
from timely.plans.language.parser import parse_plan
from timely.plans.language.syntax import PlanCall, Program
from timely.plans.object_names import fitting_object_names
from timely.plans.skill_set import NUMERIC, Example, SkillSet

MAX_REPEATS = 200
CHANCE_AS_WRITTEN = 0.15
COIN_SHARE = 0.3
OTHER_OBJECTS = (0, 1, 2, 3)
MIN_NAMES = 20


@dataclass(slots=True)
class CaseCallRecorder:
    """A world that gives every question the same answer and records the calls."""

    skills: SkillSet
    yes: bool = True
    calls: list[tuple[str, tuple[Plain, ...]]] = field(default_factory=list)

    def do(self, invocation: Invocation) -> Plain:
        self.calls.append((invocation.skill, invocation.args))
        skill = self.skills.find(invocation.skill)
        kind = skill.returns if skill else "none"
        answers: dict[str, Plain] = {
            "bool": self.yes,
            "str": "it" if self.yes else False,
            "float": 50.0 if self.yes else 5000.0,
        }
        return answers.get(kind)


def cases_of(skills: SkillSet, split: Split, seed: int) -> Iterator[PlannerCase]:
    """Yield cases without end, no task twice while there are new ones. The same seed gives the same cases.

    Raises:
        InvalidInput: the skill set is prose, or has no examples.
    """
    if skills.language == "text":
        raise InvalidInput("is prose: a planner is trained for skills", where=f"skill set {skills.name}")
    if not skills.examples:
        raise InvalidInput(
            "has no examples to train with; write some into its file", where=f"skill set {skills.name}"
        )
    sampler = CaseSampler(
        random.Random(f"{skills.name} {split} {seed}"), split, COIN_SHARE if split == "train" else 0.0
    )
    keys: set[tuple[str, str]] = set()
    repeats = 0
    while True:
        example = _fill_case_slots(sampler, skills, sampler.choose(skills.examples))
        # An example without slots, like most refusals, repeats. Its text noise differs each time.
        is_as_written = example in skills.examples
        if not is_as_written and (example.task, example.scene) in keys and repeats < MAX_REPEATS:
            repeats += 1
            continue
        repeats = 0
        keys.add((example.task, example.scene))
        yield _case_from_example(sampler, skills, example)


def _case_from_example(sampler: CaseSampler, skills: SkillSet, example: Example) -> PlannerCase:
    def trial(yes: bool) -> CaseTrial:
        def world() -> Scene:
            return CaseCallRecorder(skills, yes)

        return CaseTrial(world, same_case_calls)

    refusal = case_plan_refuses(example.plan)
    task = add_case_noise(sampler, example.task, example.plan, command=not example.task.endswith("?"))
    return PlannerCase(
        skills.name,
        "refusal" if refusal else next(iter(parse_plan(example.plan, skills).calls())).skill,
        task,
        example.plan,
        (trial(True), trial(False)),
        example.scene,
        example.history,
        refusal,
    )


def _fill_case_slots(sampler: CaseSampler, skills: SkillSet, example: Example) -> Example:
    """The example with other objects and numbers in its slots; in training sometimes as written."""
    if sampler.split == "train" and sampler.chance(CHANCE_AS_WRITTEN):
        return example
    program = parse_plan(example.plan, skills)
    variant = _replace_case_numbers(
        sampler, skills, program, _replace_case_objects(sampler, skills, program, example)
    )
    try:
        parse_plan(variant.plan, skills)
    except TimelyError:  # a slot in an unusual place, for instance after an apostrophe
        return example
    return variant


def _case_slots(skills: SkillSet, program: Program, kinds: tuple[str, ...]) -> Iterator[tuple[PlanCall, int]]:
    for call in program.calls():
        skill = skills.find(call.skill)
        for index, argument in enumerate(skill.arguments if skill else ()):
            if argument.type in kinds and argument.choices is None and index < len(call.args):
                yield call, index


def _replace_case_objects(
    sampler: CaseSampler, skills: SkillSet, program: Program, example: Example
) -> Example:
    names = {call.args[index] for call, index in _case_slots(skills, program, ("object",))}
    context = f"{example.task} {example.scene}".lower()
    slots = sorted(
        (name for name in names if isinstance(name, str) and name.lower() in context),
        key=lambda name: (-len(name), name),
    )
    others = sampler.sample(
        _usable_case_names(skills, WORDS.drone_objects.of(sampler.split)), len(slots) + max(OTHER_OBJECTS)
    )
    others = list(dict.fromkeys(sampler.coined_name() if sampler.coins() else name for name in others))
    fresh = dict(zip(slots, others, strict=False))
    variant = replace_case_words(example, fresh)
    if variant.scene and sampler.chance(0.5):
        scene = [variant.scene, *others[len(slots) : len(slots) + sampler.choose(OTHER_OBJECTS)]]
        variant = variant.model_copy(update={"scene": ", ".join(scene)})
    return variant


def _usable_case_names(skills: SkillSet, names: Sequence[str]) -> list[str]:
    """The names short enough for every object argument; all names if too few are left."""
    usable = list(names)
    for skill in skills.skills:
        for argument in skill.arguments:
            if argument.type == "object":
                fits = set(fitting_object_names(usable, argument))
                usable = [name for name in usable if name in fits]
    return usable if len(usable) > MIN_NAMES else list(names)


def replace_case_words(example: Example, fresh: dict[str, str]) -> Example:
    """Every word of ``fresh`` (whole words, in any case) replaced at once, in all texts."""
    if not fresh:
        return example
    lower = {name.lower(): value for name, value in fresh.items()}
    pattern = re.compile(
        rf"\b({'|'.join(map(re.escape, sorted(lower, key=len, reverse=True)))})\b", re.IGNORECASE
    )

    def swap(text: str) -> str:
        return pattern.sub(lambda match: lower[match.group().lower()], text)

    texts = {name: swap(getattr(example, name)) for name in ("task", "scene", "plan", "history")}
    return example.model_copy(update=texts)


def _replace_case_numbers(
    sampler: CaseSampler, skills: SkillSet, program: Program, example: Example
) -> Example:
    fresh: dict[str, str] = {}
    for call, index in _case_slots(skills, program, NUMERIC):
        value = call.args[index]
        skill = skills.find(call.skill)
        argument = skill.arguments[index] if skill else None
        if argument is None or not isinstance(value, int) or not re.search(rf"\b{value}\b", example.task):
            continue
        low = int(argument.min) if argument.min is not None else 1
        high = int(argument.max) if argument.max is not None else 10 * max(1, value)
        if options := sampler.held_apart(range(low, min(high, low + 2000) + 1)):
            fresh[str(value)] = str(sampler.choose(options))
    return replace_case_words(example, fresh)
