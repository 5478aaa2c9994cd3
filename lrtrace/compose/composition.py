"""Composes a workload into jobs: event times, the tasks of each event and a robot for each task.

It follows TimelyLLM, section 6. An event brings one task to each of several robots at once. A robot does one task at a
time and is busy for ``RESPONSE_S`` and the task's execution time. The tasks of an event go to random idle robots. If
none is idle, a task waits and arrives when the next robot is idle (``when_busy="wait"``, the default). The job's
``waited_s`` is that wait. With ``"drop"`` the task is left out and counted.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from lrtrace.compose.events import Event, check_workload_arrivals, check_workload_events
from lrtrace.compose.stories import UNITS, Unit, compose_story, compose_story_segments
from lrtrace.compose.tasks import TASKS, find_workload_task
from lrtrace.compose.workload import CHAT, Workload, find_workload
from lrtrace.errors import BadInput, UnknownName
from lrtrace.job import NORMAL, RESPONSE_S, TraceHeader, TraceJob
from lrtrace.models import How
from lrtrace.plan_text import count_trace_tokens
from lrtrace.profiles import find_robot_profile
from lrtrace.random_draws import TraceRandomDraws
from lrtrace.robot_profile import RobotProfile

WhenBusy = Literal["wait", "drop"]


@dataclass(slots=True)
class CompositionTally:
    """Counts of a composition; complete after the last job."""

    events: int = 0
    jobs: int = 0
    waited: int = 0
    """Number of tasks that waited for an idle robot."""
    waited_s: float = 0.0
    """Longest such wait, seconds."""
    dropped: int = 0
    """Number of tasks left out because no robot was idle."""


@dataclass(frozen=True, slots=True)
class CompositionOptions:
    """Options of a composition beyond the workload.

    Attributes:
        profiles: robot profile by skill set (``drone``, ``arm``, ``chat``); by default the published robots.
        how: execution times: random runs (``sample``), or always ``mean``, ``minimum`` or ``estimate``.
        when_busy: policy without an idle robot, see the module.
        unit: segments of a chatbot, sentences or paragraphs.
        network_s: delay to the robots, seconds; by default the profiles' delay.
        count: counts the tokens of a text.
    """

    profiles: Mapping[str, RobotProfile] = field(default_factory=dict)
    how: How = "sample"
    when_busy: WhenBusy = "wait"
    unit: Unit = "sentence"
    network_s: float | None = None
    count: Callable[[str], int] = count_trace_tokens


class WorkloadComposition:
    """A composed trace: a header, and jobs by arrival. ``tally`` counts during iteration.

    Memory does not grow with the number of jobs. The same arguments give the same jobs on every machine.

    Args:
        workload: the rates, tasks and robots.
        seed: seed of the random stream, zero or more.
        arrivals: event times, seconds, increasing; by default a Poisson process.
        events: the tasks of each event; by default random.

    Raises:
        BadInput: a rate, count or time is out of range.
    """

    def __init__(
        self,
        workload: Workload,
        seed: int,
        *,
        arrivals: Sequence[float] | None = None,
        events: Sequence[Event] | None = None,
        options: CompositionOptions | None = None,
    ) -> None:
        self.options = options or CompositionOptions()
        self.workload = workload
        self.tally = CompositionTally()
        self._arrivals = check_workload_arrivals(arrivals)
        self._events = check_workload_events(events)
        if (
            self._arrivals is not None
            and self._events is not None
            and len(self._arrivals) != len(self._events)
        ):
            raise BadInput(f"{len(self._arrivals)} arrivals for {len(self._events)} events")
        if self.options.unit not in UNITS:
            raise UnknownName("unit", self.options.unit, UNITS)
        self._seed = seed
        kinds = dict.fromkeys(_composed_trace_kind(task) for task in self._task_ids())
        self._profiles = {kind: self._profile(kind) for kind in kinds}
        network_s = self.options.network_s
        if network_s is None:
            network_s = max(profile.network_s for profile in self._profiles.values())
        self.header = TraceHeader(workload.name, seed, network_s, {"composed": self._description()})

    def _task_ids(self) -> Iterable[int]:
        if self._events is None:
            return self.workload.trace_ids
        return [task for event in self._events for task in event]

    def _profile(self, kind: str) -> RobotProfile:
        if kind in self.options.profiles:
            return self.options.profiles[kind]
        return find_robot_profile(_DEFAULT_PROFILES[kind])

    def _description(self) -> dict[str, Any]:
        values = asdict(self.workload)
        del values["summary"], values["name"]
        values["trace_ids"] = list(self.workload.trace_ids)
        if self._events is not None:
            del values["max_tpe"], values["trace_ids"], values["duration_s"]
        if self._arrivals is not None:
            del values["eps"]
            values.pop("duration_s", None)
        values.update(
            how=self.options.how,
            when_busy=self.options.when_busy,
            robots={kind: profile.name for kind, profile in self._profiles.items()},
        )
        if CHAT in self._task_ids():
            values["unit"] = self.options.unit
        return values

    @property
    def jobs(self) -> Iterator[TraceJob]:
        """The jobs. Each iteration composes them anew from the seed."""
        self.tally = CompositionTally()
        return _run_composition(self)

    def _times(self, draw: TraceRandomDraws) -> Iterator[tuple[float, Event]]:
        if self._arrivals is not None:
            times: Iterator[float] = iter(self._arrivals)
        else:
            until = math.inf if self._events is not None else self.workload.duration_s
            times = _compose_poisson_arrivals(draw, self.workload.eps, until)
        if self._events is not None:
            yield from zip(times, self._events, strict=False)
            return
        for time in times:
            tasks = 1 + draw.below(self.workload.max_tpe)
            yield time, [draw.choice(self.workload.trace_ids) for _ in range(tasks)]

    def _job(self, draw: TraceRandomDraws, pending: _ComposedTask, agent: int, arrival_s: float) -> TraceJob:
        workload, options = self.workload, self.options
        kind = _composed_trace_kind(pending.trace_id)
        profile = self._profiles[kind]
        extra: dict[str, Any] = {"trace_id": pending.trace_id, "event": pending.event}
        if arrival_s > pending.time_s:
            extra["waited_s"] = round(arrival_s - pending.time_s, 6)
        if pending.trace_id == CHAT:
            task, paragraphs = compose_story(draw)
            scene, tuf, urgency = "", NORMAL, 4
            plan = compose_story_segments(paragraphs, options.unit, profile, options.count)
        else:
            benchmark = find_workload_task(pending.trace_id)
            variant = draw.below(len(benchmark.variants))
            extra["variant"] = variant
            task, scene, tuf = benchmark.task, benchmark.variants[variant].scene, benchmark.tuf
            urgency = benchmark.urgency
            plan = benchmark.plan(variant, profile, how=options.how, rng=draw.rng, count=options.count)
        number = self.tally.jobs
        self.tally.jobs += 1
        return TraceJob(
            number,
            arrival_s,
            workload.prompt_tokens,
            plan,
            agent=f"{_PREFIXES[kind]}-{agent}",
            robot=profile.name,
            skill_set="story" if kind == "chat" and options.unit == "paragraph" else kind,
            task=task,
            scene=scene,
            shared_prefix_tokens=workload.shared_prefix_tokens,
            tuf=tuf,
            urgency=urgency,
            extra=extra,
        )


_PREFIXES = {"drone": "drone", "arm": "arm", "chat": "reader"}
_DEFAULT_PROFILES = {"drone": "tello", "arm": "indy7", "chat": "chat-reader"}


def _composed_trace_kind(trace_id: int) -> str:
    return "chat" if trace_id == CHAT else TASKS[trace_id].skill_set


def _compose_poisson_arrivals(draw: TraceRandomDraws, rate: float, until_s: float) -> Iterator[float]:
    time = draw.exponential(rate)
    while time <= until_s:
        yield round(time, 6)
        time += draw.exponential(rate)


@dataclass(frozen=True, slots=True)
class _ComposedTask:
    """A task of an event that needs a robot."""

    event: int
    time_s: float
    trace_id: int


class _ComposedFleet:
    """The robots of one kind: idle robots, end times of busy robots, and waiting tasks."""

    def __init__(self, size: int) -> None:
        self.idle = list(range(size))
        self.busy: list[tuple[float, int]] = []
        self.waiting: deque[_ComposedTask] = deque()

    def take(self, draw: TraceRandomDraws) -> int | None:
        return self.idle.pop(draw.below(len(self.idle))) if self.idle else None


def _run_composition(composition: WorkloadComposition) -> Iterator[TraceJob]:
    draw = TraceRandomDraws(composition._seed)
    tally, size = composition.tally, composition.workload.agents
    fleets: dict[str, _ComposedFleet] = {kind: _ComposedFleet(size) for kind in composition._profiles}

    def assign(fleet: _ComposedFleet, pending: _ComposedTask, agent: int, time_s: float) -> TraceJob:
        job = composition._job(draw, pending, agent, time_s)
        if time_s > pending.time_s:
            tally.waited += 1
            tally.waited_s = max(tally.waited_s, round(time_s - pending.time_s, 6))
        heapq.heappush(fleet.busy, (round(time_s + RESPONSE_S + job.execution_s, 6), agent))
        return job

    def serve_waiting(until_s: float) -> Iterator[TraceJob]:
        """Let robots that become idle until then take waiting tasks, in the order of time."""
        while True:
            due = [(fleet.busy[0][0], kind) for kind, fleet in fleets.items() if fleet.busy]
            if not due or min(due)[0] > until_s:
                return
            fleet = fleets[min(due)[1]]
            time_s, agent = heapq.heappop(fleet.busy)
            if fleet.waiting:
                yield assign(fleet, fleet.waiting.popleft(), agent, time_s)
            else:
                fleet.idle.append(agent)

    for number, (time_s, tasks) in enumerate(composition._times(draw)):
        yield from serve_waiting(time_s)
        tally.events += 1
        for trace_id in tasks:
            fleet = fleets[_composed_trace_kind(trace_id)]
            pending = _ComposedTask(number, time_s, trace_id)
            agent = fleet.take(draw)
            if agent is not None:
                yield assign(fleet, pending, agent, time_s)
            elif composition.options.when_busy == "drop":
                tally.dropped += 1
            else:
                fleet.waiting.append(pending)
    # Waiting tasks are served after the last event too.
    while any(fleet.waiting for fleet in fleets.values()):
        yield from serve_waiting(min(fleet.busy[0][0] for fleet in fleets.values() if fleet.busy))


def compose_workload(
    workload: str | Workload,
    seed: int,
    *,
    arrivals: Sequence[float] | None = None,
    events: Sequence[Event] | None = None,
    options: CompositionOptions | None = None,
    **changes: Any,
) -> WorkloadComposition:
    """Compose a workload. ``changes`` replace its fields (``eps=0.5, agents=50``).

    Raises:
        UnknownName: no such workload. BadInput: something is out of range.
    """
    base = find_workload(workload) if isinstance(workload, str) else workload
    return WorkloadComposition(
        replace(base, **changes), seed, arrivals=arrivals, events=events, options=options
    )
