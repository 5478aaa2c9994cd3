"""First segments that were promised in time at admission, which slower jobs must not make late."""

from __future__ import annotations

import math

import numpy as np

from timely.disciplines.step_builder import StepBuilder
from timely.disciplines.tardiness.job_numbers import Numbers


class Promises:
    """First segments of tasks that were admitted because they come in time, members of the step and others.

    No job that loses less utility per second makes one of them late, nor does an equal with a later deadline. One that
    has no slack left joins the step if it makes no other one late, whatever the members lose. Equals do not wait for
    one that comes too late anyway: several would be late for its sake.
    """

    __slots__ = ("_deadlines_s", "_dues_s", "_latest_s", "_rows", "_step_s", "_table", "_weights")

    def __init__(self, builder: StepBuilder, numbers: Numbers) -> None:
        table, rows, now = builder.table, numbers.rows, builder.limits.now
        promised = table.promised[rows]
        if promised.any():
            promised &= (table.segment[rows] == 0) & (table.resume_s[rows] <= now)
            promised &= table.due_s[rows] + table.ert_s[rows] - table.network_s[rows] > now
        places = promised.nonzero()[0]
        self._rows: list[int] = rows[places].tolist()
        self._weights = numbers.weight[places]
        self._table = table
        self._deadlines_s = table.due_s[rows[places]] + table.ert_s[rows[places]]
        self._dues_s = numbers.slack_s[places]
        """Delay since the start of the composition that makes each late."""
        self._step_s = numbers.step_s
        """The step of caution in the slack. A job that decodes, or is a member, does not wait for a step in flight."""
        decoding = table.prefill_left[rows[places]] == 0
        lost = self._dues_s + self._step_s < 0.0
        self._latest_s = np.where(lost, math.inf, self._dues_s + self._step_s * decoding)
        """The same for equals: without the caution that is not needed, and infinite for those that are late anyway."""

    @property
    def hold(self) -> bool:
        """There are any."""
        return bool(self._rows)

    def drop(self) -> None:
        """Heed none any more."""
        self._rows = []

    def room_s(self, weight: float, row: int | None = None) -> float:
        """Delay since the start of the composition that makes none of those late that a job has to heed.

        Args:
            row: the job's; without it equals are not heeded.
        """
        if not self._rows:
            return math.inf
        room_s = float(self._dues_s[self._weights > weight].min(initial=math.inf))
        if row is None:
            return room_s
        table = self._table
        deadline_s = table.due_s[row] + table.ert_s[row] * (table.segment[row] == 0)
        equal = (self._weights == weight) & (self._deadlines_s < deadline_s)
        return min(room_s, float(self._latest_s[equal].min(initial=math.inf)))

    def presses(self, row: int, slack_s: float) -> bool:
        """Whether a job is one of them and cannot wait."""
        return slack_s <= 0.0 and row in self._rows

    def join(self, row: int, delay_s: float, tokens: int) -> None:
        """A job becomes a member with so many tokens; its slack counts the delay that it causes itself."""
        if row in self._rows:
            at = self._rows.index(row)
            self._dues_s[at] += delay_s
            ends = tokens == self._table.prefill_left[row]
            self._latest_s[at] += delay_s + self._step_s * ends
