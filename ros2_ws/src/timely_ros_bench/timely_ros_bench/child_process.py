"""Programs that a benchmark runs beside itself, and that cannot be left behind.

    python -m timely_ros_bench.child_process MODULE [ARGUMENT ...]

runs a module as ``python -m`` does, and ends with the program that started it, whatever became of that one.
"""

from __future__ import annotations

import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from timely_robots.ros.shutdown import end_with_the_parent, ending_signals

from timely.core.errors import EngineFailed

START_S = 60.0


class Part:
    """A child process; killed at the latest by ``kill``. Its output is kept for complaints.

    Args:
        role: what to call it.
        where: whose complaint it is.
    """

    def __init__(
        self, role: str, command: Sequence[str], environment: Mapping[str, str], *, where: str = "bench ros"
    ) -> None:
        self.role = role
        self._command = list(command)
        self._environment = dict(environment)
        self._where = where
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the part

    def start(self) -> None:
        """Begin; a part is started once."""
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=self._errors,
            stderr=self._errors,
        )

    @property
    def ended(self) -> bool:
        """It was started, and runs no more."""
        return self._process is not None and self._process.poll() is not None

    def interrupt(self) -> None:
        """As Ctrl-C."""
        if self._process is not None and not self.ended:
            self._process.send_signal(signal.SIGINT)

    def finish(self, timeout_s: float) -> None:
        """Wait for a good end; raises EngineFailed with what the part said."""
        if self._process is None:
            return
        try:
            status: object = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            status = f"none within {timeout_s:.0f} s"
        if status != 0:
            raise self.failure(f"ended with status {status}")

    def said(self) -> str:
        """The end of its output."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()[-2000:]

    def failure(self, why: str) -> EngineFailed:
        """A complaint about it."""
        return EngineFailed(f"the {self.role} {why}: {self.said() or 'it said nothing'}", where=self._where)

    def kill(self) -> None:
        """End it now, without a word to it; safe to call twice."""
        process = self._process
        if process is not None:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()
        self._process = None

    def close(self) -> None:
        """Kill it and forget what it said."""
        self.kill()
        self._errors.close()

    def wait_for(self, file: Path, timeout_s: float = START_S) -> None:
        """Until it has written ``file``; raises EngineFailed when it ends, or does not within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while not file.exists():
            if self.ended or time.monotonic() > deadline:
                raise self.failure("did not start")
            time.sleep(0.02)


def module_part(
    role: str, module: str, arguments: Sequence[str], environment: Mapping[str, str], *, python: str = ""
) -> Part:
    """A module to be run as a part; ``python`` another interpreter than this one."""
    command = [python or sys.executable, "-m", "timely_ros_bench.child_process", module, *arguments]
    return Part(role, command, environment, where="bench")


def put(file: Path, text: str) -> None:
    """Write whole or not at all: somebody is waiting for the file."""
    partial = file.with_suffix(".partial")
    partial.write_text(text)
    partial.rename(file)


def stop_event() -> threading.Event:
    """Set by SIGINT, by SIGTERM and by the end of the parent."""
    stop = ending_signals()
    end_with_the_parent(stop)
    return stop


def main() -> None:
    """Run the module that is named."""
    end_with_the_parent()
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
