"""Asks the kernel for short time slices: a thread that wakes up for a robot then need not wait for others to pause.

Linux lets a thread run on for some milliseconds before one that was just woken gets its turn, unless that one has asked
for a shorter slice (EEVDF, Linux 6.12 and later; older kernels take the request and ignore it). It costs no privilege
and no share of the processor.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

SLICE_S = 1e-4
"""The shortest that the kernel grants."""

_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""Numbers of ``sched_setattr`` and ``sched_getattr``."""

_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
"""``struct sched_attr``: size, policy, flags, nice, priority, runtime (ns), deadline, period."""

_OTHER = 0
"""The policy of ordinary threads; a real-time one is left as it is."""


def short_slices() -> int:
    """Shorten the slices of all threads of this process, and of those they start; how many threads that were."""
    calls = _CALLS.get(platform.machine())
    if calls is None or platform.system() != "Linux":
        return 0
    libc = ctypes.CDLL(None)
    return sum(_shorten(libc, *calls, int(thread)) for thread in os.listdir("/proc/self/task"))


def _shorten(libc: ctypes.CDLL, setter: int, getter: int, thread: int) -> bool:
    buffer = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if libc.syscall(getter, thread, buffer, _ATTRIBUTES.size, 0) != 0:
        return False  # it has ended
    _, policy, _, nice, *_ = _ATTRIBUTES.unpack(buffer.raw)
    if policy != _OTHER:
        return False
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, 0, nice, 0, int(SLICE_S * 1e9), 0, 0)
    return bool(libc.syscall(setter, thread, wanted, 0) == 0)
