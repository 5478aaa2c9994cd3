"""The tasks of one server by id: live ones, and ended ones for late readers."""

import asyncio
import math
import secrets
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from timely.core.errors import Conflict, Overloaded
from timely.core.hints import RequestHints
from timely.principals import LOCAL, Principal
from timely.server.settings import ServerSettings
from timely.server.tasks.request import TaskRequest
from timely.server.tasks.task import Task, unknown_task

MAX_RECENT = 300
"""Ended tasks kept for the status, beyond those that clients may still read."""

FAIR_SHARE = 0.125
"""Share of the places that only principals below their fair share get."""

RECENT_LIVES = 20
"""Ended tasks from which the time of the next end is predicted."""


@dataclass(slots=True)
class HeldPlace:
    """What a request takes that is no task, or no task yet.

    Attributes:
        kv_tokens: KV cache that it may hold, tokens; 0: not counted.
        network_s: to the robot of that task, once it was looked up, seconds.
    """

    owner: str
    generations: int = 1
    kv_tokens: int = 0
    request: TaskRequest | None = None
    network_s: float = 0.0
    over: asyncio.Event = field(default_factory=asyncio.Event)


class TaskTable:
    """Every task that clients may still ask for."""

    def __init__(self, settings: ServerSettings) -> None:
        self.recent: deque[Task] = deque()
        self._settings = settings
        self._tasks: dict[str, Task] = {}
        self._open: dict[str, Task] = {}
        self._named: dict[tuple[str, str], Task] = {}
        """By owner and the id that the owner chose."""
        self._places: dict[str, HeldPlace] = {}

    def get(self, task_id: str, principal: Principal = LOCAL) -> Task:
        """As ``find``.

        Raises:
            UnknownName: there is none, or it ended too long ago.
        """
        task = self.find(task_id, principal)
        if task is None:
            raise unknown_task(task_id)
        return task

    def find(self, task_id: str, principal: Principal = LOCAL) -> Task | None:
        """The task that a principal means by an id: one that it sees, before one that it does not see."""
        task = self._tasks.get(task_id)
        if task is None or not principal.sees(task.owner, task.request.agent):
            task = self._named.get((principal.name, task_id), task)
        return task

    def check_id(self, requested_id: str | None, principal: Principal = LOCAL) -> None:
        """Raise Conflict if a task or a request that the principal may see has the id.

        The ids of others are none of its business: it may neither learn of them nor be kept from using them.
        """
        if requested_id is None:
            return
        task = self.find(requested_id, principal)
        uses = [] if task is None else [(task.owner, task.request.agent)]
        uses += [
            (place.owner, place.request.agent if place.request is not None else "")
            for name, place in self._places.items()
            if requested_id == name or (place.request is not None and requested_id == place.request.id)
        ]
        if any(principal.sees(owner, agent) for owner, agent in uses):
            raise Conflict(f"task id {requested_id!r} is in use", where="id")

    def free_id(self, requested_id: str | None, principal: Principal = LOCAL) -> str:
        """The requested id, or a new one; raises Conflict as ``check_id``."""
        self.check_id(requested_id, principal)
        return requested_id or secrets.token_hex(16)

    @contextmanager
    def reserve(
        self,
        requested_id: str | None,
        place: HeldPlace,
        principal: Principal = LOCAL,
        *,
        urgent: bool = False,
    ) -> Iterator[str]:
        """Keep an id and a place; yields the id, which differs if another principal has the requested one.

        Args:
            urgent: it may take the room that is reserved for urgent tasks.

        Raises:
            Conflict: the id is in use. Overloaded: too many generations.
        """
        name = self.free_id(requested_id, principal)
        while name in self._tasks or name in self._places:
            name = f"{requested_id}:{secrets.token_hex(4)}"
        self._check_room(place.generations, urgent=urgent)
        self._places[name] = place
        try:
            yield name
        finally:
            self._places.pop(name).over.set()

    def _check_room(self, generations: int, *, urgent: bool) -> None:
        live, most = self._live(), self._settings.max_live_tasks
        if not urgent:
            most -= math.floor(most * self._settings.urgent_share)
        if live + generations > most:
            reason = "" if urgent else " for requests that are not urgent"
            raise Overloaded(f"{live} of {most} generations{reason} are being served", where="tasks")

    def _live(self) -> int:
        return len(self.generating()) + sum(place.generations for place in self._places.values())

    def live_of(self, owner: str) -> int:
        """How many generations of a principal count now."""
        places = sum(place.generations for place in self._places.values() if place.owner == owner)
        return places + sum(task.owner == owner for task in self.generating())

    def kv_tokens_of(self, owner: str) -> int:
        """KV cache that the counted generations of a principal may hold, tokens."""
        places = sum(place.kv_tokens for place in self._places.values() if place.owner == owner)
        return places + sum(task.kv_tokens for task in self.generating() if task.owner == owner)

    @property
    def is_idle(self) -> bool:
        """Whether no task is in generation or being prepared, and no completion or chat is served."""
        return not self._live()

    @property
    def surplus(self) -> int:
        """How many generations have to end until a place is free that is for every principal.

        The last places are for principals below their fair share.
        """
        most = self._settings.max_live_tasks
        return max(0, self._live() + max(1, math.floor(FAIR_SHARE * most)) + 1 - most)

    def next_place_s(self, owner: str | None = None, ends: int = 1) -> float | None:
        """Expected time until generations end, by how long the latest ones took, seconds; None: none has ended.

        Args:
            owner: generations of this principal, whose plans may be much longer than others; of any unless given.
            ends: how many.
        """
        own = [task for task in self.recent if owner in (None, task.owner)]
        lives_s = [task.generated_s - task.arrival_s for task in (own or list(self.recent))[-RECENT_LIVES:]]
        live = len(self.generating()) if owner is None else self.live_of(owner)
        return ends * sum(lives_s) / len(lives_s) / live if lives_s and live else None

    def ahead_of(self, name: str | None = None) -> dict[str, RequestHints]:
        """Hints of the tasks, by id, that come before one that is being prepared and may not be in the engine yet.

        Args:
            name: its id; None: that of a task that comes now.
        """
        ahead = {
            task.task_id: self._hints(task.request, task.network_s)
            for task in self.generating()
            if not (task.answered.is_set() or task.track.segments)
        }
        for other, place in self._places.items():
            if other == name:
                break
            if place.request is not None:
                ahead[other] = self._hints(place.request, place.network_s)
        return ahead

    def _hints(self, request: TaskRequest, network_s: float) -> RequestHints:
        return RequestHints(
            utility=request.tuf, network_s=network_s, promised=self._settings.promises_responses
        )

    def has_all(self, names: Iterable[str]) -> bool:
        """Whether every one of these ids is that of a task, or reserved for one."""
        return all(name in self._tasks or name in self._places for name in names)

    def add(self, task: Task) -> None:
        self._tasks[task.task_id] = self._open[task.task_id] = task
        self._named[task.owner, task.name] = task

    def settle(self, task: Task) -> Task | None:
        """Move a task to the ended ones; returns one of them when there are too many."""
        self._open.pop(task.task_id, None)
        self.recent.append(task)
        if len(self.recent) > MAX_RECENT:
            self.recent.remove(_oldest_of_most_tasks(self.recent))
        if len(self._tasks) - len(self._open) <= self._settings.max_retained_tasks:
            return None
        return _oldest_of_most_tasks([one for one in self._tasks.values() if one.state == "ended"])

    def surplus_execution(self) -> Task | None:
        """A task in execution that is one too many, of those whose robots have reported nothing; None: there is none.

        It is the oldest of the principal that has most of them.
        """
        silent = [
            task for task in self._open.values() if task.state == "executing" and not task.track.measured
        ]
        return _oldest_of_most_tasks(silent) if len(silent) > self._settings.max_retained_tasks else None

    def remove(self, task: Task) -> None:
        if self._tasks.get(task.task_id) is task:
            del self._tasks[task.task_id]
            del self._named[task.owner, task.name]

    def places(self) -> list[HeldPlace]:
        return list(self._places.values())

    def generating(self) -> list[Task]:
        return [task for task in self._open.values() if task.state == "generating"]

    def open_tasks(self) -> list[Task]:
        return list(self._open.values())

    def all_tasks(self) -> list[Task]:
        return list(self._tasks.values())


def _oldest_of_most_tasks(tasks: Collection[Task]) -> Task:
    """The oldest task of the principal that has most of them, so that no principal displaces those of others."""
    [(owner, _)] = Counter(task.owner for task in tasks).most_common(1)
    return next(task for task in tasks if task.owner == owner)
