"""``timely serve`` in a process of its own, which a benchmark loads or kills."""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from timely.client import AsyncTimelyClient
from timely.core.child_process import ChildProcess, core_module_command, free_tcp_port
from timely.core.errors import TimelyError

HEALTH_S = 0.02
"""Time between two requests of its health, seconds."""


class BenchServeProcess:
    """``timely serve`` with a state folder, on one port for all its lives.

    Args:
        folder: of the state and the output.
        arguments: further ones of ``timely serve``.
        engine: its ``--engine``.
    """

    def __init__(self, folder: Path, arguments: Sequence[str] = (), engine: str = "scripted") -> None:
        self._port = free_tcp_port()
        self._folder = folder
        self._arguments, self._engine = list(arguments), engine
        self._process: ChildProcess | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        arguments = ["serve", "--engine", self._engine, "--port", str(self._port)]
        arguments += ["--state-dir", str(self._folder / "state"), *self._arguments]
        # A benchmark that is killed leaves no server behind.
        command = core_module_command(str(Path(sys.executable).with_name("timely")), arguments)
        self._process = ChildProcess("server", command, log=self._folder / "server.log").start()

    @property
    def pid(self) -> int:
        """The process id; 0 while it does not run."""
        return self._process.pid if self._process is not None else 0

    async def until_ready(self, client: AsyncTimelyClient, timeout_s: float) -> None:
        """Return once it answers. Raises EngineFailed when it has ended by itself."""
        async with asyncio.timeout(timeout_s):
            while True:
                self.check()
                with contextlib.suppress(TimelyError):
                    await client.health()
                    return
                await asyncio.sleep(HEALTH_S)

    def check(self) -> None:
        """Raises EngineFailed when it has ended by itself."""
        if self._process is not None and self._process.ended:
            raise self._process.failure(f"ended with {self._process.exit_code}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
