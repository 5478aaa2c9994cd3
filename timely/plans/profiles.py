"""Robot profiles for those who may not know lrtrace: found by name, with errors of Timely's own tree."""

from __future__ import annotations

from lrtrace import profiles
from lrtrace.errors import LRTraceError
from lrtrace.errors import UnknownName as UnknownProfile
from lrtrace.profiles import RobotProfile, profile_names
from timely.core.errors import InvalidInput, UnknownName

__all__ = ["RobotProfile", "find_profile", "profile_names"]


def find_profile(name: str) -> RobotProfile:
    """The robot profile of that name. Never a path: safe for names that come over a network.

    Raises:
        UnknownName: there is none; lists the known ones. InvalidInput: its file is broken; says where.
    """
    try:
        return profiles.find_profile(name)
    except UnknownProfile as error:
        raise UnknownName("robot profile", name, profile_names(), where="robot") from error
    except LRTraceError as error:
        raise InvalidInput(error.message, where=error.where) from error
