"""Precedence of this process over others, as far as the system permits it."""

import contextlib
import os
import platform
import threading
import time
from collections.abc import Iterable
from pathlib import Path

AUTOGROUP = Path("/proc/self/autogroup")

REALTIME_PRIORITY = 1
"""The lowest, so that what an operator starts as a real-time program (`chrt`) comes first and is told apart."""

MOST_REALTIME_SHARE = 0.8
"""Of a processor. Linux itself leaves 0.95 to real-time threads."""


def raise_core_priority(niceness: int) -> int:
    """Give all threads of this process, and those they start, precedence over ordinary ones; returns how many.

    It takes a privilege (root, CAP_SYS_NICE or RLIMIT_NICE), without which nothing changes. A niceness that was set
    before stays.

    Linux divides the processor among sessions first (autogroups), and only then by niceness. So the session gets the
    niceness too, if this process leads it: then it holds this process and what it started.
    """
    raises = 0
    linux = platform.system() == "Linux"
    for thread in map(int, os.listdir("/proc/self/task") if linux else ()):
        with contextlib.suppress(OSError):
            if os.getpriority(os.PRIO_PROCESS, thread) == 0:
                os.setpriority(os.PRIO_PROCESS, thread, niceness)
                raises += 1
    if raises and os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            AUTOGROUP.write_text(str(niceness))
    return raises


def raise_core_realtime(threads: Iterable[int]) -> int:
    """Let threads, by their ids, run before all ordinary ones of all sessions; returns how many.

    It takes the privilege of ``raise_core_priority``. A thread with a policy of its own keeps it. They and the threads
    that they start take turns with others of their kind. A thread that computes for long would hold up the computer,
    unless ``CoreRealtimeWatch`` looks after it.
    """
    raises = 0
    for thread in threads if platform.system() == "Linux" else ():
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(thread) == os.SCHED_OTHER:
                os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(REALTIME_PRIORITY))
                raises += 1
    return raises


class CoreRealtimeWatch:
    """Makes a raised thread of this process an ordinary one again when it computes without a pause.

    Linux leaves ordinary threads 5% of a processor beside such a thread. One for each processor stops a computer.
    """

    def __init__(self) -> None:
        self._computed_s: dict[int, float] = {}
        self._checked_s = time.monotonic()

    def check(self) -> list[int]:
        """The ids of threads that used nearly a whole processor since the last call; they are ordinary ones now.

        Python's threads share one processor, so together they count as one thread.

        Raises:
            OSError: the system does not tell the threads.
        """
        now_s = time.monotonic()
        passed_s, self._checked_s = now_s - self._checked_s, now_s
        before_s, self._computed_s = self._computed_s, _realtime_computed_s()
        python_threads = {thread.native_id for thread in threading.enumerate()}
        used_s: dict[int, dict[int, float]] = {}
        for thread, computed_s in self._computed_s.items():
            sharing = used_s.setdefault(0 if thread in python_threads else thread, {})
            sharing[thread] = computed_s - before_s.get(thread, computed_s)
        busiest = [
            max(sharing, key=lambda thread: sharing[thread])
            for sharing in used_s.values()
            if sum(sharing.values()) > MOST_REALTIME_SHARE * passed_s
        ]
        return [thread for thread in busiest if _end_core_realtime(thread)]


def _end_core_realtime(thread: int) -> bool:
    with contextlib.suppress(OSError):
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        return True
    return False


def _realtime_computed_s() -> dict[int, float]:
    """Processor time of the raised threads of this process, seconds, by their ids."""
    computed_s = {}
    for thread in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(OSError):
            if (os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority) == (
                os.SCHED_RR,
                REALTIME_PRIORITY,
            ):
                # The number of a thread's own clock, as `pthread_getcpuclockid` makes it.
                computed_s[thread] = time.clock_gettime(~thread << 3 | 6)
    return computed_s
