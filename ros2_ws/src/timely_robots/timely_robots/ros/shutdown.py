"""The end of a process of nodes: at Ctrl-C, at SIGTERM, with its parent, or with the ROS 2 context."""

from __future__ import annotations

import os
import signal
import threading

from rclpy.context import Context

from timely.core.child_process import when_parent_ends

CHECK_PERIOD_S = 0.5
"""How often a waiting process checks the ROS 2 context."""


def stop_on_signals() -> threading.Event:
    """An event that Ctrl-C and SIGTERM set from now on, instead of ending the process. For the main thread."""
    stop = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stop.set())
    return stop


def stop_with_parent(stop: threading.Event | None = None) -> None:
    """Set ``stop`` when the parent ends, which closes standard input; without an event, exit."""
    when_parent_ends(stop.set if stop is not None else lambda: os._exit(1))


def wait_for_stop(stop: threading.Event, context: Context) -> None:
    """Return when ``stop`` is set or ``context`` is shut down."""
    while not stop.wait(CHECK_PERIOD_S) and context.ok():
        pass
