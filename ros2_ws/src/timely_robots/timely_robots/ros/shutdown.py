"""When a process of nodes ends: at Ctrl-C, at SIGTERM, with its parent, or when ROS 2 goes down under it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

from rclpy.context import Context

LOOK_EVERY_S = 0.5
"""How often a waiting process looks whether ROS 2 is still there."""


def ending_signals() -> threading.Event:
    """An event that Ctrl-C and SIGTERM set from now on, instead of ending the process. For the main thread."""
    ended = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: ended.set())
    return ended


def end_with_the_parent(ended: threading.Event | None = None) -> None:
    """Set ``ended`` when standard input closes, which it does when the parent goes away; without one, exit."""

    def orphaned() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        if ended is None:
            os._exit(1)
        ended.set()

    threading.Thread(target=orphaned, name="parent", daemon=True).start()


def wait_for_the_end(ended: threading.Event, context: Context) -> None:
    """Return when ``ended`` is set or ``context`` is shut down."""
    while not ended.wait(LOOK_EVERY_S) and context.ok():
        pass
