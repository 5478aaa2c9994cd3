"""Finds robot profiles by name and raises Timely's own errors, for rooms that may not import lrtrace."""

from lrtrace import profiles
from lrtrace.errors import LRTraceError
from lrtrace.errors import UnknownName as UnknownProfile
from lrtrace.profiles import robot_profile_names
from lrtrace.robot_profile import RobotProfile
from timely.core.errors import InvalidInput, UnknownName

__all__ = ["RobotProfile", "find_plan_robot_profile", "robot_profile_names"]


def find_plan_robot_profile(name: str) -> RobotProfile:
    """The robot profile of that name. A path is refused, so names from a network are safe.

    Raises:
        UnknownName: there is none; the message lists the names. InvalidInput: its file is broken.
    """
    try:
        return profiles.find_robot_profile(name)
    except UnknownProfile as error:
        raise UnknownName("robot profile", name, robot_profile_names(), where="robot") from error
    except LRTraceError as error:
        raise InvalidInput(error.message, where=error.where) from error
