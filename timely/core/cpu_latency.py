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

AS_THEY_LIKE = -1
PARAMETER = "wake_latency_us"
MEANING = (
    "while a task lives, this computer's processors may take so long to wake up [us]; 0 keeps them from sleeping, -1 "
    "lets them"
)
LONGEST_US = 1_000_000


class Wakeful:
    """Asks for short wake-ups while there is work. One thread at a time.

    Args:
        latency_us: the longest wake-up, microseconds; ``AS_THEY_LIKE`` asks for nothing.
        device: Linux's file, or another in tests.
    """

    def __init__(self, latency_us: int = AS_THEY_LIKE, device: Path | None = None) -> None:
        self.latency_us = latency_us
        self.problem = ""
        """Why the processors sleep all the same; empty when they do as asked."""
        self._device = device or DEVICE
        self._held: int | None = None
        if latency_us > AS_THEY_LIKE and not os.access(self._device, os.W_OK):
            self.problem = f"{self._device} cannot be written here"

    @property
    def held(self) -> bool:
        """The processors are kept awake by this object."""
        return self._held is not None

    def want(self, at_work: bool) -> None:
        """Say whether there is work now; saying it again changes nothing."""
        if not at_work:
            if self._held is not None:
                os.close(self._held)
                self._held = None
        elif self._held is None and self.latency_us > AS_THEY_LIKE and not self.problem:
            self._hold()

    def _hold(self) -> None:
        held = None
        try:
            held = os.open(self._device, os.O_WRONLY | os.O_CLOEXEC)
            os.write(held, struct.pack("=i", self.latency_us))
        except OSError as error:
            self.problem = str(error)
            if held is not None:
                os.close(held)
            return
        self._held = held


@contextmanager
def processors_awake(latency_us: int) -> Iterator[None]:
    """Ask for short wake-ups, microseconds, while it lasts; ``AS_THEY_LIKE`` asks for nothing."""
    kept = Wakeful(latency_us)
    kept.want(True)
    try:
        yield
    finally:
        kept.want(False)


def wake_latency_for_measurement(default_system: bool) -> tuple[int, str]:
    """The longest wake-up to ask for while something is measured, and how the processors sleep then, for people.

    Latency tests keep them awake (cyclictest does, unless it is told ``--default-system``): how deep a processor slept
    before is no property of what is measured.
    """
    if default_system:
        return AS_THEY_LIKE, "the processors sleep in between as this system has it"
    if problem := Wakeful(0).problem:
        return AS_THEY_LIKE, f"the processors sleep in between: {problem}"
    return 0, "the processors are kept from sleeping; --default-system lets them"
