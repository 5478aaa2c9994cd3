"""Deadlines of tokens, for schedulers that know first tokens and paces but no segments.

A time-utility function names one time: that of the first action. Such a scheduler needs a deadline for the prompt and
one for each later token. The first segment's tokens are due in a row that ends at the first action. Later tokens are
due at the pace that the request names, or else at a reader's, and so are all tokens of a plain request. The lengths of
first segments are learned.
"""

import numpy as np

from timely.core.job import Job, JobTable
from timely.disciplines.base import Discipline, Floats

READER_TOKEN_S = 0.05
"""Pace of tokens after the first action, seconds: the time between tokens of interactive requests in Niyama."""

UNKNOWN_SHARE = 0.5
"""Share of the skill set's longest segment that is expected before a first segment has closed."""

WEIGHT = 0.05
"""Weight of the newest first segment in the running mean."""


class RivalFirstSegmentLearner(Discipline):
    """Keeps the expected tokens of each job's first segment in the table's ``rank``; 1 for a plain request."""

    def __init__(self) -> None:
        super().__init__()
        self._tokens: dict[bool, float] = {}
        """Mean first segment by whether the task is urgent, tokens."""

    def arrived(self, job: Job, now: float) -> None:
        spec = job.spec
        expected_tokens = self._tokens.get(spec.hints.utility.urgent, UNKNOWN_SHARE * spec.segment_tokens)
        job.table.rank[job.row] = 1.0 if spec.plain else max(1.0, expected_tokens)

    def finished(self, job: Job, now: float) -> None:
        if job.segments and not job.spec.plain:
            urgent, tokens = job.spec.hints.utility.urgent, job.segments[0].tokens
            mean = self._tokens.get(urgent, float(tokens))
            self._tokens[urgent] = mean + WEIGHT * (tokens - mean)


def discipline_first_action_due_s(table: JobTable) -> Floats:
    """When the first action, or a plain request's first token, has to leave the engine."""
    return table.arrival_s + table.ert_s - table.network_s


def rival_first_tokens_left(table: JobTable) -> Floats:
    """Tokens still to come until the first action, at least 1."""
    return np.maximum(1.0, table.rank - table.segment_tokens)


def rival_prompt_due_s(table: JobTable, token_s: float) -> Floats:
    """When the first token has to be there, if each of the others until the first action takes ``token_s``."""
    return discipline_first_action_due_s(table) - (np.maximum(1.0, table.rank) - 1.0) * token_s


def rival_reader_pace_s(table: JobTable) -> Floats:
    """Time from a token to the next, as the request names it, seconds."""
    return np.where(np.isnan(table.pace_s), READER_TOKEN_S, table.pace_s)


def rival_next_token_due_s(table: JobTable, token_s: float) -> Floats:
    """When each row's next token is due, if each of those until the first action takes ``token_s``."""
    first = (table.segment == 0) & ~table.plain
    later = table.output_tokens - np.maximum(1.0, table.rank) + 1.0
    due_s: Floats = discipline_first_action_due_s(table) + np.where(
        first,
        -(rival_first_tokens_left(table) - 1.0) * token_s,
        rival_reader_pace_s(table) * np.maximum(0.0, later),
    )
    return due_s


def rival_decoding_slack_s(table: JobTable, now: float, token_s: float) -> Floats:
    """Time until each row's next token is due, seconds; where that is past, its pace counts from now."""
    slack_s = rival_next_token_due_s(table, token_s) - now
    return np.where(slack_s > 0.0, slack_s, rival_reader_pace_s(table))
