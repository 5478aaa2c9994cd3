"""One robot, one server and virtual time: what a plan of the bridge runs in, without ROS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast
from unittest.mock import patch

from bridge_doubles import FakeDriver, FakeSegment, FakeServer
from manual_clock import ManualClock
from timely_bridge import plan_cancellation
from timely_bridge.goals import TaskGoal
from timely_bridge.outcome import Deadlines, TaskEnd
from timely_bridge.plan_run import BridgePlanRun, RunContext
from timely_bridge.robot_lock import BridgeRobotClaim, BridgeRobotLock
from timely_interfaces.msg import SegmentReport

from timely.client import Segment
from timely.core.utility import NORMAL, TimeUtility

PLAN = (FakeSegment("mf(100);", 2.0), FakeSegment("tc(90);", 3.0), FakeSegment("mu(40);", 1.0))
TEXT = "mf(100);tc(90);mu(40);"
GENEROUS = Deadlines(submit_s=20.0, segment_s=20.0, task_s=60.0, driver_s=20.0, cancel_s=20.0, report_s=20.0)
"""Real seconds; no test comes near them."""


class World:
    """A robot, a server and time."""

    def __init__(self, server: FakeServer, *, policy: str = "queue", **driver: Any) -> None:
        self.time = ManualClock(100.0)
        self.server = server
        self.driver = FakeDriver(self.time.now, self.time.sleep, **driver)
        self.lock = BridgeRobotLock(policy)
        self.fleet_stopped = False
        self.server_problem = ""
        self.feedback: list[Segment] = []
        self.begun: list[str] = []
        self.disk = asyncio.Event()
        """Is set while the disk takes what happens."""
        self.disk.set()
        self.notes: list[SegmentReport] = []
        self.changes: list[tuple[str, bool, TaskEnd | None]] = []

    def context(self, deadlines: Deadlines = GENEROUS) -> RunContext:
        return RunContext(
            "drone1",
            cast(Any, self.server),
            self.driver,
            self.lock,
            deadlines,
            self.time,
            "http://server",
            lambda: self.fleet_stopped,
            lambda: self.server_problem,
        )

    def plan_changed(self, run: BridgePlanRun, end: TaskEnd | None) -> None:
        self.changes.append((run.task_id, run.planned, end))

    def beginning(self, run: BridgePlanRun) -> None:
        self.begun.append(run.task_id)

    async def flush(self) -> None:
        await self.disk.wait()

    def segment_sent(self, segment: Segment) -> None:
        self.feedback.append(segment)

    def reported(self, report: SegmentReport) -> None:
        self.notes.append(report)

    def run(
        self,
        task: str = "go",
        *,
        utility: TimeUtility = NORMAL,
        deadlines: Deadlines = GENEROUS,
        name: str = "t1",
        scene: str = "",
    ) -> tuple[BridgePlanRun, asyncio.Task[TaskEnd]]:
        goal = TaskGoal(task, scene, "drone", "sim-drone", utility, "drone1", None, None)
        claim = BridgeRobotClaim(utility.urgent, lambda *reason: run.cancel(*reason))  # noqa: PLW0108 - made below
        run = BridgePlanRun(name, goal, self.context(deadlines), self, claim)
        task_end = asyncio.create_task(run.run())
        task_end.add_done_callback(lambda _: self.lock.release(claim))
        return run, task_end

    async def until(self, what: Callable[[], bool], within_s: float = 120.0) -> None:
        """Let virtual time pass until ``what`` holds."""
        end = self.time.now() + within_s
        while not what():
            assert self.time.now() < end, "it never came to that"
            await self.time.run_for(0.05)

    async def end_of(self, task: asyncio.Task[TaskEnd]) -> TaskEnd:
        await self.until(task.done)
        return task.result()


@asynccontextmanager
async def world(server: FakeServer | None = None, **options: Any) -> AsyncIterator[World]:
    made = World(server or FakeServer({"go": PLAN}), **options)
    made.server("http://server")
    with patch.object(plan_cancellation, "RETRY_S", 0.0):
        try:
            yield made
        finally:
            made.server.down, made.server.knows_token = False, True  # a cancellation is repeated until then
            await made.driver.close()
            await _see_world_end()


async def _see_world_end() -> None:
    if left := asyncio.all_tasks() - {asyncio.current_task()}:
        _, left = await asyncio.wait(left, timeout=5.0)
    assert not left, f"left behind: {left}"
