"""Removes long pauses from a process that serves robots: those of Python's threads, its collector, and the kernel.

Linux lets a thread run on for some milliseconds before a woken thread runs, unless the woken one has a shorter slice.
This holds from Linux 6.12 on (EEVDF); older kernels accept the request and ignore it. A short slice costs no
privilege and no share of the processor.
"""

import contextlib
import ctypes
import gc
import logging
import os
import platform
import struct
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

from timely.core.priority import CoreRealtimeWatch, raise_core_priority, raise_core_realtime
from timely_robots.ros.actions import cheap_ros_goal_names

SWITCH_INTERVAL_S = 0.0005
"""How long one Python thread may keep another waiting. Executor, loop and motions share one interpreter, and the
default of 5 ms would be most of a segment's latency."""

SLICE_S = 1e-4
"""The shortest time slice that the kernel grants."""

NICENESS = -10
"""Precedence over ordinary processes, such as a model server: a stop must not wait for a busy computer."""

REALTIME_WATCH_S = 2.0
"""How long threads of a stop may keep a processor to themselves, as a robot's ``stop`` that never pauses does."""

DEMOTED_CHECKS = 30
"""After so many checks without a busy thread, those that became ordinary ones come first again."""

TRANSPORT_THREADS = "dds."
"""The names of the middleware's threads begin so."""

log = logging.getLogger(__name__)

_stop_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_active = threading.Event()
"""This process is a real-time process."""

_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""Numbers of ``sched_setattr`` and ``sched_getattr``."""

_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
"""``struct sched_attr``: size, policy, flags, nice, priority, runtime (ns), deadline, period."""

_ORDINARY_POLICY = 0
"""A thread of a real-time policy is left as it is."""


@contextlib.contextmanager
def realtime_ros_process() -> Iterator[None]:
    """Keep the pauses of this process short; enter it when everything is set up.

    Threads take turns more often, and the garbage collector skips the objects that exist already. A full collection
    over the imports and nodes of 30 robots takes 50 ms and more. Slices and priority stay after the exit.

    A thread of a stop that computes for ``REALTIME_WATCH_S`` without a pause loses its precedence, and the log says so.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    cheap_ros_goal_names()
    shorten_ros_time_slices()
    raise_core_priority(NICENESS)
    _active.set()
    raise_ros_stop_threads()
    gc.collect()
    gc.freeze()
    end = threading.Event()
    watch = threading.Thread(target=_watch_ros_realtime, args=(end,), name="realtime-watch", daemon=True)
    with contextlib.suppress(RuntimeError):  # this process gets no more threads
        watch.start()
    try:
        yield
    finally:
        end.set()
        if watch.is_alive():
            watch.join(1.0)  # it may be writing to a log that hangs
        _active.clear()
        gc.unfreeze()
        sys.setswitchinterval(before)


def _watch_ros_realtime(end: threading.Event) -> None:
    watch = CoreRealtimeWatch()
    checks_left = 0
    while not end.wait(REALTIME_WATCH_S):
        with contextlib.suppress(OSError):  # as without file descriptors
            names = {thread.native_id: thread.name for thread in threading.enumerate()}
            threads = watch.check()
            for thread in threads:
                log.error(
                    "thread %s keeps a processor at real-time priority; it has the ordinary one for a while",
                    names.get(thread, thread),
                )
            checks_left = DEMOTED_CHECKS if threads else max(0, checks_left - 1)
            if checks_left == 1:
                raise_ros_stop_threads()


def shorten_ros_time_slices() -> int:
    """Shorten the slices of all threads of this process, and of the threads they start; returns how many."""
    calls = _CALLS.get(platform.machine())
    if calls is None or platform.system() != "Linux":
        return 0
    libc = ctypes.CDLL(None)
    return sum(_shorten_ros_time_slice(libc, *calls, int(thread)) for thread in os.listdir("/proc/self/task"))


def mark_ros_stop_thread(thread: threading.Thread) -> threading.Thread:
    """Mark a thread as one that a stop passes through; ``realtime_ros_process`` lets it run before all others."""
    if thread not in _stop_threads:
        _stop_threads.add(thread)
        if _active.is_set() and thread.native_id is not None:
            raise_core_realtime([thread.native_id])
    return thread


def raise_ros_stop_threads() -> int:
    """Let the middleware's threads, those marked, and those that they start run before all others; returns how many.

    At a stop all processes of a fleet have work to end at once. A niceness does not tell them apart.
    """
    numbers = [thread.native_id for thread in _stop_threads if thread.is_alive() and thread.native_id]
    for task in Path("/proc/self/task").glob("*"):
        with contextlib.suppress(OSError):
            if (task / "comm").read_text().startswith(TRANSPORT_THREADS):
                numbers.append(int(task.name))
    return raise_core_realtime(numbers)


def _shorten_ros_time_slice(libc: ctypes.CDLL, setter: int, getter: int, thread: int) -> bool:
    buffer = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if libc.syscall(getter, thread, buffer, _ATTRIBUTES.size, 0) != 0:
        return False  # the thread has ended
    _, policy, _, nice, *_ = _ATTRIBUTES.unpack(buffer.raw)
    if policy != _ORDINARY_POLICY:
        return False
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, 0, nice, 0, int(SLICE_S * 1e9), 0, 0)
    return bool(libc.syscall(setter, thread, attributes, 0) == 0)
