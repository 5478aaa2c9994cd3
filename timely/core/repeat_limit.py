"""Bounds how often one message is logged, since clients without a token could fill the disk with it."""

import logging
import math
from collections.abc import Collection

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


def limit_log_repeats(packages: Collection[str], limit: LogRepeatLimit) -> None:
    """The loggers that the modules of these packages have by now share the limit.

    A handler would have other loggers too, and a filter of a package's logger does not see those below it.
    """
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(tuple(f"{package}." for package in packages)):
            logging.getLogger(name).addFilter(limit)
