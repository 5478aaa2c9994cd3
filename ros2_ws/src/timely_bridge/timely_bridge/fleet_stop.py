"""The stop of the whole fleet: sent to every driver, acknowledged by each, repeated until a reset.

It has nodes, executors and threads of its own, so that neither goals nor drivers can delay it. The services block, so
their executor has several threads. The drivers' states and answers are many, so they have one that is cheap.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.context import Context
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from std_srvs.srv import Trigger
from timely_interfaces.msg import RobotState
from timely_interfaces.srv import ResetStop, StopFleet
from timely_robots.disk_thread import DriverDiskThread
from timely_robots.driver_store import new_driver_stop_id
from timely_robots.operators import RobotOperators
from timely_robots.ros.rclpy_utils import LATCHED_QOS, create_ros_helper_node, steady_ros_clock
from timely_robots.ros.realtime import mark_ros_stop_thread
from timely_robots.ros.services import create_ros_service
from timely_robots.ros.spinner import RosSpinner

from timely.core.errors import NotAllowed
from timely.core.json_log import log_fields
from timely_bridge.goals import RobotEntry
from timely_bridge.stop_latch import BridgeStopLatch

log = logging.getLogger(__name__)

HALTED, AT_REST, UNKNOWN = StopFleet.Response.HALTED, StopFleet.Response.AT_REST, StopFleet.Response.UNKNOWN
TOKEN_VARIABLE = "TIMELY_OPERATOR_TOKEN"
"""Environment variable: the token that releases the drivers after a reset over HTTP, which the server authorised."""
NO_STOP = "none"
"""Names no stop: a reset with it releases none that came after the driver's last state."""
ANSWER_S = 1.0
"""Deadline of ``~/stop`` and ``~/reset`` for the drivers' answers."""
MAX_DEADLINE_S = 30.0
SAVE_S = 0.25
"""A stop waits so long for the disk to take the latch."""
REPEAT_S = 0.25
"""How often a latched stop is sent again to a driver that has answered without acknowledging it."""
DRIVERS_FIRST_S = 0.1
"""The goals are ended when all drivers have answered, at the latest so long after a stop."""
UNANSWERED_S = 1.0
"""A request without an answer for so long is replaced. Sooner, a slow driver would get a backlog of stops."""
THREADS = 4
CLOSE_S = 5.0
NOTE_S = 10.0
"""Least time between two lines on one robot at the same stop of the fleet."""


@dataclass(slots=True, eq=False)
class _BridgeRobotStop:
    """One robot's driver, as the stop sees it."""

    name: str
    stop: Any
    reset: Any
    states: Any
    stop_request: Any = None
    """The request in progress, a future."""
    send_error: str = ""
    """Why the last request was not sent; empty if it was."""
    sent_s: float = 0.0
    acknowledged: bool = False
    """The driver has answered the latched stop, and has not said since that it is no longer stopped."""
    named: bool = True
    """The driver's state came after the last stop that was sent from here, as far as that can be seen."""
    is_ambiguous: bool = False
    """The next state may be from before that stop, even if it is new here.

    The stop was sent before any state came, or before a state named the stop before it; or the driver was restarted.
    """
    fleet_stop_id: str = ""
    """The fleet's stop that was last sent."""
    noted_ids: tuple[str, str] = ("", "")
    """The fleet's stop and the driver's that ``on_driver_stop`` was last called with, at ``noted_s``."""
    noted_s: float = -1e9
    state: RobotState | None = None
    received_s: float = -1e9

    def outcome(self, silence_s: float) -> str:
        """HALTED, AT_REST or UNKNOWN."""
        state = self.state
        if not self.acknowledged or (state is not None and state.mode == RobotState.FAULT):
            return UNKNOWN
        current = self.named and time.monotonic() - self.received_s <= silence_s
        return AT_REST if current and state is not None and state.halted and state.at_rest else HALTED


class BridgeFleetStop:
    """Services ``~/stop`` (``std_srvs/Trigger``), ``~/reset`` (``ResetStop``) and ``~/stop_fleet`` of the bridge.

    Args:
        bridge: full name of the bridge's node, which the services belong to.
        on_stop: is called at each stop, on a thread of this object, after the drivers were called and could answer.
        on_driver_stop: is called with the robot, the id of the fleet's stop, and that by which its driver keeps it.
        operators: may reset.
        disk: writes the latch.

    Attributes:
        reset_service: full name of ``~/reset``, for messages.
        server_stop: id of the server's stop that was followed since the last reset; empty without one.
        stop_id: of the last stop. No stop of another life of the bridge has it.
    """

    def __init__(
        self,
        context: Context,
        bridge: str,
        on_stop: Callable[[], None],
        on_driver_stop: Callable[[str, str, str], None],
        operators: RobotOperators,
        disk: DriverDiskThread,
    ) -> None:
        self.latch = BridgeStopLatch(disk)
        self.reset_service = f"{bridge}/reset"
        self.server_stop = ""
        self.stop_id = new_driver_stop_id()
        self._on_stop_call, self._on_driver_stop, self._operators = on_stop, on_driver_stop, operators
        self._robots: dict[str, _BridgeRobotStop] = {}
        self._names: tuple[str, ...] = ()
        """Of the robots, also after they were released: a reset needs an operator of them."""
        self._latching = threading.RLock()
        self._unanswered = 0
        """Stops in progress: their senders know no id yet."""
        self._silence_s = 3.0
        self._closing = False
        self._changed = threading.Condition()
        group = ReentrantCallbackGroup()
        namespace, _, name = bridge.rpartition("/")
        namespace = namespace or "/"
        self._node = create_ros_helper_node(f"{name}_stop", namespace, context)
        for kind, service, answer in (
            (Trigger, "stop", self._on_stop),
            (ResetStop, "reset", self._on_reset),
            (StopFleet, "stop_fleet", self._on_stop_fleet),
        ):
            create_ros_service(self._node, kind, f"{bridge}/{service}", answer, callback_group=group)
        self._drivers = create_ros_helper_node(f"{name}_stop_drivers", namespace, context)
        self._drivers.create_timer(REPEAT_S, self._repeat, clock=steady_ros_clock())
        self._spinner = RosSpinner(context, [self._drivers], name="stopped drivers", owns_context=False)
        mark_ros_stop_thread(self._spinner.start().thread)
        self._executor = MultiThreadedExecutor(THREADS, context=context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._spin, name="fleet stop", daemon=True)
        mark_ros_stop_thread(self._thread).start()

    def set_robots(self, entries: Iterable[RobotEntry], silence_s: float, latch: BridgeStopLatch) -> None:
        """Set the fleet and the latch of its state folder. A driver is lost after ``silence_s`` without a state."""
        self.clear_robots()
        with self._latching:
            before, self.latch, self._silence_s = self.latch, latch, silence_s
            if before.set:
                latch.put(True, own=before.own)
        node, robots = self._drivers, {}
        for entry in entries:
            driver = f"{entry.name}/{entry.driver_node}"  # in the bridge's namespace, as its goals
            robots[entry.name] = _BridgeRobotStop(
                name=entry.name,
                stop=node.create_client(Trigger, f"{driver}/stop"),
                reset=node.create_client(ResetStop, f"{driver}/reset"),
                states=node.create_subscription(
                    RobotState, f"{entry.name}/state", partial(self._on_state, entry.name), LATCHED_QOS
                ),
            )
        self._robots, self._names = robots, tuple(robots)
        self._spinner.executor.wake()

    def clear_robots(self) -> None:
        """Release the drivers; the latch stays."""
        robots, self._robots = self._robots, {}
        for robot in robots.values():
            for client in (robot.stop, robot.reset):
                self._drivers.destroy_client(client)
            self._drivers.destroy_subscription(robot.states)

    def stop(
        self, deadline_s: float, *, stop_id: str = "", until_at_rest: bool = False, by_server: bool = False
    ) -> dict[str, str]:
        """Stop every robot; robot -> HALTED, AT_REST or UNKNOWN, at the latest after ``deadline_s``.

        Returns as soon as every robot is halted; with ``until_at_rest`` as soon as every robot is at rest. A reset that
        names the stop ends it, too. Not on the thread of the drivers' answers: it blocks.

        Args:
            stop_id: of this stop; empty: a new one.
            by_server: a reset of the server may release it.
        """
        with self._latching:  # a bridge that is being configured gets another latch
            self.stop_id = stop_id = stop_id or new_driver_stop_id()
            saving = self.latch.put(True, own=not by_server)
            self._unanswered += 1
        try:
            return self._stop_robots(
                stop_id, saving, time.monotonic() + deadline_s, until_at_rest=until_at_rest
            )
        finally:
            with self._latching:
                self._unanswered -= 1

    def _stop_robots(
        self, stop_id: str, saving: Future[None], deadline_s: float, *, until_at_rest: bool
    ) -> dict[str, str]:
        """``stop`` behind its latch; until ``deadline_s`` on the monotonic clock."""
        robots = dict(self._robots)
        with self._changed:  # an answer that comes now is of an earlier stop
            for robot in robots.values():
                robot.acknowledged, robot.send_error = False, ""
                self._send_stop(robot)
            # To end all goals takes the processor for a while, which the drivers need now.
            self._changed.wait_for(
                lambda: all(robot.stop_request is None for robot in robots.values()),
                min(DRIVERS_FIRST_S, max(0.0, deadline_s - time.monotonic())),
            )
        try:
            self._on_stop_call()
        except Exception:
            # The drivers have the stop; its answer must not depend on the goals.
            with log_fields({"stop_id": stop_id}):
                log.exception("a call at the stop failed")
        enough = (AT_REST,) if until_at_rest else (HALTED, AT_REST)
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    not self.latch.set
                    or all(robot.outcome(self._silence_s) in enough for robot in robots.values())
                ),
                max(0.0, deadline_s - time.monotonic()),
            )
        with suppress(TimeoutError):
            # Robots come first. A slow disk delays the answer a little, and no halt.
            saving.result(min(SAVE_S, max(0.0, deadline_s - time.monotonic())))
        return {name: robot.outcome(self._silence_s) for name, robot in robots.items()}

    def reset(
        self,
        token: str | None = None,
        deadline_s: float = ANSWER_S,
        *,
        stop_id: str = "",
        by_server: bool = False,
    ) -> dict[str, str]:
        """Clear the latch and reset every driver; robot -> the complaint, for those without success.

        A stop that comes meanwhile wins: drivers that were not reset yet keep their stop. Each driver is told which
        stop to release, by the state that was received from it. So a reset that reaches it late leaves a stop that was
        sent to the driver itself. A driver that has not answered its last stop, or whose state does not name it yet,
        gets no reset.

        Args:
            token: of the operator, for the drivers; None takes ``$TIMELY_OPERATOR_TOKEN``.
            stop_id: of the stop to release; empty: any that was answered.
            by_server: it changes nothing where a stop was made here, too.
        """
        token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
        with self._latching:  # each stop is before the latch is cleared, or after
            if by_server and self.latch.own:
                return dict.fromkeys(self._robots, "the fleet was also stopped here")
            if not stop_id and self._unanswered:
                being_stopped = (
                    f"the fleet is being stopped; a reset of this stop must name it: {self.stop_id!r}"
                )
                return dict.fromkeys(self._robots, being_stopped)
            if stop_id not in ("", self.stop_id):
                latched = f"{stop_id!r} is not the latched stop, which is {self.stop_id!r}"
                return dict.fromkeys(
                    self._robots, latched if self.latch.set else "no stop of the fleet is latched"
                )
            last_id, server_stop = self.stop_id, self.server_stop
            self.latch.put(False)
        robots = dict(self._robots)
        results: dict[str, str] = dict.fromkeys(robots, "no answer")
        stop_ids: dict[str, str] = {}
        with self._changed:
            for one in robots.values():
                if one.stop_request is not None and time.monotonic() - one.sent_s >= UNANSWERED_S:
                    # The driver may have been started again, and no longer know the request.
                    self._send_stop(one)
            self._changed.wait_for(partial(self._collect_stop_ids, robots, stop_ids), deadline_s)
        if self.server_stop == server_stop:
            self.server_stop = ""
        if self.stop_id != last_id:
            return dict.fromkeys(robots, "the fleet was stopped again")
        for name, robot in robots.items():
            robot.acknowledged = False
            if name not in stop_ids:
                if robot.state is not None:
                    results[name] = "its last stop is not answered yet"
            elif robot.reset.service_is_ready():
                try:
                    answer = robot.reset.call_async(ResetStop.Request(token=token, stop_id=stop_ids[name]))
                except Exception as error:
                    # The middleware refuses one driver's request: the others must get theirs.
                    results[name] = str(error) or type(error).__name__
                else:
                    answer.add_done_callback(partial(self._on_reset_answer, results, name))
        with self._changed:
            self._changed.wait_for(lambda: not any(results.values()), deadline_s)
            return {name: complaint for name, complaint in results.items() if complaint}

    @staticmethod
    def _collect_stop_ids(robots: Mapping[str, _BridgeRobotStop], stop_ids: dict[str, str]) -> bool:
        """Note for each robot which stop a reset would release, once that is known; True if it is for all."""
        for name, robot in robots.items():
            if robot.stop_request is None and robot.named and robot.state is not None:
                stop_ids.setdefault(name, robot.state.stop_id or NO_STOP)
        return len(stop_ids) == len(robots)

    def outcomes(self) -> dict[str, str]:
        """Robot -> HALTED, AT_REST or UNKNOWN, now."""
        return {name: robot.outcome(self._silence_s) for name, robot in dict(self._robots).items()}

    def close(self) -> bool:
        """End the executor and destroy the node; False if a thread did not end in time."""
        if not self._thread.is_alive():
            return True
        self._closing = True
        self._executor.shutdown(timeout_sec=CLOSE_S)
        self._thread.join(CLOSE_S)
        self._node.destroy_node()
        ended = self._spinner.close(CLOSE_S)
        self._robots = {}
        return ended and not self._thread.is_alive()

    # --- The executors' threads ---

    def _spin(self) -> None:
        while not self._closing:
            try:
                self._executor.spin()
            except ExternalShutdownException:
                return
            except Exception:
                # A callback that raises must not end the stop of the fleet.
                with log_fields({"stop_id": self._latched_stop_id}):
                    log.exception("a callback of the fleet's stop failed")

    @property
    def _latched_stop_id(self) -> str:
        """Empty while no stop is latched."""
        return self.stop_id if self.latch.set else ""

    def _send_stop(self, robot: _BridgeRobotStop) -> None:
        if robot.stop_request is not None:
            # A driver that hangs answers none of them; only the last request is kept.
            robot.stop.remove_pending_request(robot.stop_request)
        robot.sent_s, robot.stop_request, robot.fleet_stop_id = time.monotonic(), None, self.stop_id
        robot.is_ambiguous, robot.named = robot.state is None or not robot.named, False
        try:
            robot.stop_request = request = robot.stop.call_async(Trigger.Request())
        except Exception as error:
            # The middleware refuses one driver's request: the others must get theirs. It is repeated.
            before, robot.send_error = robot.send_error, str(error) or type(error).__name__
            if robot.send_error != before:
                with log_fields({"robot": robot.name, "stop_id": self._latched_stop_id}):
                    log.exception("a driver's stop was not sent")
            return
        robot.send_error = ""
        request.add_done_callback(partial(self._on_stop_answer, robot))

    def _on_stop_answer(self, robot: _BridgeRobotStop, request: Any) -> None:
        answer = request.result()
        with self._changed:
            if request is not robot.stop_request:
                return  # a late answer to an earlier stop says nothing of this one
            robot.acknowledged = answer is not None and bool(answer.success)
            robot.stop_request = None
            self._changed.notify_all()

    def _on_reset_answer(self, results: dict[str, str], name: str, request: Any) -> None:
        answer = request.result()
        with self._changed:
            success, message = (False, "") if answer is None else (answer.success, answer.message)
            results[name] = "" if success else message or "refused"
            self._changed.notify_all()

    def _on_state(self, name: str, state: RobotState) -> None:
        robot = self._robots.get(name)
        if robot is None:
            return
        with self._changed:
            restarted = robot.state is not None and robot.state.session != state.session
            is_changed = robot.state is not None and robot.state.stop_id != state.stop_id
            robot.is_ambiguous |= restarted
            robot.state, robot.received_s = state, time.monotonic()
            age_s = robot.received_s - robot.sent_s
            is_late = age_s > (REPEAT_S if robot.is_ambiguous else UNANSWERED_S)
            robot.named = robot.named or is_late or (is_changed and not robot.is_ambiguous)
            if (
                self.latch.set
                and robot.acknowledged
                and (restarted or not _is_driver_stopped_for_bridge(state))
            ):
                robot.acknowledged = robot.sent_s > time.monotonic() - REPEAT_S and not restarted
            self._changed.notify_all()
            if state.stop_id and self.latch.set and robot.named and robot.acknowledged:
                self._note_driver_stop(robot, (robot.fleet_stop_id, state.stop_id))

    def _note_driver_stop(self, robot: _BridgeRobotStop, ids: tuple[str, str]) -> None:
        """Call ``on_driver_stop`` for another stop of the fleet at once, for another one of the driver at times.

        Where two drivers have one name, the stop is repeated for ever, and each repetition is another one of a driver.
        """
        is_due = ids[0] != robot.noted_ids[0] or robot.received_s - robot.noted_s >= NOTE_S
        if is_due and ids[1] != robot.noted_ids[1]:
            robot.noted_ids, robot.noted_s = ids, robot.received_s
            self._on_driver_stop(robot.name, *ids)

    def _repeat(self) -> None:
        """Send the latched stop again to every driver that has not acknowledged it."""
        now_s = time.monotonic()
        with self._changed:  # a reset waits for what is sent here
            if not self.latch.set:
                return
            for robot in dict(self._robots).values():
                period_s = REPEAT_S if robot.stop_request is None else UNANSWERED_S
                if not robot.acknowledged and now_s - robot.sent_s >= period_s:
                    self._send_stop(robot)

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        outcomes = self.stop(ANSWER_S)
        response.success, response.message = _bridge_stop_verdict(
            outcomes, self.reset_service, unsaved=self.latch.unsaved
        )
        return response

    def _on_stop_fleet(self, request: StopFleet.Request, response: StopFleet.Response) -> StopFleet.Response:
        deadline_s = min(request.deadline_s, MAX_DEADLINE_S)
        response.stop_id = new_driver_stop_id()
        outcomes = self.stop(deadline_s, stop_id=response.stop_id, until_at_rest=True)
        response.robots, response.states = list(outcomes), list(outcomes.values())
        response.success, response.message = _bridge_stop_verdict(
            outcomes, self.reset_service, unsaved=self.latch.unsaved
        )
        return response

    def _on_reset(self, request: ResetStop.Request, response: ResetStop.Response) -> ResetStop.Response:
        try:
            name = self._operators.identify(request.token, self._names, "reset the stop of the fleet")
        except NotAllowed as error:
            response.message = str(error)
            return response
        with log_fields({"stop_id": request.stop_id or self._latched_stop_id}):
            self._node.get_logger().info(f"operator {name}: reset of the fleet")
        complaints = self.reset(request.token, stop_id=request.stop_id)
        response.success = bool(self._robots) and not complaints
        response.message = _bridge_list_text(complaints) or (
            "ready" if self._robots else "the bridge has no robots"
        )
        return response


def _is_driver_stopped_for_bridge(state: RobotState) -> bool:
    """The driver keeps the stop: it says so, or it takes no segments at all."""
    return state.mode in (RobotState.STOPPED, RobotState.FAULT, RobotState.UNCONFIGURED)


def _bridge_stop_verdict(
    outcomes: Mapping[str, str], reset_service: str, *, unsaved: bool
) -> tuple[bool, str]:
    """Success, and the message for people: every robot's outcome."""
    if not outcomes:
        return False, "the bridge has no robots; the stop is latched"
    success = UNKNOWN not in outcomes.values()
    disk_note = "; the disk does not have the stop yet" if unsaved else ""
    return success, f"{_bridge_list_text(outcomes)}{disk_note}; call {reset_service} to go on"


def _bridge_list_text(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())
