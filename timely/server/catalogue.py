"""Skill sets and robot profiles by name: each is read once, in a thread, and then kept."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from timely.core.errors import Overloaded, UnknownName
from timely.plans.robot_profiles import RobotProfile, find_profile, profile_names
from timely.plans.skill_library import find_skill_set, skill_set_names
from timely.plans.skill_set import SkillSet

Found = TypeVar("Found")

READ_TIMEOUT_S = 10.0


class Catalogue(Protocol):
    """Where the task service looks names up."""

    async def skill_set(self, name: str) -> SkillSet:
        """The skill set of that name; UnknownName if there is none."""
        ...

    async def profile(self, name: str) -> RobotProfile:
        """The robot profile of that name; UnknownName if there is none."""
        ...

    async def skill_set_names(self) -> Sequence[str]:
        """All names."""
        ...

    async def profile_names(self) -> Sequence[str]:
        """All names."""
        ...


class MemoryCatalogue:
    """What it is given: for programs that make their skill sets themselves, and for tests."""

    def __init__(self, skill_sets: Iterable[SkillSet], profiles: Iterable[RobotProfile]) -> None:
        self._skill_sets = {skill_set.name: skill_set for skill_set in skill_sets}
        self._profiles = {profile.name: profile for profile in profiles}

    async def skill_set(self, name: str) -> SkillSet:
        """See ``Catalogue``."""
        if name not in self._skill_sets:
            raise UnknownName("skill set", name, self._skill_sets, where="skill_set")
        return self._skill_sets[name]

    async def profile(self, name: str) -> RobotProfile:
        """See ``Catalogue``."""
        if name not in self._profiles:
            raise UnknownName("robot profile", name, self._profiles, where="robot")
        return self._profiles[name]

    async def skill_set_names(self) -> Sequence[str]:
        """See ``Catalogue``."""
        return sorted(self._skill_sets)

    async def profile_names(self) -> Sequence[str]:
        """See ``Catalogue``."""
        return sorted(self._profiles)


class FileCatalogue:
    """What lies in the folders of skill sets and robot profiles. A file changed later is read at the next start."""

    def __init__(self) -> None:
        self._skill_sets: dict[str, SkillSet] = {}
        self._profiles: dict[str, RobotProfile] = {}

    async def skill_set(self, name: str) -> SkillSet:
        """See ``Catalogue``."""
        known = self._skill_sets.get(name)
        if known is None:
            async with asyncio.timeout(READ_TIMEOUT_S):
                known = await asyncio.to_thread(find_skill_set, name)
            self._skill_sets[name] = known
        return known

    async def profile(self, name: str) -> RobotProfile:
        """See ``Catalogue``."""
        known = self._profiles.get(name)
        if known is None:
            async with asyncio.timeout(READ_TIMEOUT_S):
                known = await asyncio.to_thread(find_profile, name)
            self._profiles[name] = known
        return known

    async def skill_set_names(self) -> Sequence[str]:
        """See ``Catalogue``."""
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await asyncio.to_thread(skill_set_names)

    async def profile_names(self) -> Sequence[str]:
        """See ``Catalogue``."""
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await asyncio.to_thread(profile_names)


async def named(found: Coroutine[Any, Any, Found], where: str) -> Found:
    """A look-up whose complaint names the field of the request."""
    try:
        return await found
    except UnknownName as error:
        error.where = where
        raise
    except TimeoutError as error:
        raise Overloaded("reading it took too long", where=where) from error
