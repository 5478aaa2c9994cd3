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
"""Of the time, computing or waiting for a processor. Linux itself leaves 0.95 to real-time threads."""

LEAST_COMPUTED_SHARE = 0.2
"""Of the time. A thread that computed less waited behind those that keep the processor."""


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
        self._times_s: dict[int, tuple[float, float]] = {}
        self._checked_s = time.monotonic()

    def check(self) -> list[int]:
        """The ids of threads that hardly paused since the last call; they are ordinary ones now.

        Python's threads share one processor, so together they count as one thread. Several such threads share a
        processor, so the time in which they wait for it counts, too.

        Raises:
            OSError: the system does not tell the threads.
        """
        now_s = time.monotonic()
        passed_s, self._checked_s = now_s - self._checked_s, now_s
        before, self._times_s = self._times_s, _realtime_times_s()
        python_threads = {thread.native_id for thread in threading.enumerate()}
        groups: dict[int, dict[int, tuple[float, float]]] = {}
        for thread, times_s in self._times_s.items():
            earlier_s = before.get(thread, times_s)
            group = groups.setdefault(0 if thread in python_threads else thread, {})
            group[thread] = times_s[0] - earlier_s[0], times_s[1] - earlier_s[1]
        busiest = []
        for group in groups.values():
            computed_s, waited_s = map(sum, zip(*group.values(), strict=True))
            if (
                computed_s + waited_s > MOST_REALTIME_SHARE * passed_s
                and computed_s > LEAST_COMPUTED_SHARE * passed_s
            ):
                busiest.append(max(group, key=lambda thread: group[thread]))
        return [thread for thread in busiest if _end_core_realtime(thread)]


def _end_core_realtime(thread: int) -> bool:
    with contextlib.suppress(OSError):
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        return True
    return False


def _realtime_times_s() -> dict[int, tuple[float, float]]:
    """How long each raised thread of this process has computed, and waited for a processor, by its id; seconds."""
    times_s = {}
    for thread in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(OSError):
            if (os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority) == (
                os.SCHED_RR,
                REALTIME_PRIORITY,
            ):
                computed_ns, waited_ns, _ = Path(f"/proc/self/task/{thread}/schedstat").read_text().split()
                times_s[thread] = int(computed_ns) / 1e9, int(waited_ns) / 1e9
    return times_s
