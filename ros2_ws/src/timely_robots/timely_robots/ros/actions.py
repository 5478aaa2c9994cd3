"""What rclpy's actions lack: deferred results, goals without leaks or lost acceptances, cheap debug lines."""

import contextlib
import ctypes
import logging
import math
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
from action_msgs.msg import GoalInfo, GoalStatus
from rclpy._rclpy_pybind11 import InvalidHandle
from rclpy.action import ActionClient, ActionServer, CancelResponse, GoalResponse
from rclpy.action.client import ClientGoalHandle
from rclpy.action.server import ServerGoalHandle
from rclpy.logging import LoggingSeverity
from rclpy.task import Future
from unique_identifier_msgs.msg import UUID

from timely_robots.ros.rclpy_utils import GOAL_SERVICES

log = logging.getLogger(__name__)

EVENT_TASKS = 4
"""An event becomes at most so many tasks, one after the other: of a goal, the acceptance, its execution, its result."""

_CLIENT_EVENTS = tuple(
    f"rcl_action_client_set_{source}_callback"
    for source in (
        "goal_client",
        "cancel_client",
        "result_client",
        "feedback_subscription",
        "status_subscription",
    )
)
_SERVER_EVENTS = tuple(
    f"rcl_action_server_set_{source}_callback"
    for source in ("goal_service", "cancel_service", "result_service")
)
"""Public functions of rcl_action: they set the callback of each event, or none."""


def mark_ros_goal_executing(handle: ServerGoalHandle) -> bool:
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


def finish_ros_goal(server: ActionServer, handle: ServerGoalHandle, state: str, result: Any) -> None:
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

    execute: Any = getattr(server, "_execute_goal", None)
    result_future: Any = getattr(server, "_result_futures", {}).get(bytes(handle.goal_id.uuid))
    if execute is None or not hasattr(result_future, "_set_executor"):
        if handle.status == GoalStatus.STATUS_ACCEPTED:
            handle.execute(settle)
        else:
            server.notify_execute(handle, settle)
        return
    # rclpy's own way goes twice through the executor's queue, and the server may be destroyed before.
    mark_ros_goal_executing(handle)
    result_future._set_executor(None)
    with contextlib.suppress(StopIteration):
        execute(settle, handle).send(None)


def adopt_ros_goal(server: ActionServer, goal_id: bytes, request: Any) -> ServerGoalHandle | None:
    """Take a goal up that an earlier process had accepted, so that its result and cancellation are answered.

    rclpy makes goals from requests only. On the executor's thread.

    Returns:
        Its handle, executing; None if rclpy is another one, or has such a goal.
    """
    if not all(hasattr(server, name) for name in ("_lock", "_goal_handles", "_result_futures", "_node")):
        return None
    info = GoalInfo(goal_id=UUID(uuid=list(goal_id)), stamp=server._node.get_clock().now().to_msg())
    try:
        with server._lock:
            handle = ServerGoalHandle(server, info, request)
    except RuntimeError:
        return None
    server._goal_handles[goal_id] = handle
    server._result_futures[goal_id] = result = Future()
    server.add_future(result)
    mark_ros_goal_executing(handle)
    return handle


def send_ros_goal(
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
    goal_id = goal_id if goal_id is not None else new_ros_goal_id()
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


def follow_ros_goal_feedback(client: ActionClient, goal_id: UUID, feedback: Callable[[Any], None]) -> None:
    """Get the feedback of a goal that another process sent; on the executor's thread."""
    if hasattr(client, "_feedback_callbacks"):
        client._feedback_callbacks[bytes(goal_id.uuid)] = feedback


def new_ros_goal_id() -> UUID:
    """A random name for a goal."""
    return UUID(uuid=list(uuid.uuid4().bytes))


GOAL_NAMES = uuid.UUID("6f0e1c5a-9d0b-4b52-8c39-2f4f6a0f7f11")


def ros_driver_goal_id(name: str) -> UUID:
    """The id of a goal with a name, the same in every process."""
    return UUID(uuid=list(uuid.uuid5(GOAL_NAMES, name).bytes))


def assumed_goal_handle(client: ActionClient, goal_id: UUID) -> ClientGoalHandle:
    """A handle of a goal whose acceptance never came.

    During discovery the server may know the client's requests before it knows where to send responses. It then accepts
    the goal, and its answer is lost. A request for the result by name works all the same, and shows whether the goal
    exists.
    """
    return ClientGoalHandle(client, goal_id, client._action_type.Impl.SendGoalService.Response(accepted=True))


UNANSWERED_S = 2.0
"""The result of a goal that was not accepted for so long is requested by the goal's id."""

RESULT_S = 10.0
"""The result of an accepted goal is requested again so often: a server that was started again knows no request."""


class RosActionCall:
    """One goal from the client's side: sent, perhaps cancelled, with its response. On the executor's thread.

    Args:
        on_response: gets the response, with ``status`` and ``result``, once; None if the server rejected the goal.
    """

    def __init__(
        self,
        client: ActionClient,
        goal: Any,
        on_response: Callable[[Any], None] = lambda response: None,
        feedback: Callable[[Any], None] | None = None,
    ) -> None:
        self.goal_id = new_ros_goal_id()
        self.handle: ClientGoalHandle | None = None
        self.response: Any = None
        self._client, self._goal, self._feedback, self._on_response = client, goal, feedback, on_response
        self._requested_s = math.inf
        self._is_cancelled = False

    @property
    def unanswered(self) -> bool:
        """The acceptance is late, or the result was requested long ago; the answer may be lost."""
        wait_s = UNANSWERED_S if self.handle is None else RESULT_S
        return self.response is None and time.monotonic() - self._requested_s > wait_s

    def send(self) -> None:
        """Send the goal, once."""
        self._requested_s = time.monotonic()
        goal_future = send_ros_goal(self._client, self._goal, self._feedback, self.goal_id)
        goal_future.add_done_callback(lambda future: self._on_acceptance(future.result()))

    def insist(self) -> None:
        """Request the result by the goal's id: an answer was lost, or the server was started again."""
        self._follow(assumed_goal_handle(self._client, self.goal_id))

    def cancel(self) -> None:
        """Cancel the goal; one that is not accepted yet as soon as it is."""
        self._is_cancelled = True
        if self.handle is not None:
            self.handle.cancel_goal_async()

    def _on_acceptance(self, handle: Any) -> None:
        if self.handle is not None:
            return
        if handle is None or not handle.accepted:
            self._on_response(None)
        else:
            self._follow(handle)

    def _follow(self, handle: ClientGoalHandle) -> None:
        self.handle, self._requested_s = handle, time.monotonic()
        handle.get_result_async().add_done_callback(lambda future: self._on_result(future.result()))
        if self._is_cancelled:
            handle.cancel_goal_async()

    def _on_result(self, response: Any) -> None:
        if response is not None and self.response is None:
            self.response = response
            self._on_response(response)


class EagerRosActionServer(ActionServer):
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
            **GOAL_SERVICES,
        )
        without_ros_debug_lines(self)

    def take_data(self) -> Any:
        data = super().take_data()
        if "goal" in data:
            self._hand_over(data["goal"][1].goal)
        return data


class _TerseRosLogger:
    """A logger whose debug lines cost nothing unless they are read."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def debug(self, message: str, **options: Any) -> bool:
        if not self._logger.is_enabled_for(LoggingSeverity.DEBUG):
            return False
        return bool(self._logger.debug(message, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)


def without_ros_debug_lines(action: ActionServer | ActionClient) -> None:
    """Spare an action server or client the price of debug lines.

    For each of them, read or not, rclpy looks up its caller's source file on the disk: 0.1 to 0.3 ms, several times a
    goal.
    """
    if hasattr(action, "_logger"):
        action._logger = _TerseRosLogger(action._logger)


def cheap_ros_goal_names() -> None:
    """Make goal ids print as plain hexadecimal, in the whole process.

    rclpy formats them for its debug lines whether or not anybody reads those, and numpy takes 0.1 ms to write out
    sixteen bytes: several times a goal.
    """
    UUID.__repr__ = lambda goal_id: bytes(goal_id.uuid).hex()
    bare: property = UUID.uuid
    if bare.fget is not None and not getattr(bare.fget, "cheap", False):
        read_name = bare.fget

        def cheap(goal_id: UUID) -> Any:
            return read_name(goal_id).view(_HexadecimalRosId)

        cheap.cheap = True  # type: ignore[attr-defined]
        UUID.uuid = property(cheap, bare.fset)


class _HexadecimalRosId(np.ndarray):
    """Bytes that print as plain hexadecimal."""

    def __str__(self) -> str:
        return self.tobytes().hex()

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def destroy_ros_action(action: ActionServer | ActionClient) -> None:
    """Destroy an action whose node may be spinning: soon, and behind all that was received for it. On any thread.

    rclpy's events executor (9.1) queues an event for each message. An event that comes after its action was removed is
    freed without Python's lock, which ends the process with a segmentation fault. So the middleware first queues no
    more of them. Until its end the action handles those that are queued, and a server answers them.
    """
    executor = action._node.executor
    if executor is None:
        action.destroy()
    else:
        # As a task: an executor that has not seen a new action yet would let its events be queued afterwards.
        executor.create_task(_end_ros_action, action, executor)


def _end_ros_action(action: ActionServer | ActionClient, executor: Any) -> None:
    _end_ros_action_events(action)
    _destroy_ros_action_after(action, executor, EVENT_TASKS)


def _destroy_ros_action_after(action: ActionServer | ActionClient, executor: Any, tasks: int) -> None:
    if tasks == 0:
        action.destroy()
    else:
        executor.create_task(_destroy_ros_action_after, action, executor, tasks - 1)


def _end_ros_action_events(action: ActionServer | ActionClient) -> None:
    """Let the middleware queue no more events of an action, if its library has such functions."""
    is_client = isinstance(action, ActionClient)
    handle = action._client_handle if is_client else action._handle
    try:
        # It is loaded already, and found by its name.
        library = ctypes.CDLL("librcl_action.so")
        functions = [library[name] for name in (_CLIENT_EVENTS if is_client else _SERVER_EVENTS)]
    except (OSError, AttributeError) as error:
        log.debug("an action that ends may end this process: %s", error)
        return
    with contextlib.suppress(InvalidHandle), handle:
        for set_callback in functions:
            set_callback(ctypes.c_void_p(handle.pointer), None, None)
