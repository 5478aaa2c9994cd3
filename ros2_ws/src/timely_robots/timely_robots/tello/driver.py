"""The Tello's driver: flies the skills of the set ``drone``, one command at a time, and never sends a motion twice."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from timely_interfaces.msg import ErrorCode

from lrtrace.errors import LRTraceError
from timely_robots.driver import RobotDriver, Sensed
from timely_robots.execution import Motion, MotionCancelled, MotionError, SkillCall
from timely_robots.language import Returned
from timely_robots.rostools import described
from timely_robots.tello.eyes import Eyes, Sighting, Where, make_eyes
from timely_robots.tello.link import COMMAND_PORT, STATE_SILENCE_S, TelloLink, open_link

POLL_S = 0.02
MARGIN_S = 4.0
SLACK = 1.5
"""A motion may take this times its expected time plus ``MARGIN_S``."""
UNSTARTED_S = 2.5
"""A drone that has not moved so long after a command, by its own word, never got it."""
SHOWING_DEG = 10
LARGEST_GAP_S = 0.45
"""What the drone does is known only while its state comes, ten times a second, without a longer gap than this."""
RESTED_S = 1.0
"""At rest for so long after a motion, it is done, even if its answer was lost."""
UNDERWAY_M_PER_S = 0.3
"""A drone that is this fast has not ended its motion, whatever an ``ok`` that comes now belongs to."""
FASTEST_M_PER_S, FASTEST_DEG_PER_S = 1.5, 180.0
"""No motion is faster, so an ``ok`` that comes sooner belongs to something else."""
TAKEOFF_S, QUICKEST_TAKEOFF_S = 6.0, 0.5
LAND_S = 8.0
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


@dataclass(frozen=True, slots=True)
class Flight:
    """One command to fly: its text, the time it should take and can take at least, and the way, metres, body frame."""

    text: str
    expected_s: float
    quickest_s: float
    way: tuple[float, float, float] = (0.0, 0.0, 0.0)
    shows: bool = True
    """Large enough to be seen in the drone's state."""
    deaf_to: tuple[str, ...] = ("joystick",)
    """Complaints that mean: it is doing so already. The network may have brought the command twice."""


class TelloDriver(RobotDriver):
    """A Tello, or its emulator (``timely-emulate tello``).

    Takes off before the first motion of a plan and lands when the node is cleaned up. Its position is dead reckoning
    (a Tello without mission pads has no other): height and yaw are the drone's own, x and y what it was told to fly.
    """

    kind = "tello"

    def declare(self) -> None:
        """Parameters: where the drone is and what it sees."""
        self.declare_parameter("host", "192.168.10.1", described("address of the drone", read_only=True))
        self.declare_parameter(
            "command_port", COMMAND_PORT, described("its port; an emulator's is 18889", low=1, high=65535)
        )
        self.declare_parameter("speed_cm_s", 100, described("of straight moves [cm/s]", low=10, high=100))
        self.declare_parameter(
            "battery_reserve", 0.1, described("below it flies no more and lands [0..1]", low=0.0, high=1.0)
        )
        self.declare_parameter(
            "resend_lost",
            1,
            described(
                "how often a command that the drone shows not to have got is sent again", low=0, high=3
            ),
        )
        self.declare_parameter("eyes", "", described("a detector, module:class", read_only=True))
        self.declare_parameter(
            "things", [""], described("without one: a made-up room, name:degrees:centimetres", read_only=True)
        )
        self._link: TelloLink | None = None
        self._never = threading.Event()

    def connect(self, timeout_s: float) -> None:
        """See ``RobotDriver``."""
        things = [text for text in self.get_parameter("things").value if text]
        self._eyes: Eyes = make_eyes(str(self.get_parameter("eyes").value), things)
        host, port = str(self.get_parameter("host").value), int(self.get_parameter("command_port").value)
        begin_s = self.pacer.now()
        link = open_link(host, port, timeout_s, self.pacer)
        speed = int(self.get_parameter("speed_cm_s").value)
        if (limit := self.profile.speed.linear_m_per_s) is not None:
            speed = min(speed, max(10, int(100 * limit)))
        left_s = max(0.5, timeout_s - (self.pacer.now() - begin_s))
        if not link.insist(f"speed {speed}", left_s, self._wait):
            link.close()
            raise MotionError(f"the drone at {host} does not take its speed", ErrorCode.CONNECTION_LOST)
        self._speed = 0.01 * speed
        self._where = Where()
        self._north = link.state.yaw_deg
        self._ground_m = 0.0
        self._link = link

    def disconnect(self) -> None:
        """Land, as far as the drone still listens, and let go of it."""
        link, self._link = self._link, None
        if link is None:
            return
        end = self.pacer.now() + LAND_S
        # A stop that is still being repeated would end the landing.
        while link.halting:
            self._wait(POLL_S)
        while link.flying and link.silent_s < STATE_SILENCE_S and self.pacer.now() < end:
            # Landing twice is landing once. Not while it descends: each command is answered with an error then.
            if link.state.rest_s <= self.pacer.now() - 0.3:
                link.begin("land", self._wait)
            self._wait(0.5)
        link.close()

    def halt(self) -> None:
        """See ``RobotDriver``."""
        link = self._link
        if link is not None:
            link.halt()

    def sense(self) -> Sensed:
        """See ``RobotDriver``."""
        link = self._link
        if link is None:
            return Sensed()
        where = self._here()
        turn = (0.0, 0.0, math.sin(where.yaw / 2.0), math.cos(where.yaw / 2.0))
        silent = link.silent_s > STATE_SILENCE_S
        detail = (
            f"nothing heard for {link.silent_s:.0f} s"
            if silent
            else ("flying" if link.flying else "on the ground")
        )
        return Sensed((where.x, where.y, link.state.height_m), turn, link.state.battery, detail)

    def perform(self, call: SkillCall, motion: Motion) -> Returned:
        """See ``RobotDriver``."""
        if call.skill in STRAIGHT:
            self._straight(call.skill, _number(call), motion)
        elif call.skill in ("turn_cw", "turn_ccw"):
            self._turn(_number(call) * (1 if call.skill == "turn_cw" else -1), motion)
        elif call.skill == "delay":
            motion.sleep(_number(call))
        elif call.skill == "log":
            self.get_logger().info(str(call.args[0]))
        elif call.skill == "approach":
            self._straight("move_forward", 100, motion)
        elif call.skill == "take_picture":
            self.get_logger().info(f"picture of {', '.join(seen.name for seen in self._view()) or 'nothing'}")
        elif call.skill in _SEEING:
            return _SEEING[call.skill](self, call, motion)
        else:
            raise MotionError(f"this drone cannot {call.skill}", ErrorCode.SKILL_FORBIDDEN)
        return None

    # --- Flying ---

    def _straight(self, skill: str, centimetres: float, motion: Motion) -> None:
        command, direction = STRAIGHT[skill]
        cm = _whole(centimetres, 20, 500, skill)
        way = tuple(0.01 * cm * part for part in direction)
        expected = self._expected(skill, cm, 1.8 + 0.01 * cm / self._speed)
        self._fly(
            Flight(f"{command} {cm}", expected, 0.01 * cm / FASTEST_M_PER_S, (way[0], way[1], way[2])), motion
        )

    def _turn(self, degrees: float, motion: Motion) -> None:
        """Turn clockwise, or by a negative angle the other way."""
        skill = "turn_cw" if degrees > 0 else "turn_ccw"
        whole = _whole(abs(degrees), 1, 360, skill)
        expected = self._expected(skill, whole, 0.8 + whole / 60.0)
        self._fly(
            Flight(f"{'cw' if degrees > 0 else 'ccw'} {whole}", expected, whole / FASTEST_DEG_PER_S), motion
        )

    def _expected(self, skill: str, amount: int, otherwise_s: float) -> float:
        try:
            return max(self.profile.mean_s(skill, (amount,)), otherwise_s)
        except LRTraceError:
            return otherwise_s

    def _fly(self, flight: Flight, motion: Motion) -> None:
        link = self._connected_link()
        self._check_battery(link)
        self._settle(link, motion)
        if not link.flying:
            self._carry_out(
                Flight("takeoff", TAKEOFF_S, QUICKEST_TAKEOFF_S, deaf_to=("error",)), link, motion
            )
            self._ground_m = link.state.height_m
        here, (ahead, left, up) = self._here(), flight.way
        cos, sin = math.cos(here.yaw), math.sin(here.yaw)
        there = replace(here, x=here.x + cos * ahead - sin * left, y=here.y + sin * ahead + cos * left)
        fence = self.profile.geofence
        if fence is not None and not fence.contains(there.x, there.y, max(0.0, link.state.height_m + up)):
            raise MotionError(f"{flight.text} leaves the geofence", ErrorCode.OUT_OF_LIMITS)
        begin_s, share = self.pacer.now(), 0.0
        try:
            self._carry_out(flight, link, motion)
            share = 1.0
        except (MotionError, MotionCancelled):
            share = min(1.0, max(0.0, (self.pacer.now() - begin_s) / flight.expected_s))
            raise
        finally:
            self._where = replace(
                here, x=here.x + share * (there.x - here.x), y=here.y + share * (there.y - here.y)
            )

    def _carry_out(self, flight: Flight, link: TelloLink, motion: Motion) -> None:
        for _ in range(1 + int(self.get_parameter("resend_lost").value)):
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
        before = link.state
        link.begin(flight.text, motion.sleep)
        begin_s = heard_s = self.pacer.now()
        began, certain = False, flight.shows
        while True:
            motion.sleep(POLL_S)
            elapsed, state = self.pacer.now() - begin_s, link.state
            certain = certain and self.pacer.now() - max(heard_s, state.heard_s) <= LARGEST_GAP_S
            motion.progress(max(POLL_S, flight.expected_s - elapsed))
            said = (link.answer() or "").lower()
            underway = state.speed >= UNDERWAY_M_PER_S and self.pacer.now() - state.heard_s <= LARGEST_GAP_S
            if said == "ok" and elapsed >= flight.quickest_s and not underway:
                return True
            if said and said != "ok" and not any(word in said for word in flight.deaf_to):
                link.halt()
                code = ErrorCode.OUT_OF_LIMITS if "range" in said else ErrorCode.MOTION_FAILED
                raise MotionError(f"{flight.text}: the drone says {said!r}", code)
            if link.silent_s > STATE_SILENCE_S:
                link.halt()
                raise MotionError("nothing is heard of the drone any more", ErrorCode.CONNECTION_LOST)
            began = began or (
                state.heard_s > begin_s
                and (
                    state.speed > 0.0 or (state.yaw_deg, state.height_m) != (before.yaw_deg, before.height_m)
                )
            )
            at_rest = state.packets > before.packets + 3 and self.pacer.now() - state.rest_s >= RESTED_S
            if began and at_rest and elapsed >= flight.quickest_s:
                if not link.flying:
                    raise MotionError("the drone has landed by itself", ErrorCode.MOTION_FAILED)
                return True
            if certain and not began and at_rest and elapsed >= UNSTARTED_S:
                return False
            unseen = not began and at_rest and elapsed >= max(UNSTARTED_S, flight.expected_s)
            if unseen or elapsed > SLACK * flight.expected_s + MARGIN_S:
                link.halt()
                what = "shows no sign of" if unseen else "has not ended"
                raise MotionError(
                    f"the drone {what} {flight.text!r} after {elapsed:.1f} s", ErrorCode.MOTION_TIMEOUT
                )

    def _connected_link(self) -> TelloLink:
        link = self._link
        if link is None or link.silent_s > STATE_SILENCE_S:
            raise MotionError("nothing is heard of the drone", ErrorCode.CONNECTION_LOST)
        return link

    def _check_battery(self, link: TelloLink) -> None:
        reserve = float(self.get_parameter("battery_reserve").value)
        if link.state.battery < reserve:
            if link.flying:
                link.send("land")
            raise MotionError(
                f"battery at {link.state.battery:.0%}, the reserve is {reserve:.0%}", ErrorCode.MOTION_FAILED
            )

    def _settle(self, link: TelloLink, motion: Motion) -> None:
        """Let an earlier stop take effect: it must not cut what comes next."""
        while link.halting:
            motion.sleep(POLL_S)

    def _wait(self, seconds: float) -> None:
        self.pacer.wait(self._never, seconds)

    # --- Where it is and what it sees ---

    def _here(self) -> Where:
        link = self._link
        if link is None:
            return self._where
        yaw = math.remainder(-math.radians(link.state.yaw_deg - self._north), 2.0 * math.pi)
        return replace(self._where, z=link.state.height_m - self._ground_m, yaw=yaw)

    def _view(self) -> list[Sighting]:
        return list(self._eyes.look(self._here()))

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
                self._turn(SCAN_STEP_DEG, motion)
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
            self._turn(round(degrees), motion)
        return seen

    def _goto(self, call: SkillCall, motion: Motion) -> Returned:
        left = self._face(call.args[0], motion).distance_m - STAND_OFF_M
        while left >= LEG_M[0]:
            leg = min(left, LEG_M[1])
            self._straight("move_forward", 100.0 * leg, motion)
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


_SEEING: Mapping[str, Callable[[TelloDriver, SkillCall, Motion], Returned]] = {
    "is_visible": TelloDriver._is_visible,
    "scan": TelloDriver._scan,
    "scan_abstract": TelloDriver._scan_abstract,
    "goto": TelloDriver._goto,
    "orienting": TelloDriver._orient,
    "probe": TelloDriver._probe,
    "re_plan": TelloDriver._tell,
    **dict.fromkeys(
        ("object_x", "object_y", "object_width", "object_height", "object_distance"), TelloDriver._measure
    ),
}


def _number(call: SkillCall) -> float:
    value = call.args[0] if call.args else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise MotionError(f"{call.text}: {value!r} is no number", ErrorCode.OUT_OF_LIMITS)
    return float(value)


def _whole(value: float, low: int, high: int, skill: str) -> int:
    """The drone takes whole numbers in its own range; the library checks neither."""
    if not low <= round(value) <= high:
        raise MotionError(f"{skill}: {value:g} is not within {low} to {high}", ErrorCode.OUT_OF_LIMITS)
    return round(value)


def _name(value: object) -> str:
    """A name without the position that TypeFly may write behind it (``chair[0.6]``)."""
    return str(value).partition("[")[0].strip().lower()
