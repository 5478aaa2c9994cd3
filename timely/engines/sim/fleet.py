"""Several simulated engines under one router, each with its own clock of steps.

Each task goes to the engine that the router chooses when the task arrives, and stays there.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from timely.core.errors import EngineFailed, InvalidInput
from timely.engines.replay_types import BackendRun, JobRecord, PlannedTask, ReplayOptions
from timely.engines.sim.arrivals import SimArrivals
from timely.engines.sim.events import SimAgenda
from timely.engines.sim.simulator import Simulator, sim_replay_end_s
from timely.engines.step_time.profile import StepTimeProfile
from timely.routing.forecast import RoutingEngineLoad
from timely.routing.routers import Router


class SimFleet:
    """Runs tasks to their end on several engines."""

    def __init__(
        self,
        options: ReplayOptions,
        profiles: Sequence[StepTimeProfile],
        router: Router,
        *,
        repeat_steps: bool = True,
    ) -> None:
        self._agenda = SimAgenda()
        """Arrivals; each engine has an agenda of its own."""
        self._engines = [
            Simulator(options, profile, repeat_steps=repeat_steps, next_arrival_s=self._agenda.next_s)
            for profile in profiles
        ]
        self._router = router
        self._admission_s = options.admission_s
        self.task_counts = [0] * len(profiles)
        self._due_engines: set[Simulator] = set()
        """Engines with an event at the current time."""

    def run(self, tasks: Iterable[PlannedTask]) -> BackendRun:
        """Run all tasks (in order of arrival) to their end.

        Raises:
            EngineFailed: an engine runs nothing although jobs are left.
            InvalidInput: a task waits for another's answer.
        """
        arrivals = SimArrivals(
            map(_check_sim_fleet_task, tasks), self._admission_s, self._agenda, self._route
        )
        agendas = {engine.agenda: engine for engine in self._engines}
        now = 0.0
        while (when := self._next_s()) < math.inf:
            now = when
            for agenda in (self._agenda, *agendas):
                if agenda.next_s() == now:
                    agenda.run_next()
                    if agenda in agendas:
                        self._due_engines.add(agendas[agenda])
                    break
            if self._next_s() > now:
                for engine in self._engines:
                    if engine in self._due_engines:
                        engine.steps.advance(now)
                self._due_engines.clear()
        jobs_left = sum(len(engine.live) for engine in self._engines)
        if jobs_left:
            raise EngineFailed(f"{jobs_left} jobs are left at {now:.6f} s, and nothing further will happen")
        counters: Counter[str] = Counter()
        for engine in self._engines:
            counters.update(engine.counters())
        return BackendRun(
            records=arrivals.records,
            end_s=sim_replay_end_s(now, arrivals.records),
            profile="+".join(engine.profile.name for engine in self._engines),
            counters=dict(counters),
        )

    def _next_s(self) -> float:
        return min(self._agenda.next_s(), *(engine.agenda.next_s() for engine in self._engines))

    def _route(self, now: float, record: JobRecord) -> None:
        loads = [_sim_engine_load(engine, record.task) for engine in self._engines]
        place = self._router.choose(self._engines[0].spec(record, 0), loads, now)
        self.task_counts[place] += 1
        self._due_engines.add(self._engines[place])
        self._engines[place].submit(now, record)


def _check_sim_fleet_task(task: PlannedTask) -> PlannedTask:
    """The task, if a fleet can serve it."""
    if task.after:
        raise InvalidInput("a fleet of engines serves no applications", where=f"job {task.job}: after")
    return task


def _sim_engine_load(engine: Simulator, task: PlannedTask) -> RoutingEngineLoad:
    memory, controller = engine.memory, engine.controller
    _, cached_tokens = memory.holding(task)
    return RoutingEngineLoad(
        controller.table,
        controller.speed,
        cached_tokens,
        memory.pool.free,
        memory.pool.capacity,
        memory.block_tokens,
        engine.profile.limits.max_batch,
    )
