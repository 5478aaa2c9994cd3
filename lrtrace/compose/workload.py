"""Composes workloads: when events happen, which tasks each brings, and which robot does them (TimelyLLM, section 6).

An event brings one task to each of several robots at once; ``{(Trace1, Trace2), Trace8}`` is two events, the first
with two tasks. A robot does one task at a time: it is taken to be busy from a task's arrival for ``RESPONSE_S`` and
the task's execution time. The tasks of an event go to idle robots, chosen at random. When none is idle a task waits
and arrives when the next robot becomes idle (``when_busy="wait"``, the default; the job says ``waited_s``), or it is
left out and counted (``"drop"``).
"""

from __future__ import annotations

import heapq
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from lrtrace.compose.stories import UNITS, Unit, story, story_plan
from lrtrace.compose.tasks import TASKS, find_task
from lrtrace.errors import BadInput, UnknownName
from lrtrace.plan_text import How, count_tokens
from lrtrace.profiles import RobotProfile, find_profile
from lrtrace.random_draws import Draw
from lrtrace.trace import NORMAL, RESPONSE_S, Header, Job

CHAT = 0
"""Trace id that stands for a chatbot request."""

WhenBusy = Literal["wait", "drop"]
Event = Sequence[int]


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked for.

    Attributes:
        eps: events per second, the rate of a Poisson process.
        max_tpe: most tasks per event; each event brings 1 to ``max_tpe``, all equally likely.
        trace_ids: tasks drawn from, all equally likely; 0 is a chatbot request.
        agents: robots (of each kind that the tasks need).
        duration_s: events happen until then, seconds.
        prompt_tokens: length of each prompt; ``shared_prefix_tokens`` of it are the same for all of a skill set.
    """

    name: str
    summary: str
    eps: float
    max_tpe: int
    trace_ids: tuple[int, ...]
    agents: int
    duration_s: float
    prompt_tokens: int = 1300
    shared_prefix_tokens: int = 1200

    def __post_init__(self) -> None:
        for name, value in (("eps", self.eps), ("duration_s", self.duration_s)):
            if not 0 < value < math.inf:
                raise BadInput(f"{name}: must be positive, got {value}")
        for name, count in (
            ("max_tpe", self.max_tpe),
            ("agents", self.agents),
            ("prompt_tokens", self.prompt_tokens),
        ):
            if count < 1:
                raise BadInput(f"{name}: must be 1 or more, got {count}")
        if not 0 <= self.shared_prefix_tokens <= self.prompt_tokens:
            raise BadInput(
                f"shared_prefix_tokens: must be 0 to prompt_tokens={self.prompt_tokens},"
                f" got {self.shared_prefix_tokens}"
            )
        if not self.trace_ids:
            raise BadInput("trace_ids: must name at least one task")
        for trace_id in self.trace_ids:
            if trace_id != CHAT:
                find_task(trace_id)


_DRONE = tuple(range(1, 9))

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload("wid1", "drones, normal and urgent tasks (Table 3, WID 1)", 0.25, 8, _DRONE, 25, 260.0),
        Workload("wid2", "drones, more tasks at once (Table 3, WID 2)", 0.25, 16, _DRONE, 42, 300.0),
        Workload("wid3", "robot arms, long plans (Table 3, WID 3)", 0.1, 8, (9, 10, 11), 40, 900.0),
        Workload("chat", "people who read stories (section 7.4.2)", 0.25, 8, (CHAT,), 100, 260.0, 80, 40),
    )
}
"""The paper's workloads and the chatbot's, by name. The chatbot's rates are ours: the paper gives none."""


def find_workload(name: str) -> Workload:
    """The workload of that name.

    Raises:
        UnknownName: there is none.
    """
    try:
        return WORKLOADS[name]
    except KeyError:
        raise UnknownName("workload", name, WORKLOADS) from None


@dataclass(slots=True)
class Tally:
    """What composing came to; complete when all jobs have been taken."""

    events: int = 0
    jobs: int = 0
    waited: int = 0
    """Tasks that had to wait for an idle robot."""
    waited_s: float = 0.0
    """Longest such wait."""
    dropped: int = 0
    """Tasks left out because no robot was idle."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to compose, beyond the workload.

    Attributes:
        profiles: robot profile per skill set (``drone``, ``arm``, ``chat``); the published robots unless given.
        how: execution times: one random run each (``sample``), or always ``mean``, ``minimum``, ``estimate``.
        when_busy: see the module.
        unit: a chatbot's segments are sentences or paragraphs.
        network_s: delay to the robots, seconds; the profiles' unless given.
        count: tokens of a text.
    """

    profiles: Mapping[str, RobotProfile] = field(default_factory=dict)
    how: How = "sample"
    when_busy: WhenBusy = "wait"
    unit: Unit = "sentence"
    network_s: float | None = None
    count: Callable[[str], int] = count_tokens


class Composition:
    """A composed trace: ``header``, then ``jobs`` by arrival, once; ``tally`` counts while they are taken.

    Memory does not grow with the number of jobs. The same arguments give the same jobs on every machine.

    Args:
        workload: the rates, tasks and robots.
        seed: of the random stream, zero or more.
        arrivals: event times, seconds, increasing; a Poisson process unless given.
        events: the tasks of each event; drawn unless given.

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
        options: Options | None = None,
    ) -> None:
        self.options = options or Options()
        self.workload = workload
        self.tally = Tally()
        self._arrivals = _checked_arrivals(arrivals)
        self._events = _checked_events(events)
        if (
            self._arrivals is not None
            and self._events is not None
            and len(self._arrivals) != len(self._events)
        ):
            raise BadInput(f"{len(self._arrivals)} arrivals for {len(self._events)} events")
        if self.options.unit not in UNITS:
            raise UnknownName("unit", self.options.unit, UNITS)
        self._seed = seed
        kinds = dict.fromkeys(_kind(task) for task in self._task_ids())
        self._profiles = {kind: self._profile(kind) for kind in kinds}
        network_s = self.options.network_s
        if network_s is None:
            network_s = max(profile.network_s for profile in self._profiles.values())
        self.header = Header(workload.name, seed, network_s, {"composed": self._described()})

    def _task_ids(self) -> Iterable[int]:
        if self._events is None:
            return self.workload.trace_ids
        return [task for event in self._events for task in event]

    def _profile(self, kind: str) -> RobotProfile:
        if kind in self.options.profiles:
            return self.options.profiles[kind]
        return find_profile(_DEFAULT_PROFILES[kind])

    def _described(self) -> dict[str, Any]:
        """What a reader needs to compose the same again."""
        values = asdict(self.workload)
        del values["summary"], values["name"]
        values["trace_ids"] = list(self.workload.trace_ids)
        values.update(
            how=self.options.how,
            when_busy=self.options.when_busy,
            robots={kind: profile.name for kind, profile in self._profiles.items()},
        )
        if CHAT in self._task_ids():
            values["unit"] = self.options.unit
        return values

    @property
    def jobs(self) -> Iterator[Job]:
        """The jobs, composed anew from the seed each time."""
        self.tally = Tally()
        return _run(self)

    def _times(self, draw: Draw) -> Iterator[tuple[float, Event]]:
        """Each event's time and tasks."""
        if self._arrivals is not None:
            times: Iterator[float] = iter(self._arrivals)
        else:
            until = math.inf if self._events is not None else self.workload.duration_s
            times = _poisson(draw, self.workload.eps, until)
        if self._events is not None:
            yield from zip(times, self._events, strict=False)
            return
        for time in times:
            tasks = 1 + draw.below(self.workload.max_tpe)
            yield time, [draw.choice(self.workload.trace_ids) for _ in range(tasks)]

    def _job(self, draw: Draw, ticket: _Ticket, agent: int, arrival_s: float) -> Job:
        """The job of one task for one robot."""
        workload, options = self.workload, self.options
        kind = _kind(ticket.trace_id)
        profile = self._profiles[kind]
        extra: dict[str, Any] = {"trace_id": ticket.trace_id, "event": ticket.event}
        if arrival_s > ticket.time_s:
            extra["waited_s"] = round(arrival_s - ticket.time_s, 6)
        if ticket.trace_id == CHAT:
            task, paragraphs = story(draw)
            scene, tuf, urgency = "", NORMAL, 4
            plan = story_plan(paragraphs, options.unit, profile, options.count)
        else:
            benchmark = find_task(ticket.trace_id)
            variant = draw.below(len(benchmark.variants))
            extra["variant"] = variant
            task, scene, tuf = benchmark.task, benchmark.variants[variant].scene, benchmark.tuf
            urgency = benchmark.urgency
            plan = benchmark.plan(variant, profile, how=options.how, rng=draw.rng, count=options.count)
        number = self.tally.jobs
        self.tally.jobs += 1
        return Job(
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


def _kind(trace_id: int) -> str:
    return "chat" if trace_id == CHAT else TASKS[trace_id].skill_set


def _poisson(draw: Draw, rate: float, until_s: float) -> Iterator[float]:
    time = draw.exponential(rate)
    while time <= until_s:
        yield round(time, 6)
        time += draw.exponential(rate)


@dataclass(frozen=True, slots=True)
class _Ticket:
    """A task of an event that needs a robot."""

    event: int
    time_s: float
    trace_id: int


class _Fleet:
    """The robots of one kind: who is idle, who is busy until when, which tasks wait."""

    def __init__(self, size: int) -> None:
        self.idle = list(range(size))
        self.busy: list[tuple[float, int]] = []
        self.waiting: deque[_Ticket] = deque()

    def take(self, draw: Draw) -> int | None:
        """An idle robot, chosen at random; None if there is none."""
        return self.idle.pop(draw.below(len(self.idle))) if self.idle else None


def _run(composition: Composition) -> Iterator[Job]:
    draw = Draw(composition._seed)
    tally, size = composition.tally, composition.workload.agents
    fleets: dict[str, _Fleet] = {kind: _Fleet(size) for kind in composition._profiles}

    def give(fleet: _Fleet, ticket: _Ticket, agent: int, time_s: float) -> Job:
        job = composition._job(draw, ticket, agent, time_s)
        if time_s > ticket.time_s:
            tally.waited += 1
            tally.waited_s = max(tally.waited_s, round(time_s - ticket.time_s, 6))
        heapq.heappush(fleet.busy, (round(time_s + RESPONSE_S + job.execution_s, 6), agent))
        return job

    def catch_up(until_s: float) -> Iterator[Job]:
        """Robots that become idle until then, in the order of time, take what waits."""
        while True:
            due = [(fleet.busy[0][0], kind) for kind, fleet in fleets.items() if fleet.busy]
            if not due or min(due)[0] > until_s:
                return
            fleet = fleets[min(due)[1]]
            time_s, agent = heapq.heappop(fleet.busy)
            if fleet.waiting:
                yield give(fleet, fleet.waiting.popleft(), agent, time_s)
            else:
                fleet.idle.append(agent)

    for number, (time_s, tasks) in enumerate(composition._times(draw)):
        yield from catch_up(time_s)
        tally.events += 1
        for trace_id in tasks:
            fleet = fleets[_kind(trace_id)]
            ticket = _Ticket(number, time_s, trace_id)
            agent = fleet.take(draw)
            if agent is not None:
                yield give(fleet, ticket, agent, time_s)
            elif composition.options.when_busy == "drop":
                tally.dropped += 1
            else:
                fleet.waiting.append(ticket)
    # What still waits is served after the last event.
    while any(fleet.waiting for fleet in fleets.values()):
        yield from catch_up(min(fleet.busy[0][0] for fleet in fleets.values() if fleet.busy))


def compose(
    workload: str | Workload,
    seed: int,
    *,
    arrivals: Sequence[float] | None = None,
    events: Sequence[Event] | None = None,
    options: Options | None = None,
    **changes: Any,
) -> Composition:
    """Compose a workload; ``changes`` replace its fields (``eps=0.5, agents=50``). See ``Composition``.

    Raises:
        UnknownName: no such workload. BadInput: something is out of range.
    """
    chosen = find_workload(workload) if isinstance(workload, str) else workload
    return Composition(replace(chosen, **changes), seed, arrivals=arrivals, events=events, options=options)


def _checked_arrivals(arrivals: Sequence[float] | None) -> list[float] | None:
    if arrivals is None:
        return None
    times = [float(time) for time in arrivals]
    for index, time in enumerate(times):
        if not 0 <= time < math.inf or (index and time < times[index - 1]):
            raise BadInput(
                f"arrival {index + 1}: must be zero or more and not before the one above, got {time:g}"
            )
    if not times:
        raise BadInput("no arrivals")
    return times


def _checked_events(events: Sequence[Event] | None) -> list[tuple[int, ...]] | None:
    if events is None:
        return None
    checked = [tuple(event) for event in events]
    if not checked:
        raise BadInput("no events")
    for event in checked:
        if not event:
            raise BadInput("an event needs at least one task")
        for trace_id in event:
            if trace_id != CHAT:
                find_task(trace_id)
    return checked


_EVENT = re.compile(r"\s*(?:\((?P<several>[^()]*)\)|(?P<one>[^(),]+))\s*(?:,|$)")
_TASK = re.compile(r"\s*(?:Trace_?)?(\d{1,3})\s*", re.IGNORECASE)


def parse_events(text: str) -> list[tuple[int, ...]]:
    """Events as the paper writes them: ``{(Trace1, Trace2), Trace8}`` or shorter ``(1,2),8``.

    Raises:
        BadInput: it cannot be read; says where.
    """
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    events: list[tuple[int, ...]] = []
    at = 0
    while at < len(inner):
        match = _EVENT.match(inner, at)
        if match is None:
            raise BadInput(f"cannot read an event at {inner[at : at + 20]!r}; write (1,2),8 for two events")
        written = match["one"] if match["several"] is None else match["several"]
        tasks = [_TASK.fullmatch(part) for part in written.split(",")]
        if not all(tasks):
            raise BadInput(f"cannot read the tasks {written.strip()!r}; write trace ids like 1 or Trace1")
        events.append(tuple(int(task[1]) for task in tasks if task))
        at = match.end()
    return _checked_events(events) or []


def parse_ids(text: str) -> tuple[int, ...]:
    """Trace ids as Table 3 writes them: ``[1-8]``, ``1,2,9-11``.

    Raises:
        BadInput: it cannot be read.
    """
    ids: list[int] = []
    for part in text.strip().strip("[]").split(","):
        match = re.fullmatch(r"\s*(\d{1,3})\s*(?:-\s*(\d{1,3})\s*)?", part)
        if match is None:
            raise BadInput(f"cannot read the trace ids {part.strip()!r}; write 1-8 or 1,2,9")
        first = int(match[1])
        ids.extend(range(first, int(match[2] or first) + 1))
    return tuple(ids)
