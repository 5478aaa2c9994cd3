"""Bounds how often one message is logged, since clients without a token could fill the disk with it."""

import logging
import math

REPEATS = 10
INTERVAL_S = 60.0


class LogRepeatLimit(logging.Filter):
    """Lets the warnings and errors of one line of code pass ``REPEATS`` times in ``INTERVAL_S``.

    The next one says how many were left out. Lines of lower levels, which an operator asks for, all pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        place = record.pathname, record.lineno
        begin_s, count = self._counts.get(place, (-math.inf, 0))
        # The clock of the records may be set back.
        if not 0.0 <= record.created - begin_s < INTERVAL_S:
            if count > REPEATS:
                record.msg = f"{record.msg} ({count - REPEATS} more were left out)"
            begin_s, count = record.created, 0
        self._counts[place] = begin_s, count + 1
        return count < REPEATS


def limit_log_repeats(logger: str) -> None:
    """Each handler of this logger gets a ``LogRepeatLimit``, unless it has one."""
    for handler in logging.getLogger(logger).handlers:
        if not any(isinstance(one, LogRepeatLimit) for one in handler.filters):
            handler.addFilter(LogRepeatLimit())
