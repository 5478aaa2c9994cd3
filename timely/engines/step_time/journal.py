"""Steps as they were run, with what was in them and how long they took: what step-time profiles are fitted to."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from timely.core.errors import InvalidInput
from timely.core.files import file_errors

NEXT_STEP_S = 0.02
"""A step that begins so soon after the end of the last followed it at once: the gap is the engine's own.

With dozens of requests the engine's loop takes 4 to 16 ms on two slow cores.
"""

JUST_AFTER_S = 1e-4
"""So soon after a step was composed comes what was not in it."""

COUNTS = ("decodes", "prefills", "prefill_tokens", "prefill_squares", "context_tokens")


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One step as it was run: what was in it, and how long it took, seconds.

    ``prefill_squares`` is the sum over chunks of (end of chunk)^2 - (its begin)^2; ``context_tokens`` the sum over
    decoding sequences of the tokens they attend to. ``begin_s`` is on the clock of the journal. ``waiting`` are the
    live jobs that were not in it, where the journal tells.
    """

    decodes: float
    prefills: float
    prefill_tokens: float
    prefill_squares: float
    context_tokens: float
    step_s: float
    begin_s: float = 0.0
    waiting: float = 0.0

    @property
    def counts(self) -> tuple[float, float, float, float, float]:
        """What was in it, as ``StepTime`` takes it."""
        decodes, prefills, tokens, squares, context_tokens = (getattr(self, name) for name in COUNTS)
        return decodes, prefills, tokens, squares, context_tokens


def _mean_timed_step(steps: Sequence[TimedStep]) -> TimedStep:
    """Of steps whose times can only be measured together."""
    columns = zip(*(astuple(step) for step in steps), strict=True)
    return TimedStep(*(sum(column) / len(steps) for column in columns))


def steps_from_events(
    events: Iterable[Mapping[str, Any]], since_s: float = -math.inf, until_s: float = math.inf
) -> list[TimedStep]:
    """The steps among a scheduler's journal events (``{"event": "timed", "t_s", "end_s", ...}``), in order.

    Those that began from ``since_s`` to ``until_s`` on its clock.

    A step takes from its composition to its end. With asynchronous scheduling it begins at the end of the one before,
    which still ran when it was composed. Where the next one follows at once, it lasts until that one is composed, the
    work of the engine's loop included.

    A step composed ahead that has prompts takes long to launch, and the end of the one before is seen only then. Of
    these steps each gets their mean, whose time is right.
    """
    events = list(events)
    live = live_jobs_at_steps(events)
    steps: list[TimedStep] = []
    joint_steps: list[TimedStep] = []
    timed_events = (
        event for event in events if event.get("event") == "timed" and float(event["t_s"]) <= until_s
    )
    for event, begin_s, after in timed_steps_in_order(timed_events):
        end_s = float(event["end_s"])
        if after is not None and 0.0 <= float(after["t_s"]) - end_s < NEXT_STEP_S:
            end_s = float(after["t_s"])
        if float(event["t_s"]) < since_s:
            continue
        counts = {name: event[name] for name in COUNTS}
        waiting = max(0, live.get(float(event["t_s"]), 0) - counts["decodes"] - counts["prefills"])
        joint_steps.append(TimedStep(**counts, step_s=end_s - begin_s, begin_s=begin_s, waiting=waiting))
        if not step_journal_prompts_follow(event, after):
            steps += (
                joint_steps if len(joint_steps) == 1 else [_mean_timed_step(joint_steps)] * len(joint_steps)
            )
            joint_steps.clear()
    return steps


def timed_steps_in_order(
    timed_events: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], float, Mapping[str, Any] | None]]:
    """Each timed event, when its step began, seconds, and the one after it.

    As the scheduler has it: a step that was composed while another ran begins with that one's end.
    """
    timed_events = list(timed_events)
    last_s = -math.inf
    for event, after in zip_longest(timed_events, timed_events[1:]):
        yield event, max(float(event["t_s"]), last_s), after
        last_s = float(event["end_s"])


def step_journal_prompts_follow(event: Mapping[str, Any], after: Mapping[str, Any] | None) -> bool:
    """Whether the step after this one was composed while it ran, and has prompts."""
    return after is not None and float(after["t_s"]) < float(event["end_s"]) and after["prefill_tokens"] > 0


def step_journal_admission_s(
    events: Iterable[Mapping[str, Any]],
    admission_s: float,
    since_s: float = -math.inf,
    until_s: float = math.inf,
) -> dict[str, float]:
    """What each job took from its arrival to the scheduler's queue, seconds, by the first step it could have been in.

    Of tasks that arrive together, chance decides which an engine that was asleep has in its first step.

    Args:
        events: of a scheduler's journal, in the order in which they were written.
        admission_s: what it takes as a rule, for jobs without such a step.
        since_s, until_s: of arrivals.
    """
    admissions_s: dict[str, float] = {}
    asleep: list[tuple[str, float]] = []
    composed_s = over_s = -math.inf
    for event in events:
        kind = event.get("event")
        if kind == "timed":
            over_s = float(event["end_s"])
        elif kind == "step":
            composed_s = float(event["t_s"])
            for job, arrival_s in asleep:
                admissions_s[job] = composed_s - arrival_s
            asleep.clear()
        elif kind == "arrive" and since_s <= float(event["t_s"]) <= until_s:
            job, arrival_s = str(event["job"]), float(event["t_s"])
            if over_s <= arrival_s and composed_s <= arrival_s:
                asleep.append((job, arrival_s))
            else:
                # Whatever was composed before it was through, it is not in.
                admissions_s[job] = max(admission_s, composed_s - arrival_s + JUST_AFTER_S)
    return admissions_s


def live_jobs_at_steps(events: Iterable[Mapping[str, Any]]) -> dict[float, int]:
    """How many jobs the engine had when it composed each step, by that time, seconds: running, parked and queued ones.

    Empty for a journal without the ends of jobs, as versions before 2026-11-28 wrote without details.
    """
    live: set[str] = set()
    jobs_at: dict[float, int] = {}
    has_ends = False
    for event in events:
        kind = event.get("event")
        if kind == "arrive":
            live.add(str(event.get("job")))
        elif kind == "finish":
            has_ends = True
            live.discard(str(event.get("job")))
        elif kind == "step":
            jobs_at[float(event["t_s"])] = len(live)
    return jobs_at if has_ends else {}


def read_step_journal(path: Path, offset: int = 0) -> list[dict[str, Any]]:
    """The events of a journal from a byte on, without a last line that is still being written.

    Raises:
        InvalidInput: it cannot be read, or a line is broken; names file and line.
    """
    with file_errors(path), path.open("rb") as file:
        file.seek(offset)
        lines = file.read().rpartition(b"\n")[0].splitlines()
    events = []
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
            if event["event"] == "timed":
                _ = {name: float(event[name]) for name in ("t_s", "end_s", *COUNTS)}
                _ = float(event.get("loop_s", 0.0))  # older journals have none
            events.append(event)
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(
                f"no journal event: {type(error).__name__} {error}", where=f"{path}:{number}"
            ) from None
    return events
