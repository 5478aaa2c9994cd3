"""Calls that other threads hand to a node's executor, in order."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any


class RosExecutorCalls:
    """``soon`` may be called on any thread, ``run_all`` on the executor's."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self._calls: deque[Callable[[], object]] = deque()

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call ``function`` on the executor's thread after all earlier calls."""
        self._calls.append(partial(function, *arguments))
        if (executor := self._node.executor) is not None:
            executor.create_task(self._run_next)

    def run_all(self) -> None:
        """Make the calls that are left, at once: what they need is about to be destroyed."""
        while self._calls:
            self._run_next()

    def _run_next(self) -> None:
        if self._calls:
            self._calls.popleft()()
