"""Child processes that end with their parent, and whose output can be quoted in an error.

    python -m timely.core.child_process MODULE [ARGUMENT ...]

runs a module as ``python -m`` does, or the Python script of a path. When the parent ends, which closes standard input,
the module gets SIGINT and must end within ``ORPHAN_S``.
"""

import contextlib
import faulthandler
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from timely.core.errors import EngineFailed
from timely.core.temporary_folders import temporary_folder

START_S = 60.0
STOP_S = 12.0
"""Longest wait for a child to end after SIGINT, before it is killed."""
ORPHAN_S = 10.0
POLL_S = 0.02
QUOTED_CHARS = 2000
STACKS_SIGNAL = signal.SIGUSR1
"""Makes a module that runs as a child write the stacks of its threads."""
STACKS_END = "_run_module_as_main"
"""The outermost call of the main thread, which is written last."""


class ChildProcess:
    """One child in a process group of its own, with its output in a file.

    Ctrl-C in the terminal reaches the parent alone, which ends its children in order.

    Args:
        environment: added to this process's own.
        log: file of its output, which may be emptied meanwhile; None keeps the output in a temporary file.
        where: the command that started it, for errors.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        log: Path | None = None,
        where: str = "",
    ) -> None:
        self.name = name
        self._command = list(command)
        self._environment = {**os.environ, **(environment or {})}
        self._where = where or (str(log) if log is not None else "")
        self._process: subprocess.Popen[bytes] | None = None
        self._stacks_at = 0
        self._output = (
            log.open("a+b") if log is not None else tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        )
        self._output.truncate(0)

    def start(self) -> Self:
        """Start it, once."""
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        return self

    @property
    def pid(self) -> int:
        """The process id; 0 before the start and after the end."""
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs and before the start."""
        return self._process.poll() if self._process is not None else None

    def output(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    def lines(self) -> list[str]:
        text = self.output()
        return text[: text.rfind("\n") + 1].splitlines()

    def quote(self) -> str:
        """The end of its output, for people."""
        return self.output().strip()[-QUOTED_CHARS:]

    def failure(self, reason: str) -> EngineFailed:
        """An error that names the child, the reason and the end of its output."""
        return EngineFailed(f"the {self.name} {reason}: {self.quote() or 'no output'}", where=self._where)

    def wait_until(
        self, ready: Callable[[], bool], timeout_s: float = START_S, tick: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until ``ready`` is true; ``tick`` is called meanwhile.

        Raises:
            EngineFailed: it ended, or was not ready in time.
        """
        deadline_s = time.monotonic() + timeout_s
        while not ready():
            if self.ended:
                raise self.failure(f"ended with {self.exit_code}")
            if time.monotonic() > deadline_s:
                raise self.failure(f"was not ready within {timeout_s:.0f} s")
            tick()
            time.sleep(POLL_S)

    def wait_for_file(self, file: Path, timeout_s: float = START_S) -> None:
        """Wait until ``file`` exists. Raises as ``wait_until``."""
        self.wait_until(file.exists, timeout_s)

    def wait_for_line(
        self, marker: str, timeout_s: float = START_S, tick: Callable[[], None] = lambda: None
    ) -> str:
        """Wait until it has written a line with ``marker``; the rest of that line. Raises as ``wait_until``."""
        self.wait_until(lambda: any(marker in line for line in self.lines()), timeout_s, tick)
        return next(line for line in self.lines() if marker in line).partition(marker)[2]

    def signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self._process is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def interrupt(self) -> None:
        """Send SIGINT."""
        self.signal(signal.SIGINT)

    def ask_for_stacks(self) -> None:
        """Let it write what its threads do, for ``stacks``. Only for a child made by ``core_module_command``."""
        self._stacks_at = len(self.output())
        self.signal(STACKS_SIGNAL)

    def stacks(self) -> str:
        """What it has written since ``ask_for_stacks``: its threads, newest call first."""
        return self.output()[self._stacks_at :].strip()

    def finish(self, timeout_s: float) -> None:
        """Wait until it has ended with exit code 0; raises EngineFailed otherwise."""
        if self._process is None:
            return
        try:
            status: object = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            status = f"none within {timeout_s:.0f} s"
        if status != 0:
            raise self.failure(f"ended with status {status}")

    def stop(self, timeout_s: float = STOP_S) -> None:
        """End it with SIGINT, then kill its group. Safe to call twice."""
        self.interrupt()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.close()

    def kill(self) -> None:
        """Kill it and all that it started. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()

    def close(self) -> None:
        self.kill()
        self._output.close()


class ChildProcesses:
    """A stack of children; leaving the block ends them, the last started first, and removes their folder.

    Ctrl-C ends the block once. It is delayed while a child is being started, so that no child is left behind, and is
    ignored while the children are being ended.
    """

    def __init__(self, prefix: str) -> None:
        self._temporary = contextlib.ExitStack()
        self.folder = self._temporary.enter_context(temporary_folder(prefix))
        self._children: list[ChildProcess] = []
        self._previous_handler: Any = signal.SIG_DFL
        self._starting = self._interrupted = False

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> ChildProcess:
        """Start one; its output goes to ``NAME.log`` in the folder."""
        self._starting = True
        try:
            child = ChildProcess(name, command, environment, log=self.folder / f"{name}.log")
            self._children.append(child)
            child.start()
        finally:
            self._starting = False
        self._end_if_interrupted()
        return child

    def check(self) -> None:
        """Raises EngineFailed when a child has failed, and KeyboardInterrupt after a Ctrl-C that was lost.

        Python drops an exception of a signal handler that runs inside a finalizer.
        """
        self._end_if_interrupted()
        for child in self._children:
            if child.exit_code not in (None, 0):
                raise child.failure(f"ended with {child.exit_code}")

    def _interrupt(self, *_: object) -> None:
        again, self._interrupted = self._interrupted, True
        if not (self._starting or again):
            raise KeyboardInterrupt

    def _end_if_interrupted(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        self._previous_handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupted = True
        try:
            for child in reversed(self._children):
                child.stop()
            self._temporary.close()
        finally:
            signal.signal(signal.SIGINT, self._previous_handler)


def core_module_command(module: str, arguments: Sequence[str] = (), *, python: str = "") -> list[str]:
    """The command that runs a module, or a script by its path, as a child of this process."""
    return [python or sys.executable, "-m", "timely.core.child_process", module, *arguments]


def core_watch_parent(act: Callable[[], None]) -> None:
    """Call ``act`` on a thread when standard input closes."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        act()

    threading.Thread(target=watch, name="parent", daemon=True).start()


def free_tcp_port() -> int:
    """A TCP port on loopback that no program uses now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def act_on_core_stop_signal(act: Callable[[], None]) -> None:
    """Call ``act`` once, on a thread of its own, at SIGINT or SIGTERM. For the main thread.

    A signal handler runs inside whatever the main thread does. If that is ``Event.wait``, it may hold the event's lock,
    and a handler that sets the event would wait for this lock for ever. ``SimpleQueue.put`` may interrupt anything.
    """
    signals: SimpleQueue[None] = SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: signals.put(None))

    def wait_and_act() -> None:
        signals.get()
        act()

    threading.Thread(target=wait_and_act, name="stop signal", daemon=True).start()


def core_stop_event(*, with_parent: bool = True) -> threading.Event:
    """An event that SIGINT, SIGTERM and, ``with_parent``, the end of the parent set. For the main thread."""
    stop = threading.Event()
    act_on_core_stop_signal(stop.set)
    if with_parent:
        core_watch_parent(stop.set)
    return stop


def run_child_module() -> None:
    """Run the module that is named on the command line."""

    def end() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(ORPHAN_S)
        os._exit(1)

    core_watch_parent(end)
    faulthandler.register(STACKS_SIGNAL)
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    if os.sep in module:
        runpy.run_path(module, run_name="__main__")
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_child_module()
