"""The skills of the set ``drone``, put together from three things that a drone of any make can do: fly, turn, look."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from timely_interfaces.msg import ErrorCode

from timely_robots.detector import Eyes, Sighting, Where, make_eyes
from timely_robots.driver import RobotDriver
from timely_robots.execution import Motion, MotionError, SkillCall
from timely_robots.language import Returned
from timely_robots.ros.rclpy_utils import described

LEG_M = (0.2, 5.0)
STAND_OFF_M = 0.6
SCAN_STEP_DEG = 60
STRAIGHT: Mapping[str, tuple[str, tuple[float, float, float]]] = {
    "move_forward": ("forward", (1.0, 0.0, 0.0)),
    "move_backward": ("back", (-1.0, 0.0, 0.0)),
    "move_left": ("left", (0.0, 1.0, 0.0)),
    "move_right": ("right", (0.0, -1.0, 0.0)),
    "move_up": ("up", (0.0, 0.0, 1.0)),
    "move_down": ("down", (0.0, 0.0, -1.0)),
}
"""Skill -> a drone's word for it, and the direction in its own frame (x ahead, y left, z up)."""


class DroneDriver(RobotDriver):
    """What drivers of drones share. A drone overrides ``fly``, ``turn`` and ``here``, beside what every driver does."""

    def declare_eyes(self) -> None:
        """Declare the parameters of what the drone sees."""
        self.declare_parameter("eyes", "", described("a detector, module:class", read_only=True))
        self.declare_parameter(
            "things", [""], described("without one: a made-up room, name:degrees:centimetres", read_only=True)
        )

    def open_eyes(self) -> None:
        """Make the eyes that the parameters ask for; raises MotionError if there are no such."""
        things = [text for text in self.get_parameter("things").value if text]
        self._eyes: Eyes = make_eyes(str(self.get_parameter("eyes").value), things)

    # --- What a drone overrides ---

    def fly(self, skill: str, centimetres: float, motion: Motion) -> None:
        """Fly straight, one of ``STRAIGHT``; returns when it hovers there."""
        raise NotImplementedError

    def turn(self, degrees: float, motion: Motion) -> None:
        """Turn clockwise, or by a negative angle the other way; returns when it hovers there."""
        raise NotImplementedError

    def here(self) -> Where:
        """Where it is."""
        raise NotImplementedError

    # --- Skills ---

    def perform(self, call: SkillCall, motion: Motion) -> Returned:
        """See ``RobotDriver``."""
        if call.skill in STRAIGHT:
            self.fly(call.skill, _number(call), motion)
        elif call.skill in ("turn_cw", "turn_ccw"):
            self.turn(_number(call) * (1 if call.skill == "turn_cw" else -1), motion)
        elif call.skill == "delay":
            motion.sleep(_number(call))
        elif call.skill == "log":
            self.get_logger().info(str(call.args[0]))
        elif call.skill == "approach":
            self.fly("move_forward", 100, motion)
        elif call.skill == "take_picture":
            self.get_logger().info(f"picture of {', '.join(seen.name for seen in self._view()) or 'nothing'}")
        elif call.skill in _SEEING:
            return _SEEING[call.skill](self, call, motion)
        else:
            raise MotionError(f"this drone cannot {call.skill}", ErrorCode.SKILL_FORBIDDEN)
        return None

    def _view(self) -> list[Sighting]:
        return list(self._eyes.look(self.here()))

    def _seen(self, name: object) -> Sighting | None:
        wanted = _name(name)
        return next((seen for seen in self._view() if seen.name == wanted), None)

    def _needed(self, name: object) -> Sighting:
        seen = self._seen(name)
        if seen is None:
            raise MotionError(f"{_name(name)!r} is not in sight", ErrorCode.MOTION_FAILED)
        return seen

    def _look_around(self, wanted: Callable[[Sighting], bool], motion: Motion) -> Sighting | None:
        """Turn until something wanted is in view; once around at most."""
        for step in range(360 // SCAN_STEP_DEG):
            if step:
                self.turn(SCAN_STEP_DEG, motion)
            for seen in self._view():
                if wanted(seen):
                    return seen
        return None

    def _scan(self, call: SkillCall, motion: Motion) -> Returned:
        name = _name(call.args[0])
        return self._look_around(lambda seen: seen.name == name, motion) is not None

    def _scan_abstract(self, call: SkillCall, motion: Motion) -> Returned:
        words = {word.strip("?.,!'") for word in str(call.args[0]).lower().split()}
        found = self._look_around(
            lambda seen: seen.name in words or any(set(fit.split()) <= words for fit in seen.fits), motion
        )
        return found.name if found is not None else "False"

    def _face(self, name: object, motion: Motion) -> Sighting:
        seen = self._needed(name)
        degrees = -math.degrees(seen.bearing)
        if abs(degrees) >= 1.0:
            self.turn(round(degrees), motion)
        return seen

    def _goto(self, call: SkillCall, motion: Motion) -> Returned:
        left = self._face(call.args[0], motion).distance_m - STAND_OFF_M
        while left >= LEG_M[0]:
            leg = min(left, LEG_M[1])
            self.fly("move_forward", 100.0 * leg, motion)
            left -= leg
        return None

    def _orient(self, call: SkillCall, motion: Motion) -> Returned:
        self._face(call.args[0], motion)
        return None

    def _probe(self, call: SkillCall, motion: Motion) -> Returned:
        words = str(call.args[0]).lower()
        return "yes" if any(seen.name in words for seen in self._view()) else "no"

    def _measure(self, call: SkillCall, motion: Motion) -> Returned:
        seen = self._needed(call.args[0])
        return {
            "object_x": 0.5 - seen.bearing / math.radians(82.0),
            "object_y": seen.y,
            "object_width": seen.width,
            "object_height": seen.height,
            "object_distance": 100.0 * seen.distance_m,
        }[call.skill]

    def _tell(self, call: SkillCall, motion: Motion) -> Returned:
        return ", ".join(seen.name for seen in self._view()) or "nothing"

    def _is_visible(self, call: SkillCall, motion: Motion) -> Returned:
        return self._seen(call.args[0]) is not None


_SEEING: Mapping[str, Callable[[DroneDriver, SkillCall, Motion], Returned]] = {
    "is_visible": DroneDriver._is_visible,
    "scan": DroneDriver._scan,
    "scan_abstract": DroneDriver._scan_abstract,
    "goto": DroneDriver._goto,
    "orienting": DroneDriver._orient,
    "probe": DroneDriver._probe,
    "re_plan": DroneDriver._tell,
    **dict.fromkeys(
        ("object_x", "object_y", "object_width", "object_height", "object_distance"), DroneDriver._measure
    ),
}


def _number(call: SkillCall) -> float:
    value = call.args[0] if call.args else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise MotionError(f"{call.text}: {value!r} is no number", ErrorCode.OUT_OF_LIMITS)
    return float(value)


def _name(value: object) -> str:
    """A name without the position that TypeFly may write behind it (``chair[0.6]``)."""
    return str(value).partition("[")[0].strip().lower()
