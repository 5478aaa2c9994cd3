"""The robot contract: what a driver author writes. Nothing here knows ROS 2."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from lrtrace.robot_profile import RobotProfile
from timely.core.clock import SystemClock
from timely.core.errors import InvalidInput
from timely_robots.clock import RobotClock
from timely_robots.error_codes import ErrorCode
from timely_robots.segments import Motion, MotionError, SkillCall, SkillValue


@dataclass(frozen=True, slots=True)
class RobotStatus:
    """The last known state of a robot: position in metres, quaternion (x, y, z, w), battery 0..1 or NaN."""

    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    orientation: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)
    battery: float = math.nan
    detail: str = ""
    holding: str = ""
    """The object in the gripper, by its name in plans; the next plan is made with it."""
    at_rest: bool = False
    """The robot was observed at rest a moment ago; False if it moves, or if its motion is unknown."""
    away: bool = False
    """The robot is in a state that must not last without a plan, such as flying; see ``Robot.FAILSAFES``."""
    link_lost: bool = False
    fault: str = ""
    """Why the robot needs a person, such as a stop without effect; empty if it does not."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a kind of robot; a ROS parameter of its driver node.

    ``low`` and ``high`` bound a number, both inclusive. A ``fixed`` setting cannot change while the driver runs.
    """

    name: str
    default: bool | int | float | str | list[str]
    text: str = ""
    low: float | None = None
    high: float | None = None
    fixed: bool = False

    def check(self, value: object) -> Any:
        """The value in the type of the default.

        Raises:
            InvalidInput: wrong type, or out of bounds.
        """
        if isinstance(self.default, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if isinstance(value, tuple):
            value = list(value)
        if type(value) is not type(self.default):
            kind = type(self.default).__name__
            raise InvalidInput(f"must be of type {kind}, got {value!r}", where=self.name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            low = -math.inf if self.low is None else self.low
            high = math.inf if self.high is None else self.high
            if not low <= value <= high:
                raise InvalidInput(f"must be {low:g} to {high:g}, got {value!r}", where=self.name)
        return value


class Log(Protocol):
    """Where a robot writes to people; ``logging.Logger`` and the logger of a ROS node both fit."""

    def info(self, message: str, /) -> Any: ...
    def warning(self, message: str, /) -> Any: ...
    def error(self, message: str, /) -> Any: ...


def vendor_library_error(error: ImportError) -> MotionError:
    """The error of a driver whose vendor's library is not installed."""
    return MotionError(
        f"needs {error.name}: run this driver from .venv-robots, which `make robots` makes",
        ErrorCode.CONNECTION_LOST,
    )


class Robot:
    """A robot that executes skill calls. ``DriverNode`` puts it behind ROS 2, ``StandaloneRobot`` in a measurement.

    A new robot overrides ``connect``, ``disconnect``, ``perform``, ``halt`` and ``status``, lists its own settings in
    ``SETTINGS``, and is named ``module:Class`` in a fleet file. Arguments of calls come checked, in the order and
    the units of the robot's profile (cm and degrees for a Tello). Positions in ``status`` are metres and quaternions.

    Args:
        settings: values by name; the others have their defaults.
        clock: the robot's time; virtual in tests.

    Raises:
        InvalidInput: an unknown setting, a wrong type, or a value out of bounds.
    """

    kind: ClassVar[str] = ""
    """The name in the registry."""

    SETTINGS: ClassVar[tuple[Setting, ...]] = ()

    FAILSAFES: ClassVar[frozenset[str]] = frozenset()
    """The actions that ``failsafe`` can perform, beside holding: land, return, retract, release."""

    simulated: ClassVar[bool] = False
    """Nothing moves outside this machine: the driver keeps no stop on the disk unless a folder is named."""

    drives_clock: ClassVar[bool] = False
    """The robot can advance a ``SteppedRobotClock``."""

    def __init__(self, settings: Mapping[str, Any] | None = None, clock: RobotClock | None = None) -> None:
        self.clock: RobotClock = clock or SystemClock()
        self.log: Log = logging.getLogger("timely_robots")
        self.settings: dict[str, Any] = {setting.name: setting.default for setting in self.SETTINGS}
        self.speed_share = 1.0
        """The share of its usual speed that the robot may move with now, above 0 and at most 1."""
        self._profile: RobotProfile | None = None
        by_name = {setting.name: setting for setting in self.SETTINGS}
        for name, value in (settings or {}).items():
            if name not in by_name:
                raise InvalidInput(f"unknown setting; known: {', '.join(sorted(by_name))}", where=name)
            self.settings[name] = by_name[name].check(value)

    @property
    def profile(self) -> RobotProfile:
        """The robot's limits and execution times; set before ``connect``."""
        if self._profile is None:
            raise MotionError("the robot has no profile yet", ErrorCode.DRIVER_INACTIVE)
        return self._profile

    @profile.setter
    def profile(self, profile: RobotProfile) -> None:
        self._profile = profile

    @property
    def profile_name(self) -> str:
        """The name of the profile; empty if there is none yet."""
        return self._profile.name if self._profile is not None else ""

    def in_geofence(self, x: float, y: float, z: float) -> bool:
        """Whether the robot may be at a point, metres."""
        return self.profile.geofence is None or self.profile.geofence.contains(x, y, z)

    def texts(self, name: str) -> list[str]:
        """The non-empty entries of a list setting (a ROS parameter cannot be an empty list)."""
        return [text for text in self.settings[name] if text]

    def connect(self, timeout_s: float) -> None:
        """Connect to the robot within ``timeout_s``; raises MotionError (CONNECTION_LOST) if that fails."""

    def disconnect(self) -> None:
        """Release the robot; safe to call twice, and when never connected."""

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        """Execute one call and return when the robot is at rest; the value of a query, None for a motion.

        On the motion thread, one call at a time. Wait only through ``motion.sleep``, or call ``motion.check`` often
        enough to end within 50 ms of a cancellation. Raises MotionError if the robot did not do it.
        """
        raise NotImplementedError

    def halt(self) -> None:
        """Stop any motion now: from any thread, at any time, any number of times, and without waiting.

        A wait for the answer is allowed after the command was sent. Raises MotionError if the robot did not get it.
        """

    def failsafe(self, action: str, motion: Motion) -> None:
        """Perform one of ``FAILSAFES`` and return when the robot is at rest; on the motion thread, like ``perform``."""
        raise MotionError(f"this robot cannot {action}", ErrorCode.SKILL_FORBIDDEN)

    def proximity_m(self) -> float | None:
        """The distance to the nearest obstacle that the robot knows of itself, metres; None: it has no such sensor."""
        return None

    def status(self) -> RobotStatus:
        """The robot's last known state; must not block."""
        return RobotStatus()
