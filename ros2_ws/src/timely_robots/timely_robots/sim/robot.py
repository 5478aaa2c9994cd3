"""The simulated robot: any robot that has a profile, executed by its execution-time model."""

from typing import ClassVar

import numpy as np

from lrtrace.errors import LRTraceError
from timely_robots.detector import DronePose
from timely_robots.error_codes import ErrorCode
from timely_robots.robot import Robot, RobotStatus, Setting
from timely_robots.segments import Motion, MotionCancelled, MotionError, SkillCall, SkillValue
from timely_robots.sim.world import SimWorld

BATTERY_S = 780.0
"""A Tello flies for 13 minutes."""


class SimRobot(Robot):
    """A drone, an arm or a reader that takes its time and moves nothing."""

    kind = "sim"

    SETTINGS: ClassVar[tuple[Setting, ...]] = (
        Setting("seed", 0, "of the random execution times", 0, 2**31 - 1, fixed=True),
        Setting("speed", 1.0, "how many times faster than its profile it moves", 0.01, 1000.0),
        Setting(
            "times",
            "sampled",
            "sampled: random runs of the model; expected: what a scheduler plans with",
            fixed=True,
        ),
        Setting(
            "things",
            [""],
            "what there is to see and take; empty: everything. With a place (name:x,y,z, metres from where the robot "
            "starts) a thing is an obstacle, and the robot knows its distance",
            fixed=True,
        ),
        Setting("failing_skills", [""], "skills that always fail, to try what happens then", fixed=True),
    )

    def connect(self, timeout_s: float) -> None:
        if self.settings["times"] not in ("sampled", "expected"):
            raise MotionError("times must be sampled or expected", ErrorCode.INVALID_INPUT)
        self._world = SimWorld(self.texts("things"))
        self._rng = np.random.default_rng(self.settings["seed"])
        self._failing = set(self.texts("failing_skills"))
        self._used_s = 0.0
        self._moving = 0
        self._motion: tuple[SkillCall, float, float] | None = None

    FAILSAFES = frozenset({"land", "return", "retract", "release"})
    simulated = True

    def failsafe(self, action: str, motion: Motion) -> None:
        """See ``Robot``: takes a second."""
        motion.sleep(1.0 / float(self.settings["speed"]))
        self._world.apply_failsafe(action)

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        if call.skill in self._failing:
            raise MotionError(
                f"{call.text} failed, as this simulated robot was told to", ErrorCode.MOTION_FAILED
            )
        self._world.before(call)
        seconds = self._seconds(call)
        begin = self.clock.now()
        self._motion = call, begin, seconds
        self._moving += 1
        try:
            motion.sleep(seconds)
        except MotionCancelled:
            self._world.apply(call, self._share(begin, seconds))
            raise
        finally:
            self._motion = None
            self._moving -= 1
            self._used_s += self.clock.now() - begin
        self._world.apply(call)
        return self._world.answer(call)

    def halt(self) -> None:
        """Nothing to do: the motion ends by itself when it is cancelled."""

    def proximity_m(self) -> float | None:
        motion = self._motion
        if motion is None:
            return self._world.proximity_m(None, 0.0)
        call, begin, seconds = motion
        return self._world.proximity_m(call, self._share(begin, seconds))

    def _share(self, begin_s: float, seconds: float) -> float:
        return min(1.0, (self.clock.now() - begin_s) / seconds) if seconds > 0 else 1.0

    def status(self) -> RobotStatus:
        x, y, z = self._world.position
        battery = max(0.0, 1.0 - self._used_s / BATTERY_S)
        world = self._world
        return RobotStatus(
            (x, y, z),
            DronePose(yaw=world.yaw).orientation,
            battery,
            holding=world.holding,
            at_rest=self._moving == 0,
            away=world.away,
        )

    def _seconds(self, call: SkillCall) -> float:
        is_expected = self.settings["times"] == "expected"
        try:
            if is_expected:
                seconds = self.profile.execution_s(call.skill, call.args)
            else:
                seconds = self.profile.execution_s(call.skill, call.args, "sample", self._rng)
        except LRTraceError as error:
            raise MotionError(str(error), ErrorCode.SEGMENT_INVALID) from error
        return seconds / (float(self.settings["speed"]) * self.speed_share)
