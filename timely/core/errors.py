"""All errors that Timely raises on purpose, as one tree under ``TimelyError``.

HTTP and ROS 2 map them to their codes in one place each. The docstring of each class says what it stands for.
"""

from collections.abc import Collection, Iterable


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
        return (_rebuild_timely_error, (type(self), self.message, self.where))


def _rebuild_timely_error(kind: type[TimelyError], message: str, where: str) -> TimelyError:
    error = kind.__new__(kind)
    TimelyError.__init__(error, message, where=where)
    return error


class InvalidInput(TimelyError):
    """The caller sent something unusable; the message says what and where."""

    code = "invalid_input"


class UnknownName(InvalidInput):
    """A skill set, robot, discipline, task or other name that does not exist; the message lists those that do."""

    code = "unknown_name"

    def __init__(self, kind: str, name: object, valid_names: Iterable[str], *, where: str = "") -> None:
        names_text = ", ".join(sorted(valid_names)) or "none"
        super().__init__(f"unknown {kind} {name!r}; known: {names_text}", where=where)


def check_name(kind: str, name: str, valid_names: Collection[str], *, where: str = "") -> None:
    """Raise UnknownName for a name that does not exist."""
    if name not in valid_names:
        raise UnknownName(kind, name, valid_names, where=where)


class TooLarge(InvalidInput):
    """A prompt or a body is over its limit."""

    code = "too_large"


class NotAllowed(TimelyError):
    """A report for another client's task, or a skill that the robot's profile forbids."""

    code = "not_allowed"


class Conflict(TimelyError):
    """The request contradicts the state: a report for a segment not sent, a task id in use."""

    code = "conflict"


class UnsafeSegment(TimelyError):
    """The model wrote a segment that the skill set or the robot's limits refuse."""

    code = "unsafe_segment"


class Unsupported(TimelyError):
    """This engine or build cannot do that, such as chat completions on the simulator."""

    code = "unsupported"


class Overloaded(TimelyError):
    """Refused at admission for want of capacity; may be tried again later.

    ``eta_s`` is the estimated time until such a request would be served, seconds; None: not known.
    """

    code = "overloaded"
    eta_s: float | None = None

    def __init__(self, message: str, *, where: str = "", eta_s: float | None = None) -> None:
        super().__init__(message, where=where)
        self.eta_s = eta_s


class RateLimited(Overloaded):
    """A principal is over a limit of its own."""

    code = "rate_limited"


class Draining(Overloaded):
    """The server finishes its plans before it ends, and takes no more."""

    code = "draining"


class EngineFailed(TimelyError):
    code = "engine_failed"


class EngineDied(EngineFailed):
    """The engine ended by itself: what it was generating can go on when it has been started again."""
