"""Calls what writes to a disk on a thread of its own, in order: a disk that hangs holds up nothing else."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar, cast

Result = TypeVar("Result")


class DriverDiskThread:
    """A thread with a queue, which begins with the first call. Safe to use from several threads.

    What must be on the disk before another act waits for its future.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._late: Future[int] | None = None
        """What a caller of ``wait`` has given up waiting for."""

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Call ``function`` after all earlier calls; after ``close`` it is not called."""
        future: Future[Result] = Future()

        def call() -> None:
            result: Result | None = None
            problem: Exception | None = None
            try:
                result = function(*arguments)
            except Exception as error:  # handed to the caller
                problem = error
            if not future.set_running_or_notify_cancel():
                return  # its caller waits no longer
            if problem is not None:
                future.set_exception(problem)
            else:
                future.set_result(cast(Result, result))

        with self._lock:
            if self._thread is None and not self._start():
                call()  # it may hang the caller, but what is not kept at all is worse
            else:
                self._calls.put(call)
        return future

    def wait(self, timeout_s: float) -> bool:
        """Return when all calls so far are made; False if that took longer.

        Further waits end at once until a disk that was too late has answered, so that it holds a caller up once.
        """
        if self._late is not None and not self._late.done():
            return False
        self._late = last = self.submit(int)
        try:
            last.result(timeout_s)
        except TimeoutError:
            return False
        return True

    def close(self, timeout_s: float) -> bool:
        """End the thread after all calls so far; False if that took longer."""
        with self._lock:
            if self._thread is None:
                return True
            self._calls.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _start(self) -> bool:
        """False if the system gives this process no more threads."""
        # A daemon: a disk that hangs must not keep the process from its end.
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
