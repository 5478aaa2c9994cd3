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
def resend_dropped_ctrl_c() -> Iterator[None]:
    """Interrupt this thread, the main one, again after each ``KeyboardInterrupt`` that Python dropped in this block."""
    report = sys.unraisablehook
    thread_id = threading.get_ident()
    is_over = False

    def send_again() -> None:
        time.sleep(AGAIN_S)
        if not is_over:
            # A shell lets a background process ignore SIGINT; what was dropped there came of SIGTERM. To the thread
            # itself, so that a system call in which it waits ends.
            is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signal.pthread_kill(thread_id, signal.SIGTERM if is_ignored else signal.SIGINT)

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
        is_over = True
        sys.unraisablehook = report
