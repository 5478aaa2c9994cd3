"""An Indy7's controller as a state machine, without gRPC. Time is an argument.

Limits are the vendor library's. Joints move within 175 degrees, at 3 rad/s and 3 rad/s^2; straight moves reach
1000 mm/s and 120 deg/s. Ratios are 1 to 100 % of speed and 1 to 900 % of acceleration. Motions are trapezoidal, and all
joints start and end together. Gripper fingers take half a second. Angles are degrees, lengths millimetres.
"""

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from timely.emulators.command_log import MotionEnd
from timely.emulators.indy7_kinematics import JOINTS, emulator_forward_kinematics, emulator_inverse_kinematics
from timely.emulators.trapezoid import EmulatedTrapezoid, emulator_trapezoid_for_time

JOINT_LIMIT_DEG = 175.0
JOINT_SPEED_DEG = math.degrees(3.0)
JOINT_ACCELERATION_DEG = math.degrees(3.0)
TASK_SPEED_MM = 1000.0
TASK_SPEED_DEG = 120.0
TASK_ACCELERATION_MM = 1000.0
"""mm/s^2 at 100 %; assumed."""
HOME_DEG = (0.0, -15.0, -90.0, 0.0, -75.0, 0.0)
QUEUE = 16
WAYPOINTS = 24
"""A straight line is followed through so many points."""


class EmulatedArmRefusal(Exception):
    """The controller does not take a command; says why."""


@dataclass(slots=True)
class EmulatedArmMotion:
    """One motion under way or queued; ``points`` are joint angles along ``profile``'s length, evenly spaced."""

    command: str
    points: list[list[float]]
    profile: EmulatedTrapezoid
    start_s: float = math.nan
    braking: tuple[float, float, float] | None = None
    """(when braking began, where it ends along the length, seconds it takes)."""

    @property
    def end_s(self) -> float:
        if self.braking is not None:
            return self.braking[0] + self.braking[2]
        return self.start_s + self.profile.duration_s

    def share(self, now: float) -> float:
        """How much of the way is done, 0..1."""
        length = max(self.profile.length, 1e-12)
        if self.braking is None:
            return self.profile.at(now - self.start_s)[0] / length
        began, rest, seconds = self.braking
        left = max(0.0, seconds - (now - began))
        return (rest - 0.5 * self.profile.acceleration * left * left) / length

    def joints(self, now: float) -> list[float]:
        at = min(1.0, max(0.0, self.share(now))) * (len(self.points) - 1)
        index = min(int(at), len(self.points) - 2)
        part = at - index
        return [a + part * (b - a) for a, b in zip(self.points[index], self.points[index + 1], strict=True)]


@dataclass(slots=True)
class EmulatedIndy7Body:
    """One arm. Call ``advance`` up to a moment before anything else at that moment."""

    joints: list[float] = field(default_factory=lambda: list(HOME_DEG))
    motion: EmulatedArmMotion | None = None
    queue: deque[EmulatedArmMotion] = field(default_factory=deque)
    outputs: dict[int, bool] = field(default_factory=dict)
    gripper: int = 0
    now: float = 0.0
    motions: int = 0
    trouble: int = 0
    """An operating state that a person has to end, such as a collision (8); 0: there is none."""

    # --- time ---

    def advance(self, now: float) -> list[MotionEnd]:
        """Let time pass until ``now``, seconds; what ended on the way."""
        ends: list[MotionEnd] = []
        while self.motion is not None and self.motion.end_s <= now:
            motion = self.motion
            end_s = motion.end_s
            self.joints = motion.joints(end_s)
            ends.append(
                MotionEnd(
                    motion.command, "done" if motion.braking is None else "stopped", motion.start_s, end_s
                )
            )
            self.motion = None
            self._start_next(end_s)
        if self.motion is not None:
            self.joints = self.motion.joints(now)
        self.now = max(self.now, now)
        return ends

    def _start_next(self, now: float) -> None:
        if self.queue:
            self.motion = self.queue.popleft()
            self.motion.start_s = now
            self.motions += 1

    # --- commands; each raises EmulatedArmRefusal unless the arm takes it ---

    def move_joints(
        self,
        target: Sequence[float],
        *,
        relative: bool,
        speed_ratio: float = 100.0,
        acceleration_ratio: float = 100.0,
        seconds: float | None = None,
        override: bool = False,
        command: str = "MoveJ",
    ) -> None:
        _check_emulated_command(target, speed_ratio, acceleration_ratio, seconds)
        origin = self._origin(override)
        goal = [a + b for a, b in zip(origin, target, strict=True)] if relative else list(target)
        _check_emulated_joints(goal)
        way = max(abs(a - b) for a, b in zip(origin, goal, strict=True))
        if seconds is None:
            profile = EmulatedTrapezoid(
                way,
                JOINT_SPEED_DEG * speed_ratio / 100.0,
                JOINT_ACCELERATION_DEG * acceleration_ratio / 100.0,
            )
        else:
            profile = emulator_trapezoid_for_time(way, seconds)
            if profile.speed > JOINT_SPEED_DEG + 1e-9:
                raise EmulatedArmRefusal(f"{way:.1f} deg in {seconds:g} s is over the joint speed limit")
        self._begin(EmulatedArmMotion(command, [origin, goal], profile), override)

    def move_line(
        self,
        target: Sequence[float],
        *,
        relative: bool,
        speed_ratio: float = 100.0,
        acceleration_ratio: float = 100.0,
        override: bool = False,
        command: str = "MoveL",
    ) -> None:
        """Move the flange in a straight line to ``target`` (x, y, z, u, v, w); refused if it cannot be followed."""
        _check_emulated_command(target, speed_ratio, acceleration_ratio, None)
        origin = self._origin(override)
        pose = emulator_forward_kinematics(origin)
        goal = [a + b for a, b in zip(pose, target, strict=True)] if relative else list(target)
        turn = [math.remainder(b - a, 360.0) for a, b in zip(pose[3:], goal[3:], strict=True)]
        points = [origin]
        for step in range(1, WAYPOINTS + 1):
            share = step / WAYPOINTS
            place = [a + share * (b - a) for a, b in zip(pose[:3], goal[:3], strict=True)]
            place += [a + share * b for a, b in zip(pose[3:], turn, strict=True)]
            joints = emulator_inverse_kinematics(place, points[-1])
            if joints is None:
                raise EmulatedArmRefusal(f"cannot reach {[round(part, 1) for part in place]}")
            _check_emulated_joints(joints)
            points.append(joints)
        millimetres, degrees = math.dist(pose[:3], goal[:3]), math.hypot(*turn)
        # Whichever takes longer, the way or the turn, sets the time; both as if they were millimetres.
        length = max(millimetres, degrees * TASK_SPEED_MM / TASK_SPEED_DEG)
        profile = EmulatedTrapezoid(
            length, TASK_SPEED_MM * speed_ratio / 100.0, TASK_ACCELERATION_MM * acceleration_ratio / 100.0
        )
        fastest = max(
            max(abs(a - b) for a, b in zip(one, two, strict=True)) for one, two in itertools.pairwise(points)
        )
        if length > 0 and fastest * WAYPOINTS / length * profile.peak > JOINT_SPEED_DEG:
            # Near a singularity a straight line asks more of a joint than it can give: the whole move slows down.
            profile = EmulatedTrapezoid(
                length, JOINT_SPEED_DEG * length / (fastest * WAYPOINTS), profile.acceleration
            )
        self._begin(EmulatedArmMotion(command, points, profile), override)

    def trip(self, trouble: int) -> None:
        """Stand still at once, and take no motion until ``trouble`` is 0 again."""
        self.queue.clear()
        self.motion, self.trouble = None, trouble

    def stop(self) -> None:
        """Brake as hard as the motion may accelerate, and forget what is queued."""
        self.queue.clear()
        motion = self.motion
        if motion is not None and motion.braking is None:
            rest, seconds = motion.profile.brake(self.now - motion.start_s)
            motion.braking = (self.now, rest, seconds)

    def _origin(self, override: bool) -> list[float]:
        """Where the next motion begins."""
        if override or self.motion is None:
            return list(self.joints)
        return list((self.queue[-1] if self.queue else self.motion).points[-1])

    def _begin(self, motion: EmulatedArmMotion, override: bool) -> None:
        if self.trouble:
            raise EmulatedArmRefusal("not in this state")
        if self.motion is not None and self.motion.braking is not None:
            raise EmulatedArmRefusal("the arm is stopping")
        if override:
            self.queue.clear()
            self.motion = None
        if len(self.queue) >= QUEUE:
            raise EmulatedArmRefusal(f"{QUEUE} motions wait already")
        self.queue.append(motion)
        if self.motion is None:
            self._start_next(self.now)


def _check_emulated_command(
    target: Sequence[float], speed: float, acceleration: float, seconds: float | None
) -> None:
    if len(target) != JOINTS or not all(math.isfinite(value) for value in target):
        raise EmulatedArmRefusal(f"needs {JOINTS} finite numbers, got {list(target)}")
    if seconds is not None and not 0.0 < seconds <= 120.0:
        raise EmulatedArmRefusal(f"time must be above 0 and at most 120 s, got {seconds:g}")
    if not 1.0 <= speed <= 100.0:
        raise EmulatedArmRefusal(f"velocity ratio must be 1 to 100 %, got {speed:g}")
    if not 1.0 <= acceleration <= 900.0:
        raise EmulatedArmRefusal(f"acceleration ratio must be 1 to 900 %, got {acceleration:g}")


def _check_emulated_joints(joints: Sequence[float]) -> None:
    for number, angle in enumerate(joints):
        if abs(angle) > JOINT_LIMIT_DEG:
            raise EmulatedArmRefusal(f"joint {number} at {angle:.1f} deg is beyond +-{JOINT_LIMIT_DEG:g}")
