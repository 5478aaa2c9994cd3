"""The simulated robot's scene: where a drone is, what an arm holds, which things there are. Metres and radians."""

import math
from collections.abc import Callable, Sequence

from timely.plans.thing_names import plain_thing_name
from timely_robots.detector import DronePose
from timely_robots.drone_skills import STRAIGHT
from timely_robots.error_codes import ErrorCode
from timely_robots.segments import MotionError, SkillCall, SkillValue
from timely_robots.things import check_can_put, check_can_take, read_robot_place

SEEN_AT_M = 1.5
"""Every thing in the scene is this far away."""

_TURNS = {"turn_cw": -1.0, "turn_ccw": 1.0}
_TAKES, _PUTS = ("pick", "take"), ("place", "drop")
_NEEDS_THING = ("goto", "orienting", "move_to", *_TAKES, *_PUTS)


class SimWorld:
    """State of one simulated robot.

    Args:
        things: names of what there is; with none given, everything a plan asks for is there. A thing with a place,
            ``name:x,y,z`` in metres from the start, is an obstacle.

    Raises:
        MotionError: INVALID_INPUT, a place that is no three numbers.
    """

    def __init__(self, things: Sequence[str] = ()) -> None:
        self.things = {plain_thing_name(thing.partition(":")[0]) for thing in things}
        self._obstacles = [read_robot_place("things", thing)[1] for thing in things if ":" in thing]
        self.anything = not self.things
        self.position = [0.0, 0.0, 0.0]
        self.yaw = 0.0
        self.holding = ""
        self.log: list[str] = []
        """What ``log`` and ``say`` said, newest last, bounded."""

    def has(self, thing: object) -> bool:
        return self.anything or plain_thing_name(thing) in self.things

    def before(self, call: SkillCall) -> None:
        """Raise MotionError for what an arm's driver refuses, too.

        That is a motion towards a thing that is not there, a grasp with a full hand, and a put with an empty one.
        """
        target = call.args[0] if call.args else ""
        if call.skill in _NEEDS_THING and not self.has(target):
            raise MotionError(f"there is no {target!r} here", ErrorCode.MOTION_FAILED)
        if call.skill in _TAKES:
            check_can_take(str(target), self.holding)
        if call.skill in _PUTS:
            check_can_put(str(target), self.holding)

    def apply(self, call: SkillCall, share: float = 1.0) -> None:
        """What a motion changes; ``share`` below 1 when it was cut short."""
        if call.skill in STRAIGHT:
            self.position[:] = self._position_after(call, share)
        elif call.skill in _TURNS:
            yaw = self.yaw + _TURNS[call.skill] * math.radians(call.number("deg")) * share
            self.yaw = math.remainder(yaw, 2.0 * math.pi)
        elif share < 1.0:
            return
        elif call.skill == "goto":
            self.position[0] += math.cos(self.yaw) * (SEEN_AT_M - 0.5)
            self.position[1] += math.sin(self.yaw) * (SEEN_AT_M - 0.5)
        elif call.skill in _TAKES:
            self.holding = str(call.args[0])
        elif call.skill in (*_PUTS, "open"):
            self.holding = ""
        elif call.skill in ("log", "say"):
            self.log = [*self.log[-99:], str(call.args[0])]

    def _position_after(self, call: SkillCall, share: float) -> list[float]:
        metres = 0.01 * call.number("cm") * share
        x, y, z = (metres * part for part in STRAIGHT[call.skill][1])
        x0, y0, z0 = self.position
        return [*DronePose(x0, y0, yaw=self.yaw).after(x, y), max(0.0, z0 + z)]

    def proximity_m(self, call: SkillCall | None, share: float) -> float | None:
        """Distance to the nearest obstacle after a share of a motion, metres; None where no thing has a place."""
        if not self._obstacles:
            return None
        straight = call is not None and call.skill in STRAIGHT
        here = self._position_after(call, share) if call is not None and straight else self.position
        return min(math.dist(here, place) for place in self._obstacles)

    def answer(self, call: SkillCall) -> SkillValue:
        """What a query returns; None for a motion."""
        query = _QUERIES.get(call.skill)
        return None if query is None else query(self, call.args[0] if call.args else "")

    def probe(self, question: object) -> str:
        """An answer to a question in words: whether it names something that is there."""
        words = str(question).lower()
        return "yes" if self.anything or any(thing in words for thing in self.things) else "no"

    def find(self, question: object) -> str:
        """The thing that a question in words asks for: one that it names, else any; empty if there is none."""
        words = str(question).lower()
        mentions = [thing for thing in sorted(self.things) if thing in words]
        return (mentions or sorted(self.things) or ["something"])[0]

    def describe(self, _: object = "") -> str:
        """The scene in words, as a robot tells it when it asks for a new plan."""
        return "nothing new" if self.anything else ", ".join(sorted(self.things))

    @property
    def away(self) -> bool:
        """The robot is off the ground, or holds something."""
        return self.position[2] > 0.0 or bool(self.holding)

    def apply_failsafe(self, action: str) -> None:
        """Change the world as a failsafe action does."""
        if action == "return":
            self.position[:] = [0.0, 0.0, 0.0]
        elif action == "land":
            self.position[2] = 0.0
        elif action == "release":
            self.holding = ""


_QUERIES: dict[str, Callable[[SimWorld, object], SkillValue]] = {
    "is_visible": SimWorld.has,
    "scan": SimWorld.has,
    "scan_abstract": SimWorld.find,
    "re_plan": SimWorld.describe,
    "look": SimWorld.describe,
    "object_x": lambda world, thing: 0.5,
    "object_y": lambda world, thing: 0.5,
    "object_width": lambda world, thing: 0.2,
    "object_height": lambda world, thing: 0.2,
    "object_distance": lambda world, thing: 100.0 * SEEN_AT_M,
    "probe": SimWorld.probe,
}
