"""Bounds how often one message is logged, since clients without a token could fill the disk with it."""

import logging
import math

REPEATS = 10
INTERVAL_S = 60.0


class LogRepeatLimit(logging.Filter):
    """Lets each message pass ``REPEATS`` times in ``INTERVAL_S``. The next one says how many were left out.

    Messages are told apart by their text before arguments are put in.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = str(record.msg)
        begin_s, count = self._counts.get(text, (-math.inf, 0))
        # The clock of the records may be set back.
        if not 0.0 <= record.created - begin_s < INTERVAL_S:
            if count > REPEATS:
                record.msg = f"{text} ({count - REPEATS} more were left out)"
            begin_s, count = record.created, 0
        self._counts[text] = begin_s, count + 1
        return count < REPEATS
