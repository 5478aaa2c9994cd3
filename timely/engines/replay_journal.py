"""A run's record of its decisions: which jobs took part in which steps, and which were left out.

It is compact. A job's participation is kept as runs of steps, not step by step. Jobs left out are noted only when they
change. The simulator writes it step by step; for a live engine it is made from the events of its scheduler.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from timely.core.job import JobId

DECODE, PREFILL = 0, 1

MAX_CHOICES = 20_000
"""Choices kept, with their ends; a longer run notes how many choices are missing."""


class ReplayJournal:
    """Runs, evictions and choices of one replay.

    ``to_dict`` gives ``{"t_s", "step_s", "runs", "evictions", "choices"}``. ``t_s`` and ``step_s`` are begin and
    duration of every step. ``runs[job]`` is ``[kind, first step, last step, tokens a step]`` with kind 0 decode and 1
    prompt. An eviction is ``[step, job]``, a choice ``{"step", "held", "left", "served", "out"}`` with ``[job, key]``
    pairs. It holds until the next one; after one whose ``held`` is empty no job is known to be left out.
    """

    def __init__(self) -> None:
        self._t_s: list[float] = []
        self._step_s: list[float] = []
        self._runs: defaultdict[JobId, list[list[int]]] = defaultdict(list)
        self._evictions: list[tuple[int, JobId]] = []
        self._choices: list[dict[str, Any]] = []
        self._latest: tuple[str, tuple[JobId, ...]] = "", ()
        self._dropped_choices = 0

    def evict(self, job: JobId) -> None:
        self._evictions.append((len(self._t_s), job))

    def choose(self, reason: str, members: tuple[JobId, ...], describe: Callable[[], dict[str, Any]]) -> None:
        """Note a choice if it leaves a job out (for a ``reason``) and differs from the one before, and its end."""
        repeated = self._latest == (reason, members)
        self._latest = reason, members
        if repeated:
            return
        if reason and len(self._choices) < MAX_CHOICES:
            self._choices.append({"step": len(self._t_s), **describe()})
            return
        self._dropped_choices += bool(reason)
        if self._choices and self._choices[-1]["held"]:
            end: dict[str, Any] = {"held": "", "left": 0, "served": [], "out": []}
            self._choices.append({"step": len(self._t_s), **end})

    def steps(self, now: float, times_s: Sequence[float], members: Iterable[tuple[JobId, int, bool]]) -> None:
        """Steps that follow each other, each with these members: job, tokens, and whether they are of its prompt."""
        first = len(self._t_s)
        for time_s in times_s:
            self._t_s.append(now)
            self._step_s.append(time_s)
            now += time_s
        last = first + len(times_s) - 1
        for job, tokens, prefill in members:
            runs = self._runs[job]
            if runs and runs[-1][2] == first - 1 and runs[-1][0] == prefill and runs[-1][3] == tokens:
                runs[-1][2] = last
            else:
                runs.append([PREFILL if prefill else DECODE, first, last, tokens])

    def to_dict(self) -> dict[str, Any]:
        return {
            "t_s": [round(t, 9) for t in self._t_s],
            "step_s": [round(t, 9) for t in self._step_s],
            "runs": {str(job): runs for job, runs in self._runs.items()},
            "evictions": [list(eviction) for eviction in self._evictions],
            "choices": self._choices,
            "choices_missing": self._dropped_choices,
        }


def live_replay_journal(
    events: Iterable[Mapping[str, Any]], origin_s: float, jobs: Mapping[str, int | str]
) -> dict[str, Any]:
    """The journal of a live replay, from the events of its engine's scheduler.

    Args:
        events: of one engine, in order; only those of steps and evictions count.
        origin_s: the trace's origin on the scheduler's clock; earlier events are left out.
        jobs: request id -> the trace's job, where vLLM may add a suffix to the id. Other requests, such as the
            warm-up's, are left out.
    """

    def job_of(request: str) -> int | str | None:
        return jobs.get(request, jobs.get(request.rpartition("-")[0]))

    def side(pairs: Iterable[tuple[str, float]]) -> list[list[Any]]:
        return [[request if (job := job_of(str(request))) is None else job, key] for request, key in pairs]

    journal = ReplayJournal()
    ran: dict[float, Mapping[str, int]] = {}
    for event in events:
        if float(event.get("t_s", -1.0)) < origin_s:
            continue
        kind, now = event.get("event"), round(float(event["t_s"]) - origin_s, 9)
        if kind == "step":
            choice = event.get("choice") or {"held": "", "served": [], "out": []}
            sides = {name: side(choice[name]) for name in ("served", "out")}
            members = tuple(str(job) for job, _ in sides["served"])
            journal.choose(choice["held"], members, partial(dict, choice, **sides))
        elif kind == "evict" and (job := job_of(str(event["job"]))) is not None:
            journal.evict(job)
        elif kind == "ran":
            ran[now] = event["tokens"]
        elif kind == "timed" and now in ran:
            counts = ((job_of(request), int(tokens)) for request, tokens in ran.pop(now).items())
            members_ran = [(job, tokens, tokens > 1) for job, tokens in counts if job is not None]
            journal.steps(now, [float(event["end_s"]) - float(event["t_s"])], members_ran)
    return journal.to_dict()
