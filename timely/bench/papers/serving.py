"""Runs of ordinary requests in the simulator under a discipline that is set up already, and what its calls take."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from timely.core.errors import EngineFailed
from timely.disciplines.base import Discipline
from timely.engines.replay_types import BackendRun, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import StepTimeProfile


def serve_paper_tasks(
    tasks: Sequence[PlannedTask], discipline: Discipline, profile: StepTimeProfile, **options: Any
) -> BackendRun:
    """Run ordinary requests to their end; ``options`` are those of ``ReplayOptions``.

    Raises:
        EngineFailed: a request was not served; an average without it would be wrong.
    """
    replay = ReplayOptions(mode="whole", journal=False, **options)
    run = Simulator(replay, profile, discipline=discipline).run(tasks)
    for record in run.records:
        if record.outcome != "complete":
            raise EngineFailed(f"job {record.task.job} was not served: {record.outcome} {record.note}")
    return run


def watch_paper_calls(
    discipline: Discipline, method: str, before: Callable[..., None] | None = None
) -> list[float]:
    """The processor's seconds of each call of a method from now on; ``before`` is called with its arguments.

    It is the processor's time, so other work on the machine does not count.
    """
    taken_s: list[float] = []
    call = getattr(discipline, method)

    def timed_call(*arguments: Any) -> Any:
        if before is not None:
            before(*arguments)
        begin_s = time.thread_time()
        result = call(*arguments)
        taken_s.append(time.thread_time() - begin_s)
        return result

    setattr(discipline, method, timed_call)
    return taken_s
