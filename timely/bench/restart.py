"""Kills a server at random points and starts it again: what is lost, what comes twice, and when robots go on.

A few robots request plan after plan and report each segment done, while ``timely serve --engine scripted`` is killed
with SIGKILL. What they received is compared with the same plans on a server that nothing disturbed. Robots retry a
request or a report until a server takes it, as the bridge does.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from timely.bench.serve_process import BenchServeProcess
from timely.client import AsyncTaskStream, AsyncTimelyClient
from timely.core.checkpoint import load_core_checkpoint, remove_checkpoint, save_core_checkpoint
from timely.core.errors import EngineFailed, Overloaded, TimelyError
from timely.core.progress import Say

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
START_S = 60.0
NEXT_SEGMENT_S = 60.0
"""Longest wait for a start, and for a segment after it, seconds."""


@dataclass(slots=True)
class RestartBenchPlan:
    """What a robot received of one plan."""

    robot: int
    segments: list[tuple[int, str]] = field(default_factory=list)
    outcome: str = ""


@dataclass(slots=True)
class RestartBenchHistory:
    """What all robots received, and when the latest segment came, seconds on the machine's clock."""

    plans: list[RestartBenchPlan] = field(default_factory=list)
    latest_s: float = 0.0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def take_ended(self) -> list[RestartBenchPlan]:
        """Remove the plans that have an outcome, and return them."""
        plans = [plan for plan in self.plans if plan.outcome]
        self.plans = [plan for plan in self.plans if not plan.outcome]
        return plans


@dataclass(slots=True)
class RestartBenchTally:
    """What the kills so far showed, kept in a checkpoint.

    Attributes:
        waits_s: from each kill to the next segment, seconds.
        costs_ms: delays of a segment by the log, as the server measured them before each kill, ms.
        wrong: a line for each lost plan.
    """

    waits_s: list[float] = field(default_factory=list)
    costs_ms: list[float] = field(default_factory=list)
    plans: int = 0
    segments: int = 0
    lost: int = 0
    repeated: int = 0
    wrong: list[str] = field(default_factory=list)

    def judge(self, plans: Sequence[RestartBenchPlan], whole_plans: Mapping[int, Sequence[str]]) -> None:
        """Compare plans with the undisturbed ones."""
        for plan in plans:
            indices = [index for index, _ in plan.segments]
            texts = [text for _, text in plan.segments]
            self.plans += 1
            self.segments += len(indices)
            self.repeated += len(indices) - len(set(indices))
            whole = list(whole_plans[plan.robot])
            if plan.outcome != "complete" or texts != whole or indices != list(range(len(whole))):
                self.lost += 1
                self.wrong.append(f"robot {plan.robot}: {plan.outcome or 'no outcome'}, segments {indices}")

    def result(self) -> dict[str, Any]:
        """The figures of ``timely bench restart --json``."""
        counts = {name: getattr(self, name) for name in ("lost", "repeated", "plans", "segments", "wrong")}
        p50, p99 = np.percentile(self.waits_s, (50, 99)).tolist()
        return {
            "points": len(self.waits_s),
            **counts,
            "next_segment_s": {"p50": p50, "p99": p99},
            "durability_ms": statistics.median(self.costs_ms),
        }


async def bench_restarts(
    folder: Path,
    points: int,
    seed: int,
    say: Say = lambda _: None,
    arguments: Sequence[str] = (),
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Kill a server at ``points`` random moments; the result is that of ``timely bench restart``.

    Args:
        checkpoint: a file of the kills so far. A run that finds it goes on after them, and removes it at its end.

    Raises:
        EngineFailed: a server did not start, or no segment came in time.
        InvalidInput: the checkpoint is of another run.
    """
    run = {"seed": seed}
    tally = RestartBenchTally(**load_core_checkpoint(checkpoint, run) or {})
    kills = len(tally.waits_s)
    chance = random.Random(f"{seed} {kills}")
    server = BenchServeProcess(folder, arguments)
    server.start()
    try:
        async with AsyncTimelyClient(server.url, reconnect_s=START_S) as client:
            await server.until_ready(client, START_S)
            plans = {
                number: await _undisturbed_restart_bench_plan(client, number) for number in range(len(TASKS))
            }
            history, stopping = RestartBenchHistory(), asyncio.Event()
            robots = [
                asyncio.create_task(
                    _run_restart_bench_robot(
                        client, number, history, stopping, random.Random(f"{seed}-{number}-{kills}")
                    )
                )
                for number in range(len(TASKS))
            ]
            for point in range(kills, points):
                await _await_restart_bench_segment(history, time.monotonic(), server)
                await asyncio.sleep(chance.uniform(0.0, LONGEST_LIFE_S))
                cost_ms = (await client.stats())["server"]["log_ms"]
                tally.costs_ms += [cost_ms] if cost_ms is not None else []
                killed_s = time.monotonic()
                server.kill()
                server.start()
                # What the killed server had sent is read before anything of the next one can come.
                await asyncio.sleep(DRAIN_S)
                await _await_restart_bench_segment(history, time.monotonic(), server)
                tally.waits_s.append(history.latest_s - killed_s)
                tally.judge(history.take_ended(), plans)
                save_core_checkpoint(checkpoint, run, asdict(tally))
                say(
                    f"kill {point + 1}: next segment after {tally.waits_s[-1]:.2f} s; {tally.lost} plans lost"
                )
            stopping.set()
            async with asyncio.timeout(NEXT_SEGMENT_S):
                await asyncio.gather(*robots)
    finally:
        server.kill()
    tally.judge(history.plans, plans)
    remove_checkpoint(checkpoint)
    return tally.result()


async def _await_restart_bench_segment(
    history: RestartBenchHistory, since_s: float, server: BenchServeProcess
) -> None:
    while history.latest_s <= since_s:
        server.check()
        history.arrived.clear()
        try:
            async with asyncio.timeout(NEXT_SEGMENT_S):
                await history.arrived.wait()
        except TimeoutError:
            raise EngineFailed(f"no segment within {NEXT_SEGMENT_S:g} s of a start", where="server") from None


async def _submit_restart_bench_task(client: AsyncTimelyClient, number: int) -> AsyncTaskStream:
    skill_set, robot, task = TASKS[number]
    while True:
        try:
            return await client.submit(task, skill_set=skill_set, robot=robot, agent=f"robot-{number}")
        except (EngineFailed, Overloaded):
            await asyncio.sleep(RETRY_S)


async def _undisturbed_restart_bench_plan(client: AsyncTimelyClient, number: int) -> list[str]:
    texts = []
    stream = await _submit_restart_bench_task(client, number)
    async for segment in stream:
        texts.append(segment.text)
        await stream.report_done(segment)
    return texts


async def _run_restart_bench_robot(
    client: AsyncTimelyClient,
    number: int,
    history: RestartBenchHistory,
    stopping: asyncio.Event,
    chance: random.Random,
) -> None:
    while not stopping.is_set():
        stream = await _submit_restart_bench_task(client, number)
        plan = RestartBenchPlan(number)
        history.plans.append(plan)
        try:
            async for segment in stream:
                plan.segments.append((segment.index, segment.text))
                history.latest_s = time.monotonic()
                history.arrived.set()
                await asyncio.sleep(chance.uniform(0.0, LONGEST_EXECUTION_S))
                await stream.report_done(segment)
            plan.outcome = stream.result.outcome
        except TimelyError as error:
            plan.outcome = error.code
