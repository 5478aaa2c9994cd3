"""First segments that were promised in time at admission, which slower jobs must not make late."""

from __future__ import annotations

import math

import numpy as np

from timely.disciplines.step_builder import StepBuilder
from timely.disciplines.tardiness.job_numbers import Numbers


class Promises:
    """First segments of tasks that were admitted because they come in time, members of the step and others.

    No job that loses less utility per second makes one of them late, nor does an equal with a later deadline. One that
    has no slack left joins the step if it makes no other one late, whatever the members lose.
    """

    __slots__ = ("_deadlines_s", "_dues_s", "_rows", "_spare_s", "_table", "_weights")

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
        self._spare_s = np.where(table.prefill_left[rows[places]] == 0, numbers.step_s, 0.0)
        """The step of caution in the slack, which one that decodes does not need."""

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
        return min(room_s, float((self._dues_s + self._spare_s)[equal].min(initial=math.inf)))

    def presses(self, row: int, slack_s: float) -> bool:
        """Whether a job is one of them and cannot wait."""
        return slack_s <= 0.0 and row in self._rows

    def join(self, row: int, delay_s: float) -> None:
        """A job becomes a member; its slack counts the delay that it causes itself."""
        if row in self._rows:
            self._dues_s[self._rows.index(row)] += delay_s
