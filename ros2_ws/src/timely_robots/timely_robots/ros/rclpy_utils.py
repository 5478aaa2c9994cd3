"""The few things every node here needs from rclpy: an executor that is right, deferred goals, ranged parameters."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import rclpy
from action_msgs.msg import GoalStatus
from builtin_interfaces.msg import Time
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.action import ActionClient, ActionServer, CancelResponse, GoalResponse
from rclpy.action.client import ClientGoalHandle
from rclpy.action.server import ServerGoalHandle
from rclpy.context import Context
from rclpy.executors import Executor, SingleThreadedExecutor
from rclpy.logging import LoggingSeverity
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from rclpy.task import Future
from unique_identifier_msgs.msg import UUID

EXECUTOR_VARIABLE = "TIMELY_ROS_EXECUTOR"
"""``events`` or ``single`` in the environment overrides the choice."""

FOREVER_S = 1e8
LATCHED = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
"""Late subscribers get the last message: for state and status."""

TASKS = QoSProfile(depth=20, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
"""Late subscribers get the last few: several tasks of a robot may live at once."""


def isolated_context(domain_id: int | None = None, args: list[str] | None = None) -> Context:
    """A context of its own, so that one process may hold several and none disturbs the default one.

    ``domain_id`` None takes ROS_DOMAIN_ID.
    """
    context = Context()
    rclpy.init(
        args=args,
        context=context,
        domain_id=domain_id,
        signal_handler_options=rclpy.signals.SignalHandlerOptions.NO,
    )
    return context


def create_executor(context: Context, kind: str = "") -> Executor:
    """The events executor where it exists (its tail latency is ten times better), else the single-threaded one."""
    choice = kind or os.environ.get(EXECUTOR_VARIABLE, "events")
    if choice not in ("events", "single"):
        raise ValueError(f"{EXECUTOR_VARIABLE} must be events or single, got {choice!r}")
    if choice == "events":
        try:
            from rclpy.experimental import EventsExecutor
        except ImportError:
            return SingleThreadedExecutor(context=context)
        # It takes SIGINT and SIGTERM over when it is made; the program decides what those mean, so take them back.
        names = (signal.SIGINT, signal.SIGTERM)
        kept = {name: signal.getsignal(name) for name in names}
        # It also turns on faulthandler, which wants a real file; sys.stderr may be something else (a notebook's, say).
        with contextlib.redirect_stderr(sys.__stderr__ or sys.stderr):
            executor = EventsExecutor(context=context)
        if threading.current_thread() is threading.main_thread():
            for name, handler in kept.items():
                if handler is not None:
                    signal.signal(name, handler)
        return executor
    return SingleThreadedExecutor(context=context)


class Spinner:
    """Spins nodes on a thread of its own until closed. A callback that raises is logged and does not end it."""

    def __init__(
        self,
        context: Context,
        nodes: Iterable[Any] = (),
        *,
        kind: str = "",
        name: str = "ros",
        owns_context: bool = True,
    ) -> None:
        self.context = context
        self._owns_context = owns_context
        self.executor = create_executor(context, kind)
        self.errors = 0
        self._nodes = list(nodes)
        for node in self._nodes:
            self.executor.add_node(node)
        self._stop = Future(executor=self.executor)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"{name} executor", daemon=True)

    def start(self) -> Spinner:
        """Begin to spin."""
        self._thread.start()
        return self

    def add(self, node: Any) -> None:
        """Spin one more node."""
        self._nodes.append(node)
        self.executor.add_node(node)
        self.executor.wake()

    def call(self, function: Callable[..., None], *args: Any) -> None:
        """Run ``function`` soon on the executor's thread; from any thread."""
        self.executor.create_task(function, *args)

    def call_and_wait(self, function: Callable[[], Any], timeout_s: float) -> Any:
        """Run ``function`` on the executor's thread and return what it returns.

        Raises:
            TimeoutError: it did not end in time. Whatever ``function`` raises.
        """
        done = threading.Event()
        answer: list[Any] = []
        problem: list[BaseException] = []

        def work() -> None:
            try:
                answer.append(function())
            except BaseException as error:
                problem.append(error)
            finally:
                done.set()

        self.call(work)
        if not done.wait(timeout_s):
            raise TimeoutError(f"the ROS executor did not run {function} within {timeout_s} s")
        if problem:
            raise problem[0]
        return answer[0]

    def _run(self) -> None:
        while not self._closing and self.context.ok():
            try:
                # spin() without a deadline burns a core and fires no timers in the events executor of rclpy 9.1.
                self.executor.spin_until_future_complete(self._stop, timeout_sec=FOREVER_S)
            except Exception:
                self.errors += 1
                traceback.print_exc(file=sys.stderr)

    def close(self, timeout_s: float = 5.0) -> bool:
        """Stop spinning, destroy the nodes, shut the context down; False if the thread did not end in time."""
        if not self._closing:
            self._closing = True
            self._stop.set_result(None)
            self.executor.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        ended = not self._thread.is_alive()
        if ended:
            for node in self._nodes:
                self.executor.remove_node(node)
                node.destroy_node()
                # rclpy leaves actions out. They hold the node, and it holds its DDS participant, until Python's cyclic
                # garbage collector runs. Discovery on loopback sees 32 participants.
                for waitable in list(node.waitables):
                    waitable.destroy()
            self._nodes.clear()
            self.executor.shutdown(timeout_sec=timeout_s)
            if self._owns_context:
                self.context.try_shutdown()
        return ended


def mark_executing(handle: ServerGoalHandle) -> bool:
    """Show a goal as executing although its result comes later, from elsewhere. True if that worked.

    rclpy only offers a callback whose return value is the result, which would need a thread or a coroutine a goal.
    Coroutines that wait are polled or never resumed, depending on the executor.
    """
    update = getattr(handle, "_update_state", None)
    event = getattr(sys.modules[ActionServer.__module__], "GoalEvent", None)
    if update is None or event is None or handle.status != GoalStatus.STATUS_ACCEPTED:
        return False
    update(event.EXECUTE)
    return True


def finish_goal(server: ActionServer, handle: ServerGoalHandle, state: str, result: Any) -> None:
    """Give a goal its result: ``state`` is succeeded, aborted or canceled. On the executor's thread, once a goal."""

    def settle(goal: ServerGoalHandle) -> Any:
        if goal.is_active:
            if state == "succeeded":
                goal.succeed()
            elif state == "canceled" and goal.is_cancel_requested:
                goal.canceled()
            else:
                goal.abort()
        return result

    if handle.status == GoalStatus.STATUS_ACCEPTED:
        handle.execute(settle)
    else:
        server.notify_execute(handle, settle)


def describe_parameter(
    text: str, *, read_only: bool = False, low: Any = None, high: Any = None
) -> ParameterDescriptor:
    """A parameter descriptor with an inclusive range, so that rclpy itself refuses values outside it."""
    descriptor = ParameterDescriptor(description=text, read_only=read_only)
    if isinstance(low, float):
        descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=float(high), step=0.0)]
    elif isinstance(low, int):
        descriptor.integer_range = [IntegerRange(from_value=low, to_value=int(high), step=1)]
    return descriptor


def to_ros_time(seconds: float) -> Time:
    """ROS time of ``seconds`` since its epoch; zero for NaN or less."""
    if not seconds > 0.0:
        return Time()
    whole = int(seconds)
    return Time(sec=whole, nanosec=int((seconds - whole) * 1e9))


def send_goal(
    client: ActionClient,
    goal: Any,
    feedback: Callable[[Any], None] | None = None,
    goal_id: UUID | None = None,
) -> Future:
    """``client.send_goal_async`` without its leak, and from any thread.

    rclpy 9.1 makes two futures a goal and forgets the first, which stays in the list that the executor walks through
    at every event: memory and time grow with every goal ever sent. It also stores the second one where an answer that
    the executor's thread takes meanwhile misses it; here both happen under the client's own lock.
    """
    goal_id = goal_id if goal_id is not None else new_goal_id()
    if not all(hasattr(client, name) for name in _INSIDE_OF_CLIENT):
        return client.send_goal_async(goal, feedback_callback=feedback, goal_uuid=goal_id)
    request = client._action_type.Impl.SendGoalService.Request(goal_id=goal_id, goal=goal)
    future = Future()
    with client._lock:
        if feedback is not None:
            client._feedback_callbacks[bytes(goal_id.uuid)] = feedback
        number = client._client_handle.send_goal_request(request)
        client._pending_goal_requests[number] = future
        client._goal_sequence_number_to_goal_id[number] = goal_id
        future.add_done_callback(client._remove_pending_goal_request)
        client.add_future(future)
    return future


_INSIDE_OF_CLIENT = (
    "_lock",
    "_client_handle",
    "_feedback_callbacks",
    "_pending_goal_requests",
    "_goal_sequence_number_to_goal_id",
    "_remove_pending_goal_request",
)


def new_goal_id() -> UUID:
    """A random name for a goal."""
    return UUID(uuid=list(uuid.uuid4().bytes))


def assumed_goal_handle(client: ActionClient, goal_id: UUID) -> ClientGoalHandle:
    """A handle of a goal whose acceptance never came.

    During discovery the server may know the client's requests before it knows where to send responses. It then accepts
    the goal, and its answer is lost. A request for the result by name works all the same, and shows whether the goal
    exists.
    """
    return ClientGoalHandle(client, goal_id, client._action_type.Impl.SendGoalService.Response(accepted=True))


class EagerActionServer(ActionServer):
    """An action server that hands a goal over when it is taken from the middleware.

    rclpy first puts it back into the executor's queue, writes two debug lines and asks ``goal_callback``. That takes up
    to a millisecond in a busy process. ``on_goal`` gets the very object that ``handle.request``
    is later, or never, if rclpy refuses the goal; it must not raise.
    """

    def __init__(
        self,
        node: Any,
        action_type: Any,
        name: str,
        *,
        on_goal: Callable[[Any], None],
        on_accepted: Callable[[ServerGoalHandle], None],
        on_cancel: Callable[[ServerGoalHandle], CancelResponse],
        result_timeout: int,
    ) -> None:
        self._hand_over = on_goal
        super().__init__(
            node,
            action_type,
            name,
            execute_callback=lambda handle: action_type.Result(),
            goal_callback=lambda goal: GoalResponse.ACCEPT,
            handle_accepted_callback=on_accepted,
            cancel_callback=on_cancel,
            result_timeout=result_timeout,
        )
        without_debug_lines(self)

    def take_data(self) -> Any:
        """See ``rclpy.waitable.Waitable``."""
        data = super().take_data()
        if "goal" in data:
            self._hand_over(data["goal"][1].goal)
        return data


class _Terse:
    """A logger whose debug lines cost nothing unless somebody reads them."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def debug(self, message: str, **options: Any) -> bool:
        """As the logger's."""
        if not self._logger.is_enabled_for(LoggingSeverity.DEBUG):
            return False
        return bool(self._logger.debug(message, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


def without_debug_lines(action: ActionServer | ActionClient) -> None:
    """Spare an action server or client the price of debug lines.

    For each of them, read or not, rclpy looks up its caller's source file on the disk: 0.1 to 0.3 ms, several times a
    goal.
    """
    if hasattr(action, "_logger"):
        action._logger = _Terse(action._logger)


def cheap_goal_names() -> None:
    """Make goal ids print as plain hexadecimal, in the whole process.

    rclpy formats them for its debug lines whether or not anybody reads those, and numpy takes 0.1 ms to write out
    sixteen bytes: several times a goal.
    """
    UUID.__repr__ = lambda goal_id: bytes(goal_id.uuid).hex()
    bare: property = UUID.uuid
    if bare.fget is not None and not getattr(bare.fget, "cheap", False):
        read = bare.fget

        def cheap(goal_id: UUID) -> Any:
            return read(goal_id).view(_Hexadecimal)

        cheap.cheap = True  # type: ignore[attr-defined]
        UUID.uuid = property(cheap, bare.fset)


class _Hexadecimal(np.ndarray):
    """Bytes that print as plain hexadecimal."""

    def __str__(self) -> str:
        return self.tobytes().hex()

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)
