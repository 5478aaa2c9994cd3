"""Ctrl-C that is not lost: Python drops an exception of a signal handler that runs inside a finalizer or a callback."""

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

AGAIN_S = 0.05
"""After a drop; the finalizer has mostly ended by then, else there is another drop."""


@contextlib.contextmanager
def core_dropped_ctrl_c_again() -> Iterator[None]:
    """Send SIGINT again after each ``KeyboardInterrupt`` that Python has dropped in this block. For the main thread."""
    report = sys.unraisablehook

    def send_again() -> None:
        time.sleep(AGAIN_S)
        # To the main thread, so that a system call in which it waits ends.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def on_dropped(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            # The finalizer may have interrupted ``threading`` itself, so none of its locks is taken.
            _thread.start_new_thread(send_again, ())
        else:
            report(dropped)

    sys.unraisablehook = on_dropped
    try:
        yield
    finally:
        sys.unraisablehook = report
