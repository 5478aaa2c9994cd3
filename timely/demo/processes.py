"""Child processes of the demonstration: started together, ended together, whatever happens to the parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from timely.core.errors import EngineFailed

STOP_S = 12.0
"""How long a child may take to end by itself."""


class Child:
    """One process in a session of its own, its output in a file; ends when its standard input closes or on SIGINT."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self._stream = log.open("wb")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stream,
            env={**os.environ, **environment},
            # Ctrl-C in the terminal must reach the parent alone, which ends its children in order.
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, name=f"{name} output", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stdout = self.process.stdout
        if stdout is not None:
            for line in stdout:
                self.lines.append(line.decode(errors="replace").rstrip())

    @property
    def running(self) -> bool:
        """It has not ended."""
        return self.process.poll() is None

    def wait_for(self, ready: Callable[[], bool], timeout_s: float, tick: Callable[[], None]) -> None:
        """Wait until ``ready``; ``tick`` is called meanwhile.

        Raises:
            EngineFailed: it ended, or was not ready in time; quotes the end of its log.
        """
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                raise EngineFailed(f"{self.name} ended: {self.last_words()}", where=str(self.log))
            if time.monotonic() > deadline:
                raise EngineFailed(f"{self.name} was not ready within {timeout_s:.0f} s", where=str(self.log))
            tick()
            time.sleep(0.1)

    def last_words(self) -> str:
        """The last line it wrote to standard error."""
        self._stream.flush()
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "without a word"

    def stop(self, timeout_s: float = STOP_S) -> None:
        """End it: politely, then for sure, with all it started. Safe to call twice."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)
        # Whatever it left behind shares its session.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._reader.join(2)
        self._stream.close()


class Children:
    """A stack of children; leaving the block ends them, the last started first.

    Ctrl-C ends the block once. It waits while a child is being started, which would else be nobody's, and is passed
    over while they are being ended. (SIGTERM comes here as Ctrl-C.)
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[Child] = []
        self._before: Any = signal.SIG_DFL
        self._starting = self._interrupted = self._ending = False

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
        """Start one; its standard error goes to ``FOLDER/NAME.log``."""
        self._starting = True
        try:
            child = Child(name, command, self._folder / f"{name}.log", environment or {})
            self._children.append(child)
        finally:
            self._starting = False
        if self._interrupted:
            self._interrupt()
        return child

    def check(self) -> None:
        """Raises EngineFailed when a child that should run has failed."""
        for child in self._children:
            code = child.process.poll()
            if code not in (None, 0):
                raise EngineFailed(
                    f"{child.name} ended with {code}: {child.last_words()}", where=str(child.log)
                )

    def _interrupt(self, *_: object) -> None:
        self._interrupted = True
        if not (self._starting or self._ending):
            self._ending = True
            raise KeyboardInterrupt

    def __enter__(self) -> Children:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        try:
            for child in reversed(self._children):
                child.stop()
        finally:
            signal.signal(signal.SIGINT, self._before)
