"""Every error Timely raises on purpose, as one tree; HTTP and ROS 2 map it to their codes in one place each.

TimelyError
 +- InvalidInput         the caller sent something unusable: says what and where
 |   +- UnknownName      a skill set, robot, discipline, task ... that does not exist: lists the known ones
 |   +- TooLarge         a prompt or body over its limit
 +- NotAllowed           a report for a stranger's task, a skill the robot's profile forbids
 +- Conflict             the request contradicts the state (a report for a segment not sent, a task id in use)
 +- UnsafeSegment        the model wrote a segment that the skill set or the robot's limits refuse
 +- Unsupported          this engine cannot do that (chat completions on the simulator, say)
 +- Overloaded           refused at the door, to be tried again later
 +- EngineFailed         the engine died or broke a promise
"""

from __future__ import annotations

from collections.abc import Iterable


class TimelyError(Exception):
    """Base of all. ``code`` is stable and machine-readable; ``where`` names the field, file or line."""

    code = "timely_error"

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.where))


def _rebuild(kind: type[TimelyError], message: str, where: str) -> TimelyError:
    error = kind.__new__(kind)
    TimelyError.__init__(error, message, where=where)
    return error


class InvalidInput(TimelyError):
    """Unusable input."""

    code = "invalid_input"


class UnknownName(InvalidInput):
    """A name that is not registered; the message lists the known ones."""

    code = "unknown_name"

    def __init__(self, kind: str, name: object, valid_names: Iterable[str], *, where: str = "") -> None:
        listed = ", ".join(sorted(valid_names)) or "none"
        super().__init__(f"unknown {kind} {name!r}; known: {listed}", where=where)


class TooLarge(InvalidInput):
    """Over a size limit."""

    code = "too_large"


class NotAllowed(TimelyError):
    """Understood and refused."""

    code = "not_allowed"


class Conflict(TimelyError):
    """Contradicts the current state."""

    code = "conflict"


class UnsafeSegment(TimelyError):
    """A generated segment that must not reach the robot."""

    code = "unsafe_segment"


class Unsupported(TimelyError):
    """Not something this engine or build can do."""

    code = "unsupported"


class Overloaded(TimelyError):
    """Refused for want of capacity."""

    code = "overloaded"


class EngineFailed(TimelyError):
    """The engine is gone or broke its contract."""

    code = "engine_failed"
