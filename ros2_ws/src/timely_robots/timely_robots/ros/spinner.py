"""An executor that is right, and the thread that spins it."""

import concurrent.futures
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self

import rclpy
from rclpy._rclpy_pybind11 import RCLError
from rclpy.action import ActionClient, ActionServer
from rclpy.context import Context
from rclpy.executors import Executor, SingleThreadedExecutor
from rclpy.task import Future

from timely.core.errors import EngineFailed, InvalidInput
from timely_robots.ros.discovery import end_ros_discovery
from timely_robots.ros.lifecycle import ManagedRosNode

log = logging.getLogger(__name__)

EXECUTOR_VARIABLE = "TIMELY_ROS_EXECUTOR"
"""``events`` or ``single`` in the environment overrides the choice."""

FOREVER_S = 1e8
CHECK_PERIOD_S = 0.5
"""How often a waiting process checks the ROS 2 context."""


MAX_DOMAIN_ID = 232
"""The ports of higher domains would be above 65535."""


def isolated_ros_context(domain_id: int | None = None, args: list[str] | None = None) -> Context:
    """A context of its own, so that one process may hold several and none disturbs the default one.

    Args:
        domain_id: None takes ROS_DOMAIN_ID.

    Raises:
        InvalidInput: there is no such domain or executor. EngineFailed: ROS 2 did not start: it has no folder for
            its logs.
    """
    number = os.environ.get("ROS_DOMAIN_ID", "") if domain_id is None else str(domain_id)
    if number and not (number.isdecimal() and int(number[:9]) <= MAX_DOMAIN_ID):
        raise InvalidInput(f"must be 0 to {MAX_DOMAIN_ID}, got {number[:40]!r}", where="ROS domain")
    if (executor := os.environ.get(EXECUTOR_VARIABLE, "events")) not in ("events", "single"):
        raise InvalidInput(f"must be events or single, got {executor[:40]!r}", where=EXECUTOR_VARIABLE)
    context = Context()
    try:
        rclpy.init(
            args=args,
            context=context,
            domain_id=domain_id,
            signal_handler_options=rclpy.signals.SignalHandlerOptions.NO,
        )
    except RCLError as error:
        raise EngineFailed(str(error), where="ROS 2") from error
    return context


def create_ros_executor(context: Context) -> Executor:
    """The events executor where it exists (its tail latency is ten times better), else the single-threaded one."""
    if os.environ.get(EXECUTOR_VARIABLE, "events") == "events":
        try:
            from rclpy.experimental import EventsExecutor
        except ImportError:
            return SingleThreadedExecutor(context=context)
        # It takes SIGINT and SIGTERM over when it is made; the program decides what those mean, so take them back.
        names = (signal.SIGINT, signal.SIGTERM)
        handlers = {name: signal.getsignal(name) for name in names}
        # It also turns on faulthandler, which wants a real file; sys.stderr may be something else (a notebook's, say).
        with contextlib.redirect_stderr(sys.__stderr__ or sys.stderr):
            executor = EventsExecutor(context=context)
        if threading.current_thread() is threading.main_thread():
            for name, handler in handlers.items():
                if handler is not None:
                    signal.signal(name, handler)
        for _ in range(2):
            executor.add_node(_EmptyNode())
        return executor
    return SingleThreadedExecutor(context=context)


class _EmptyNode:
    """One of two nodes that the events executor gets first. They have nothing, and are not in the graph.

    A task that raises ends the process with a segmentation fault (rclpy 9.1) where the executor has exactly one node.
    """

    subscriptions = timers = clients = services = waitables = guards = ()


class RosSpinner:
    """Spins nodes on a thread of its own until closed. A callback that raises is logged and does not end it."""

    def __init__(
        self, context: Context, nodes: Iterable[Any] = (), *, name: str = "ros", owns_context: bool = True
    ) -> None:
        self.context = context
        self._owns_context = owns_context
        self.executor = create_ros_executor(context)
        self.errors = 0
        self._nodes = list(nodes)
        for node in self._nodes:
            self.executor.add_node(node)
        self._stop = Future(executor=self.executor)
        self._closing = False
        self.thread = threading.Thread(target=self._run, name=f"{name} executor", daemon=True)

    def start(self) -> Self:
        self.thread.start()
        return self

    def add(self, node: Any) -> None:
        self._nodes.append(node)
        self.executor.add_node(node)
        self.executor.wake()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Run ``function`` soon on the executor's thread; from any thread."""
        self.executor.create_task(function, *args)

    def call_and_wait(self, function: Callable[[], Any], timeout_s: float) -> Any:
        """Run ``function`` on the executor's thread and return what it returns.

        Raises:
            TimeoutError: it did not end in time. Whatever ``function`` raises.
        """
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def work() -> None:
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

        self.call(work)
        if not concurrent.futures.wait([done], timeout_s).done:
            raise TimeoutError(f"the ROS executor did not run {function} within {timeout_s} s")
        return done.result()

    def wait(self, stop: threading.Event) -> None:
        """Return when ``stop`` is set or the ROS 2 context is shut down."""
        while not stop.wait(CHECK_PERIOD_S) and self.context.ok():
            pass

    def _run(self) -> None:
        while not self._closing and self.context.ok():
            try:
                # spin() without a deadline burns a core and fires no timers in the events executor of rclpy 9.1.
                self.executor.spin_until_future_complete(self._stop, timeout_sec=FOREVER_S)
            except Exception:
                self.errors += 1
                log.exception("a callback failed")

    def close(self, timeout_s: float = 5.0) -> bool:
        """Stop spinning, destroy the nodes, shut the context down; False if the thread did not end in time."""
        if not self._closing:
            self._closing = True
            self._stop.set_result(None)
            self.executor.wake()
        if self.thread.is_alive() and self.thread is not threading.current_thread():
            self.thread.join(timeout_s)
        ended = not self.thread.is_alive()
        if ended:
            if self._owns_context:
                for node in self._nodes:
                    if isinstance(node, ManagedRosNode):
                        node.release()  # robots come to rest before anything may be waited for
                end_ros_discovery(self._nodes)
            for node in self._nodes:
                self.executor.remove_node(node)
                node.destroy_node()
                # rclpy leaves actions to Python's collector. Until then the DDS participant lives on, and of more than
                # 32 participants in a process the last are discovered by no other.
                for action in list(node.waitables):
                    if isinstance(action, (ActionClient, ActionServer)):
                        action.destroy()
            self._nodes.clear()
            self.executor.shutdown(timeout_sec=timeout_s)
            if self._owns_context:
                self.context.try_shutdown()
        return ended
