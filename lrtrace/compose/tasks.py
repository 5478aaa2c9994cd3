"""The 11 benchmark tasks of TimelyLLM's Table 2, each with several plans as segments.

The paper names the tasks and the lengths of their plans (about 20 tokens for drones, 100 for arms) and shows a few
plans. Those are the first variants here; the others are in the same language. Task 2 calls only skills of about a
millisecond, like the paper's task type 1. A segment ends with a complete skill: after the ``;`` of its statement, the
``}`` that closes its block, or the ``{`` of its condition. A tail like ``->False`` executes nothing and is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lrtrace.errors import UnknownName
from lrtrace.job import NORMAL, URGENT, PlanSegment, Tuf
from lrtrace.plan_text import How, count_tokens, plan_execution_s
from lrtrace.robot_profile import RobotProfile


@dataclass(frozen=True, slots=True)
class PlanVariant:
    """One plan for a task: its scene and its segments.

    ``untaken`` are the indices of segments in a branch that does not run in this scene.
    """

    scene: str
    segments: tuple[str, ...]
    untaken: frozenset[int] = frozenset()

    @property
    def text(self) -> str:
        """The whole plan."""
        return "".join(self.segments)


@dataclass(frozen=True, slots=True)
class BenchmarkTask:
    """One row of Table 2.

    Attributes:
        trace_id: its number in the table, from 1.
        title: its description in the table.
        task: the user's request in words.
        kind: ``normal drone``, ``urgent drone`` or ``complex arm``.
        skill_set: skill set of its plans.
        robot: default profile.
        urgency: 0 (most) to 4.
    """

    trace_id: int
    title: str
    task: str
    kind: str
    skill_set: str
    robot: str
    tuf: Tuf
    urgency: int
    variants: tuple[PlanVariant, ...]

    def plan(
        self,
        variant: int,
        profile: RobotProfile,
        *,
        how: How = "sample",
        rng: np.random.Generator | None = None,
        count: Callable[[str], int] = count_tokens,
    ) -> tuple[PlanSegment, ...]:
        """One plan as segments of a trace, with execution times (seconds) from ``profile``.

        A segment whose time differs from the scheduler's estimate has the estimate in the extra field ``estimate_s``.
        That holds for random runs and for branches that do not run.

        Raises:
            IndexError: no such variant. UnknownName: the robot lacks a skill of the plan.
        """
        plan_variant = self.variants[variant]
        segments = []
        for index, text in enumerate(plan_variant.segments):
            estimate = round(plan_execution_s(text, profile, "estimate"), 6)
            actual = (
                0.0 if index in plan_variant.untaken else round(plan_execution_s(text, profile, how, rng), 6)
            )
            extra = {} if actual == estimate else {"estimate_s": estimate}
            segments.append(PlanSegment(text, count(text), actual, extra))
        return tuple(segments)


def _drone(
    trace_id: int, title: str, task: str, urgency: int, variants: tuple[PlanVariant, ...]
) -> BenchmarkTask:
    urgent = urgency < 3
    kind = "urgent drone" if urgent else "normal drone"
    return BenchmarkTask(
        trace_id, title, task, kind, "drone", "tello", URGENT if urgent else NORMAL, urgency, variants
    )


def _arm(trace_id: int, title: str, task: str, variants: tuple[PlanVariant, ...]) -> BenchmarkTask:
    return BenchmarkTask(trace_id, title, task, "complex arm", "arm", "indy7", NORMAL, 3, variants)


def _carry(*moves: tuple[str, str]) -> tuple[str, ...]:
    """Carry each object to its place, one skill a segment."""
    segments: list[str] = []
    for thing, place in moves:
        segments += [f"move_to('{thing}');", f"take('{thing}');", f"move_to('{place}');", f"drop('{place}');"]
    return tuple(segments)


_TASKS = (
    _drone(
        1,
        "Look for the cat",
        "Look for the cat.",
        3,
        (
            PlanVariant("sofa, table, lamp", ("?s('cat')==True{", "g('cat')}")),
            PlanVariant("cat on the sofa, table", ("?iv('cat')==True{", "o('cat');", "g('cat');", "tp()}")),
            PlanVariant(
                "kitchen, chair, bowl", ("tc(90);", "?s('cat')==True{", "g('cat');", "l('Here is the cat')}")
            ),
        ),
    ),
    _drone(
        2,
        "Check for keys or wallets",
        "Are there keys or a wallet here?",
        3,
        (
            PlanVariant(
                "desk, keys, laptop, wallet",
                ("?iv('keys')&iv('wallet')->{", "l('Yes');", "->True}l('No');"),
                frozenset({2}),
            ),
            PlanVariant(
                "desk, lamp",
                ("?iv('keys')==True|iv('wallet')==True{", "l('Yes');", "->True}l('No');"),
                frozenset({1}),
            ),
            PlanVariant(
                "wallet, cup, plate",
                ("?iv('wallet')==True{", "l('A wallet');", "->True}?iv('keys')==True{", "l('Keys')}"),
                frozenset({2, 3}),
            ),
        ),
    ),
    _drone(
        3,
        "Check the book on the cabinet",
        "Is the book on the cabinet?",
        3,
        (
            PlanVariant("cabinet, chair", ("mu(40);", "?iv('book')==True{", "tp()}")),
            PlanVariant("cabinet at the back, table", ("tc(180);", "mu(40);", "?iv('book')==True{", "tp()}")),
            PlanVariant("cabinet, boxes", ("g('cabinet');", "mu(60);", "?iv('book')==True{", "tp()}")),
        ),
    ),
    _drone(
        4,
        "Find a toy under the bed",
        "Find a toy under the bed.",
        3,
        (
            PlanVariant("bed, carpet", ("md(40);", "?iv('toy')==True{", "g('toy')}")),
            PlanVariant("bed on the left, desk", ("tu(60);", "md(40);", "?s('toy')==True{", "g('toy')}")),
            PlanVariant("bed, shoes, box", ("g('bed');", "md(40);", "?iv('toy')==True{", "tp()}")),
        ),
    ),
    _drone(
        5,
        "Find a tool for cutting paper",
        "Find something that can cut paper.",
        3,
        (
            PlanVariant("table, cup, pens", ("?s('scissors')==True{", "g('scissors')}")),
            PlanVariant("desk, books", ("_1=sa('What can cut paper?');", "?_1!=False{g(_1);", "tp()}")),
            PlanVariant("drawer, scissors", ("o('scissors');", "a();", "tp();", "l('Scissors found');")),
        ),
    ),
    _drone(
        6,
        "Avoiding human injury",
        "You gave me the plan mf(300);tp(); I failed because a person stepped in front of me. "
        "Executed so far: nothing. Keep the person safe.",
        0,
        (
            PlanVariant("person ahead, near", ("mb(100);", "mu(50);", "l('Person ahead');", "d(2);")),
            PlanVariant("person, door", ("mu(80);", "mb(60);", "tc(180);", "mf(100);")),
            PlanVariant("two persons, table", ("mb(150);", "tu(90);", "mf(120);", "l('Waiting');")),
        ),
    ),
    _drone(
        7,
        "Preventing potential collision",
        "You gave me the plan mf(400);g('door'); I failed because an obstacle is too close. "
        "Executed so far: mf(400) in part. Avoid a collision and reach the door.",
        1,
        (
            PlanVariant("chair ahead, door", ("ml(60);", "mf(100);", "mr(60);", "g('door');")),
            PlanVariant("pole ahead, door", ("mb(40);", "tc(30);", "mf(80);", "tu(30);", "g('door');")),
            PlanVariant("shelf ahead, wall", ("mu(70);", "mf(150);", "md(70);", "mf(100);")),
        ),
    ),
    _drone(
        8,
        "Evading animal pursuit",
        "You gave me the plan s('ball');tp(); I failed because a dog is running after me. "
        "Executed so far: s('ball'). Get away from the animal.",
        1,
        (
            PlanVariant("dog, ball, grass", ("mu(100);", "mb(200);", "tc(180);", "mf(200);")),
            PlanVariant("dog, fence", ("mu(150);", "tc(90);", "mf(300);", "l('Safe');")),
            PlanVariant("cat, table, sofa", ("mu(60);", "mr(100);", "mu(60);", "l('Out of reach');")),
        ),
    ),
    _arm(
        9,
        "Object stacking",
        "Stack the boxes: red on blue, then green on red.",
        (
            PlanVariant(
                "red box, blue box, green box on the table",
                (
                    "look('red box');",
                    *_carry(("blue box", "center"), ("red box", "blue box")),
                    "look('green box');",
                    *_carry(("green box", "red box")),
                    "home();",
                    "say('Stacked');",
                ),
            ),
            PlanVariant(
                "green box under the red box, blue box",
                (
                    *_carry(("red box", "left"), ("blue box", "center"), ("red box", "blue box")),
                    "look('green box');",
                    *_carry(("green box", "red box")),
                    "home();",
                ),
            ),
            PlanVariant(
                "blue box in the middle, red box, green box",
                (
                    "look('blue box');",
                    *_carry(("red box", "blue box")),
                    "look('red box');",
                    *_carry(("green box", "red box")),
                    "look('green box');",
                    "move_to('green box');",
                    "say('The green box is on top');",
                    "home();",
                    "open();",
                ),
            ),
        ),
    ),
    _arm(
        10,
        "Desk cleaning",
        "Clean the desk: rubbish into the bin, pens into the box, the cup onto the tray.",
        (
            PlanVariant(
                "paper, pen, cup, can",
                (
                    "look('desk');",
                    *_carry(("paper", "bin"), ("can", "bin"), ("pen", "box"), ("cup", "tray")),
                    "home();",
                ),
            ),
            PlanVariant(
                "two pens, cup, tissue",
                (
                    *_carry(("tissue", "bin"), ("red pen", "box"), ("blue pen", "box")),
                    "look('cup');",
                    *_carry(("cup", "tray")),
                    "say('The desk is clean');",
                ),
            ),
            PlanVariant(
                "bottle, eraser, cup",
                (
                    "look('desk');",
                    *_carry(("bottle", "bin"), ("eraser", "box"), ("cup", "tray")),
                    "look('desk');",
                    "say('Done');",
                    "home();",
                ),
            ),
        ),
    ),
    _arm(
        11,
        "Fruit and vegetable classification",
        "Put the fruit into the left basket and the vegetables into the right one.",
        (
            PlanVariant(
                "apple, carrot, banana, onion",
                (
                    *_carry(("apple", "left"), ("carrot", "right"), ("banana", "left"), ("onion", "right")),
                    "home();",
                ),
            ),
            PlanVariant(
                "pear, tomato, leek",
                (
                    "look('table');",
                    *_carry(("pear", "left"), ("tomato", "right"), ("leek", "right")),
                    "say('One fruit and two vegetables');",
                    "home();",
                ),
            ),
            PlanVariant(
                "lemon, potato, plum, pepper",
                (
                    "look('lemon');",
                    *_carry(("lemon", "left"), ("plum", "left"), ("potato", "right"), ("pepper", "right")),
                    "say('Sorted');",
                ),
            ),
        ),
    ),
)

TASKS: dict[int, BenchmarkTask] = {task.trace_id: task for task in _TASKS}
"""The benchmark tasks by trace id, 1 to 11."""


def find_task(trace_id: int) -> BenchmarkTask:
    """The task of that trace id.

    Raises:
        UnknownName: not 1 to 11.
    """
    try:
        return TASKS[trace_id]
    except KeyError:
        raise UnknownName("trace id", trace_id, map(str, TASKS)) from None
