"""Overload of a live server: robots' tasks come at a low and at a high rate in turn, and late tasks are refused.

First it is measured what the engine bears, and how soon it answers alone. The rates and the deadlines follow from
that, so that machines of every speed get the same overload.
"""

import asyncio
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timely.bench.process_memory import resident_memory_mb
from timely.bench.serve_process import BenchServeProcess
from timely.bench.surge import bench_share, surge_eta_errors
from timely.client import AsyncTimelyClient
from timely.core.clock import AsyncClock, SystemClock
from timely.core.errors import EngineFailed, Overloaded
from timely.core.progress import Say
from timely.core.utility import NORMAL, URGENT, URGENT_ERT_S, TimeUtility

TASKS = (
    "Find the scissors.",
    "Look for the dog.",
    "Check the vase on the shelf.",
    "Find a tool for writing.",
)

ENGINES = ("scripted", "vllm")

LOW_SHARE, HIGH_SHARE = 0.75, 3.0
"""Rates of the phases, as shares of the tasks a second that the engine bears."""

PHASE_S = 60.0
"""Duration of each phase, seconds."""

URGENT_SHARE = 0.25
"""Of the tasks, as in WID 2."""

ALONE_TASKS = 9
"""Tasks that an idle server gets one after the other."""

ALONE_FACTOR = 2.0
"""Deadline of an urgent task over the response of an idle server, as in the simulated surge."""

BUSY_ROBOTS, BUSY_S = 64, 15.0
"""Robots that request plan after plan for so many seconds, while it is measured what the engine bears."""

PATIENT = TimeUtility(600.0, 0.0, 1.0)
"""A task that no admission refuses."""

SCRIPTED_ARGUMENTS = ("--max-batch", "4")
"""Of ``timely serve``. The client shares the machine, and must keep up with three times what the server bears."""

MAX_EXECUTION_S = 0.5
"""Longest execution of a segment, seconds."""

DRAIN_S = 120.0
"""Longest wait for the remaining tasks at the end, seconds."""

START_S = 600.0


@dataclass(slots=True)
class SurgeBenchArrival:
    """A task of the surge, and what became of it.

    Attributes:
        arrival_s: since the begin of the surge, seconds.
        lag_s: from then until the client began to submit it, seconds.
        response_s: until the first action, seconds; None: it was refused.
        eta_s: when its first segment was predicted for, seconds after the request came; None: it was refused.
        ready_s: when its first segment was complete, seconds after the request came; None: it was refused.
    """

    arrival_s: float
    utility: TimeUtility
    lag_s: float = 0.0
    response_s: float | None = None
    eta_s: float | None = None
    ready_s: float | None = None

    @property
    def late(self) -> bool:
        return self.response_s is not None and self.response_s > self.utility.ert_s


def live_surge_arrivals(
    bears_per_s: float, seconds: float, urgent: TimeUtility, seed: int
) -> Iterator[SurgeBenchArrival]:
    """A Poisson process whose rate changes with each phase, by thinning; a low phase comes first."""
    rng = random.Random(seed)
    normal = scale_utility(NORMAL, urgent.ert_s / URGENT.ert_s)
    time_s = 0.0
    while (time_s := time_s + rng.expovariate(HIGH_SHARE * bears_per_s)) < seconds:
        if time_s // PHASE_S % 2 or rng.random() < LOW_SHARE / HIGH_SHARE:
            yield SurgeBenchArrival(time_s, urgent if rng.random() < URGENT_SHARE else normal)


def scale_utility(utility: TimeUtility, factor: float) -> TimeUtility:
    """The same time-utility for a machine that takes ``factor`` times as long."""
    return TimeUtility(utility.ert_s * factor, utility.alpha / factor, utility.beta)


def live_surge_result(arrivals: list[SurgeBenchArrival], phase_s: float) -> dict[str, Any]:
    """The figures of ``timely bench surge``, of live tasks; see ``timely.bench.surge.measure_surge``."""
    admitted = [arrival for arrival in arrivals if arrival.response_s is not None]
    refused = [arrival for arrival in arrivals if arrival.response_s is None]
    urgent = [arrival for arrival in admitted if arrival.utility.urgent]
    recovery_s = [
        arrival.arrival_s % phase_s
        for arrival in admitted
        if arrival.late and arrival.arrival_s >= 2.0 * phase_s and arrival.arrival_s // phase_s % 2 == 0
    ]
    return {
        "urgent_violations": bench_share(sum(arrival.late for arrival in urgent), len(urgent)),
        "violations": bench_share(sum(arrival.late for arrival in admitted), len(admitted)),
        "refused_with_eta": bench_share(sum(arrival.eta_s is not None for arrival in refused), len(refused)),
        "refused": bench_share(len(refused), len(arrivals)),
        "tasks": len(arrivals),
        "urgent_tasks": len(urgent),
        "recovery_s": max(recovery_s, default=0.0),
        "client_lag_s": round(max((arrival.lag_s for arrival in arrivals), default=0.0), 6),
    }


def live_eta_result(arrivals: list[SurgeBenchArrival]) -> dict[str, Any]:
    """The figures of ``timely bench eta``, of live tasks that were admitted; see ``timely.bench.surge.measure_eta``."""
    errors: dict[str, list[float]] = {"urgent": [], "normal": []}
    for arrival in arrivals:
        if arrival.eta_s is not None and arrival.ready_s is not None:
            kind = "urgent" if arrival.utility.urgent else "normal"
            errors[kind].append(abs(arrival.eta_s - arrival.ready_s) / arrival.ready_s)
    return surge_eta_errors(errors)


async def measure_live_surge(
    folder: Path,
    engine: str,
    minutes: float,
    seed: int,
    say: Say = lambda _: None,
    arguments: Sequence[str] = (),
) -> dict[str, Any]:
    """Start a server that refuses late tasks, and load it.

    Args:
        folder: of its state and its output.
        engine: ``scripted`` or ``vllm``.
        arguments: further ones of ``timely serve``.

    Returns:
        The result of ``live_surge_result``, what the engine bears, and the memory of the server's processes before and
        after. ``eta`` has that of ``live_eta_result``.

    Raises:
        EngineFailed: the server did not start, a task failed, or the engine is too slow for urgent tasks.
    """
    limits = SCRIPTED_ARGUMENTS if engine == "scripted" else ()
    server = BenchServeProcess(folder, ["--refuse-below", "1", *limits, *arguments], engine)
    server.start()
    try:
        async with AsyncTimelyClient(server.url) as client:
            await server.until_ready(client, START_S)
            return await LiveSurgeBench(client, server.pid, SystemClock(), say).run(60.0 * minutes, seed)
    finally:
        server.kill()


class LiveSurgeBench:
    """Loads a server that refuses late tasks.

    Args:
        pid: of the server, whose memory is measured.
        clock: measures and sleeps.
    """

    def __init__(self, client: AsyncTimelyClient, pid: int, clock: AsyncClock, say: Say) -> None:
        self._client, self._pid, self._clock, self._say = client, pid, clock, say
        self._robots = 0
        self._network_s: float | None = None
        """What robots say of their network: the median round trip of a report to the busy server."""
        self._round_trips_s: list[float] = []

    async def run(self, seconds: float, seed: int) -> dict[str, Any]:
        ert_s = await self._urgent_ert_s()
        bears_per_s = await self._tasks_per_s()
        self._say(f"the engine bears {bears_per_s:.1f} tasks a second; an urgent task has {ert_s:.2f} s")
        before_mb = resident_memory_mb(self._pid)
        urgent = scale_utility(URGENT, ert_s / URGENT.ert_s)
        arrivals = list(live_surge_arrivals(bears_per_s, seconds, urgent, seed))
        begin_s = self._clock.now()
        async with asyncio.timeout(seconds + DRAIN_S), asyncio.TaskGroup() as tasks:
            for arrival in arrivals:
                await self._clock.sleep(begin_s + arrival.arrival_s - self._clock.now())
                tasks.create_task(self._arrive(arrival, begin_s + arrival.arrival_s))
        return {
            **live_surge_result(arrivals, PHASE_S),
            "eta": live_eta_result(arrivals),
            "bears_per_s": bears_per_s,
            "urgent_ert_s": ert_s,
            "network_s": self._network_s,
            "memory_mb": {"before": before_mb, "after": resident_memory_mb(self._pid)},
        }

    async def _urgent_ert_s(self) -> float:
        """The deadline of urgent tasks on this machine, seconds."""
        alone_s = [await self._perform(PATIENT) for _ in range(ALONE_TASKS)]
        ert_s = ALONE_FACTOR * statistics.median(alone_s)
        if ert_s >= URGENT_ERT_S:
            raise EngineFailed(
                f"a first segment takes {ert_s / ALONE_FACTOR:.2f} s on an idle server; an urgent task has less than "
                f"{URGENT_ERT_S:g} s, and needs {ALONE_FACTOR:g} times that",
                where="bench surge",
            )
        return ert_s

    async def _tasks_per_s(self) -> float:
        """What the engine bears: the plans that ``BUSY_ROBOTS`` get at once, or one each if none ends in ``BUSY_S``."""
        begin_s, busy_s, plans = self._clock.now(), BUSY_S, 0

        async def robot() -> None:
            nonlocal plans
            while self._clock.now() - begin_s < BUSY_S:
                await self._perform(PATIENT, 0.0)
                plans += self._clock.now() - begin_s < BUSY_S

        await asyncio.gather(*(robot() for _ in range(BUSY_ROBOTS)))
        if not plans:
            plans, busy_s = BUSY_ROBOTS, self._clock.now() - begin_s
        self._network_s = statistics.median(self._round_trips_s)
        return plans / busy_s

    async def _arrive(self, arrival: SurgeBenchArrival, due_s: float) -> None:
        arrival.lag_s = self._clock.now() - due_s
        try:
            arrival.response_s = await self._perform(arrival.utility, arrival=arrival)
        except Overloaded as refusal:
            arrival.eta_s = refusal.eta_s

    async def _perform(
        self,
        utility: TimeUtility,
        longest_s: float = MAX_EXECUTION_S,
        arrival: SurgeBenchArrival | None = None,
    ) -> float:
        """Be a new robot with one task, and return its response time, seconds.

        Args:
            arrival: gets what was predicted, and when the first segment was complete.
        """
        self._robots += 1
        task = TASKS[self._robots % len(TASKS)]
        async with await self._client.submit(
            task,
            skill_set="drone",
            robot="tello",
            utility=utility,
            agent=f"robot-{self._robots}",
            network_s=self._network_s,
        ) as stream:
            async for segment in stream:
                if arrival is not None and segment.index == 0:
                    arrival.eta_s, arrival.ready_s = stream.eta_s, segment.ready_s
                begin_s = self._clock.now()
                await stream.report_started(segment.index)
                self._round_trips_s.append(self._clock.now() - begin_s)
                await self._clock.sleep(min(segment.execution_s, longest_s))
                if segment.blocking:
                    await stream.report_value(segment.index, "True")
                else:
                    await stream.report_done(segment.index)
            response_s = stream.result.response_time_s
        if response_s is None:
            raise EngineFailed(f"{task!r} ended as {stream.result.outcome}", where="bench surge")
        return response_s
