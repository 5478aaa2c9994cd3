"""How long processes could not run although they had work: tells a slow machine from a slow program."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MAJOR_FAULTS_FIELD = 9
"""Of /proc/PID/stat, counted after the command's name."""
NOTABLE_S = 1.0
"""In a round. On a busy machine a thread waits so long in many small parts, too."""


@dataclass(frozen=True, slots=True)
class FaultProcessWaits:
    """Of one process since its start: seconds that each thread waited for a processor, and reads from the disk.

    Attributes:
        threads: thread -> seconds in which it was ready and did not run (Linux's ``schedstat``).
        page_reads: pages that it had to wait for.
    """

    threads: Mapping[int, float] = field(default_factory=dict)
    page_reads: int = 0

    def since(self, before: FaultProcessWaits) -> str:
        """What was added after ``before``, in words; empty if it is little."""
        waits_s = [wait_s - before.threads.get(thread, 0.0) for thread, wait_s in self.threads.items()]
        longest_s, reads = max(waits_s, default=0.0), self.page_reads - before.page_reads
        words = [f"{longest_s:.1f} s for a processor"] if longest_s >= NOTABLE_S else []
        return " and ".join([*words, f"{reads} times for a page"] if reads > 0 else words)


def read_fault_process_waits(pid: int) -> FaultProcessWaits:
    """The waits of a process; none of one that has ended, or without Linux's /proc."""
    process = Path(f"/proc/{pid}")
    threads: dict[int, float] = {}
    try:
        for task in (process / "task").iterdir():
            with contextlib.suppress(OSError):  # the thread has ended
                threads[int(task.name)] = 1e-9 * int((task / "schedstat").read_text().split()[1])
        after_name = (process / "stat").read_text().rpartition(")")[2].split()
        return FaultProcessWaits(threads, int(after_name[MAJOR_FAULTS_FIELD]))
    except OSError:
        return FaultProcessWaits()


def fault_waits_in_words(
    before: Mapping[str, FaultProcessWaits], now: Mapping[str, FaultProcessWaits]
) -> str:
    """The parts that waited during a round; a violation beside a long wait may be of the machine."""
    waits = {role: wait.since(before.get(role, FaultProcessWaits())) for role, wait in now.items()}
    return "".join(f"; {role} waited {words}" for role, words in waits.items() if words)
