"""Precedence of this process over others, as far as the system permits it."""

import contextlib
import os
import platform
from collections.abc import Iterable
from pathlib import Path

AUTOGROUP = Path("/proc/self/autogroup")


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
    that they start take turns with others of their kind. A thread that computes for long would hold up the computer.
    """
    raises = 0
    for thread in threads if platform.system() == "Linux" else ():
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(thread) == os.SCHED_OTHER:
                os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(1))
                raises += 1
    return raises
