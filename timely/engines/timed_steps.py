"""Steps as they were run, with what was in them and how long they took: what step-time profiles are fitted to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from timely.core.errors import InvalidInput

NEXT_STEP_S = 0.004
"""A step that begins so soon after the end of the last followed it at once: the gap is the engine's own."""

COUNTS = ("decodes", "prefills", "prefill_tokens", "prefill_squares", "context_tokens")


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One step as it was run: what was in it, and how long it took, seconds.

    ``prefill_squares`` is the sum over chunks of (end of chunk)^2 - (its begin)^2; ``context_tokens`` the sum over
    decoding sequences of the tokens they attend to.
    """

    decodes: int
    prefills: int
    prefill_tokens: int
    prefill_squares: float
    context_tokens: int
    step_s: float


def from_events(
    events: Iterable[Mapping[str, Any]], since_s: float = -math.inf, until_s: float = math.inf
) -> list[TimedStep]:
    """The steps among a scheduler's journal events (``{"event": "timed", "t_s", "end_s", ...}``), in order.

    Those that began from ``since_s`` to ``until_s`` on its clock.

    A step takes from its composition to its end; where the next one follows at once, until that one is composed, so
    that what the engine's loop does in between is part of it.
    """
    timed = [
        event
        for event in events
        if event.get("event") == "timed" and since_s <= float(event["t_s"]) <= until_s
    ]
    steps = []
    for event, after in zip_longest(timed, timed[1:]):
        end_s = float(event["end_s"])
        if after is not None and 0.0 <= float(after["t_s"]) - end_s < NEXT_STEP_S:
            end_s = float(after["t_s"])
        counts = {name: event[name] for name in COUNTS}
        steps.append(TimedStep(**counts, step_s=end_s - float(event["t_s"])))
    return steps


def read_journal(path: Path, since_s: float = -math.inf, until_s: float = math.inf) -> list[TimedStep]:
    """The timed steps of a scheduler's journal file that began from ``since_s`` to ``until_s`` on its clock.

    Raises:
        InvalidInput: see ``read_events``.
    """
    return from_events(read_events(path), since_s, until_s)


def read_events(path: Path) -> list[dict[str, Any]]:
    """All events of a scheduler's journal file.

    Raises:
        InvalidInput: it cannot be read, or a line is broken; names file and line.
    """
    events = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    event = json.loads(line)
                    if event["event"] == "timed":
                        _ = {name: float(event[name]) for name in ("t_s", "end_s", *COUNTS)}
                    events.append(event)
                except (ValueError, KeyError, TypeError) as error:
                    raise InvalidInput(
                        f"no journal event: {type(error).__name__} {error}", where=f"{path}:{number}"
                    ) from None
    except OSError as error:
        raise InvalidInput(f"cannot read it: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError:
        raise InvalidInput("is not text", where=str(path)) from None
    return events
