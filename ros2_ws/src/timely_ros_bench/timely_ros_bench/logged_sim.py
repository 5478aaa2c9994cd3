"""The simulated robot with a log of what it did, as emulators of real robots keep one: for the benchmarks of faults."""

from __future__ import annotations

from pathlib import Path

from timely_robots.execution import Motion, MotionCancelled, MotionError, SkillCall
from timely_robots.language import Returned
from timely_robots.ros.rclpy_utils import described
from timely_robots.sim.driver import SimDriver

from timely.emulators.command_log import Journal


class LoggedSim(SimDriver):
    """Writes one JSON object for each motion that has ended, as ``timely-emulate --log`` does."""

    def declare(self) -> None:
        """Also: where the log goes."""
        super().declare()
        self.declare_parameter("log", "", described("file of motions", read_only=True))
        path = str(self.get_parameter("log").value)
        self._journal = Journal(Path(path) if path else None)

    def perform(self, call: SkillCall, motion: Motion) -> Returned:
        """See ``RobotDriver``; here is where the simulated robot moves."""
        begin_s = self.pacer.now()
        outcome = "done"
        try:
            return super().perform(call, motion)
        except (MotionCancelled, MotionError):
            outcome = "stopped"
            raise
        finally:
            now = self.pacer.now()
            self._journal.write(now, "motion", call.text, outcome, start_s=begin_s, end_s=now)
