"""The skills of the set ``drone``, put together from three things that a drone of any make can do: fly, turn, look."""

import math
from collections.abc import Callable, Mapping

from timely.plans.thing_names import plain_thing_name
from timely_robots.detector import Detector, DronePose, Sighting, make_robot_detector
from timely_robots.error_codes import ErrorCode
from timely_robots.robot import Robot, Setting
from timely_robots.segments import Motion, MotionError, SkillCall, SkillValue

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


DETECTOR_SETTINGS = (
    Setting("eyes", "", "a detector, module:class", fixed=True),
    Setting("things", [""], "without one: a made-up room, name:degrees:centimetres", fixed=True),
)


class DroneRobot(Robot):
    """What drones share. A drone also overrides ``fly``, ``turn`` and ``here``."""

    def open_detector(self) -> None:
        """Make the detector that the settings ask for; raises MotionError if it cannot be made."""
        self._detector: Detector = make_robot_detector(self.settings["eyes"], self.texts("things"))

    # --- What a drone overrides ---

    def fly(self, skill: str, centimetres: float, motion: Motion) -> None:
        """Fly straight, one of ``STRAIGHT``; returns when it hovers there."""
        raise NotImplementedError

    def turn(self, degrees: float, motion: Motion) -> None:
        """Turn clockwise, or by a negative angle the other way; returns when it hovers there."""
        raise NotImplementedError

    def here(self) -> DronePose:
        raise NotImplementedError

    # --- Skills ---

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        if call.skill in STRAIGHT:
            self.fly(call.skill, call.number("cm"), motion)
            return None
        target = call.args[0] if call.args else ""
        match call.skill:
            case "turn_cw":
                self.turn(call.number("deg"), motion)
            case "turn_ccw":
                self.turn(-call.number("deg"), motion)
            case "delay":
                motion.sleep(call.number("s"))
            case "log":
                self.log.info(str(target))
            case "approach":
                self.fly("move_forward", 100, motion)
            case "goto":
                self._goto(target, motion)
            case "orienting":
                self._face(target, motion)
            case "take_picture":
                self.log.info(f"picture of {self._describe_view()}")
            case "re_plan":
                return self._describe_view()
            case "is_visible":
                return self._find_sighting(target) is not None
            case "scan":
                name = plain_thing_name(target)
                return self._look_around(lambda sighting: sighting.name == name, motion) is not None
            case "scan_abstract":
                return self._scan_abstract(target, motion)
            case "probe":
                words = str(target).lower()
                return "yes" if any(sighting.name in words for sighting in self._view()) else "no"
            case "object_x" | "object_y" | "object_width" | "object_height" | "object_distance":
                return self._measure(call.skill, target)
            case _:
                raise MotionError(f"this drone cannot {call.skill}", ErrorCode.SKILL_FORBIDDEN)
        return None

    def _view(self) -> list[Sighting]:
        return list(self._detector.look(self.here()))

    def _describe_view(self) -> str:
        return ", ".join(sighting.name for sighting in self._view()) or "nothing"

    def _find_sighting(self, name: object) -> Sighting | None:
        label = plain_thing_name(name)
        return next((sighting for sighting in self._view() if sighting.name == label), None)

    def _require_sighting(self, name: object) -> Sighting:
        sighting = self._find_sighting(name)
        if sighting is None:
            raise MotionError(f"{plain_thing_name(name)!r} is not in sight", ErrorCode.MOTION_FAILED)
        return sighting

    def _look_around(self, matches: Callable[[Sighting], bool], motion: Motion) -> Sighting | None:
        """Turn until something wanted is in view; once around at most."""
        for step in range(360 // SCAN_STEP_DEG):
            if step:
                self.turn(SCAN_STEP_DEG, motion)
            for sighting in self._view():
                if matches(sighting):
                    return sighting
        return None

    def _scan_abstract(self, question: object, motion: Motion) -> SkillValue:
        words = {word.strip("?.,!'") for word in str(question).lower().split()}
        sighting = self._look_around(
            lambda candidate: (
                candidate.name in words or any(set(fit.split()) <= words for fit in candidate.fits)
            ),
            motion,
        )
        return sighting.name if sighting is not None else "False"

    def _face(self, name: object, motion: Motion) -> Sighting:
        sighting = self._require_sighting(name)
        degrees = -math.degrees(sighting.bearing)
        if abs(degrees) >= 1.0:
            self.turn(round(degrees), motion)
        return sighting

    def _goto(self, name: object, motion: Motion) -> None:
        left_m = self._face(name, motion).distance_m - STAND_OFF_M
        while left_m >= LEG_M[0]:
            leg = min(left_m, LEG_M[1])
            self.fly("move_forward", 100.0 * leg, motion)
            left_m -= leg

    def _measure(self, skill: str, name: object) -> float:
        sighting = self._require_sighting(name)
        return {
            "object_x": 0.5 - sighting.bearing / math.radians(82.0),
            "object_y": sighting.y,
            "object_width": sighting.width,
            "object_height": sighting.height,
            "object_distance": 100.0 * sighting.distance_m,
        }[skill]
