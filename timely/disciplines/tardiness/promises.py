"""First segments that were promised in time at admission, which slower jobs must not make late."""

import math
from itertools import pairwise

import numpy as np

from timely.disciplines.base import Floats, Rows
from timely.disciplines.step_builder import StepBuilder
from timely.disciplines.tardiness.job_numbers import TardinessJobNumbers

PREDICTION_ERROR = 0.1
"""Share of the time until a deadline by which its predicted steps may be too short."""


class TardinessPromises:
    """First segments of tasks that were admitted because they come in time, members of the step and others.

    No job that loses less utility per second makes one of them late, nor does an equal with a later deadline. One that
    has no slack left joins the step if it makes no other one late, whatever the members lose. Equals do not wait for
    one that comes too late anyway: several would be late for its sake.
    """

    def __init__(self, builder: StepBuilder, numbers: TardinessJobNumbers) -> None:
        table, rows, now = builder.table, numbers.rows, builder.limits.now
        is_promised = table.promised[rows]
        if np.count_nonzero(is_promised):
            is_promised &= (table.segment[rows] == 0) & (table.resume_s[rows] <= now)
            is_promised &= table.due_s[rows] + table.ert_s[rows] - table.network_s[rows] > now
        places = is_promised.nonzero()[0]
        at = rows[places]
        self._rows: list[int] = at.tolist()
        if not self._rows:
            return  # each step comes here, and most servers refuse nothing: nothing below is read then
        self._weights = numbers.weight[places]
        self._table = table
        self._deadlines_s = table.due_s[at] + table.ert_s[at]
        self._dues_s = numbers.slack_s[places]
        """Delay since the start of the composition that makes each late."""
        prompts = table.prefill_left[at]
        steps_s = builder.limits.speed.step_s(1, 0) + numbers.sequence_s * (self._count_steeper() - 1)
        own_s = self._deadlines_s - table.network_s[at] - now
        self._errors_s = PREDICTION_ERROR * own_s
        """What equals leave of that time that can wait for another step."""
        own_s -= numbers.prompt_token_s * prompts + steps_s * numbers.left_tokens[places]
        never = (own_s < 0.0) | (self._dues_s == math.inf)
        self._member_s = np.where(never, math.inf, own_s)
        """The same for a member that ends its prompt, or decodes; infinite if it is late anyway, or loses nothing.

        It does not wait for a step in flight. Of other prompts only those count that join. Its steps have the sequences
        of all these jobs, except those of lower slope.
        """
        self._latest_s = np.where((prompts == 0) | never, self._member_s, self._dues_s)
        """The delay that makes each late, for equals."""

    def _count_steeper(self) -> np.ndarray:
        """For each, how many of them lose utility as fast or faster, itself included."""
        return self._weights.size - np.searchsorted(np.sort(self._weights), self._weights)

    @property
    def hold(self) -> bool:
        """There are any."""
        return bool(self._rows)

    def drop(self) -> None:
        """Heed none any more."""
        self._rows = []

    def room_s(self, weight: float, row: int | None = None, slack_s: float = 0.0) -> float:
        """Delay since the start of the composition that makes none of those late that a job has to heed.

        Args:
            row: the job's; without it equals are not heeded.
            slack_s: the job's.
        """
        if not self._rows:
            return math.inf
        room_s = float(self._dues_s[self._weights > weight].min(initial=math.inf))
        if row is None:
            return room_s
        table = self._table
        deadline_s = table.due_s[row] + table.ert_s[row] * (table.segment[row] == 0)
        equal = (self._weights == weight) & (self._deadlines_s < deadline_s)
        latest_s = self._latest_s - self._errors_s * (slack_s > 0.0)
        return min(room_s, float(latest_s[equal].min(initial=math.inf)))

    def presses(self, row: int, slack_s: float) -> bool:
        """Whether a job is one of them and cannot wait."""
        return slack_s <= 0.0 and row in self._rows

    def join(self, row: int, delay_s: float, tokens: int) -> None:
        """A job becomes a member with so many tokens; its slack counts the delay that it causes itself."""
        if row not in self._rows:
            return
        at = self._rows.index(row)
        prompt_left = int(self._table.prefill_left[row])
        self._dues_s[at] += delay_s
        if not prompt_left:
            # The steps of the others have its sequence already.
            no_steeper = self._weights <= self._weights[at]
            self._member_s[no_steeper] += delay_s
            self._latest_s[no_steeper] += delay_s
        elif tokens == prompt_left:
            self._latest_s[at] = self._member_s[at] + delay_s
        else:
            self._latest_s[at] += delay_s


def tardiness_queue_prompts(
    slack_s: Floats,
    weight: Floats,
    prompts: Rows,
    order: Rows,
    budget: int,
    prompt_token_s: float,
    step_s: float,
) -> list[slice]:
    """Take from the slack of prompts that wait what others leave that are computed before them or with them.

    The steeper utilities come first, then the earlier deadlines. None waits longer than an equal behind it can.

    Args:
        slack_s: changed in place; as ``weight`` and ``prompts``, the prompt tokens left, an entry a job.
        order: places of those prompts in the arrays, the steepest first, those of equal weight by deadline.
        budget: most tokens of a step; ``step_s`` is its time without them, seconds.

    Returns:
        The parts of the order in which the weight is equal.
    """
    tokens, steps = _tardiness_prompts_ahead(prompts[order], budget)
    left_s = slack_s[order] - (prompt_token_s * tokens + step_s * steps)
    sorted_weight = weight[order]
    ends = ((sorted_weight[1:] != sorted_weight[:-1]).nonzero()[0] + 1).tolist()
    queues = [slice(begin, end) for begin, end in pairwise([0, *ends, len(order)])]
    for queue in queues:
        left_s[queue] = np.minimum.accumulate(left_s[queue][::-1])[::-1]
    slack_s[order] = left_s
    return queues


def _tardiness_prompts_ahead(prompts: Rows, budget: int) -> tuple[Floats, Floats]:
    """What precedes the end of each prompt, if steps of ``budget`` tokens take the prompts in this order.

    All prompts of a step end with it, so those behind in the same step count.

    Returns:
        Tokens of other prompts, and steps before that in which the prompt ends.
    """
    total = prompts.cumsum()
    steps = np.ceil(total / budget)
    return np.minimum(steps * budget, total[-1]) - prompts, steps - 1.0
