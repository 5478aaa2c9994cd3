"""Audits the records of a live run: did the steps follow the decisions, and was anything lost?

The scheduler's journal has events in the order in which they happened.
``step`` is a decision with its generations, most important first; ``ran`` is the step that vLLM made of it.
``arrive``, ``segment``, ``evict`` and ``finish`` concern one generation.
The server's event log has a ``task`` for every plan, a ``segment`` for each one sent, and ``settled`` at the end.
The audit reads these lines only and imports neither scheduler nor server.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = Mapping[str, Any]


@dataclass(slots=True)
class JournalAudit:
    """Findings in a part of a journal.

    Attributes:
        arrived, finished: numbers of generations.
        lost: generations that arrived and did not finish.
        twice: generations that finished more than once.
        outcomes: number of generations by outcome.
        gaps: generations whose segments are not numbered 0, 1, 2 ...
        steps: steps that ran.
        as_asked: steps with exactly the selected generations.
        short: steps without a selected generation, because it was over or its grammar was not compiled.
        strangers: generations that ran without being selected.
        preempted: preemptions by vLLM itself, not by the discipline.
        evictions: evictions decided by the discipline.
        unmade: decided evictions that did not happen.
        overtaken: generations that began before another one that had been selected earlier.
        starts: generations that began.
        out_of_rule: generations that began while a better one by the discipline's rule waited.
            None where the order does not follow from the requests alone.
    """

    arrived: int = 0
    finished: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)
    steps: int = 0
    as_asked: int = 0
    short: int = 0
    strangers: int = 0
    preempted: int = 0
    evictions: int = 0
    unmade: int = 0
    overtaken: int = 0
    starts: int = 0
    out_of_rule: int | None = None

    @property
    def good(self) -> bool:
        """Nothing is lost or double, no generation ran unselected, and none overtook one selected earlier."""
        return not (
            self.lost
            or self.twice
            or self.gaps
            or self.strangers
            or self.unmade
            or self.overtaken
            or self.out_of_rule
        )


Rule = Callable[[Event, int], tuple[float, ...]]
"""From a generation's ``arrive`` and its number to its sort key."""

RULES: dict[str, Rule] = {
    "fcfs": lambda arrive, number: (number,),
    "priority": lambda arrive, number: (float(arrive.get("priority", 0.0)), number),
    "hpjf": lambda arrive, number: (_audited_level(arrive), number),
    "semantic": lambda arrive, number: (_audited_level(arrive),),
    "semantic-mixed": lambda arrive, number: (_audited_level(arrive),),
    "lp-sjf": lambda arrive, number: (float(arrive.get("expected_tokens", math.inf)), number),
    "ssjf": lambda arrive, number: (float(arrive.get("expected_tokens", math.inf)), number),
    "vllm-sjf": lambda arrive, number: (float(arrive.get("expected_tokens", math.inf)), number),
}
"""Disciplines whose order of ordinary requests follows from the requests alone."""


def _audited_level(arrive: Event) -> float:
    return float(arrive.get("urgency", 4))


def audit_benchmark_journal(events: Sequence[Event], rule: Rule | None = None) -> JournalAudit:
    """Audit a part of a journal at whose beginning and end the engine was idle.

    Args:
        rule: of the discipline; it is checked for generations that are not segmented.
    """
    verdict = JournalAudit()
    _audit_step_counts(events, verdict)
    _audit_steps(events, verdict)
    _audit_selection_order(events, verdict)
    if rule is not None:
        verdict.out_of_rule = _count_audit_order_breaks(events, rule)
    return verdict


@dataclass(slots=True)
class EventLogAudit:
    """Findings in a part of the server's event log.

    Attributes:
        tasks: their number.
        unsettled: tasks that did not end exactly once.
        gaps: tasks whose segments were not sent as 0, 1, 2 ..., each once.
    """

    tasks: int = 0
    unsettled: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Every plan ended once, its segments in order."""
        return not (self.unsettled or self.gaps)


def audit_benchmark_event_log(events: Iterable[Event]) -> EventLogAudit:
    """Audit a part of an event log at whose beginning and end the engine was idle."""
    ends: dict[str, int] = {}
    segments: dict[str, list[int]] = {}
    for event in events:
        task = str(event.get("task_id", ""))
        if event["event"] == "task":
            ends[task] = 0
        elif event["event"] == "settled" and task in ends:
            ends[task] += 1
        elif event["event"] == "segment":
            segments.setdefault(task, []).append(int(event["index"]))
    return EventLogAudit(
        tasks=len(ends),
        unsettled=[task for task, times in ends.items() if times != 1],
        gaps=[task for task, numbers in segments.items() if numbers != list(range(len(numbers)))],
    )


def _audit_step_counts(events: Iterable[Event], verdict: JournalAudit) -> None:
    ends: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    arrivals: list[str] = []
    segments: dict[str, list[int]] = {}
    for event in events:
        job = str(event.get("job", ""))
        if event["event"] == "arrive":
            arrivals.append(job)
        elif event["event"] == "finish":
            ends[job] += 1
            outcomes[str(event["outcome"])] += 1
        elif event["event"] == "segment":
            segments.setdefault(job, []).append(int(event["index"]))
    verdict.arrived, verdict.finished = len(arrivals), sum(ends.values())
    verdict.outcomes = dict(sorted(outcomes.items()))
    verdict.lost = [job for job in arrivals if not ends[job]]
    verdict.twice = [job for job, times in ends.items() if times > 1]
    verdict.gaps = [job for job, numbers in segments.items() if numbers != list(range(len(numbers)))]


def _audit_steps(events: Iterable[Event], verdict: JournalAudit) -> None:
    selection: dict[str, int] = {}
    to_evict: set[str] = set()
    for event in events:
        if event["event"] == "step":
            selection = dict(event["tokens"])
            to_evict = set(event["evict"])
            verdict.evictions += len(to_evict)
        elif event["event"] == "evict":
            to_evict.discard(str(event["job"]))
        elif event["event"] == "ran":
            ran = event["tokens"]
            verdict.steps += 1
            verdict.preempted += len(event["preempted"])
            verdict.as_asked += set(ran) == set(selection)
            verdict.short += bool(set(selection) - set(ran))
            verdict.strangers += len(set(ran) - set(selection))
            verdict.unmade += len(to_evict)
            selection, to_evict = {}, set()


def _audit_selection_order(events: Iterable[Event], verdict: JournalAudit) -> None:
    """Check that generations begin in the order of their selection; those of one step begin together."""
    steps: dict[str, int] = {}
    earlier: set[str] = set()
    over: set[str] = set()
    step = 0
    for event in events:
        if event["event"] == "step":
            step += 1
            for job in event["tokens"]:
                steps.setdefault(job, step)
        elif event["event"] == "finish":
            over.add(str(event["job"]))
        elif event["event"] == "ran":
            fresh = [job for job in event["tokens"] if job not in earlier]
            earlier.update(fresh)
            verdict.starts += len(fresh)
            waiting = [when for job, when in steps.items() if job not in earlier and job not in over]
            first = min(waiting, default=math.inf)
            verdict.overtaken += sum(steps.get(job, math.inf) > first for job in fresh)


def _count_audit_order_breaks(events: Iterable[Event], rule: Rule) -> int:
    """Count generations that began in a step which left a better one waiting."""
    waiting: dict[str, tuple[float, ...]] = {}
    earlier: set[str] = set()
    wrong = number = 0
    candidates: dict[str, tuple[float, ...]] = {}
    for event in events:
        kind = event["event"]
        if kind == "arrive" and not event.get("segmented", False):
            number += 1
            waiting[str(event["job"])] = rule(event, number)
        elif kind == "step":
            # Only generations that had arrived by the decision could be selected.
            candidates = dict(waiting)
        elif kind == "finish":
            waiting.pop(str(event["job"]), None)
        elif kind == "ran":
            fresh = [job for job in event["tokens"] if job in waiting and job not in earlier]
            others = [
                place for job, place in candidates.items() if job not in event["tokens"] and job in waiting
            ]
            best = min(others, default=(math.inf,))
            wrong += sum(waiting[job] > best for job in fresh)
            for job in fresh:
                earlier.add(job)
                waiting.pop(job)
    return wrong
