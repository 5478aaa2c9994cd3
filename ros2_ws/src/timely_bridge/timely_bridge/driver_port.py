"""A robot's driver over ROS 2: the segments of a plan as ExecuteSegment goals, its state as a heartbeat.

Two threads use it. The loop's thread calls ``ready``, ``forward`` and ``cancel`` and owns every future. Goals leave on
that thread, so that a segment does not wait for the executor's other work. All else of rclpy is used on the executor's
thread only, because its action client is not thread-safe.
"""

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass
from typing import Any

from action_msgs.msg import GoalStatus
from rclpy._rclpy_pybind11 import InvalidHandle, RCLError
from rclpy.action import ActionClient
from rclpy.lifecycle import LifecycleNode
from timely_interfaces.action import ExecuteSegment
from timely_interfaces.msg import ErrorCode, RobotState
from timely_robots.ros.actions import (
    assumed_goal_handle,
    destroy_ros_action,
    follow_ros_goal_feedback,
    ros_driver_goal_id,
    send_ros_goal,
    without_ros_debug_lines,
)
from timely_robots.ros.rclpy_utils import GOAL_SERVICES, LATCHED_QOS
from timely_robots.ros.state_messages import ROS_LINK_LOST
from timely_robots.safety import PauseGate

from timely.client import Segment
from timely_bridge.error_codes import BridgeTaskError
from timely_bridge.interfaces import Admit, BridgeSegment, SegmentExecution
from timely_bridge.loop_thread import BridgeLoopThread
from timely_bridge.robot_lease import BridgeRobotLease

READY_PERIOD_S = 0.05
"""How often a waiting task looks for the driver."""

CHECK_PERIOD_S = 0.2
UNANSWERED_S = 0.3
"""The result of a goal that was not accepted for so long is requested by the goal's id."""

MAX_SESSIONS = 16
REPEATS = 5
"""How often the result of an earlier life's segment is requested before its driver shows that it has it."""


async def wait_in_bridge_polls(what: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until ``what`` holds; False in the end. A pause of this process shortens the wait by one look only."""
    for _ in range(math.ceil(timeout_s / READY_PERIOD_S)):
        if what():
            return True
        await asyncio.sleep(READY_PERIOD_S)
    return what()


@dataclass(slots=True)
class _BridgeSegmentGoal:
    """A segment on the executor's thread."""

    goal: Any
    goal_id: Any
    since_s: float
    feedback: Callable[[Any], None]
    handle: Any = None
    assumed: bool = False
    """The handle was made here, because the acceptance did not come."""
    cancelled: bool = False
    unknown: bool = False
    """The driver does not have it from an earlier life."""
    dispatched: bool = False
    """This life has sent it."""
    repeats: int = REPEATS


class BridgeDriverPort:
    """See ``interfaces.BridgeDriver``. Made and destroyed on the executor's thread.

    Args:
        silence_s: a driver that publishes no state for so long is gone, and so is what it was executing.
        lease: of the robot; without it the driver takes no segments.
    """

    def __init__(
        self,
        node: LifecycleNode,
        loop: BridgeLoopThread,
        robot: str,
        silence_s: float,
        lease: BridgeRobotLease,
    ) -> None:
        self.robot = robot
        self.state: RobotState | None = None
        self._node = node
        self._loop = loop
        self._silence_s = silence_s
        self.lease = lease
        self._heard_s = -1e9
        self._past_sessions: deque[int] = deque(maxlen=MAX_SESSIONS)
        self._namesake_s = -1e9
        """When a driver was last heard whose session had ended already: there are two of this name."""
        self._pauses = PauseGate(CHECK_PERIOD_S)
        self._matched = False
        self._goals: dict[BridgeSegment, _BridgeSegmentGoal] = {}
        self._announcements: deque[BridgeSegment] = deque()
        self._client = ActionClient(node, ExecuteSegment, f"{robot}/execute_segment", **GOAL_SERVICES)
        without_ros_debug_lines(self._client)
        self._subscription = node.create_subscription(
            RobotState, f"{robot}/state", self._on_state, LATCHED_QOS
        )

    # --- The loop's side ---

    @property
    def alive(self) -> bool:
        return self.present and self.lease.is_held and not self._doubled and not self._link_lost

    @property
    def _link_lost(self) -> str:
        """Why the driver cannot reach its robot; empty if it can. A stop is the better reason to execute nothing."""
        state = self.state
        if state is None or state.mode == RobotState.STOPPED or ROS_LINK_LOST not in state.detail:
            return ""
        return str(state.detail)

    @property
    def _doubled(self) -> bool:
        return time.monotonic() - self._namesake_s <= self._silence_s

    @property
    def present(self) -> bool:
        """The driver's state was received lately."""
        return self._matched and time.monotonic() - self._heard_s <= self._silence_s

    @property
    def refusal(self) -> BridgeTaskError | None:
        if self._doubled:
            message = f"two drivers have the name {self.robot}: both would make the same motions"
            return BridgeTaskError(ErrorCode.DRIVER_UNAVAILABLE, message)
        if self.lease.refusal is None and self._link_lost:
            return BridgeTaskError(ErrorCode.CONNECTION_LOST, self._link_lost)
        return self.lease.refusal

    @property
    def holding(self) -> str:
        state = self.state
        return state.holding if state is not None and self.present else ""

    @property
    def session(self) -> int:
        state = self.state
        return int(state.session) if state is not None else 0

    @property
    def stopped(self) -> bool:
        state = self.state
        return state is not None and state.mode == RobotState.STOPPED

    def awaits_operator(self, segment: Segment) -> bool:
        state = self.state
        if state is None or not self.present or not state.awaiting:
            return False
        return bool((state.task_id, state.segment) == (segment.task_id, segment.index))

    @property
    def ready_now(self) -> bool:
        """The driver is active: it takes segments, or keeps a stop."""
        inactive = (RobotState.UNCONFIGURED, RobotState.FAULT)
        return self.alive and self.state is not None and self.state.mode not in inactive

    async def ready(self, timeout_s: float) -> bool:
        return await wait_in_bridge_polls(lambda: self.alive, timeout_s)

    async def forward(self, segments: AsyncIterable[Segment], admit: Admit) -> None:
        async for segment in segments:
            sent_segment = await admit(segment)
            if not sent_segment.ended.done():
                self._send(sent_segment)

    def cancel(self, sent_segment: BridgeSegment) -> None:
        self._node.executor.create_task(self._cancel, sent_segment)

    def cancel_task(self, task_id: str) -> None:
        self._node.executor.create_task(self._cancel_task, task_id)

    # --- ROS's side ---

    def destroy(self) -> None:
        """Release everything."""
        self.give_up()
        self.lease.destroy()
        self._node.destroy_subscription(self._subscription)
        destroy_ros_action(self._client)

    def give_up(self) -> None:
        """Cancel every segment at the driver, and end it here without its answer."""
        for mine in list(self._goals.values()):
            with contextlib.suppress(InvalidHandle, RCLError):  # the middleware is at its end
                (mine.handle or assumed_goal_handle(self._client, mine.goal_id)).cancel_goal_async()
        self._lose("the bridge released the driver")

    def _send(self, sent_segment: BridgeSegment) -> None:
        self._announcements.append(sent_segment)
        segment = sent_segment.segment
        goal = ExecuteSegment.Goal(
            task_id=segment.task_id,
            index=segment.index,
            text=segment.text,
            skill_set=sent_segment.skill_set,
            execution_s=segment.execution_s,
            blocking=segment.blocking,
            owner=self.lease.owner,
            epoch=self.lease.epoch,
            skill_set_fingerprint=segment.skill_set_fingerprint,
        )

        def feedback(message: Any) -> None:
            part = message.feedback
            self._loop.call(
                _on_bridge_segment_feedback, sent_segment, part.elapsed_s, part.remaining_s, time.monotonic()
            )

        goal_id = bridge_segment_goal_id(segment.task_id, segment.index)
        self._goals[sent_segment] = mine = _BridgeSegmentGoal(goal, goal_id, time.monotonic(), feedback)
        if sent_segment.again:
            self._node.executor.create_task(self._ask, sent_segment, mine)
        else:
            self._dispatch(sent_segment, mine)

    def _ask(self, sent_segment: BridgeSegment, mine: _BridgeSegmentGoal) -> None:
        """Follow a segment that the driver may have; it is sent if the driver does not know it."""
        follow_ros_goal_feedback(self._client, mine.goal_id, mine.feedback)
        mine.assumed, mine.since_s = True, time.monotonic()
        self._follow(sent_segment, mine, assumed_goal_handle(self._client, mine.goal_id))

    def _dispatch(self, sent_segment: BridgeSegment, mine: _BridgeSegmentGoal) -> None:
        mine.dispatched = True
        try:
            future = send_ros_goal(self._client, mine.goal, mine.feedback, mine.goal_id)
        except (InvalidHandle, RCLError) as error:
            # The node is on its way down, or the middleware is at its end.
            self._end(
                sent_segment,
                SegmentExecution("failed", ErrorCode.DRIVER_LOST, f"it cannot be sent to: {error}"),
            )
            return
        future.add_done_callback(lambda result: self._on_acceptance(sent_segment, result))

    def _dispatch_unknown(self) -> None:
        """Send segments that the driver does not have, each after all earlier ones of its task.

        What it says of an earlier one may be late or lost. So that one must have begun, or be in the driver's queue by
        its state, or have been sent by this life.
        """
        waiting: set[str] = set()
        for sent_segment, mine in list(self._goals.items()):
            task_id = sent_segment.segment.task_id
            if mine.unknown and task_id not in waiting:
                mine.unknown, mine.since_s = False, time.monotonic()
                self._dispatch(sent_segment, mine)
            elif sent_segment.again and not mine.dispatched and not self._at_driver(sent_segment):
                waiting.add(task_id)

    def _at_driver(self, sent_segment: BridgeSegment) -> bool:
        """The driver has begun a segment, or has it in its queue."""
        segment, state = sent_segment.segment, self.state
        if sent_segment.started.done() or state is None:
            return sent_segment.started.done()
        is_task = state.mode == RobotState.EXECUTING and state.task_id == segment.task_id
        return bool(is_task and segment.index <= state.segment + state.queued)

    def _announce(self, sent_segment: BridgeSegment) -> None:
        """Announce a segment and those sent before it, after the driver has got them."""
        while sent_segment in self._announcements:
            other = self._announcements.popleft()
            goal = self._goals.get(other)
            if goal is None or goal.dispatched:
                other.on_sent()

    def _on_acceptance(self, sent_segment: BridgeSegment, future: Any) -> None:
        self._announce(sent_segment)
        handle = future.result()
        mine = self._goals.get(sent_segment)
        if mine is None:
            # The segment was given up in the meantime; its motion must not go on.
            if handle is not None and handle.accepted:
                handle.cancel_goal_async()
        elif handle is None or not handle.accepted:
            self._end(
                sent_segment,
                SegmentExecution("refused", ErrorCode.DRIVER_UNAVAILABLE, "the driver rejected the goal"),
            )
        elif mine.handle is None:
            self._follow(sent_segment, mine, handle)

    def _follow(self, sent_segment: BridgeSegment, mine: _BridgeSegmentGoal, handle: Any) -> None:
        mine.handle = handle
        handle.get_result_async().add_done_callback(lambda result: self._result(sent_segment, handle, result))
        if mine.cancelled:
            handle.cancel_goal_async()

    def _result(self, sent_segment: BridgeSegment, handle: Any, future: Any) -> None:
        response, mine = future.result(), self._goals.get(sent_segment)
        if mine is None or mine.handle is not handle:
            return
        if response is None or response.status == GoalStatus.STATUS_UNKNOWN:
            if mine.assumed and not mine.cancelled:
                # The driver never got it. It is sent again; the driver takes each segment at most once.
                mine.handle, mine.assumed, mine.unknown = None, False, True
                self._dispatch_unknown()
                return
            self._end(
                sent_segment,
                SegmentExecution("failed", ErrorCode.DRIVER_LOST, "the driver no longer knows the segment"),
            )
            return
        result = response.result
        if sent_segment.again and (result.outcome, result.error_code) == ("refused", ErrorCode.DUPLICATE):
            self._end(sent_segment, _bridge_segment_executed_before(sent_segment.segment))
            return
        self._end(
            sent_segment,
            SegmentExecution(
                outcome=result.outcome if result.outcome in ("done", "cancelled", "refused") else "failed",
                code=result.error_code,
                message=result.error_msg,
                elapsed_s=result.elapsed_s,
                end_s=time.monotonic(),
                value=result.value if result.has_value else None,
            ),
        )

    def _cancel(self, sent_segment: BridgeSegment) -> None:
        mine = self._goals.get(sent_segment)
        if mine is not None:
            mine.cancelled = True
            if mine.handle is not None:
                mine.handle.cancel_goal_async()

    def cancel_goal(self, goal: str) -> None:
        """Cancel the segments of a goal's plans that were sent so far."""
        for sent_segment in list(self._goals):
            task_id = sent_segment.segment.task_id
            if task_id == goal or task_id.startswith(f"{goal}-"):
                self._cancel(sent_segment)

    def _cancel_task(self, task_id: str) -> None:
        state = self.state
        if state is not None and state.task_id == task_id and state.mode == RobotState.EXECUTING:
            goal_id = bridge_segment_goal_id(task_id, state.segment)
            assumed_goal_handle(self._client, goal_id).cancel_goal_async()

    def _end(self, sent_segment: BridgeSegment, execution: SegmentExecution) -> None:
        self._announce(sent_segment)
        self._goals.pop(sent_segment, None)
        self._loop.call(_settle_bridge_segment, sent_segment, execution)

    def _on_state(self, state: RobotState) -> None:
        if self.state is not None and self.state.session != state.session:
            self._lose("the driver was restarted")
            self._matched = False
            if state.session in self._past_sessions:
                self._namesake_s = time.monotonic()
            self._past_sessions.append(self.state.session)
        self.state = state
        self.lease.observe(state)
        self._heard_s = time.monotonic()
        if not self._matched:
            # The state may arrive before all of the action's parts have found each other.
            self._matched = self._client.server_is_ready()
        if self._matched:
            self.lease.check()

    def check(self) -> None:
        """Find a silent driver and goals without an answer; to be called every ``CHECK_PERIOD_S``.

        A pause of this process is no silence of the driver, whose messages may not have been received yet.
        """
        now_s = time.monotonic()
        self._heard_s = min(now_s, self._heard_s + self._pauses.check(now_s))
        if self.present:
            self.lease.check()
        silent_s = now_s - self._heard_s
        if self._matched and silent_s > self._silence_s:
            self._matched = False
            self._lose(f"the driver has been silent for {silent_s:.1f} s")
        late_s = now_s - UNANSWERED_S
        self._dispatch_unknown()
        for sent_segment, mine in list(self._goals.items()):
            if mine.unknown:
                continue  # it waits for an earlier one
            if mine.handle is None and mine.since_s < late_s:
                mine.assumed = True
                self._follow(sent_segment, mine, assumed_goal_handle(self._client, mine.goal_id))
            elif sent_segment.again and not mine.dispatched and mine.repeats > 0:
                self._check_again(sent_segment, mine, late_s)

    def _check_again(self, sent_segment: BridgeSegment, mine: _BridgeSegmentGoal, late_s: float) -> None:
        """See from the driver's state that a segment is in motion, or request its result again."""
        segment, state = sent_segment.segment, self.state
        if (
            state is not None
            and state.mode == RobotState.EXECUTING
            and (state.task_id, state.segment) == (segment.task_id, segment.index)
        ):
            # Its first feedback went to the earlier life of the bridge.
            mine.repeats = 0
            elapsed_s = state.progress * segment.execution_s
            self._loop.call(_on_bridge_segment_feedback, sent_segment, elapsed_s, 0.0, time.monotonic())
        elif mine.since_s < late_s:
            # The response is lost if the driver did not know yet where to send it.
            mine.repeats -= 1
            self._ask(sent_segment, mine)

    def _lose(self, message: str) -> None:
        for sent_segment in list(self._goals):
            self._end(
                sent_segment,
                SegmentExecution("failed", ErrorCode.DRIVER_LOST, message, end_s=time.monotonic()),
            )


def bridge_segment_goal_id(task_id: str, index: int) -> Any:
    """The id of the goal of a segment, by which every life of the bridge finds it."""
    return ros_driver_goal_id(f"{task_id} {index}")


def _bridge_segment_executed_before(segment: Segment) -> SegmentExecution:
    """The end of a segment that the driver took before, and whose result it no longer keeps.

    The driver answers DUPLICATE for a segment that it executed to its end, and the reason of the task's end for others.
    """
    if segment.blocking:
        return SegmentExecution(
            "cancelled", ErrorCode.SEGMENT_CANCELLED, "its value is lost", end_s=time.monotonic()
        )
    return SegmentExecution("done", end_s=time.monotonic())


def _on_bridge_segment_feedback(
    sent_segment: BridgeSegment, elapsed_s: float, remaining_s: float, now_s: float
) -> None:
    if not sent_segment.started.done():
        sent_segment.started.set_result(now_s - elapsed_s)
    elif sent_segment.progress is not None and not sent_segment.ended.done():
        sent_segment.progress(elapsed_s, remaining_s)


def _settle_bridge_segment(sent_segment: BridgeSegment, execution: SegmentExecution) -> None:
    if not sent_segment.ended.done():
        sent_segment.ended.set_result(execution)
