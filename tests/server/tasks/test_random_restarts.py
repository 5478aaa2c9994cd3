"""Random requests, reports, crashes of the engine and kills of the server: what was said once holds after each kill."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from fleet import PLANS, TOKEN, body, catalogue
from manual_clock import ManualClock

from timely.core.errors import TimelyError
from timely.engines.scripted import ScriptedEngine
from timely.engines.scripts import Script, ScriptedSegment
from timely.principals import LOCAL
from timely.server.settings import ServerSettings
from timely.server.tasks import task_log
from timely.server.tasks.request import ReplanRequest, ReportBody, TaskRequest
from timely.server.tasks.service import TaskService

TWICE: Script = [
    ScriptedSegment("lk('cat');", 0.5, 5, blocking=True),
    ScriptedSegment("lk('dog');", 0.5, 5, blocking=True),
    ScriptedSegment("mu(50);", 2.0, 5),
]
TASKS = ("short", "long", "ask", "twice", "too high", "forbidden")
KINDS = ("started", "done", "failed", "progress", "value", "value", "value")


class Scene:
    """One server after the other in virtual time, each with the folder that the kill of the one before left."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self._root, self._folder, self._lives, self._tasks = folder, folder / "0", 0, 0
        self.clock = ManualClock(100.0)
        self._flush = self.chance.random() < 0.3
        self._events: dict[str, list[bytes]] = {}
        self._endings: dict[str, tuple[str | None, str]] = {}

    async def start(self) -> None:
        engine = ScriptedEngine(PLANS | {"twice": TWICE}, clock=self.clock, token_s=0.01)
        settings = ServerSettings(
            state_dir=self._folder, flush_segments=self._flush, admission_wait_s=0.001, max_task_s=100.0,
            grace_s=self.chance.choice([5.0, 1e4]), recovery_grace_s=1e4, retention_s=60.0, settle_s=2.0,
            settle_reporting_s=20.0,
        )  # fmt: skip
        self.service = TaskService(engine, settings, self.clock, catalogue())
        await self.service.start()

    async def act(self) -> None:
        """Something happens."""
        chance, service = self.chance, self.service
        names = [task.task_id for task in service.tasks.all_tasks()]
        what = chance.choices(("submit", "report", "cancel", "replan", "crash", "kill"), (5, 6, 1, 2, 1, 2))[
            0
        ]
        if what == "submit":
            request = body(chance.choice(TASKS), id=self._name(), tuf=chance.choice(["urgent", "normal"]))
            await refused(service.submit(TaskRequest.model_validate(request), LOCAL))
        elif what == "crash":
            if not service.engine.engine.dead:
                service.engine.engine.crash("of the test")  # type: ignore[attr-defined]
        elif what == "kill":
            await self._kill()
        elif names:
            name = chance.choice(names)
            if what == "report":
                report = self._report()
                times = chance.choice([1, 1, 2])
                await asyncio.gather(
                    *(refused(service.report(name, [report], LOCAL, TOKEN)) for _ in range(times))
                )
            elif what == "cancel":
                await refused(service.cancel(name, LOCAL, TOKEN))
            else:
                change = {"id": self._name(), "report_token": TOKEN, "task": chance.choice(["short", "ask"])}
                await refused(service.replan(name, ReplanRequest.model_validate(change), LOCAL, TOKEN))

    def _name(self) -> str:
        self._tasks += 1
        return f"t{self._tasks}"

    def _report(self) -> ReportBody:
        kind: Any = self.chance.choice(KINDS)
        value = "True" if kind == "value" else None
        return ReportBody(
            self.chance.randrange(4), kind, value=value, remaining_s=3.0 if kind == "progress" else None
        )

    async def _kill(self) -> None:
        self.check()
        before = {task.task_id for task in self.service.tasks.all_tasks()}
        self._lives += 1
        left = self._root / str(self._lives)
        shutil.copytree(self._folder, left)
        await self.service.log.close()
        await self.service.stop()
        self._folder = left
        await self.clock.run_for(self.chance.choice([0.0, 1.0, 5.0]))
        await self.start()
        after = {task.task_id for task in self.service.tasks.all_tasks()}
        assert after <= before, "a forgotten task is back"
        assert before - after <= self._endings.keys(), "a task is lost"

    def check(self) -> None:
        """Nothing that clients could read has changed."""
        for task in self.service.tasks.all_tasks():
            events, before = list(task.events._events), self._events.get(task.task_id, [])
            assert events[: len(before)] == before
            self._events[task.task_id] = events
            if task.state == "ended" and task.ending is not None:
                ending = (task.outcome, task.ending.code)
                assert self._endings.setdefault(task.task_id, ending) == ending

    async def check_end(self) -> None:
        """Everything comes to its end and is forgotten, on the disk too."""
        await self.clock.run_for(400.0)
        self.check()
        engine: Any = self.service.engine.engine
        assert (self.service.tasks.all_tasks(), len(engine._live), len(engine._controller.table)) == (
            [],
            0,
            0,
        )
        await self.service.stop()
        assert os.listdir(self._folder / "tasks") == ["lock"]


async def refused(request: Coroutine[Any, Any, object]) -> None:
    """Many requests make no sense."""
    try:
        await request
    except TimelyError:
        return


@pytest.mark.parametrize("seed", [35, 83])
async def test_what_was_said_once_holds(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_log, "FILE_BYTES", 600)
    scene = Scene(seed, tmp_path)
    await scene.start()
    try:
        for _ in range(30):
            await scene.act()
            await scene.clock.run_for(scene.chance.choice([0.0, 0.05, 0.3, 1.0, 4.0, 30.0]))
            scene.check()
        await scene.check_end()
    finally:
        await scene.service.stop()
