"""What a driver knows of the tasks its segments belong to: whether one lives, is planned to its end, or is orphaned."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

REMEMBERED = 64


@dataclass(slots=True)
class _Known:
    phase: int
    segments: int
    heard_s: float


class Lifeline:
    """Hears of tasks; times are seconds on the caller's monotonic clock.

    A task that was never heard of has no lifeline: whoever sends its segments does without (a test, a program of
    someone's own), and is left alone.

    Args:
        planned, ended: the phases of ``timely_interfaces/Task``.
        silence_s: a task that nobody has spoken of for so long is orphaned.
    """

    def __init__(self, planned: int, ended: int, silence_s: float) -> None:
        self._planned, self._ended = planned, ended
        self.silence_s = silence_s
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def hear(self, task_id: str, phase: int, segments: int, now_s: float) -> None:
        """Take what the bridge says of a task; an ended one stays ended."""
        known = self._known.get(task_id)
        if known is not None and known.phase == self._ended:
            return
        self._known[task_id] = _Known(phase, segments, now_s)
        self._known.move_to_end(task_id)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def excuse(self, seconds: float) -> None:
        """Nobody could have been heard for so long: that is not their silence."""
        for known in self._known.values():
            known.heard_s += seconds

    def ended(self, task_id: str) -> bool:
        """Its end was announced."""
        known = self._known.get(task_id)
        return known is not None and known.phase == self._ended

    def lives(self, task_id: str, now_s: float) -> bool:
        """It was announced, has not ended, and somebody still speaks of it."""
        known = self._known.get(task_id)
        return known is not None and known.phase != self._ended and not self._silent(known, now_s)

    def any_lives(self, now_s: float) -> bool:
        """Some task lives."""
        return any(
            known.phase != self._ended and not self._silent(known, now_s) for known in self._known.values()
        )

    def orphaned(self, task_id: str, now_s: float) -> bool:
        """It was announced and has not ended, but nobody has spoken of it for long."""
        known = self._known.get(task_id)
        return known is not None and known.phase != self._ended and self._silent(known, now_s)

    def wants_more(self, task_id: str, last: int, now_s: float) -> bool:
        """It lives, and a segment after ``last`` is still to come."""
        if not self.lives(task_id, now_s):
            return False
        known = self._known[task_id]
        return known.phase != self._planned or last + 1 < known.segments

    def silence_of(self, task_id: str, now_s: float) -> float:
        """How long nobody has spoken of it, seconds; 0 for a task that was never announced."""
        known = self._known.get(task_id)
        return 0.0 if known is None else now_s - known.heard_s

    def _silent(self, known: _Known, now_s: float) -> bool:
        return now_s - known.heard_s > self.silence_s
