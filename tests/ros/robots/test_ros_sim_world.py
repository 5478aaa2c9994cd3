"""The simulated scene: where the robot is, what it sees and holds."""

from __future__ import annotations

import math

import pytest
from timely_robots.error_codes import ErrorCode
from timely_robots.segments import MotionError, SkillCall
from timely_robots.sim.world import SimWorld

from timely.plans.skill_library import load_skill_set


def call(skill: str, *args: object) -> SkillCall:
    return SkillCall(skill, args, skill)


def test_moves_and_turns_add_up_in_metres_and_radians() -> None:
    world = SimWorld()
    for step in (
        call("move_up", 120),
        call("move_forward", 200),
        call("turn_ccw", 90),
        call("move_forward", 100),
    ):
        world.apply(step)
    assert world.position == pytest.approx([2.0, 1.0, 1.2])
    assert world.yaw == pytest.approx(math.pi / 2)
    world.apply(call("turn_cw", 270))
    assert world.yaw == pytest.approx(-math.pi) or world.yaw == pytest.approx(math.pi)


def test_moves_and_turns_are_in_the_units_of_the_call() -> None:
    world = SimWorld()
    for skill, number, unit in (
        ("move_up", 1.2, "m"),
        ("move_forward", 2000, "mm"),
        ("turn_ccw", math.pi / 2, "rad"),
        ("move_forward", 100, "cm"),
    ):
        world.apply(SkillCall(skill, (number,), skill, (unit,)))
    assert world.position == pytest.approx([2.0, 1.0, 1.2])
    ahead = SimWorld(["chair:3,0,0"]).proximity_m(SkillCall("move_forward", (2.0,), "mf(2)", ("m",)), 1.0)
    assert ahead == pytest.approx(1.0)
    with pytest.raises(MotionError, match="s is no cm") as caught:
        world.apply(SkillCall("move_forward", (2.0,), "mf(2)", ("s",)))
    assert caught.value.code == ErrorCode.OUT_OF_LIMITS


def test_a_motion_cut_short_moves_part_of_the_way() -> None:
    world = SimWorld()
    world.apply(call("move_left", 100), 0.25)
    assert world.position == pytest.approx([0.0, 0.25, 0.0])
    world.apply(call("pick", "cup"), 0.9)
    assert world.holding == ""


def test_the_ground_is_the_end_of_down() -> None:
    world = SimWorld()
    world.apply(call("move_down", 100))
    assert world.position[2] == 0.0


def test_without_a_list_of_things_everything_is_there() -> None:
    world = SimWorld()
    assert world.answer(call("scan", "unicorn")) is True
    world.before(call("goto", "unicorn"))


def test_with_a_list_only_those_are() -> None:
    world = SimWorld(["Cat", "book"])
    assert world.answer(call("is_visible", "cat[0.6]")) is True
    assert world.answer(call("is_visible", "dog")) is False
    with pytest.raises(MotionError) as caught:
        world.before(call("goto", "dog"))
    assert caught.value.code == ErrorCode.MOTION_FAILED
    assert world.answer(call("probe", "Is the book open?")) == "yes"
    assert world.answer(call("probe", "Is the window open?")) == "no"
    assert world.answer(call("scan_abstract", "something like a book")) == "book"
    assert world.answer(call("scan_abstract", "a tool")) in ("book", "cat")
    assert world.answer(call("re_plan")) == "book, cat"


def test_one_hand_holds_one_thing() -> None:
    world = SimWorld()
    world.apply(call("pick", "cup"))
    with pytest.raises(MotionError, match="holds 'cup'"):
        world.before(call("take", "plate"))
    world.apply(call("place", "table"))
    world.before(call("take", "plate"))


@pytest.mark.parametrize("skill", ["move_to", "place", "drop"])
def test_an_arm_goes_to_no_place_that_is_not_there(skill: str) -> None:
    """As the Indy7's driver: a plan that passes here must not fail there."""
    world = SimWorld(["cup", "plate"])
    world.apply(call("pick", "cup"))
    world.before(call(skill, "plate"))
    with pytest.raises(MotionError, match="there is no 'bin'"):
        world.before(call(skill, "bin"))


@pytest.mark.parametrize("skill", ["place", "drop"])
def test_an_empty_hand_puts_nothing_down(skill: str) -> None:
    world = SimWorld()
    with pytest.raises(MotionError, match="holds nothing"):
        world.before(call(skill, "plate"))
    world.apply(call("pick", "Cup[0.5]"))
    with pytest.raises(MotionError, match="on itself"):
        world.before(call(skill, "cup"))
    world.before(call(skill, "plate"))


def test_what_is_said_is_kept_and_bounded() -> None:
    world = SimWorld()
    for index in range(150):
        world.apply(call("log", f"line {index}"))
    assert len(world.log) == 100
    assert world.log[-1] == "line 149"


@pytest.mark.parametrize("name", ["drone", "arm"])
def test_every_skill_that_returns_something_is_answered_in_kind(name: str) -> None:
    kinds = {"bool": bool, "float": float, "str": str}
    world = SimWorld(["cat"])
    for skill in load_skill_set(name).skills:
        answer = world.answer(call(skill.name, *("cat" for _ in skill.arguments)))
        if skill.returns == "none":
            assert answer is None, skill.name
        else:
            assert isinstance(answer, kinds[skill.returns]), skill.name


def test_the_distance_to_things_with_a_place_follows_a_motion() -> None:
    world = SimWorld(["chair:3,0,0", "ball"])
    forward = call("move_forward", 200)
    assert world.has("chair")
    assert [world.proximity_m(forward, share) for share in (0.0, 0.5, 1.0)] == [3.0, 2.0, 1.0]
    world.apply(forward)
    assert world.proximity_m(None, 0.0) == 1.0
    assert SimWorld(["chair"]).proximity_m(forward, 0.5) is None
    with pytest.raises(MotionError, match="not name:x,y,z"):
        SimWorld(["chair:3,0"])
