"""The connection to an Indy7's controller through the vendor's library, with a deadline on every call.

The library's calls have none: a controller that falls silent without closing its connections would hold the motion
thread for ever. So they run on threads of this link, and a late call is a lost connection. Each stop has a thread of
its own, so a stop that hangs delays no other.
"""

import contextlib
import math
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from typing import Any, TypeVar

from timely.core.errors import InvalidInput
from timely_robots.claim import claim_robot
from timely_robots.clock import RobotClock
from timely_robots.error_codes import ErrorCode
from timely_robots.halter import RobotHalter
from timely_robots.robot import vendor_library_error
from timely_robots.segments import MotionError

SERVICES = ("control", "device", "config", "rtde")
"""The controller's channels that this link uses."""
STATE_EVERY_S = 0.2
HALT_AGAIN_S = 0.1
HALT_FAULT_S = 3.0
"""An arm that was not observed at rest so long after a stop has a fault. The stop is repeated all the same."""
STOP_FIRST_S = 0.03
"""A stop's caller waits so long for the controller's answer, so that its own work does not delay the stop."""
STOP_ANSWER_S = 0.3
"""A stop without an answer for so long counts as failed. It is repeated all the same."""
WAIT_POLLS = 10
"""A wait for an answer has so many parts. A pause of this process, in which it hears nothing, takes one of them."""
IDLE, MOVING, TRAJECTORY = 5, 6, 18
"""States of the controller (``OpState``) in which it takes motions."""
STATES = {
    0: "off",
    1: "switched on",
    2: "a violation",
    3: "hard recovery",
    4: "soft recovery",
    7: "teaching",
    8: "a collision",
    9: "stopped and off",
    10: "compliance",
    11: "brake control",
    12: "a reset",
    13: "a switch of systems",
    15: "power off",
    16: "manual recovery",
    17: "teleoperation",
}
"""The others: a person has to end them."""
_T = TypeVar("_T")


class Indy7Link:
    """One arm. ``open`` it first; safe to use from several threads.

    Args:
        timeout_s: longest wait for an answer.
    """

    def __init__(self, host: str, timeout_s: float, clock: RobotClock) -> None:
        self._host = host
        self._timeout_s = timeout_s
        self._clock = clock
        self._arm: Any = None
        self._calls = ThreadPoolExecutor(4, thread_name_prefix=f"indy7 {host}")
        self._stops = RobotHalter(self._stop_motion)
        self._halt_s: float | None = None
        self._setting = False
        """An output is being set; the call may last longer than its caller waits."""
        self._open_output: tuple[int, bool, Callable[[], None]] | None = None
        """Address, value and callback of the output that may be set or not."""
        self._halt_lock = threading.Lock()
        """Held for moments: the end of an earlier stop must not end a new one."""
        self._halting = threading.Event()
        self._closing = threading.Event()
        self._watch = threading.Thread(target=self._run, name=f"indy7 {host} state", daemon=True)
        self._claim: socket.socket | None = None
        self._state = IDLE
        """Of the controller, as last heard."""
        self.pose: tuple[float, ...] | None = None
        """The flange as last heard: x, y, z in mm, u, v, w in degrees."""
        self.complaint = ""
        """Why the state is old."""
        self.at_rest = False
        """The arm was observed at rest at the last look, which was a moment ago."""
        self.fault = ""
        """Why a stop has no effect; empty if it has."""
        self._halter = threading.Thread(target=self._repeat_halt, name=f"indy7 {host} halt", daemon=True)
        self._halter.start()

    def open(self, timeout_s: float) -> None:
        """Connect within ``timeout_s``.

        Raises:
            MotionError: CONNECTION_LOST: no library, another driver, or no controller.
        """
        try:
            self._claim = claim_robot("indy7", socket.gethostbyname(self._host))
            self._connect()
            self._until_ready(timeout_s)
            self.read_pose()
        except ImportError as error:
            self.close()
            raise vendor_library_error(error) from error
        except InvalidInput as error:
            self.close()
            raise MotionError(str(error), ErrorCode.CONNECTION_LOST) from error
        except Exception as error:  # of the vendor's library
            self.close()
            raise MotionError(
                f"no controller at {self._host} within {timeout_s:g} s", ErrorCode.CONNECTION_LOST
            ) from error
        self._watch.start()

    def _connect(self) -> None:
        """Make new channels. The old ones are closed before, or the new ones would share their waits."""
        from neuromeka import IndyDCP3

        if self._arm is not None:
            _close_indy7_channels(self._arm)
        self._arm = IndyDCP3(self._host)

    def _reconnect(self) -> None:
        """Block until the controller is there again; raises grpc.FutureTimeoutError if it is not within a call's time.

        A channel of gRPC waits longer after each attempt, up to two minutes. So each call of this has new channels.
        """
        import grpc

        try:
            self._until_ready(self._timeout_s)
        except grpc.FutureTimeoutError:
            if not self._closing.is_set():
                self._connect()
            raise

    def _until_ready(self, timeout_s: float) -> None:
        """Block until every channel that is used is connected; raises grpc.FutureTimeoutError if one is not."""
        import grpc

        end = self._clock.now() + timeout_s
        for name in SERVICES:
            ready = grpc.channel_ready_future(getattr(self._arm, f"{name}_channel"))
            try:
                ready.result(timeout=max(0.05, end - self._clock.now()))
            finally:
                ready.cancel()  # or the channel keeps it until the controller is there

    def close(self) -> None:
        self._closing.set()
        if self._watch.is_alive():
            self._watch.join(self._timeout_s + 1.0)
        if self._halter is not threading.current_thread():
            self._halter.join(self._timeout_s + 1.0)
        self._calls.shutdown(wait=False, cancel_futures=True)
        arm, self._arm = self._arm, None
        if arm is not None:
            _close_indy7_channels(arm)
        if self._claim is not None:
            self._claim.close()

    def halt(self, wait_s: float = STOP_FIRST_S) -> str:
        """Brake now; repeated until the arm is observed at rest. Returns within ``wait_s``, from any thread.

        Returns:
            Why it is not certain that the controller took the first stop; empty if it is.
        """
        if self._arm is None or self._closing.is_set():
            return "the arm is not connected"
        with self._halt_lock:
            # Before the stop, so that a look which began earlier does not show the arm at rest.
            self._halt_s = self._clock.now()
            self._halting.set()
            self.at_rest = False
        return self._send_stop(wait_s)

    @property
    def halting(self) -> bool:
        """A stop is still being repeated."""
        return self._halting.is_set()

    @property
    def stops_pending(self) -> bool:
        """A stop is on its way to the controller, and would end a motion that begins now."""
        return self._stops.pending

    def _send_stop(self, wait_s: float = 0.0) -> str:
        """Send one stop on a thread of its own, since the library's call may hang; wait so long for its answer."""
        stop = self._stops.begin()
        stop.join(wait_s)
        error = stop.error
        return "" if error is None else f"StopMotion: {error}"

    def _stop_motion(self) -> None:
        try:
            answer = self._arm.stop_motion() or {}
        except Exception as error:  # of the vendor's library
            raise MotionError(type(error).__name__, ErrorCode.CONNECTION_LOST) from error
        if int(answer.get("code", 0)) != 0:
            raise MotionError(f"the controller says {answer.get('msg', '')!r}")

    def _repeat_halt(self) -> None:
        while not self._closing.is_set():
            if not self._halting.wait(STATE_EVERY_S):
                continue
            begin_s = self._halt_s or 0.0
            if self._clock.wait(self._closing, HALT_AGAIN_S):
                return
            try:
                is_at_rest = not self.moving(halt_when_late=False)
            except Exception:  # of the vendor's library
                is_at_rest = False
            with self._halt_lock:
                if is_at_rest and begin_s == self._halt_s:  # no other stop came meanwhile
                    self.fault = ""
                    self.at_rest = True
                    self._halting.clear()
                    continue
            if not is_at_rest:
                if self._clock.now() - begin_s >= HALT_FAULT_S:
                    self.fault = f"not observed at rest {self._clock.now() - begin_s:.0f} s after the stop"
                self._send_stop()

    # --- Asking; each raises MotionError with CONNECTION_LOST ---

    def moving(self, *, halt_when_late: bool = True) -> bool:
        """It is in motion, or braking, or has more to do."""
        data = self._call(lambda arm: arm.get_motion_data(), halt_when_late=halt_when_late)
        return bool(data["is_in_motion"] or data["has_motion"])

    def read_pose(self) -> tuple[float, ...]:
        """The flange now: x, y, z in mm, u, v, w in degrees."""
        self.pose = self._read_finite("p")
        return self.pose

    def read_joints(self) -> tuple[float, ...]:
        """The joints now, degrees."""
        return self._read_finite("q")

    def _read_finite(self, field: str) -> tuple[float, ...]:
        """Numbers of the controller. With NaN among them every comparison would fail, also that with a limit."""
        data = self._call(lambda arm: arm.get_robot_data())
        self._state = int(data.get("op_state", IDLE))
        numbers = tuple(float(part) for part in data[field])
        if not all(map(math.isfinite, numbers)):
            self.complaint = f"the controller at {self._host} does not know where the arm is"
            self.halt()
            raise MotionError(self.complaint, ErrorCode.CONNECTION_LOST)
        return numbers

    @property
    def trouble(self) -> str:
        """Why the controller takes no motions until a person has ended its state; empty if it takes them."""
        if self._state in (IDLE, MOVING, TRAJECTORY):
            return ""
        return f"the controller is in {STATES.get(self._state, f'state {self._state}')}"

    def home(self) -> list[float]:
        """The controller's home position, degrees."""
        return [float(part) for part in self._call(lambda arm: arm.get_home_pos())["jpos"]]

    # --- Telling; each is sent once. MotionError: MOTION_FAILED if the controller refuses ---

    def move_line(self, target: Sequence[float], percent: float) -> None:
        """Begin a straight move of the flange (mm and degrees)."""
        self._tell("MoveL", lambda arm: arm.movel(list(target), vel_ratio=percent))

    def move_joints(self, target: Sequence[float], percent: float) -> None:
        """Begin a move of the joints (degrees)."""
        self._tell("MoveJ", lambda arm: arm.movej(list(target), vel_ratio=percent))

    def output(self, address: int, on: bool, on_set: Callable[[], None]) -> None:
        """Set a digital output; ``on_set`` is called when it is set, perhaps after an error; see ``output_open``."""

        def set_output(arm: Any) -> Any:
            self._setting = True
            try:
                return arm.set_do([(address, int(on))])
            finally:
                self._setting = False

        try:
            self._tell("SetDO", set_output)
        except MotionError as error:
            if error.code == ErrorCode.CONNECTION_LOST:
                self._open_output = (address, on, on_set)
            raise
        on_set()

    @property
    def output_open(self) -> bool:
        """Whether the last output is set is not known: the controller answers late, or not at all."""
        return self._open_output is not None

    def _read_open_output(self) -> None:
        """Read an output whose answer was late, when nothing can set it any more."""
        if self._open_output is None or self._setting:
            return
        address, on, on_set = self._open_output
        signals = self._call(lambda arm: arm.get_do())["signals"]
        if any(int(one.get("address", 0)) == address and bool(one.get("state", 0)) == on for one in signals):
            on_set()
        self._open_output = None

    def _tell(self, what: str, call: Callable[[Any], Any]) -> None:
        answer = self._call(call)
        if int(answer.get("code", 0)) != 0:
            raise MotionError(
                f"{what}: the controller says {answer.get('msg', '')!r}", ErrorCode.MOTION_FAILED
            )

    def _call(self, function: Callable[[Any], _T], *, halt_when_late: bool = True) -> _T:
        arm = self._arm
        if arm is None:
            raise MotionError("the arm is not connected", ErrorCode.CONNECTION_LOST)
        try:
            result = self._wait_for(self._calls.submit(function, arm))
        except Exception as error:  # of the vendor's library, or late
            self.complaint = f"the controller at {self._host} does not answer"
            self.at_rest = False
            if halt_when_late:  # the controller may only be slow, and begin a motion that has no owner
                self.halt()
            raise MotionError(self.complaint, ErrorCode.CONNECTION_LOST) from error
        return result

    def _wait_for(self, answer: Future[_T]) -> _T:
        for _ in range(WAIT_POLLS - 1):
            with contextlib.suppress(LateError):
                return answer.result(self._timeout_s / WAIT_POLLS)
        try:
            return answer.result(self._timeout_s / WAIT_POLLS)
        finally:
            answer.cancel()  # a call that has not begun must not be made later

    def _run(self) -> None:
        while not self._clock.wait(self._closing, STATE_EVERY_S):
            try:
                if self.complaint:
                    self._reconnect()
                self.read_pose()
                self._read_open_output()
                self.at_rest = not self.moving() and not self._halting.is_set()
                self.complaint = ""
            except (
                Exception
            ) as error:  # of the vendor's library; the state shows it, and the next motion fails by it
                self.complaint = self.complaint or f"the controller's state cannot be read: {error!r}"
                self.at_rest = False


def _close_indy7_channels(arm: Any) -> None:
    for name in (*SERVICES, "boot", "cri", "teleop"):
        getattr(arm, f"{name}_channel").close()
