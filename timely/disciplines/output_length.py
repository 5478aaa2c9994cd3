"""Output tokens a generation still has before it: predicted where a prediction came with it, learned where not."""

from __future__ import annotations

import numpy as np

from timely.core.job import Job, JobTable
from timely.disciplines.base import Floats, Rows

COMPLETED = ("complete", "stop", "length")
"""Outcomes after which the number of tokens is the length the generation really had; ``stop`` is vLLM's word."""

PRIOR_TOKENS = 128.0
"""Length of a generation before the first one has finished."""

WEIGHT = 0.02
"""Weight of the newest finished generation in the running mean."""


class Lengths:
    """Expected output lengths; the fallback is the running mean of what has finished.

    The expectation is formed once, when a job arrives, and kept in the table's ``rank``: a discipline that uses
    this leaves that column to it.
    """

    def __init__(self, prior_tokens: float = PRIOR_TOKENS) -> None:
        self.mean_tokens = prior_tokens

    def arrived(self, job: Job) -> None:
        """Form the expectation, from the prediction or the past."""
        predicted = job.spec.hints.expected_tokens
        job.table.rank[job.row] = max(1.0, self.mean_tokens if predicted is None else predicted)

    def finished(self, job: Job) -> None:
        """Learn from a generation that is about to leave the table."""
        tokens = int(job.table.output_tokens[job.row])
        if job.outcome in COMPLETED and tokens > 0:
            self.mean_tokens += WEIGHT * (tokens - self.mean_tokens)

    @staticmethod
    def total(table: JobTable, rows: Rows) -> Floats:
        """Expected output tokens in all of each row, shape ``(len(rows),)``; at least 1."""
        return table.rank[rows]

    @staticmethod
    def left(table: JobTable, rows: Rows) -> Floats:
        """Expected output tokens still to come, at least 1: a generation past its prediction is about to end.

        Of a segmented generation those up to its next park, at most its longest segment. That is the work that the
        machine does for it in one go.
        """
        whole = np.maximum(1.0, table.rank[rows] - table.output_tokens[rows])
        piece = np.maximum(1.0, table.segment_bound[rows] - table.segment_tokens[rows])
        return np.where(table.segmented[rows], np.minimum(whole, piece), whole)
