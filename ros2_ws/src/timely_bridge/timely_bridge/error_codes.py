"""Maps errors to ROS 2 codes; ranges and meanings are in ``timely_interfaces/msg/ErrorCode``."""

from collections.abc import Mapping

from timely_interfaces.msg import ErrorCode

from timely.core.errors import (
    Conflict,
    EngineFailed,
    InvalidInput,
    NotAllowed,
    Overloaded,
    RateLimited,
    TimelyError,
    TooLarge,
    UnknownName,
    UnsafeSegment,
    Unsupported,
)

CODES: Mapping[str, int] = {
    InvalidInput.code: ErrorCode.INVALID_INPUT,
    UnknownName.code: ErrorCode.UNKNOWN_NAME,
    TooLarge.code: ErrorCode.TOO_LARGE,
    NotAllowed.code: ErrorCode.NOT_ALLOWED,
    Conflict.code: ErrorCode.CONFLICT,
    Unsupported.code: ErrorCode.UNSUPPORTED,
    Overloaded.code: ErrorCode.OVERLOADED,
    RateLimited.code: ErrorCode.OVERLOADED,
    EngineFailed.code: ErrorCode.ENGINE_FAILED,
    UnsafeSegment.code: ErrorCode.UNSAFE_SEGMENT,
    TimelyError.code: ErrorCode.SERVER_ERROR,
    # Codes of the server's problem details that no class of the tree has.
    "not_authenticated": ErrorCode.NOT_ALLOWED,
    "shutting_down": ErrorCode.OVERLOADED,
    "draining": ErrorCode.OVERLOADED,
    "interrupted": ErrorCode.ENGINE_FAILED,
    "quarantined": ErrorCode.ENGINE_FAILED,
    "expired": ErrorCode.EXPIRED,
    "truncated": ErrorCode.PLAN_TRUNCATED,
    "execution_failed": ErrorCode.MOTION_FAILED,
    "unreachable": ErrorCode.SERVER_UNREACHABLE,
}
"""Stable code of an error (HTTP problem or exception) -> ROS 2 error code."""

NAMES: Mapping[int, str] = {
    getattr(ErrorCode, name): name
    for name in dir(ErrorCode)
    if name.isupper() and "__" not in name and isinstance(getattr(ErrorCode, name), int)
}
"""ROS 2 error code -> its name in ErrorCode.msg."""

RANGES: Mapping[str, range] = {
    "goal": range(1000, 1100),
    "server": range(1100, 1200),
    "bridge": range(1200, 1300),
    "driver": range(2000, 2100),
}
"""Part that reported the error -> its codes."""


AWAY = "the bridge ended during the task, and was started again"


class BridgeTaskError(Exception):
    """A task cannot go on: a code and a message for people."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = int(code)
        self.message = message


class BridgeTakeUpError(BridgeTaskError):
    """A task of an earlier life of the bridge cannot go on."""

    def __init__(self, reason: str) -> None:
        super().__init__(int(ErrorCode.BRIDGE_INACTIVE), f"{AWAY}: {reason}")


def bridge_fleet_stop_error() -> BridgeTaskError:
    """The one end of a goal by a stop of the fleet, whichever part says it first."""
    return BridgeTaskError(ErrorCode.FLEET_STOPPED, "the fleet was stopped")


def bridge_error_code(error: TimelyError, *, server_url: str = "") -> int:
    """The ROS 2 code of an error. An EngineFailed at the server's URL means that the server cannot be reached."""
    if isinstance(error, EngineFailed) and server_url and error.where == server_url:
        return int(ErrorCode.SERVER_UNREACHABLE)
    return int(CODES.get(error.code, ErrorCode.SERVER_ERROR))


def bridge_error_owner(code: int) -> str:
    """The part that reported a code: ``goal``, ``server``, ``bridge``, ``driver``, or empty for no error."""
    return next((owner for owner, codes in RANGES.items() if code in codes), "")


def bridge_error_name(code: int) -> str:
    return NAMES.get(code, str(code))
