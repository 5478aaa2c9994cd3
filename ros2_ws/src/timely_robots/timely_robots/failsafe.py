"""Decides when a robot acts by itself: hold, then land, return, retract or release. Times are seconds."""

import math
from dataclasses import dataclass

from lrtrace.robot_profile import Failsafe


@dataclass(frozen=True, slots=True)
class Conditions:
    away: bool = False
    """The robot is in a state that must not last, such as flying."""
    plan_wait_s: float = 0.0
    """How long the next segment of a live task has not come."""
    bridge_lost: bool = False
    """The last task is orphaned."""
    idle: bool = False
    """No segment is executed or waits, and no task is alive."""
    lease_lapsed: bool = False
    link_lost: bool = False
    battery: float = math.nan
    """0..1; NaN: unknown."""
    stopped: bool = False
    """A stop is latched."""


class FailsafeMonitor:
    """Turns lasting conditions into one action.

    A battery below the reserve, or unknown although the profile sets a reserve, acts at once. Every other cause acts
    after it has lasted ``hold_s``. An action is started once, and again after its cause has gone. One that failed is
    started again after ``hold_s``.

    While a stop is latched nothing starts, except a landing for want of battery where the profile asks for it.
    """

    def __init__(self, failsafe: Failsafe) -> None:
        self._failsafe = failsafe
        self._since_s: float | None = None
        self._acted = False
        self._earliest_s = -math.inf
        """Before that no action starts, because the last one failed."""
        self.cause = ""
        """The cause that holds now, in words; empty if there is none."""

    @property
    def active(self) -> str:
        """The action that is due or was started: ``hold`` first; empty without a cause."""
        if not self.cause:
            return ""
        return str(self._failsafe.then) if self._acted else "hold"

    def battery_problem(self, battery: float) -> str:
        """Why the battery forbids motion; empty if it does not. With a reserve, a level outside 0..1 forbids it too."""
        reserve = self._failsafe.battery_reserve
        if reserve is None or reserve <= battery <= 1.0:
            return ""
        level = f"at {battery:.0%}" if 0.0 <= battery <= 1.0 else "unknown"
        return f"battery {level}, the reserve is {reserve:.0%}"

    def update(self, now: Conditions, now_s: float) -> str:
        """The action to start now; empty if there is none."""
        battery = self.battery_problem(now.battery) if now.away else ""
        self.cause = battery or self._cause(now)
        if not self.cause:
            self._since_s, self._acted, self._earliest_s = None, False, -math.inf
            return ""
        if self._since_s is None:
            self._since_s = now_s
        if self._acted or self._failsafe.then == "hold" or now_s < self._earliest_s:
            return ""
        if now.stopped and not self._lands_while_stopped(now.battery):
            return ""
        if battery or now_s - self._since_s >= self._failsafe.hold_s:
            self._acted = True
            return str(self._failsafe.then)
        return ""

    def _lands_while_stopped(self, battery: float) -> bool:
        failsafe = self._failsafe
        # An unknown level is no reason to move against a stop.
        is_low = 0.0 <= battery < (failsafe.battery_reserve or 0.0)
        return is_low and failsafe.land_while_stopped and failsafe.then == "land"

    def retry(self) -> None:
        """Let ``update`` return the action again: it could not be started, or its executor ended."""
        self._acted = False

    def fail(self, now_s: float) -> None:
        """Let ``update`` return the action again after ``hold_s``: it was started and failed."""
        self._acted = False
        self._earliest_s = now_s + self._failsafe.hold_s

    def _cause(self, now: Conditions) -> str:
        if not now.away:
            return ""
        if now.link_lost:
            return "the link to the robot is lost"
        if now.lease_lapsed:
            return "the lease has lapsed"
        if now.bridge_lost:
            return "no message of the task"
        if now.plan_wait_s > 0.0:
            return "the next segment has not come"
        # Without an action a robot that waits for its next task has nothing to report.
        return "no task is alive" if now.idle and self._failsafe.then != "hold" else ""
