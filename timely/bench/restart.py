"""Kills a server at random points and starts it again: what is lost, what comes twice, and when robots go on.

A few robots request plan after plan and report each segment done, while ``timely serve --engine scripted`` is killed
with SIGKILL. What they received is compared with the same plans on a server that nothing disturbed. Robots retry a
request or a report until a server takes it, as the bridge does.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from timely.client import AsyncTaskStream, AsyncTimelyClient, Segment
from timely.core.child_process import ChildProcess, core_module_command
from timely.core.errors import EngineFailed, Overloaded, TimelyError

TASKS = (
    ("arm", "indy7", "Clean the desk."),
    ("arm", "indy7", "Sort the fruit into the bowl and the vegetables into the basket."),
    ("drone", "tello", "Check for a phone and a cup."),
    ("drone", "tello", "Find a shoe under the table."),
)
"""Skill set, robot and task of each robot: the examples with the longest plans."""

LONGEST_EXECUTION_S = 0.2
LONGEST_LIFE_S = 1.0
"""From the first segment after a start to the next kill, seconds."""

DRAIN_S = 0.05
RETRY_S = 0.05
HEALTH_S = 0.02
START_S = 60.0
NEXT_SEGMENT_S = 60.0
"""Longest wait for a start, and for a segment after it, seconds."""


@dataclass(slots=True)
class Plan:
    """What a robot received of one plan."""

    robot: int
    segments: list[tuple[int, str]] = field(default_factory=list)
    outcome: str = ""


@dataclass(slots=True)
class History:
    """What all robots received, and when the latest segment came, seconds on the machine's clock."""

    plans: list[Plan] = field(default_factory=list)
    latest_s: float = 0.0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def check(self, expected: Mapping[int, Sequence[str]]) -> dict[str, Any]:
        """Compare with the undisturbed plans: counts of lost and of repeated plans and segments."""
        lost = repeated = 0
        wrong: list[str] = []
        for plan in self.plans:
            indices = [index for index, _ in plan.segments]
            texts = [text for _, text in plan.segments]
            repeated += len(indices) - len(set(indices))
            whole = list(expected[plan.robot])
            if plan.outcome != "complete" or texts != whole or indices != list(range(len(whole))):
                lost += 1
                wrong.append(f"robot {plan.robot}: {plan.outcome or 'no outcome'}, segments {indices}")
        segments = sum(len(plan.segments) for plan in self.plans)
        return {
            "lost": lost,
            "repeated": repeated,
            "plans": len(self.plans),
            "segments": segments,
            "wrong": wrong,
        }


class Server:
    """``timely serve`` with a state folder, on one port for all its lives.

    Args:
        folder: of the state and the output.
        arguments: further ones of ``timely serve``.
    """

    def __init__(self, folder: Path, arguments: Sequence[str] = ()) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = listener.getsockname()[1]
        self._folder = folder
        self._arguments = list(arguments)
        self._process: ChildProcess | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it; returns at once."""
        arguments = ["serve", "--engine", "scripted", "--port", str(self._port)]
        arguments += ["--state-dir", str(self._folder / "state"), *self._arguments]
        # A benchmark that is killed leaves no server behind.
        command = core_module_command(str(Path(sys.executable).with_name("timely")), arguments)
        self._process = ChildProcess("server", command, log=self._folder / "server.log").start()

    def check(self) -> None:
        """Raises EngineFailed when it has ended by itself."""
        if self._process is not None and self._process.ended:
            raise self._process.failure(f"ended with {self._process.exit_code}")

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.close()
            self._process = None


async def bench_restarts(
    folder: Path,
    points: int,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
    arguments: Sequence[str] = (),
) -> dict[str, Any]:
    """Kill a server at ``points`` random moments; the result is that of ``timely bench restart``.

    Raises:
        EngineFailed: a server did not start, or no segment came in time.
    """
    chance = random.Random(seed)
    server = Server(folder, arguments)
    server.start()
    try:
        async with AsyncTimelyClient(server.url, reconnect_s=START_S) as client:
            await _until_ready(client, server)
            expected = {number: await _undisturbed(client, number) for number in range(len(TASKS))}
            history, stopping = History(), asyncio.Event()
            robots = [
                asyncio.create_task(
                    _robot(client, number, history, stopping, random.Random(f"{seed}-{number}"))
                )
                for number in range(len(TASKS))
            ]
            waits_s, costs_ms = [], []
            for point in range(points):
                await _next_segment(history, time.monotonic(), server)
                await asyncio.sleep(chance.uniform(0.0, LONGEST_LIFE_S))
                cost_ms = (await client.stats())["server"]["log_ms"]
                costs_ms += [cost_ms] if cost_ms is not None else []
                killed_s = time.monotonic()
                server.kill()
                server.start()
                # What the killed server had sent is read before anything of the next one can come.
                await asyncio.sleep(DRAIN_S)
                await _next_segment(history, time.monotonic(), server)
                waits_s.append(history.latest_s - killed_s)
                say(f"kill {point + 1}: next segment after {waits_s[-1]:.2f} s")
            stopping.set()
            async with asyncio.timeout(NEXT_SEGMENT_S):
                await asyncio.gather(*robots)
    finally:
        server.kill()
    return {
        "points": points,
        **history.check(expected),
        "next_segment_s": {
            "p50": float(np.percentile(waits_s, 50)),
            "p99": float(np.percentile(waits_s, 99)),
        },
        "durability_ms": statistics.median(costs_ms),
    }


async def _until_ready(client: AsyncTimelyClient, server: Server) -> None:
    async with asyncio.timeout(START_S):
        while True:
            server.check()
            with contextlib.suppress(TimelyError):
                await client.health()
                return
            await asyncio.sleep(HEALTH_S)


async def _next_segment(history: History, since_s: float, server: Server) -> None:
    """Wait for a segment that comes after ``since_s``."""
    while history.latest_s <= since_s:
        server.check()
        history.arrived.clear()
        try:
            async with asyncio.timeout(NEXT_SEGMENT_S):
                await history.arrived.wait()
        except TimeoutError:
            raise EngineFailed(f"no segment within {NEXT_SEGMENT_S:g} s of a start", where="server") from None


async def _submit(client: AsyncTimelyClient, number: int) -> AsyncTaskStream:
    skill_set, robot, task = TASKS[number]
    stream: AsyncTaskStream = await _until_taken(
        lambda: client.submit(task, skill_set=skill_set, robot=robot, agent=f"robot-{number}")
    )
    return stream


async def _until_taken(request: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a request while no server takes it."""
    while True:
        try:
            return await request()
        except (EngineFailed, Overloaded):
            await asyncio.sleep(RETRY_S)


async def _undisturbed(client: AsyncTimelyClient, number: int) -> list[str]:
    texts = []
    stream = await _submit(client, number)
    async for segment in stream:
        texts.append(segment.text)
        await stream.report_done(segment)
    return texts


async def _robot(
    client: AsyncTimelyClient,
    number: int,
    history: History,
    stopping: asyncio.Event,
    chance: random.Random,
) -> None:
    """Request plans and execute them until ``stopping``."""
    while not stopping.is_set():
        stream = await _submit(client, number)
        plan = Plan(number)
        history.plans.append(plan)
        try:
            async for segment in stream:
                plan.segments.append((segment.index, segment.text))
                history.latest_s = time.monotonic()
                history.arrived.set()
                await asyncio.sleep(chance.uniform(0.0, LONGEST_EXECUTION_S))
                await _report(stream, segment)
            plan.outcome = stream.result.outcome
        except TimelyError as error:
            plan.outcome = error.code


async def _report(stream: AsyncTaskStream, segment: Segment) -> None:
    await _until_taken(lambda: stream.report_done(segment))
