"""The Tello's driver: flies the skills of the set ``drone``, one command at a time, and never sends a motion twice."""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lrtrace.errors import LRTraceError
from timely.plans.units import convert_plan_unit
from timely_robots.clock import RobotClock
from timely_robots.detector import DronePose
from timely_robots.drone_skills import DETECTOR_SETTINGS, STRAIGHT, DroneRobot
from timely_robots.error_codes import ErrorCode
from timely_robots.robot import RobotStatus, Setting
from timely_robots.segments import Motion, MotionCancelled, MotionError, SkillCall, SkillValue
from timely_robots.tello.link import COMMAND_PORT, MOTORS_S, STATE_SILENCE_S, TelloLink, open_tello_link

POLL_S = 0.02
MARGIN_S = 4.0
SLACK = 1.5
"""A motion may take this times its expected time plus ``MARGIN_S``."""
UNSTARTED_S = 2.5
"""A drone that has not moved so long after a command, by its own word, never got it."""
LARGEST_GAP_S = 0.45
"""What the drone does is known only while its state comes, ten times a second, without a longer gap than this."""
TAIL_S = 1.5
"""So long at most a command waits for the drone to come to rest."""
RESTED_S = 0.8
"""At rest for so long after a motion, by its own word, it is done, even if its answer was lost."""
UNDERWAY_M_PER_S = 0.3
"""A drone that is this fast has not ended its motion, whatever an ``ok`` that comes now belongs to."""
FASTEST_M_PER_S, FASTEST_DEG_PER_S = 1.5, 180.0
"""No motion is faster, so an ``ok`` that comes sooner belongs to something else."""
LATE_S = 0.3
"""Answers and states may be so late on their way: what is heard sooner after a command may be of what was before."""
TAKEOFF_S, QUICKEST_TAKEOFF_S = 6.0, 0.5
LAND_S = 8.0
LAND_UNHEARD_S = 2.0
"""A drone whose state does not come is told to land for so long."""
SETTLE_S = 4.0
"""An earlier stop has so long to take effect before a motion is refused."""
REST_S = 0.2
"""Observed without motion for so long, the drone is at rest."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One command to fly: its text, the time it should take and can take at least, and the way, metres, body frame."""

    text: str
    expected_s: float
    quickest_s: float
    way: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rests_s: float = 0.0
    """It may rest before it is through: until then rest does not count as the end."""
    deaf_to: tuple[str, ...] = ("joystick",)
    """Complaints that mean: it is doing so already. The network may have brought the command twice."""


class TelloRobot(DroneRobot):
    """A Tello, or its emulator (``timely-emulate tello``).

    Takes off before the first motion of a plan and lands when the node is cleaned up. Its position is dead reckoning,
    because a Tello without mission pads has no other. Height and yaw are the drone's own; x and y sum its commands.
    """

    kind = "tello"

    SETTINGS: ClassVar[tuple[Setting, ...]] = (
        Setting("host", "192.168.10.1", "address of the drone", fixed=True),
        Setting("command_port", COMMAND_PORT, "its port; an emulator's is 18889", 1, 65535, fixed=True),
        Setting("speed_cm_s", 100, "of straight moves [cm/s]", 10, 100, fixed=True),
        Setting("battery_reserve", 0.1, "below it flies no more and lands [0..1]", 0.0, 1.0),
        Setting(
            "resend_lost", 1, "how often a command that the drone evidently did not get is sent again", 0, 3
        ),
        *DETECTOR_SETTINGS,
    )

    FAILSAFES = frozenset({"land"})

    def __init__(self, settings: Mapping[str, Any] | None = None, clock: RobotClock | None = None) -> None:
        super().__init__(settings, clock)
        self._link: TelloLink | None = None
        self._sent_s = math.inf
        """When the drone got the command that it carries out; infinite if it never began."""

    def connect(self, timeout_s: float) -> None:
        self.open_detector()
        host, port = self.settings["host"], self.settings["command_port"]
        begin_s = self.clock.now()
        link = open_tello_link(host, port, timeout_s, self.clock)
        speed = self.settings["speed_cm_s"]
        if (limit := self.profile.speed.linear_m_per_s) is not None:
            speed = min(speed, max(10, int(100 * limit)))
        self._speed = 0.01 * speed
        try:
            self._set_speed(link, max(0.5, timeout_s - (self.clock.now() - begin_s)), self._wait)
        except MotionError:
            link.close()
            raise
        self._ground_m = 0.0
        self._begin_frame(link)
        self._link = link

    def _set_speed(self, link: TelloLink, timeout_s: float, wait: Callable[[float], None]) -> None:
        returns = link.returns
        if not link.insist(f"speed {100.0 * self._speed:.0f}", timeout_s, wait):
            raise MotionError("the drone does not take its speed", ErrorCode.CONNECTION_LOST)
        self._returns = returns

    def _begin_frame(self, link: TelloLink) -> None:
        """Count places from here on."""
        self._where, self._north, self._starts = DronePose(), link.state.yaw_deg, link.starts

    def disconnect(self) -> None:
        """Land, as far as the drone still listens, and let go of it."""
        link, self._link = self._link, None
        if link is None:
            return
        self._land(link, LAND_S if link.silent_s < STATE_SILENCE_S else LAND_UNHEARD_S, self._wait)
        link.close()

    def halt(self) -> None:
        link = self._link
        if link is not None and (problem := link.halt()):
            raise MotionError(problem, ErrorCode.CONNECTION_LOST)

    def status(self) -> RobotStatus:
        link = self._link
        if link is None:
            return RobotStatus()
        link.watched_s = self.clock.now()
        where = self.here()
        silent = link.silent_s > STATE_SILENCE_S
        detail = (
            f"nothing heard for {link.silent_s:.0f} s"
            if silent
            else ("flying" if link.away else "on the ground")
        )
        return RobotStatus(
            (where.x, where.y, link.state.height_m),
            where.orientation,
            link.state.battery,
            detail,
            at_rest=not (silent or link.taking_off or link.halting)
            and link.silent_s <= LARGEST_GAP_S
            and self.clock.now() - link.state.rest_s >= REST_S,
            away=link.away,
            link_lost=silent,
            fault=link.fault,
        )

    # --- Flying ---

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        link = self._link
        if link is not None and link.starts != self._starts:
            # Its yaw counts from where it was switched on, and nothing tells where that was.
            self._begin_frame(link)
        return super().perform(call, motion)

    def fly(self, skill: str, centimetres: float, motion: Motion) -> None:
        command, direction = STRAIGHT[skill]
        cm = _whole_tello_number(centimetres, 20, 500, skill)
        way = tuple(0.01 * cm * part for part in direction)
        expected_s = self._expect_s(skill, cm, "cm", 1.8 + 0.01 * cm / self._speed)
        self._fly(
            Flight(f"{command} {cm}", expected_s, 0.01 * cm / FASTEST_M_PER_S, (way[0], way[1], way[2])),
            motion,
        )

    def turn(self, degrees: float, motion: Motion) -> None:
        skill = "turn_cw" if degrees > 0 else "turn_ccw"
        whole = _whole_tello_number(abs(degrees), 1, 360, skill)
        expected_s = self._expect_s(skill, whole, "deg", 0.8 + whole / 60.0)
        self._fly(
            Flight(f"{'cw' if degrees > 0 else 'ccw'} {whole}", expected_s, whole / FASTEST_DEG_PER_S), motion
        )

    def _expect_s(self, skill: str, amount: int, unit: str, otherwise_s: float) -> float:
        try:
            entry = self.profile.skills[self.profile.skill_name(skill)]
            number = convert_plan_unit(amount, unit, entry.unit(next(iter(entry.args), "")))
            return max(self.profile.execution_s(skill, (number,), "mean"), otherwise_s)
        except LRTraceError:
            return otherwise_s

    def _fly(self, flight: Flight, motion: Motion) -> None:
        link = self._connected_link()
        self._check_battery(link)
        self._settle(link, motion)
        if link.returns != self._returns:
            # A drone that was switched off flies at a speed of its own.
            self._set_speed(link, UNSTARTED_S, motion.sleep)
        if not self._is_in_air(link, motion):
            self._carry_out(
                # It rests for over a second before it says that it is up, and what it is told meanwhile is lost.
                Flight("takeoff", TAKEOFF_S, QUICKEST_TAKEOFF_S, rests_s=TAKEOFF_S, deaf_to=("error",)),
                link,
                motion,
            )
            link.takeoff_s = -math.inf
            self._ground_m = link.state.height_m
        here, (ahead, left, up) = self.here(), flight.way
        x, y = here.after(ahead, left)
        if not self.in_geofence(x, y, max(0.0, link.state.height_m + up)):
            raise MotionError(f"{flight.text} leaves the geofence", ErrorCode.OUT_OF_LIMITS)
        share = 0.0
        try:
            self._carry_out(flight, link, motion)
            share = 1.0
        except (MotionError, MotionCancelled):
            share = min(1.0, max(0.0, (self.clock.now() - self._sent_s) / flight.expected_s))
            raise
        finally:
            x, y = here.after(share * ahead, share * left)
            self._where = replace(here, x=x, y=y)

    def _is_in_air(self, link: TelloLink, motion: Motion) -> bool:
        """A drone at the height of its takeoff has landed a moment ago, or hovers there: its motors run on."""
        motion.wait_for(lambda: link.flying or not link.away, MOTORS_S)
        return link.away

    def _carry_out(self, flight: Flight, link: TelloLink, motion: Motion) -> None:
        for _ in range(1 + self.settings["resend_lost"]):
            link.awaiting = True
            try:
                if self._try(flight, link, motion):
                    return
            finally:
                link.awaiting = False
            # By its own word it never moved. With that answered stop in between, the command cannot still be on its
            # way and be carried out as well.
            if not link.insist("stop", UNSTARTED_S, motion.sleep):
                break
        link.halt()
        raise MotionError(f"the drone did not begin {flight.text!r}", ErrorCode.MOTION_TIMEOUT)

    def _try(self, flight: Flight, link: TelloLink, motion: Motion) -> bool:
        """Send it once and wait for its end; False if the drone never began."""
        before, self._sent_s = link.state, math.inf
        link.begin(flight.text, motion.sleep, motion.permit)
        self._sent_s = begin_s = self.clock.now()
        began, certain = False, True
        while True:
            looked_s = self.clock.now()
            motion.sleep(POLL_S)
            if self.clock.now() - looked_s > LARGEST_GAP_S:
                # This process stood still: first the link receives what came meanwhile. The motion may be over unseen.
                certain = False
                motion.sleep(LARGEST_GAP_S)
            elapsed_s, state = self.clock.now() - begin_s, link.state
            self._check_fence(flight, elapsed_s, link)
            certain = certain and self.clock.now() - max(begin_s, state.heard_s) <= LARGEST_GAP_S
            motion.progress(max(POLL_S, flight.expected_s - elapsed_s))
            answer = (link.answer() or "").lower()
            underway = state.speed >= UNDERWAY_M_PER_S and self.clock.now() - state.heard_s <= LARGEST_GAP_S
            if answer == "ok" and elapsed_s >= max(flight.quickest_s, LATE_S) and not underway:
                return True
            if answer and answer != "ok" and not any(word in answer for word in flight.deaf_to):
                link.halt()
                code = ErrorCode.OUT_OF_LIMITS if "range" in answer else ErrorCode.MOTION_FAILED
                raise MotionError(f"{flight.text}: the drone says {answer!r}", code)
            if link.silent_s > STATE_SILENCE_S:
                link.halt()
                raise MotionError("nothing is heard of the drone any more", ErrorCode.CONNECTION_LOST)
            began = began or (
                state.heard_s > begin_s + LATE_S
                and (
                    state.speed > 0.0 or (state.yaw_deg, state.height_m) != (before.yaw_deg, before.height_m)
                )
            )
            # By its own word alone: a drone that fell silent at rest may have died before its motion.
            at_rest = state.packets > before.packets + 3 and state.heard_s - state.rest_s >= RESTED_S
            if began and at_rest and elapsed_s >= max(flight.quickest_s, flight.rests_s):
                if not link.flying:
                    raise MotionError("the drone has landed by itself", ErrorCode.MOTION_FAILED)
                return True
            if certain and not began and at_rest and elapsed_s >= UNSTARTED_S:
                self._sent_s = math.inf
                return False
            shows_nothing = not began and at_rest and elapsed_s >= max(UNSTARTED_S, flight.expected_s)
            if shows_nothing or elapsed_s > SLACK * flight.expected_s + MARGIN_S:
                link.halt()
                what = "shows no sign of" if shows_nothing else "has not ended"
                raise MotionError(
                    f"the drone {what} {flight.text!r} after {elapsed_s:.1f} s", ErrorCode.MOTION_TIMEOUT
                )

    def _check_fence(self, flight: Flight, elapsed_s: float, link: TelloLink) -> None:
        """Stop a drone that has left its fence on the way: the reported height, the expected place."""
        share = min(1.0, elapsed_s / max(flight.expected_s, POLL_S))
        ahead, left, _ = (share * part for part in flight.way)
        x, y = self.here().after(ahead, left)
        if not self.in_geofence(x, y, max(0.0, link.state.height_m)):
            link.halt()
            raise MotionError(
                f"{flight.text}: the drone left the geofence on its way", ErrorCode.OUT_OF_LIMITS
            )

    def _connected_link(self) -> TelloLink:
        link = self._link
        if link is None or link.silent_s > STATE_SILENCE_S:
            raise MotionError("nothing is heard of the drone", ErrorCode.CONNECTION_LOST)
        return link

    def failsafe(self, action: str, motion: Motion) -> None:
        """See ``Robot``: lands, by its own word.

        A drone whose state does not come may still get its commands. To land is safer than to hover unobserved.
        """
        link = self._link
        if link is None:
            raise MotionError("the drone is not connected", ErrorCode.CONNECTION_LOST)
        self._land(link, SETTLE_S + LAND_S, motion.sleep)
        if link.away:
            raise MotionError("the drone did not land", ErrorCode.MOTION_TIMEOUT)

    def _land(self, link: TelloLink, limit_s: float, wait: Callable[[float], None]) -> None:
        """Tell the drone to land until it has, or ``limit_s`` is over."""
        begin_s = self.clock.now()
        while (link.away or link.taking_off) and self.clock.now() < begin_s + limit_s:
            unobserved = link.silent_s > STATE_SILENCE_S
            if unobserved or self.clock.now() > begin_s + SETTLE_S:
                # A stop that is still being repeated would end the landing.
                link.end_halt()
            # While it descends it answers each command with an error, which does no harm.
            if not link.halting and (unobserved or link.state.rest_s <= self.clock.now() - 0.3):
                link.send("land")
            wait(0.5)

    def _check_battery(self, link: TelloLink) -> None:
        reserve = float(self.settings["battery_reserve"])
        if not reserve <= link.state.battery <= 1.0:  # also NaN
            if link.away:
                link.send("land")
            raise MotionError(
                f"battery at {link.state.battery:.0%}, the reserve is {reserve:.0%}", ErrorCode.MOTION_FAILED
            )

    def _settle(self, link: TelloLink, motion: Motion) -> None:
        """Let an earlier stop take effect, and an earlier motion end: neither must be taken for what comes next.

        Otherwise the tail of a motion whose answer came early passes for the motion of the next command, even if that
        command was lost.
        """
        motion.wait_for(lambda: not (link.halting and link.taking_off), TAKEOFF_S)
        if not motion.wait_for(lambda: not link.halting, SETTLE_S):
            raise MotionError(link.fault or "the last stop has no effect", ErrorCode.MOTION_TIMEOUT)
        self._outlast_takeoff(link, motion)
        motion.wait_for(lambda: link.state.speed == 0.0 and link.silent_s <= LARGEST_GAP_S, TAIL_S)

    def _outlast_takeoff(self, link: TelloLink, motion: Motion) -> None:
        """Let a takeoff end that was stopped or cancelled, and goes on.

        The drone hears nothing else meanwhile, and the takeoff's ``ok`` would pass for that of the next motion.
        """
        end_s = link.takeoff_s + SLACK * TAKEOFF_S
        if self.clock.now() < end_s:
            motion.sleep(REST_S)
            link.discard_answers()  # to stops
        while self.clock.now() < end_s and link.answer() is None:
            motion.sleep(POLL_S)
        link.takeoff_s = -math.inf

    def _wait(self, seconds: float) -> None:
        self.clock.wait(threading.Event(), seconds)

    # --- Pose ---

    def here(self) -> DronePose:
        """See ``DroneRobot``: x and y as told, height and yaw by the drone's own word."""
        link = self._link
        if link is None:
            return self._where
        yaw = math.remainder(-math.radians(link.state.yaw_deg - self._north), 2.0 * math.pi)
        return replace(self._where, z=link.state.height_m - self._ground_m, yaw=yaw)


def _whole_tello_number(value: float, low: int, high: int, skill: str) -> int:
    """The drone takes whole numbers in its own range; the library checks neither."""
    if not low <= round(value) <= high:
        raise MotionError(f"{skill}: {value:g} is not within {low} to {high}", ErrorCode.OUT_OF_LIMITS)
    return round(value)
