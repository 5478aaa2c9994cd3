"""Keeps the processors of this computer out of deep sleep while robots are at work or something is measured.

A processor that has slept wakes late and finds its caches cold, so a segment after a pause takes longer. Linux bounds
the wake-up time for as long as a program holds a certain file open; latency tests and real-time robots use it. It
costs power, so the file is held only while there is a task.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEVICE = Path("/dev/cpu_dma_latency")
"""Linux's "PM Quality of Service": 32 bits, microseconds; the request ends when the file is closed."""

NO_LIMIT_US = -1
"""Asks for nothing: the processors sleep as the system has it."""

PARAMETER = "wake_latency_us"
PARAMETER_DESCRIPTION = (
    "while a task lives, this computer's processors may take so long to wake up [us]; 0 keeps them from sleeping, -1 "
    "lets them"
)
LONGEST_US = 1_000_000


class WakeLatencyRequest:
    """Asks for short wake-ups while there is work. One thread at a time.

    Args:
        latency_us: the longest wake-up, microseconds; ``NO_LIMIT_US`` asks for nothing.
    """

    def __init__(self, latency_us: int = NO_LIMIT_US, device: Path | None = None) -> None:
        self.latency_us = latency_us
        self.problem = ""
        """Why the processors sleep all the same; empty when they do as asked."""
        self._device = device or DEVICE
        self._file: int | None = None
        if latency_us > NO_LIMIT_US and not os.access(self._device, os.W_OK):
            self.problem = f"{self._device} cannot be written here"

    @property
    def is_active(self) -> bool:
        """The processors are kept awake by this object."""
        return self._file is not None

    def want(self, at_work: bool) -> None:
        """Say whether there is work now; saying it again changes nothing."""
        if not at_work:
            if self._file is not None:
                os.close(self._file)
                self._file = None
        elif self._file is None and self.latency_us > NO_LIMIT_US and not self.problem:
            self._hold()

    def _hold(self) -> None:
        file = None
        try:
            file = os.open(self._device, os.O_WRONLY | os.O_CLOEXEC)
            os.write(file, struct.pack("=i", self.latency_us))
        except OSError as error:
            self.problem = str(error)
            if file is not None:
                os.close(file)
            return
        self._file = file


@contextmanager
def processors_awake(latency_us: int) -> Iterator[None]:
    """Ask for short wake-ups, microseconds, while it lasts; ``NO_LIMIT_US`` asks for nothing."""
    request = WakeLatencyRequest(latency_us)
    request.want(True)
    try:
        yield
    finally:
        request.want(False)


def wake_latency_for_measurement(default_system: bool) -> tuple[int, str]:
    """The longest wake-up to ask for while something is measured, and how the processors sleep then, for people.

    Latency tests keep them awake (cyclictest does, unless it is told ``--default-system``): how deep a processor slept
    before is no property of what is measured.
    """
    if default_system:
        return NO_LIMIT_US, "the processors sleep in between as this system has it"
    if problem := WakeLatencyRequest(0).problem:
        return NO_LIMIT_US, f"the processors sleep in between: {problem}"
    return 0, "the processors are kept from sleeping; --default-system lets them"
