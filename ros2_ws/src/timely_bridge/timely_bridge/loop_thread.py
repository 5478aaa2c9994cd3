"""An asyncio loop on a thread of its own, for the connection to the server."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class BridgeLoopThread:
    """Runs a loop until closed."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call ``function`` soon on the loop, from any thread; does nothing once the loop is closed."""
        if not self.loop.is_closed():
            try:
                self.loop.call_soon_threadsafe(function, *args)
            except RuntimeError:
                return  # the loop was closed in between

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self, timeout_s: float = 5.0) -> bool:
        """Cancel all tasks, stop the loop and its thread; False if that took longer than ``timeout_s``."""
        if self.loop.is_closed():
            return True

        async def wind_up() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self.loop.shutdown_asyncgens()

        with contextlib.suppress(TimeoutError):
            self.submit(wind_up()).result(timeout_s)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(timeout_s)
        if self.thread.is_alive():
            return False
        self.loop.close()
        return True
