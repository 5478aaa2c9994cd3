"""The simulated driver: any robot that has a profile, executed by its execution-time model."""

from __future__ import annotations

import numpy as np
from timely_interfaces.msg import ErrorCode

from lrtrace.errors import LRTraceError
from timely_robots.driver import RobotDriver, Sensed
from timely_robots.execution import Motion, MotionCancelled, MotionError, SkillCall
from timely_robots.language import Returned
from timely_robots.ros.rclpy_utils import described
from timely_robots.sim.world import SimWorld

BATTERY_S = 780.0
"""A Tello flies for 13 minutes."""


class SimDriver(RobotDriver):
    """A drone, an arm or a reader that takes its time and moves nothing."""

    kind = "sim"

    def declare(self) -> None:
        """Parameters: how time goes and what there is."""
        self.declare_parameter("seed", 0, described("of the random execution times", low=0, high=2**31 - 1))
        self.declare_parameter(
            "speed", 1.0, described("how many times faster than its profile it moves", low=0.01, high=1000.0)
        )
        self.declare_parameter(
            "times",
            "sampled",
            described("sampled: random runs of the model; expected: what a scheduler plans with"),
        )
        self.declare_parameter("things", [""], described("what there is to see and take; empty: everything"))
        self.declare_parameter(
            "failing_skills", [""], described("skills that always fail, to try what happens then")
        )

    def connect(self, timeout_s: float) -> None:
        """Set the scene."""
        if self.get_parameter("times").value not in ("sampled", "expected"):
            raise MotionError("times must be sampled or expected", ErrorCode.INVALID_INPUT)
        self._world = SimWorld(thing for thing in self.get_parameter("things").value if thing)
        self._rng = np.random.default_rng(int(self.get_parameter("seed").value))
        self._failing = {skill for skill in self.get_parameter("failing_skills").value if skill}
        self._used_s = 0.0

    def perform(self, call: SkillCall, motion: Motion) -> Returned:
        """See ``RobotDriver``."""
        if call.skill in self._failing:
            raise MotionError(
                f"{call.text} failed, as this simulated robot was told to", ErrorCode.MOTION_FAILED
            )
        self._world.before(call)
        seconds = self._seconds(call)
        begin = self.pacer.now()
        try:
            motion.sleep(seconds)
        except MotionCancelled:
            self._world.apply(call, min(1.0, (self.pacer.now() - begin) / seconds) if seconds > 0 else 1.0)
            raise
        finally:
            self._used_s += self.pacer.now() - begin
        self._world.apply(call)
        return self._world.answer(call)

    def halt(self) -> None:
        """Nothing to do: the motion itself notices within a moment."""

    def sense(self) -> Sensed:
        """See ``RobotDriver``."""
        x, y, z = self._world.position
        battery = max(0.0, 1.0 - self._used_s / BATTERY_S)
        return Sensed((x, y, z), self._world.orientation, battery, holding=self._world.holding)

    def _seconds(self, call: SkillCall) -> float:
        expected = self.get_parameter("times").value == "expected"
        try:
            if expected:
                seconds = self.profile.estimate_s(call.skill, call.args)
            else:
                seconds = self.profile.sample_s(call.skill, call.args, self._rng)
        except LRTraceError as error:
            raise MotionError(str(error), ErrorCode.SEGMENT_INVALID) from error
        return seconds / float(self.get_parameter("speed").value)
