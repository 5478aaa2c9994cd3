"""What the composition of a step reads of the jobs."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from timely.disciplines.base import Floats, Rows


@dataclass(slots=True)
class TardinessJobNumbers:
    """What a step's composition reads of the jobs; arrays of shape ``(len(rows),)``.

    Attributes:
        rows: the table's rows that are described, in order.
        step_s: predicted step of the whole pool, seconds.
        sequence_s: what one more decoding sequence adds to a step, seconds.
        prompt_token_s: what one more prompt token adds, seconds.
        left_tokens: until the segment closes, or the plain answer ends.
        work_s: time until then, seconds.
        weight: utility lost per second of lateness.
        slack_s: how much later the work may begin; infinite where nothing is lost.
        plain: plain requests whose answer has begun.
        ordinary: plain requests that bring no utility of their own.
        index: the order of candidates, highest first.
    """

    rows: Rows
    step_s: float
    sequence_s: float
    prompt_token_s: float
    left_tokens: Floats
    work_s: Floats
    weight: Floats
    slack_s: Floats
    plain: np.ndarray
    ordinary: np.ndarray
    index: Floats

    def place(self, row: int) -> int:
        """Where a row of the table is in the arrays."""
        return bisect_left(self.rows, row) if len(self.rows) <= row or self.rows[row] != row else row
