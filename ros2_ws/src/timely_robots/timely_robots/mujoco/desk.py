"""What the physics arm does for each skill of the set ``arm``: over a thing, down, close, up, then a look at it."""

import math
from collections.abc import Callable, Iterable, Mapping

from timely.plans.thing_names import plain_thing_name
from timely_robots.error_codes import ErrorCode
from timely_robots.mujoco.arm import MujocoArm, mujoco_arm_joints_for
from timely_robots.mujoco.models import CUBE_M, HOME, Spot
from timely_robots.segments import Motion, MotionError, SkillCall, SkillValue
from timely_robots.things import check_can_put, check_can_take

ABOVE_M = 0.10
LET_GO_M = 0.004
"""A thing is let go so high above what it is put on."""
FALL_S = 0.4
PLACED_M, DROPPED_M = 0.03, 0.15
"""How far from its place a thing may end that was put there, or dropped."""
ON_TABLE_M = 0.5 * CUBE_M


Mover = Callable[[Callable[[], float], Motion], None]
"""Gives an order with the simulation locked and waits until the arm is at rest again."""


class MujocoDesk:
    """The arm at work.

    Args:
        things: name -> where it is at the start, metres. places: mats, name -> where.
        move: carries out an order, see ``Mover``.
        wait: lets so many simulated seconds pass.
        check_spot: raises MotionError for a place outside the geofence.
        joint_speed: rad/s. say: tells the user.
    """

    def __init__(
        self,
        arm: MujocoArm,
        things: Iterable[str],
        places: Mapping[str, Spot],
        *,
        move: Mover,
        wait: Callable[[float, Motion], None],
        check_spot: Callable[[Spot], None],
        joint_speed: float,
        say: Callable[[str], None],
    ) -> None:
        self._arm, self._things, self._places = arm, list(things), dict(places)
        self._move, self._wait, self._check_spot, self._say = move, wait, check_spot, say
        self._speed = joint_speed

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        name = plain_thing_name(call.args[0]) if call.args else ""
        match call.skill:
            case "home":
                self._move(lambda: self._arm.move_joints(HOME, self._speed), motion)
            case "move_to":
                self._over(self._top(name), motion)
            case "pick" | "take":
                self._pick(name, motion)
            case "place":
                self._put(name, motion)
            case "drop":
                self._drop(name, motion)
            case "open":
                self._move(self._arm.open, motion)
            case "close":
                self._move(self._arm.close, motion)
                self._arm.catch()
            case "look":
                return ", ".join(sorted({*self._things, *self._places} - {self._arm.holding})) or "nothing"
            case "say":
                self._say(str(call.args[0]))
            case _:
                raise MotionError(f"this arm cannot {call.skill}", ErrorCode.SKILL_FORBIDDEN)
        return None

    # --- Places of things ---

    def _top(self, name: str) -> Spot:
        """The place of the fingers' middle for taking a thing, or for putting a cube on a place."""
        if name in self._things:
            return self._arm.spot(name)
        if name in self._places:
            x, y, z = self._places[name]
            return (x, y, z + ON_TABLE_M)
        names = ", ".join(sorted((*self._things, *self._places))) or "nothing"
        raise MotionError(f"there is no {name!r} here; there is: {names}", ErrorCode.MOTION_FAILED)

    def _rest(self, name: str) -> Spot:
        """The spot where a thing put on ``name`` comes to rest."""
        x, y, z = self._top(name)
        return (x, y, z + CUBE_M) if name in self._things else (x, y, z)

    # --- Skills ---

    def _over(self, spot: Spot, motion: Motion, turn: float = 0.0) -> None:
        x, y, z = spot
        above = (x, y, z + ABOVE_M)
        self._check_spot(above)
        angles = mujoco_arm_joints_for(above, turn)
        self._move(lambda: self._arm.move_joints(angles, self._speed), motion)

    def _line(self, spot: Spot, motion: Motion) -> None:
        self._check_spot(spot)
        self._move(lambda: self._arm.move_line(spot, 1.0), motion)

    def _pick(self, name: str, motion: Motion) -> None:
        check_can_take(name, self._arm.holding)
        if name not in self._things:
            self._top(name)
            raise MotionError(f"{name!r} is a place and cannot be taken", ErrorCode.MOTION_FAILED)
        spot = self._arm.spot(name)
        # The fingers close along a side of the cube, however it lies.
        turn = math.remainder(math.atan2(spot[1], spot[0]) - self._arm.heading(name), math.pi / 2.0)
        self._over(spot, motion, turn)
        self._line(spot, motion)
        self._move(self._arm.close, motion)
        if self._arm.catch() != name:
            self._move(self._arm.open, motion)
            raise MotionError(f"the fingers closed on nothing at {name!r}", ErrorCode.MOTION_FAILED)
        self._line((spot[0], spot[1], spot[2] + ABOVE_M), motion)
        if math.dist(self._arm.spot(name), self._arm.tool) > CUBE_M:
            raise MotionError(f"{name!r} slipped out of the hand", ErrorCode.MOTION_FAILED)

    def _put(self, name: str, motion: Motion) -> None:
        thing = self._arm.holding
        check_can_put(name, thing)
        x, y, z = self._rest(name)
        self._over((x, y, z), motion)
        self._line((x, y, z + LET_GO_M), motion)
        self._move(self._arm.open, motion)
        self._line((x, y, z + ABOVE_M), motion)
        self._check_landing(thing, (x, y, z), PLACED_M)

    def _drop(self, name: str, motion: Motion) -> None:
        thing = self._arm.holding
        check_can_put(name, thing)
        x, y, z = self._rest(name)
        self._over((x, y, z), motion)
        self._move(self._arm.open, motion)
        self._wait(FALL_S, motion)
        self._check_landing(thing, (x, y, z), DROPPED_M)

    def _check_landing(self, thing: str, target: Spot, within_m: float) -> None:
        away = math.dist(self._arm.spot(thing)[:2], target[:2])
        if away > within_m:
            raise MotionError(
                f"{thing!r} ended {100.0 * away:.0f} cm from where it was to be", ErrorCode.MOTION_FAILED
            )
