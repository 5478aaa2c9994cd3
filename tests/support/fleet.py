"""What the server's and the client's tests share: a small robot, its skills, and a server on loopback with a clock."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from manual_clock import ManualClock

from timely.core.errors import UnknownName
from timely.disciplines.predictors.request_annotator import PredictorFiles
from timely.engines.scripted import ScriptedEngine
from timely.engines.scripts import Script, ScriptedSegment
from timely.plans.robot_profiles import RobotProfile
from timely.plans.skill_set import SkillSet
from timely.principals import PrincipalRegistry
from timely.server.app import create_app
from timely.server.catalogue import ServerCatalogue
from timely.server.server_thread import ServerThread
from timely.server.settings import ServerSettings
from timely.server.tasks.service import TaskService

TOKEN = "the-token-of-all-tasks-here"
OWNER = {"Timely-Task-Token": TOKEN}
"""The header of the program that submitted the tasks of ``body``."""

WAIT_S = 30.0
"""Deadline of every wait in these tests."""

DRONE = SkillSet.model_validate(
    {
        "name": "tiny-drone",
        "language": "minispec",
        "profile": "tiny",
        "role": "You plan for a drone.",
        "skills": [
            {
                "name": "move_up",
                "abbr": "mu",
                "arguments": [{"name": "distance", "type": "int", "unit": "cm", "min": 20, "max": 300}],
            },
            {
                "name": "turn_cw",
                "abbr": "tc",
                "arguments": [{"name": "degrees", "type": "int", "unit": "deg", "min": 1, "max": 360}],
            },
            {
                "name": "look",
                "abbr": "lk",
                "arguments": [{"name": "object", "type": "object"}],
                "returns": "bool",
                "blocks": True,
            },
            {"name": "dive", "abbr": "dv"},
        ],
        "max_tokens": 128,
    }
)


CHAT = SkillSet.model_validate(
    {"name": "tiny-chat", "language": "text", "profile": "tiny", "max_tokens": 1000}
)


def _constant(seconds: float) -> dict[str, Any]:
    return {"model": "constant", "seconds": seconds}


TINY = RobotProfile.model_validate(
    {
        "name": "tiny",
        "robot": "a drone of the tests",
        "source": "made up",
        "network_s": 0.01,
        "skills": {
            "move_up": {
                "abbr": "mu",
                "args": {"distance": {"unit": "cm", "min": 20, "max": 100}},
                "execution": _constant(2.0),
            },
            "turn_cw": {
                "abbr": "tc",
                "args": {"degrees": {"unit": "deg", "min": 1, "max": 360}},
                "execution": _constant(1.0),
            },
            "look": {
                "abbr": "lk",
                "args": {"object": {"unit": "text", "max_chars": 40}},
                "execution": _constant(0.5),
            },
            "dive": {"abbr": "dv", "args": {}, "execution": _constant(1.0)},
        },
        "deny": ["dive"],
    }
)

ARM = RobotProfile.model_validate(
    {
        "name": "one-arm",
        "robot": "an arm that can do nothing a drone can",
        "source": "made up",
        "skills": {"pick": {"args": {}, "execution": _constant(3.0)}},
    }
)

PLANS: dict[str, Script] = {
    "short": [ScriptedSegment("mu(50);", 2.0, 5), ScriptedSegment("tc(90);", 1.0, 4)],
    "long": [ScriptedSegment(f"tc({10 * n});", 1.0, 4) for n in range(1, 13)],
    "ask": [
        ScriptedSegment("lk('cat');", 0.5, 5, blocking=True),
        ScriptedSegment("mu(50);", 2.0, 5),
    ],
    "too high": [ScriptedSegment("tc(90);", 1.0, 4), ScriptedSegment("mu(250);", 2.0, 5)],
    "forbidden": [ScriptedSegment("dv;", 1.0, 2)],
    "gibberish": [ScriptedSegment("mu(;;", 1.0, 4)],
}


class MemoryCatalogue(ServerCatalogue):
    """Skill sets and robot profiles of a test."""

    def __init__(self, skill_sets: Iterable[SkillSet], profiles: Iterable[RobotProfile]) -> None:
        self._skill_sets = {skill_set.name: skill_set for skill_set in skill_sets}
        self._profiles = {profile.name: profile for profile in profiles}

    async def skill_set(self, name: str) -> SkillSet:
        if name not in self._skill_sets:
            raise UnknownName("skill set", name, self._skill_sets, where="skill_set")
        return self._skill_sets[name]

    async def profile(self, name: str) -> RobotProfile:
        if name not in self._profiles:
            raise UnknownName("robot profile", name, self._profiles, where="robot")
        return self._profiles[name]

    async def skill_set_names(self) -> Sequence[str]:
        return sorted(self._skill_sets)

    async def profile_names(self) -> Sequence[str]:
        return sorted(self._profiles)


def catalogue() -> MemoryCatalogue:
    """The tiny drone, and an arm that does not fit it."""
    return MemoryCatalogue([DRONE, CHAT], [TINY, ARM])


@dataclass
class Fleet:
    """A running server, its engine and its time, which stands still but for ``run_for`` and ``clock.advance``."""

    server: ServerThread
    engine: ScriptedEngine
    clock: ManualClock
    service: TaskService
    http: httpx.Client = field(repr=False)

    @property
    def url(self) -> str:
        return self.server.url

    def call(self, work: Callable[[], Any]) -> Any:
        """Run a function, or await a coroutine function's result, on the server's loop."""
        loop = self.server.loop
        assert loop is not None

        async def on_loop() -> Any:
            result = work()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(on_loop(), loop).result(WAIT_S)

    def run_for(self, seconds: float) -> None:
        """Let so much time pass, with everything that happens in it."""
        self.call(lambda: self.clock.run_for(seconds))

    def until(self, true: Callable[[], bool], what: str = "") -> None:
        """Wait until the server has come so far; time stands still meanwhile."""
        deadline = time.monotonic() + WAIT_S
        while not self.call(true):
            if time.monotonic() > deadline:
                raise AssertionError(f"did not happen: {what or true}")
            time.sleep(0.001)  # the processor is the server's

    def stats(self) -> Any:
        return self.call(self.engine.stats)


@contextmanager
def fleet(
    plans: dict[str, Script] | None = None,
    *,
    engine: dict[str, Any] | None = None,
    predictors: PredictorFiles | None = None,
    registry: PrincipalRegistry | None = None,
    clock: ManualClock | None = None,
    **settings: Any,
) -> Iterator[Fleet]:
    """A server on loopback with a scripted engine, on a clock that stands still."""
    clock = clock or ManualClock(100.0)
    scripted = ScriptedEngine(PLANS | (plans or {}), clock=clock, token_s=0.01, **(engine or {}))
    limits = ServerSettings(admission_wait_s=0.001, send_timeout_s=2.0, prediction_timeout_s=WAIT_S)
    chosen = replace(limits, **settings)
    app = create_app(scripted, chosen, clock, catalogue(), predictors, registry)
    with (
        ServerThread(app) as server,
        httpx.Client(base_url=server.url, timeout=WAIT_S, headers=OWNER) as http,
    ):
        yield Fleet(server, scripted, clock, server.service, http)


def body(task: str = "short", **fields: Any) -> dict[str, Any]:
    """A request for a plan of the tiny drone."""
    return {"task": task, "skill_set": "tiny-drone", "agent": "drone-1", "report_token": TOKEN, **fields}


def events_of(text: str) -> list[tuple[int, str, dict[str, Any]]]:
    """(id, name, data) of each server-sent event in a text; comments are left out."""
    outcome = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if fields:
            outcome.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return outcome


class Reader:
    """Reads a stream of events one by one."""

    def __init__(self, response: httpx.Response) -> None:
        assert response.status_code == 200, response.read()
        self.response = response
        self._lines = response.iter_lines()

    def next(self) -> tuple[int, str, dict[str, Any]]:
        fields: dict[str, str] = {}
        for line in self._lines:
            if line.startswith(":"):
                continue
            if not line:
                if fields:
                    return int(fields["id"]), fields["event"], json.loads(fields["data"])
                continue
            name, _, value = line.partition(": ")
            fields[name] = value
        raise AssertionError("the stream ended")

    def rest(self) -> list[tuple[int, str, dict[str, Any]]]:
        return events_of("\n".join(self._lines))
