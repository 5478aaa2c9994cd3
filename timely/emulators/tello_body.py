"""A Tello as a state machine, without sockets. Time is an argument.

Commands, limits and answers follow the Tello SDK 1.3 and 2.0 guides, which have no durations. Takeoff, landing,
reaction and settling times and the turning rate are assumptions near published measurements: 100 cm in about 2.5 s, 90
degrees in about 2.3 s. Positions are metres from the start: x forward, y left, z up. Yaw is degrees, clockwise.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from timely.emulators.command_log import MotionEnd
from timely.emulators.tello_motions import (
    BUSY,
    ERROR,
    LOW_BATTERY,
    NOT_FLYING,
    OK,
    RANGE,
    TelloPhysics,
    emulated_rotation,
    emulated_tello_course,
    emulated_whole_numbers,
)
from timely.emulators.trapezoid import EmulatedTrapezoid


@dataclass(slots=True)
class Pose:
    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    yaw: float = 0.0


@dataclass(slots=True)
class EmulatedTelloMotion:
    """One motion under way; ``delta`` is what it adds to the pose, (x, y, z) and yaw unwrapped."""

    command: str
    start_s: float
    end_s: float
    origin: Pose
    delta: tuple[float, float, float, float]
    profile: EmulatedTrapezoid
    lead_s: float = 0.0
    answers: bool = True

    def share(self, now: float) -> float:
        """How much of the way is done, 0..1."""
        if now >= self.end_s:
            return 1.0
        return self.profile.at(now - self.start_s - self.lead_s)[0] / max(self.profile.length, 1e-9)


@dataclass(slots=True)
class EmulatedTelloBody:
    """One drone. Call ``advance`` up to a moment before anything else at that moment.

    Args:
        rng: of the noise in motion times.
    """

    rng: random.Random = field(default_factory=random.Random)
    physics: TelloPhysics = field(default_factory=TelloPhysics)
    battery: float = 100.0
    pose: Pose = field(default_factory=Pose)
    awake: bool = False
    """In SDK mode, which the first ``command`` begins; before, nothing is heard."""
    flying: bool = False
    dead: bool = False
    """Battery empty: hears and says nothing more."""
    motion: EmulatedTelloMotion | None = None
    speed: float = 1.0
    rc: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    heard_s: float = 0.0
    flown_s: float = 0.0
    now: float = 0.0
    velocity: tuple[float, float, float] = (0.0, 0.0, 0.0)

    # --- time ---

    def advance(self, now: float) -> list[MotionEnd]:
        """Let time pass until ``now``, seconds; what ended on the way."""
        ends: list[MotionEnd] = []
        while self.now < now and not self.dead:
            until = min(now, self._next_event())
            self._drift(until)
            ends += self._due(until)
        self.now = max(self.now, now)
        return ends

    def _next_event(self) -> float:
        times = [math.inf]
        if self.motion is not None:
            times.append(self.motion.end_s)
        if self.flying and self.awake and not self._landing:
            times.append(self.heard_s + self.physics.silence_s)
        drain = self.physics.hover_drain if self.flying else self.physics.idle_drain
        floor = self.physics.land_at if self.flying and not self._landing else 0.0
        times.append(self.now + max(0.0, self.battery - floor) / drain)
        return max(self.now, min(times))

    @property
    def _landing(self) -> bool:
        return self.motion is not None and self.motion.command.startswith("land")

    @property
    def _taking_off(self) -> bool:
        """No document says so, but owners report that it hears neither stop nor land until it hovers."""
        return self.motion is not None and self.motion.command.startswith("takeoff")

    def _drift(self, until: float) -> None:
        step = until - self.now
        physics = self.physics
        self.battery -= step * (physics.hover_drain if self.flying else physics.idle_drain)
        self.flown_s += step if self.flying else 0.0
        before = (self.pose.x, self.pose.y, self.pose.z)
        if self.motion is not None:
            self.pose = self._pose_at(self.motion, until)
        elif self.flying and any(self.rc):
            right, ahead, up, turn = (part / 100.0 for part in self.rc)
            dx, dy = emulated_rotation(ahead * step, -right * step, self.pose.yaw)
            z = min(max(self.pose.z + up * step, physics.lowest_m), physics.highest_m)
            yaw = self.pose.yaw + turn * physics.turn_deg_per_s * step
            self.pose = Pose(self.pose.x + dx, self.pose.y + dy, z, yaw)
        if step > 0:
            after = (self.pose.x, self.pose.y, self.pose.z)
            self.velocity = tuple((b - a) / step for a, b in zip(before, after, strict=True))  # type: ignore[assignment]
        self.now = until

    @staticmethod
    def _pose_at(motion: EmulatedTelloMotion, now: float) -> Pose:
        share, origin = motion.share(now), motion.origin
        x, y, z, yaw = (share * part for part in motion.delta)
        return Pose(origin.x + x, origin.y + y, origin.z + z, origin.yaw + yaw)

    def _due(self, now: float) -> list[MotionEnd]:
        ends: list[MotionEnd] = []
        motion = self.motion
        if motion is not None and now >= motion.end_s:
            self.motion = None
            self.velocity = (0.0, 0.0, 0.0)
            if motion.command.startswith("land"):
                self.flying = False
                self.pose.z = 0.0
            ends.append(
                MotionEnd(motion.command, "done", motion.start_s, motion.end_s, OK if motion.answers else "")
            )
        if self.battery <= 1e-6:
            ends += self._die(now)
        elif self.flying and not self._landing:
            if self.battery <= self.physics.land_at + 1e-6:
                ends += self._land(now, "land (low battery)")
            elif self.awake and now >= self.heard_s + self.physics.silence_s - 1e-9:
                ends += self._land(now, "land (silence)")
        return ends

    def _die(self, now: float) -> list[MotionEnd]:
        self.dead, self.flying, self.battery = True, False, 0.0
        self.pose.z = 0.0
        return self._cut(now, "battery empty")

    def _land(self, now: float, command: str, *, answers: bool = False) -> list[MotionEnd]:
        ends = self._cut(now, "cut by landing")
        self.rc = (0.0, 0.0, 0.0, 0.0)
        height = max(self.pose.z, 0.01)
        seconds = self._noisy(self.physics.reaction_s + height / self.physics.landing_m_per_s)
        profile = EmulatedTrapezoid(height, self.physics.landing_m_per_s, 10.0)
        self.motion = EmulatedTelloMotion(
            command, now, now + max(seconds, profile.duration_s), self.pose, (0, 0, -height, 0), profile
        )
        self.motion.answers = answers
        return ends

    def _cut(self, now: float, outcome: str) -> list[MotionEnd]:
        """End the motion under way where it is; the command that was cut gets no answer of its own."""
        motion, self.motion = self.motion, None
        self.velocity = (0.0, 0.0, 0.0)
        return [] if motion is None else [MotionEnd(motion.command, outcome, motion.start_s, now)]

    # --- commands ---

    def handle(self, text: str) -> tuple[str, str, list[MotionEnd]]:
        """Take one datagram at the time of the last ``advance``.

        Returns:
            what to answer now (empty: nothing, or when the motion has ended), the outcome for the log, and motions
            that this command has ended.
        """
        words = text.strip().split()
        name, args = (words[0].lower(), words[1:]) if words else ("", [])
        if self.dead:
            return "", "ignored: battery empty", []
        if name == "command":
            self.awake, self.heard_s = True, self.now
            return OK, OK, []
        if not self.awake:
            return "", "ignored: not in SDK mode", []
        self.heard_s = self.now
        if name in _READS:
            reply = _READS[name](self)
            return reply, reply, []
        if name in ("stop", "land") and self._taking_off:
            return ERROR, "ignored: taking off", []
        if name == "stop":
            ends = self._cut(self.now, "stopped") if self.flying and not self._landing else []
            self.rc = (0.0, 0.0, 0.0, 0.0)
            return OK, OK, ends
        if name == "emergency":
            self.flying = False
            self.pose.z, self.rc = 0.0, (0.0, 0.0, 0.0, 0.0)
            return OK, OK, self._cut(self.now, "motors off")
        if name == "land":
            if not self.flying or self._landing:
                return ERROR, ERROR, []
            return "", "accepted", self._land(self.now, "land", answers=True)
        if name == "rc":
            return self._take_rc(args)
        if name == "speed" or name in _IGNORED_COMMANDS:
            reply = self._set_speed(args) if name == "speed" else OK
            return reply, reply, []
        reply = self._move(name, args, text.strip())
        return reply, reply or "accepted", []

    def _set_speed(self, args: list[str]) -> str:
        values = emulated_whole_numbers(args, 1)
        if values is None:
            return ERROR
        if not 10 <= values[0] <= 100:
            return RANGE
        self.speed = values[0] / 100.0
        return OK

    def _take_rc(self, args: list[str]) -> tuple[str, str, list[MotionEnd]]:
        values = emulated_whole_numbers(args, 4)
        if values is None or any(abs(value) > 100 for value in values):
            return ERROR, ERROR, []
        if not self.flying or self.motion is not None:
            return "", "ignored", []
        self.rc = (float(values[0]), float(values[1]), float(values[2]), float(values[3]))
        return "", OK, []

    def _move(self, name: str, args: list[str], text: str) -> str:
        """Begin a motion; empty if it was accepted, else the complaint."""
        if name == "takeoff":
            return self._take_off(text)
        course = emulated_tello_course(self, name, args)
        if isinstance(course, str):
            return course
        if not self.flying:
            return NOT_FLYING
        if self.motion is not None:
            return BUSY
        delta, profile, fixed_s = course
        x, y = emulated_rotation(delta[0], delta[1], self.pose.yaw)
        z = min(max(delta[2], self.physics.lowest_m - self.pose.z), self.physics.highest_m - self.pose.z)
        lead = self.physics.reaction_s
        seconds = self._noisy(lead + profile.duration_s + fixed_s + self.physics.settle_s)
        self.rc = (0.0, 0.0, 0.0, 0.0)
        end_s = self.now + max(seconds, lead + profile.duration_s)
        self.motion = EmulatedTelloMotion(
            text, self.now, end_s, self.pose, (x, y, z, delta[3]), profile, lead
        )
        return ""

    def _take_off(self, text: str) -> str:
        if self.flying:
            return ERROR
        if self.battery < self.physics.takeoff_at:
            return LOW_BATTERY
        self.flying = True
        physics = self.physics
        seconds = self._noisy(physics.takeoff_s)
        profile = EmulatedTrapezoid(physics.takeoff_m, physics.takeoff_m / (0.4 * seconds), 20.0)
        rise = (0, 0, physics.takeoff_m, 0)
        self.motion = EmulatedTelloMotion(
            text, self.now, self.now + seconds, self.pose, rise, profile, 0.2 * seconds
        )
        return ""

    def _noisy(self, seconds: float) -> float:
        return seconds * max(0.5, 1.0 + self.rng.gauss(0.0, self.physics.noise))

    # --- what it says of itself ---

    def state(self) -> str:
        """The state datagram of this moment; speeds in dm/s, heights in cm, as the drone sends them."""
        yaw = (self.pose.yaw + 180.0) % 360.0 - 180.0
        ahead, left = emulated_rotation(self.velocity[0], self.velocity[1], -self.pose.yaw)
        height = round(100.0 * self.pose.z)
        fields: Mapping[str, object] = {
            "pitch": 0, "roll": 0, "yaw": round(yaw),
            "vgx": round(10.0 * ahead), "vgy": round(-10.0 * left), "vgz": round(-10.0 * self.velocity[2]),
            "templ": 60, "temph": 63, "tof": max(10, height), "h": height, "bat": math.ceil(self.battery),
            "baro": f"{120.0 + self.pose.z:.2f}", "time": int(self.flown_s),
            "agx": "0.00", "agy": "0.00", "agz": "-999.00",
        }  # fmt: skip
        return "".join(f"{key}:{value};" for key, value in fields.items()) + "\r\n"


_IGNORED_COMMANDS = ("streamon", "streamoff", "keepalive", "motoron", "motoroff", "mon", "moff", "port")
"""Settings that are acknowledged and change nothing here."""

_READS: Mapping[str, Callable[[EmulatedTelloBody], str]] = {
    "battery?": lambda body: str(math.ceil(body.battery)),
    "speed?": lambda body: f"{100.0 * body.speed:.1f}",
    "time?": lambda body: f"{int(body.flown_s)}s",
    "height?": lambda body: f"{round(10.0 * body.pose.z)}dm",
    "temp?": lambda body: "60~63C",
    "attitude?": lambda body: f"pitch:0;roll:0;yaw:{round((body.pose.yaw + 180.0) % 360.0 - 180.0)};",
    "baro?": lambda body: f"{120.0 + body.pose.z:.6f}",
    "acceleration?": lambda body: "agx:0.00;agy:0.00;agz:-999.00;",
    "tof?": lambda body: f"{max(100, round(1000.0 * body.pose.z))}mm",
    "wifi?": lambda body: "90",
    "sdk?": lambda body: "20",
    "sn?": lambda body: "0TQZEMULATED00",
}
