"""The simulated worlds: what a drone sees and where it ends, what an arm may grasp and where things lie."""

from __future__ import annotations

import math

import pytest

from timely.plans.language.interpreter import Invocation, SkillFailed, interpret_plan
from timely.plans.simulated_worlds import SimulatedArmWorld, SimulatedDroneWorld, Thing
from timely.plans.skill_library import find_skill_set

DRONE = find_skill_set("drone")
ARM = find_skill_set("arm")


def fly(
    plan: str, *things: Thing, facts: tuple[tuple[tuple[str, ...], str], ...] = ()
) -> SimulatedDroneWorld:
    scene = SimulatedDroneWorld(things, facts)
    interpret_plan(plan, DRONE, scene)
    return scene


def handle(plan: str, **table: object) -> SimulatedArmWorld:
    scene = SimulatedArmWorld(**table)  # type: ignore[arg-type]
    interpret_plan(plan, ARM, scene)
    return scene


def test_a_square_ends_where_it_began() -> None:
    scene = fly("4{mf(100);tc(90)}")
    assert math.dist((scene.x, scene.y, scene.heading_deg), (0, 0, 0)) == pytest.approx(0, abs=1e-9)


def test_moves_follow_the_heading() -> None:
    scene = fly("tc(90);mf(100);ml(50);mu(40);tu(90);mb(20);")
    assert (scene.x, scene.y, scene.z) == pytest.approx((30, 100, 40))
    assert scene.heading_deg == pytest.approx(0)


def test_what_is_behind_is_found_by_turning_only() -> None:
    cat = Thing("cat", 180.0, 250.0)
    assert fly("?iv('cat')==True{tp()}", cat).photos == []
    world = fly("?s('cat')==True{g('cat')}", cat)
    assert world.visits == ["cat"]
    assert (world.x, world.y) == pytest.approx((-190, 0))
    with pytest.raises(SkillFailed, match="not in sight"):
        fly("g('cat');", cat)


@pytest.mark.parametrize(("level", "move"), [("high", "mu(40)"), ("low", "md(40)")])
def test_above_and_below_are_seen_from_there(level: str, move: str) -> None:
    toy = Thing("toy", 0.0, 200.0, level)  # type: ignore[arg-type]
    assert fly("?s('toy')==True{g('toy')}", toy).visits == []
    assert fly(f"{move};?s('toy')==True{{g('toy')}}", toy).visits == ["toy"]


@pytest.mark.parametrize(("bearing_deg", "x"), [(-45.0, 0.0), (-22.5, 0.25), (0.0, 0.5), (45.0, 1.0)])
def test_the_horizontal_position_goes_from_one_edge_of_the_view_to_the_other(
    bearing_deg: float, x: float
) -> None:
    world = SimulatedDroneWorld([Thing("cat", bearing_deg)])
    assert world.do(Invocation("object_x", ("cat",))) == pytest.approx(x)


def test_questions() -> None:
    pen = Thing("pen", 0.0, 100.0, "eye", ("write",))
    assert fly("_1=sa('something to write with');?_1!=False{g(_1)}", pen).visits == ["pen"]
    assert fly("_1=sa('something to eat');?_1!=False{g(_1)}", pen).visits == []
    assert fly("_1=p('is the door open?');l(_1);", facts=((("door", "open"), "yes"),)).sayings == ["yes"]
    assert fly("?od('pen')<150&ox('pen')>0.4{tp()}", pen).photos[0].names == {"pen"}


def test_it_remembers_how_near_it_came() -> None:
    dog = Thing("dog", 0.0, 150.0)
    assert fly("mf(100);mb(200);", dog).nearest_cm["dog"] == pytest.approx(50)


def test_an_arm_stacks() -> None:
    scene = handle("pick('a');place('b');pick('c');place('a');home();say('done');", things=("a", "b", "c"))
    assert scene.on == {"a": "b", "c": "a"}
    assert scene.at_home
    assert scene.sayings == ["done"]


def test_moving_over_and_taking_is_picking() -> None:
    short = handle("pick('a');place('bin');", things=("a",), places=("bin",))
    long = handle("move_to('a');take('a');move_to('bin');drop('bin');", things=("a",), places=("bin",))
    assert short.on == long.on == {"a": "bin"}


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ("pick('x');", "no 'x'"),
        ("pick('a');pick('b');", "already holds"),
        ("place('b');", "holds nothing"),
        ("pick('bin');", "cannot be grasped"),
        ("take('a');", "not over"),
        ("pick('a');place('b');pick('b');", "lies on"),
        ("pick('a');place('a');", "on itself"),
    ],
)
def test_what_an_arm_cannot_do(plan: str, says: str) -> None:
    with pytest.raises(SkillFailed, match=says):
        handle(plan, things=("a", "b"), places=("bin",))


def test_opening_lets_go() -> None:
    assert handle("pick('a');open();", things=("a",)).on == {"a": "table"}
    assert handle("close();", things=()).closed
