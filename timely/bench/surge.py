"""Overload in the simulator: how right predicted response times are, and what is late when late tasks are refused."""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lrtrace.compose.composition import compose_workload
from lrtrace.compose.workload import WORKLOADS
from timely.bench.capacity.lengths import poisson_arrivals
from timely.bench.capacity.measure import is_bench_task_in_time
from timely.bench.process_memory import resident_memory_mb
from timely.core.job import JobSpec
from timely.engines.base import ResponsePrediction
from timely.engines.replay_types import JobRecord, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import load_step_profile
from timely.replay.trace import replay_task_from_job

WORKLOAD = "wid2"

LOW_LOAD, HIGH_LOAD = 6.0, 24.0
"""Loads in turn: of WID 2 the engine bears about 15 with 90% of all tasks in time (docs/capacity.md)."""

PHASE_S = 900.0
"""Duration of each phase, seconds, as in QoServe's evaluation."""

TOKEN_BUDGET = 512
"""Most tokens of a step: the best for ``timely`` on WID 2 (docs/capacity.md)."""

REFUSE_BELOW = 1.0
"""Share of the initial utility below which a task is refused: all that would be late."""

PROBE_EVERY = 25
"""For the error on refused tasks, each of so many refused ones is served all the same."""

KEPT_RECORDS = 1000
"""Records of ended tasks after which they are dropped."""

Result = dict[str, Any]


class SurgeBenchSimulator(Simulator):
    """Predicts the response to each task when it arrives, as the server does, and may refuse it.

    Args:
        on_end: called with the record of each task that is served or refused, and its predicted response time. The last
            argument is whether it was served as a probe, though late.
        refuse_below: refuse a task whose utility may fall below this share of its initial one; None: never.
        probe_every: each of so many refused tasks is served; 0: none.
    """

    def __init__(
        self,
        options: ReplayOptions,
        profile: str,
        on_end: Callable[[JobRecord, float, bool], None],
        *,
        refuse_below: float | None,
        probe_every: int = 0,
    ) -> None:
        super().__init__(options, load_step_profile(profile))
        self._report_end, self._refuse_below, self._probe_every = on_end, refuse_below, probe_every
        self._refusals = 0
        self._predictions: dict[int | str, tuple[JobRecord, float, bool]] = {}

    def submit(self, now: float, record: JobRecord) -> None:
        task = record.task
        prediction = self.controller.predict_response(task.hints.utility, now)
        is_refused = self._is_late(task, prediction)
        self._refusals += is_refused
        is_probe = is_refused and self._probe_every > 0 and self._refusals % self._probe_every == 0
        self._predictions[task.job] = record, prediction.eta_s, is_probe
        if is_refused and not is_probe:
            record.outcome, record.note = "refused", f"response in {prediction.eta_s:.3f} s"
            self._on_end(task, now)
        else:
            super().submit(now, record)

    def spec(self, record: JobRecord, cached_tokens: int) -> JobSpec:
        spec = super().spec(record, cached_tokens)
        *_, is_probe = self._predictions[record.task.job]
        is_promised = self._refuse_below is not None and not is_probe
        return replace(spec, hints=replace(spec.hints, promised=is_promised))

    def _is_late(self, task: PlannedTask, prediction: ResponsePrediction) -> bool:
        if self._refuse_below is None:
            return False
        utility = task.hints.utility
        latest_s = utility.latency_s(self._refuse_below) - task.hints.network_s
        return not prediction.comes_before(latest_s, urgent=utility.urgent)

    def _on_end(self, task: PlannedTask, now: float) -> None:
        super()._on_end(task, now)
        self._report_end(*self._predictions.pop(task.job))
        if len(self.arrivals.records) >= KEPT_RECORDS:
            self.arrivals.records.clear()


def surge_tasks(duration_s: float, seed: int, load: float | None = None) -> Iterator[PlannedTask]:
    """WID 2 at a low and at a high load in turn, or at a steady ``load``."""
    base, arrivals = WORKLOADS[WORKLOAD], None
    if load is None:
        draw = np.random.default_rng(seed)
        arrivals = [
            time_s
            for time_s in poisson_arrivals(draw, base.eps * HIGH_LOAD, duration_s)
            if time_s // PHASE_S % 2 or draw.random() < LOW_LOAD / HIGH_LOAD
        ]
    trace = compose_workload(
        WORKLOAD,
        seed,
        arrivals=arrivals,
        eps=base.eps if load is None else base.eps * load,
        agents=math.ceil(base.agents * (HIGH_LOAD if load is None else load)),
        duration_s=duration_s,
    )
    return (replay_task_from_job(job, trace.header.network_s) for job in trace.jobs)


def measure_surge(hours: float, seed: int, profile: str, load: float | None = None) -> Result:
    """Serve the surge, or a steady load, with late tasks refused.

    ``violations`` and ``urgent_violations`` are shares of the admitted tasks whose first action came after the expected
    response time. ``refused_with_eta`` is the share of the refusals that named a time, and ``refused`` of all tasks.
    ``recovery_s`` is the longest time after a high phase until no admitted task is late any more. It is null where no
    low phase follows a high one. ``memory_mb`` is that of the process after each whole hour.
    """
    urgent, every, refusals, etas = [0, 0], [0, 0], 0, 0
    latest_s = 0.0
    memory_mb: list[float] = []

    def note_end(record: JobRecord, eta_s: float, is_probe: bool) -> None:
        nonlocal refusals, etas, latest_s
        if record.arrived_s >= 3600.0 * (len(memory_mb) + 1):
            memory_mb.append(round(resident_memory_mb(os.getpid()), 1))
        if record.outcome == "refused":
            refusals += 1
            etas += math.isfinite(eta_s)
            return
        late = not is_bench_task_in_time(record)
        for counts in (urgent, every) if record.task.hints.utility.urgent else (every,):
            counts[0] += 1
            counts[1] += late
        phase, into_s = divmod(record.arrived_s, PHASE_S)
        if late and load is None and phase and phase % 2 == 0:
            latest_s = max(latest_s, into_s)

    SurgeBenchSimulator(_surge_bench_options(seed), profile, note_end, refuse_below=REFUSE_BELOW).run(
        surge_tasks(3600.0 * hours, seed, load)
    )
    has_phases = load is None and 3600.0 * hours > 2.0 * PHASE_S
    return {
        "urgent_violations": bench_share(urgent[1], urgent[0]),
        "violations": bench_share(every[1], every[0]),
        "refused_with_eta": bench_share(etas, refusals),
        "refused": bench_share(refusals, refusals + every[0]),
        "tasks": refusals + every[0],
        "recovery_s": round(latest_s, 3) if has_phases else None,
        "memory_mb": memory_mb,
    }


def measure_eta(hours: float, seed: int, profile: str) -> Result:
    """The error of predicted response times on the surge, as a share of the response time that came about.

    ``error_p90`` and ``error_p50`` are its percentiles with every task served, and ``refusing`` has those with late
    tasks refused. ``urgent`` and ``normal`` have the tasks apart. ``refused`` has those tasks that should have been
    refused and were served to see what becomes of them; the other figures are without them.
    """
    return {
        **_measure_surge_eta_errors(hours, seed, profile, None),
        "refusing": _measure_surge_eta_errors(hours, seed, profile, REFUSE_BELOW),
    }


def _measure_surge_eta_errors(hours: float, seed: int, profile: str, refuse_below: float | None) -> Result:
    errors: dict[str, list[float]] = {"urgent": [], "normal": [], "refused": []}

    def note_end(record: JobRecord, eta_s: float, is_probe: bool) -> None:
        if record.outcome != "refused":
            response_s = record.ready_s[0] - record.arrived_s
            kind = "refused" if is_probe else "urgent" if record.task.hints.utility.urgent else "normal"
            errors[kind].append(abs(eta_s - response_s) / response_s)

    SurgeBenchSimulator(
        _surge_bench_options(seed), profile, note_end, refuse_below=refuse_below, probe_every=PROBE_EVERY
    ).run(surge_tasks(3600.0 * hours, seed))
    return surge_eta_errors(errors)


def surge_eta_errors(errors: Mapping[str, list[float]]) -> Result:
    """Percentiles of the errors by kind, and of all but the refused ones."""
    kinds = {kind: _surge_eta_percentiles(values) for kind, values in errors.items()}
    return {**_surge_eta_percentiles(errors["urgent"] + errors["normal"]), **kinds}


def _surge_eta_percentiles(errors: list[float]) -> Result:
    if not errors:
        return {"tasks": 0, "error_p90": None, "error_p50": None}
    median, high = (round(float(np.quantile(errors, share)), 4) for share in (0.5, 0.9))
    return {"tasks": len(errors), "error_p90": high, "error_p50": median}


def _surge_bench_options(seed: int) -> ReplayOptions:
    return ReplayOptions(
        discipline="timely", journal=False, warm_prefixes=True, seed=seed, token_budget=TOKEN_BUDGET
    )


def bench_share(part: int, total: int) -> float | None:
    """A share as results give it; None of nothing."""
    return round(part / total, 6) if total else None
