"""The simulated robot with a log of what it did, as emulators of real robots keep one: for the benchmarks of faults."""

from pathlib import Path

from timely_robots.robot import Setting
from timely_robots.segments import Motion, MotionCancelled, MotionError, SkillCall, SkillValue
from timely_robots.sim.robot import SimRobot

from timely.emulators.command_log import EmulatorCommandLog


class LoggedBenchRobot(SimRobot):
    """Writes one JSON object for each motion that has ended, as ``timely-emulate --log`` does."""

    SETTINGS = (*SimRobot.SETTINGS, Setting("log", "", "file of motions", fixed=True))

    def connect(self, timeout_s: float) -> None:
        """See ``Robot``: also opens the log."""
        super().connect(timeout_s)
        path = str(self.settings["log"])
        self._journal = EmulatorCommandLog(Path(path) if path else None)

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        """See ``Robot``; here is where the simulated robot moves."""
        begin_s = self.clock.now()
        outcome = "done"
        try:
            return super().perform(call, motion)
        except (MotionCancelled, MotionError):
            outcome = "stopped"
            raise
        finally:
            now = self.clock.now()
            self._journal.write(now, "motion", call.text, outcome, start_s=begin_s, end_s=now)
