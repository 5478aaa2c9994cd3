# ruff: noqa: E501 (tables of words)
"""A case: a task in words, a plan that does it, and trials in which any plan can be judged by what it does."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from timely.core.errors import InvalidInput, TimelyError
from timely.planner.cases.vocabulary import ADJECTIVES, NOUNS, PHRASES, Split
from timely.planner.cases.wordings import draw
from timely.plans.language.interpreter import World, run_plan
from timely.plans.prompt import Prompt, build_prompt
from timely.plans.skill_set import SkillSet
from timely.plans.worlds import ArmScene, DroneScene

Scene: TypeAlias = World
Judge: TypeAlias = "Callable[[Scene, Scene], str]"
"""What is wrong with the second world, the first being what the reference plan made of it; "" if nothing is."""

_T = TypeVar("_T")

REFUSAL = "Sorry"
"""How every refusal begins; the rest says why."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One world to run a plan in, and how to judge what came of it."""

    world: Callable[[], Scene]
    judge: Judge


@dataclass(frozen=True, slots=True)
class Case:
    """One task.

    Attributes:
        family: what kind of task, for the breakdown of scores.
        plan: a short plan that does it.
        trials: a plan succeeds if it does in all of them.
        refusal: the right plan is to refuse.
    """

    skill_set: str
    family: str
    task: str
    plan: str
    trials: tuple[Trial, ...] = field(repr=False, default=())
    scene: str = ""
    history: str = ""
    refusal: bool = False

    def prompt(self, skills: SkillSet, *, examples: bool = False) -> Prompt:
        """As the server would ask."""
        return build_prompt(skills, self.task, self.scene, examples=examples, history=self.history)


def failure(case: Case, plan: str, skills: SkillSet) -> str:
    """Why ``plan`` does not do the task; "" if it does."""
    for trial in case.trials:
        reference, world = trial.world(), trial.world()
        run_plan(case.plan, skills, reference)
        try:
            run_plan(plan, skills, world)
        except TimelyError as error:
            return str(error)
        if wrong := trial.judge(reference, world):
            return wrong
    return ""


# ---------------------------------------------------------------------- judging


def same(reference: Scene, world: Scene) -> str:
    """The same came of it: place, visits, pictures, words, waiting; or what lies where."""
    if isinstance(reference, DroneScene) and isinstance(world, DroneScene):
        return (
            said_the_same(reference, world) or _same_visits(reference, world) or _same_pose(reference, world)
        )
    if isinstance(reference, ArmScene) and isinstance(world, ArmScene):
        return said_the_same(reference, world) or _same_table(reference, world)
    raise InvalidInput("two different kinds of world", where="judge")


def same_calls(reference: Scene, world: Scene) -> str:
    """The same calls in the same order: for worlds that only record them."""
    wanted, got = getattr(reference, "calls", None), getattr(world, "calls", None)
    return "" if wanted == got else f"calls {got}, not {wanted}"


def refused_by(plan: str) -> bool:
    """The plan says no in the canonical form."""
    return f"'{REFUSAL}" in plan


def said_the_same(reference: Scene, world: Scene) -> str:
    """The same words, case and punctuation aside; for yes and no the first word decides."""
    if not isinstance(reference, (DroneScene, ArmScene)) or not isinstance(world, (DroneScene, ArmScene)):
        return "no scene"
    if len(reference.said) != len(world.said):
        return f"said {world.said}, not {reference.said}"
    for wanted, got in zip(map(_plain, reference.said), map(_plain, world.said), strict=True):
        same_answer = wanted in (["yes"], ["no"]) and got[:1] == wanted
        if wanted != got and not same_answer:
            return f"said {world.said}, not {reference.said}"
    return ""


def answered(reference: Scene, world: Scene) -> str:
    """A question: only the answer counts."""
    return said_the_same(reference, world)


def refused(reference: Scene, world: Scene) -> str:
    """Says no, in the canonical form, and moves nothing."""
    if not isinstance(world, (DroneScene, ArmScene)):
        return "no scene"
    if not world.said or not world.said[0].startswith(REFUSAL):
        return f"does not refuse: {world.done}"
    return "moves although it refuses" if world.moves else ""


def _plain(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _same_visits(reference: DroneScene, world: DroneScene) -> str:
    if reference.visited != world.visited:
        return f"went to {world.visited}, not {reference.visited}"
    if len(reference.photos) != len(world.photos):
        return f"took {len(world.photos)} pictures, not {len(reference.photos)}"
    for wanted, got in zip(reference.photos, world.photos, strict=True):
        if not wanted.seen <= got.seen:
            return f"the picture lacks {sorted(wanted.seen - got.seen)}"
    if abs(reference.waited_s - world.waited_s) > 0.1 * reference.waited_s + 0.01:
        return f"waited {world.waited_s:g} s, not {reference.waited_s:g} s"
    return ""


def _same_pose(reference: DroneScene, world: DroneScene) -> str:
    wanted = (reference.x, reference.y, reference.z)
    off = math.dist(wanted, (world.x, world.y, world.z))
    if off > max(10.0, 0.05 * math.hypot(*wanted)):
        return f"ends {off:.0f} cm off"
    turned = (world.heading_deg - reference.heading_deg + 180.0) % 360.0 - 180.0
    if abs(turned) > 8.0:
        return f"ends {turned:.0f} degrees off"
    return "" if math.isclose(len(reference.photos), len(world.photos)) else "pictures"


def _same_table(reference: ArmScene, world: ArmScene) -> str:
    for what in ("on", "holding", "closed", "looked"):
        wanted, got = getattr(reference, what), getattr(world, what)
        if wanted != got:
            return f"{what}: {got}, not {wanted}"
    if reference.at_home and not world.at_home:
        return "is not at home"
    if reference.shown[-1:] and reference.over != world.over:
        return f"is over {world.over}, not {reference.over}"
    return ""


# ---------------------------------------------------------------------- drawing


@dataclass(slots=True)
class Draw:
    """Seeded choice; words of the half (training or held-out) that is asked for.

    Attributes:
        coin: share of names that are drawn from ``coinable``, or pieced together: a plan can only copy them.
        coinable: words of any kind, none of them held out.
    """

    rng: random.Random
    split: Split
    coin: float = 0.0
    coinable: tuple[str, ...] = ()

    def of(self, table: dict[Split, tuple[_T, ...]]) -> _T:
        """One of this half's."""
        return self.rng.choice(table[self.split])

    def one(self, options: Sequence[_T]) -> _T:
        """One of these."""
        return self.rng.choice(options)

    def some(self, options: Sequence[_T], count: int) -> list[_T]:
        """``count`` different ones."""
        return self.rng.sample(list(options), count)

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self.rng.random() < probability

    @property
    def training(self) -> bool:
        """Not the held-out half. Training may be harder: look-alikes, scenes in sentences, several of a kind."""
        return self.split == "train"

    def phrase(self, key: str, *parts: str, **slots: object) -> str:
        """One wording of that kind of task, slots filled; ``parts`` are those called 1, 2 and so on."""
        patterns = PHRASES[self.split][key]
        wording = draw(self.rng, patterns) if self.training else self.one(patterns)
        return wording.format("", *parts, **slots)

    def thing(self, table: dict[Split, tuple[str, ...]]) -> str:
        """The name of a thing: one of the table or any other, now and then with an adjective."""
        if self.coins():
            return self.coined() if self.chance(0.6) else self.qualified(self.of(NOUNS))
        name = self.of(table if self.chance(0.45) else NOUNS)
        if " " not in name and self.chance(0.25 if self.training else 0.15):
            return f"{self.of(ADJECTIVES)} {name}"
        return name

    def coins(self) -> bool:
        """So often a name is coined; draws nothing where none are."""
        return self.coin > 0 and self.chance(self.coin)

    def coined(self) -> str:
        """Any word at all, or the head of one and the tail of another: flamello, turquet."""
        if self.coinable and self.chance(0.8):
            return self.one(self.coinable)
        head, tail = (self.of(NOUNS).split()[0] for _ in range(2))
        made = head[: self.rng.randint(2, 6)] + tail[len(tail) // 2 - self.one((0, 1)) :]
        return made if made.isalpha() else self.coined()

    def qualified(self, name: str) -> str:
        """With one more word before it: an adjective, or a coined one."""
        return f"{self.coined() if self.chance(0.5) else self.of(ADJECTIVES)} {name}"

    def a(self, name: str) -> str:
        """With its article; plurals go with some, in training also without."""
        plural = name.endswith("s") and not name.endswith(("ss", "us"))
        if not plural:
            return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
        return name if self.training and self.chance(0.5) else f"some {name}"

    def placed(self, name: str) -> str:
        """As a scene may have it in training: where it is, too."""
        if not self.training or self.chance(0.88):
            return name
        return f"{name} {self.one(WHERE)}"


WHERE = (
    "on the left", "on the right", "ahead", "nearby", "in the middle", "at the back", "in the corner", "on the table", "on the floor",
    "by the wall", "in front", "far away", "close by", "on the chair", "near the door", "next to it", "on the desk", "behind",
)  # fmt: skip
