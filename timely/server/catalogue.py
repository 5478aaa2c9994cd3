"""Skill sets and robot profiles by name. Each is read once, in a thread."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from timely.core.errors import Overloaded, UnknownName
from timely.plans.robot_profiles import RobotProfile, find_plan_robot_profile, robot_profile_names
from timely.plans.skill_library import find_skill_set, skill_set_names
from timely.plans.skill_set import SkillSet

Entry = TypeVar("Entry")

READ_TIMEOUT_S = 10.0


class ServerCatalogue:
    """Skill sets and profiles in their folders. A file that changes later is read at the next start."""

    def __init__(self) -> None:
        self._skill_sets: dict[str, SkillSet] = {}
        self._profiles: dict[str, RobotProfile] = {}

    async def skill_set(self, name: str) -> SkillSet:
        """The skill set of that name; UnknownName if there is none."""
        if name not in self._skill_sets:
            self._skill_sets[name] = await _read_catalogue_entry(find_skill_set, name)
        return self._skill_sets[name]

    async def profile(self, name: str) -> RobotProfile:
        """The robot profile of that name; UnknownName if there is none."""
        if name not in self._profiles:
            self._profiles[name] = await _read_catalogue_entry(find_plan_robot_profile, name)
        return self._profiles[name]

    async def skill_set_names(self) -> Sequence[str]:
        return await _read_catalogue_entry(skill_set_names)

    async def profile_names(self) -> Sequence[str]:
        return await _read_catalogue_entry(robot_profile_names)


async def _read_catalogue_entry(read: Callable[..., Entry], *names: str) -> Entry:
    async with asyncio.timeout(READ_TIMEOUT_S):
        return await asyncio.to_thread(read, *names)


async def look_up_catalogue_entry(entry: Coroutine[Any, Any, Entry], where: str) -> Entry:
    """The entry; an error names the field of the request.

    Raises:
        UnknownName: no such name. Overloaded: the disk is too slow.
    """
    try:
        return await entry
    except UnknownName as error:
        error.where = where
        raise
    except TimeoutError as error:
        raise Overloaded("reading it took too long", where=where) from error
