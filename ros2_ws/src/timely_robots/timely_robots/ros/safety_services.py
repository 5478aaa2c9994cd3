"""A driver's safety over ROS 2: stop, reset, lease, confirmation and the distance to obstacles.

``~/stop`` has a node, an executor and a thread of its own, so that nothing else can delay it. So has ``~/reset``: one
that waited for the driver's executor would release a stop that was latched after the request. So has
``~/acquire_lease``, because a take-over ends a motion.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rclpy.lifecycle import LifecycleNode
from std_msgs.msg import Float32
from std_srvs.srv import Trigger
from timely_interfaces.msg import Lease as LeaseMessage
from timely_interfaces.srv import AcquireLease, ConfirmSkill, ResetStop

from timely.core.errors import InvalidInput, NotAllowed
from timely.core.json_log import log_fields
from timely_robots.error_codes import ErrorCode
from timely_robots.execution import SegmentExecutor
from timely_robots.halter import HALT_S, RobotHalter
from timely_robots.operators import RobotOperators
from timely_robots.robot import Robot
from timely_robots.robot_names import robot_name_of
from timely_robots.ros.rclpy_utils import SENSOR_QOS, create_ros_helper_node
from timely_robots.ros.realtime import mark_ros_stop_thread
from timely_robots.ros.services import create_ros_service
from timely_robots.ros.spinner import RosSpinner
from timely_robots.safety import SafetyGuard
from timely_robots.segments import MotionError, SegmentResult

ANSWER_S = 0.5
"""A stop that has not returned after so long is answered as unknown."""

RESET_S = 0.5
"""The answer to a reset waits at most so long until the driver takes segments again."""


class RosSafetyServices:
    """Services ``~/stop``, ``~/reset``, ``~/acquire_lease``, ``~/confirm``; topics ``lease`` and ``proximity``.

    A stop is a success when the robot took the command to halt over a link that holds, and the stop is latched. Each
    call runs on a fresh thread. So a vendor call that hangs in one stop delays neither its answer nor the next stop.

    Args:
        operators: may reset, take a lease over, and confirm.
        executor: the segment executor now; None while the driver is not configured.
        active: the driver takes segments.
        is_connected: the robot is connected, so it can be halted.
        on_change: is called on the node's executor when the driver's state has changed.
    """

    def __init__(
        self,
        node: LifecycleNode,
        robot: Robot,
        guard: SafetyGuard,
        operators: RobotOperators,
        *,
        executor: Callable[[], SegmentExecutor | None],
        active: Callable[[], bool],
        is_connected: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        self._node, self._robot, self._guard, self._operators = node, robot, guard, operators
        self._executor, self._active, self._is_connected, self._on_change = (
            executor,
            active,
            is_connected,
            on_change,
        )
        self._halted = False
        self._logged_stop = (0, "")
        """Resets before the last stop in the log, and its answer."""
        self._reset_end = threading.Event()
        """Set once segments that came before the last reset cannot come any more."""
        self._halter = RobotHalter(lambda: robot.halt())  # noqa: PLW0108 - a test may replace it
        self._stopper = RobotHalter(self.stop)
        node.create_subscription(LeaseMessage, "lease", self._on_lease, 10)
        node.create_subscription(Float32, "proximity", self._on_proximity, SENSOR_QOS)
        create_ros_service(node, ConfirmSkill, "~/confirm", self._on_confirm)
        name, namespace = node.get_name(), node.get_namespace()
        self._spinners = []
        for service, kind, answer in (
            ("stop", Trigger, self._on_stop),
            ("reset", ResetStop, self._on_reset),
            ("acquire_lease", AcquireLease, self._on_acquire_lease),
        ):
            helper = create_ros_helper_node(f"{name}_{service}", namespace, node.context)
            create_ros_service(helper, kind, f"{name}/{service}", answer)
            spinner = RosSpinner(node.context, [helper], name=f"{namespace} {service}", owns_context=False)
            # The reset, too: with less precedence it would begin after a stop that came later.
            mark_ros_stop_thread(spinner.start().thread)
            self._spinners.append(spinner)

    def close(self) -> None:
        for spinner in self._spinners:
            spinner.close()

    @property
    def halted(self) -> bool:
        """The stop is latched, and the robot's halt has returned since."""
        return self._halted and self._guard.store.stop_reason is not None

    def halt_if_stopped(self) -> None:
        """Halt a robot that was stopped in an earlier life of its driver."""
        if self._guard.store.stop_reason is not None:
            halt = self._halter.begin()
            halt.join(HALT_S)
            self._halted = halt.error is None

    def stop(self) -> None:
        """Halt the robot and latch the stop; from any thread. Raises an exception if it is not certain that it did."""
        executor, reason, store = self._executor(), "~/stop was called", self._guard.store
        self._halted = False
        if executor is not None:
            executor.stop(reason)
        else:
            with store.stopping(reason):
                end_s = time.monotonic() + HALT_S
                halt = self._halter.begin() if self._is_connected() else None
                saving = store.save()
                if halt is not None:
                    halt.join(HALT_S)
                    if halt.error is not None:
                        raise halt.error
                with suppress(TimeoutError):
                    saving.result(max(0.0, end_s - time.monotonic()))
        if not self._is_connected():
            raise MotionError("the driver is not connected to its robot", ErrorCode.CONNECTION_LOST)
        if self._robot.status().link_lost:
            raise MotionError("the link to the robot is lost", ErrorCode.CONNECTION_LOST)
        self._halted = True

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        stop = self._stopper.begin()
        stop.join(ANSWER_S)
        self._change_soon()
        stop_id, resets = self._guard.store.stop_id, self._guard.resets
        disk_note = ", the disk does not have the stop yet" if self._guard.store.stop_unsaved else ""
        reset = f"{self._node.get_fully_qualified_name()}/reset"
        response.success, response.message = True, f"halted{disk_note}; call {reset} to go on"
        if (error := stop.error) is not None:
            response.success, response.message = False, f"unknown: {str(error) or repr(error)}"
        # A stop without success is repeated several times a second, perhaps for hours.
        if self._logged_stop != (resets, response.message):
            self._logged_stop = (resets, response.message)
            self._call_soon(self._log_stop, stop_id, response.message)
        return response

    def _identify(self, token: str, action: str) -> None:
        """Raise NotAllowed unless the token is an operator's; the log gets the operator's name."""
        name = self._operators.identify(token, [robot_name_of(self._node.get_namespace())], action)
        self._node.get_logger().info(f"operator {name}: {action}")

    def _on_reset(self, request: ResetStop.Request, response: ResetStop.Response) -> ResetStop.Response:
        guard = self._guard
        try:
            with log_fields({"stop_id": guard.store.stop_id}):
                self._identify(request.token, "reset a stop")
            if guard.store.stop_reason is not None:
                guard.resets += 1
            self._reset_end.clear()  # now that an earlier reset's end is no end of this one
            guard.store.clear_stop(request.stop_id)
        except (InvalidInput, NotAllowed) as error:
            response.message = str(error)
        else:
            response.success = True
            response.message = "ready" if self._active() else "the driver is not active"
        finally:
            if (ros_executor := self._node.executor) is not None:
                ros_executor.create_task(self._settle, guard.resets)
                if response.success:
                    # A segment that is sent behind the answer is not taken for one of before the reset.
                    self._reset_end.wait(RESET_S)
        return response

    def _settle(self, resets: int, segments: int = -1) -> None:
        """On the node's executor, after the segments that were waiting for it: the robot was stopped since.

        The single-threaded executor takes one of them, and then what it was asked to call.
        """
        guard = self._guard
        if guard.segments != segments and (ros_executor := self._node.executor) is not None:
            ros_executor.create_task(self._settle, resets, guard.segments)
            return
        guard.settled_resets = max(resets, guard.settled_resets)
        if guard.settled_resets == guard.resets:
            self._reset_end.set()
        self._on_change()

    def _on_acquire_lease(
        self, request: AcquireLease.Request, response: AcquireLease.Response
    ) -> AcquireLease.Response:
        lease = self._guard.lease
        try:
            if request.take_over:
                self._identify(request.token, "take a lease over")
            epoch = self._guard.acquire(
                request.owner, take_over=request.take_over, ends_epoch=request.ends_epoch
            )
            code = ErrorCode.LEASE_DENIED if epoch is None else ErrorCode.NONE
        except InvalidInput as error:
            epoch, code, response.message = None, ErrorCode.STORAGE_FAILED, str(error)
        except NotAllowed as error:
            epoch, code, response.message = None, ErrorCode.NOT_ALLOWED, str(error)
        response.granted, response.error_code = epoch is not None, int(code)
        response.epoch = epoch or 0
        response.owner = lease.state(time.monotonic()).owner
        response.lapse_s = lease.lapse_s
        if epoch is None and not response.message:
            response.message = f"the lease is of {response.owner!r}" if request.owner else "owner is empty"
        if epoch is not None and (executor := self._executor()) is not None:
            # A new lease ends the tasks of earlier owners.
            executor.end_tasks(
                lambda order: not lease.permits(order.owner, order.epoch, time.monotonic()),
                SegmentResult("cancelled", ErrorCode.NOT_OWNER, "another client acquired the lease"),
            )
        self._change_soon()
        return response

    def _log_stop(self, stop_id: str, message: str) -> None:
        with log_fields({"stop_id": stop_id}):
            self._node.get_logger().warning(f"stop: {message}")

    def _change_soon(self) -> None:
        """Call ``on_change`` on the node's executor."""
        self._call_soon(self._on_change)

    def _call_soon(self, function: Callable[..., None], *arguments: object) -> None:
        if (ros_executor := self._node.executor) is not None:
            ros_executor.create_task(function, *arguments)

    def _on_lease(self, message: LeaseMessage) -> None:
        self._guard.renew(message.owner, message.epoch, release=message.released)

    def _on_proximity(self, message: Any) -> None:
        self.observe_proximity(float(message.data))

    def observe_proximity(self, distance_m: float) -> None:
        """Slow or stop the robot by the distance to an obstacle, metres."""
        gate, now_s = self._guard.proximity, time.monotonic()
        gate.observe(distance_m, now_s)
        self._robot.speed_share = gate.speed_share
        if (problem := gate.problem(now_s)) and (executor := self._executor()) is not None:
            executor.interrupt(ErrorCode.OBSTACLE, problem)

    def _on_confirm(
        self, request: ConfirmSkill.Request, response: ConfirmSkill.Response
    ) -> ConfirmSkill.Response:
        confirmation = self._guard.confirmation
        try:
            self._identify(request.token, "confirm a skill")
        except NotAllowed as error:
            response.message = str(error)
            return response
        response.success = confirmation.answer(request.task_id, request.segment, request.call, request.allow)
        if not response.success:
            awaiting = f": {confirmation.awaiting} does" if confirmation.awaiting else ""
            response.message = f"this call does not wait for a confirmation{awaiting}"
        return response
