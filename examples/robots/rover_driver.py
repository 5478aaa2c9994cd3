"""A driver for a robot that takes lines of text over TCP: ``drive METRES``, ``turn DEGREES``, ``stop``.

It answers each motion with ``done`` or ``error ...`` when that has ended. Replace what is said on the wire, and this
is the driver of your robot. ROS 2, queueing, limits, cancelling and reporting are the base class's business.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading

from timely_interfaces.msg import ErrorCode
from timely_robots.driver import RobotDriver, Sensed
from timely_robots.execution import Motion, MotionError, SkillCall
from timely_robots.language import Returned

POLL_S = 0.02
LONGEST_S = 30.0


class RoverDriver(RobotDriver):
    """One rover at ``host:port``."""

    kind = "rover"

    def declare(self) -> None:
        self.declare_parameter("host", "127.0.0.1")
        self.declare_parameter("port", 7777)
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._heard = b""
        self._x, self._y, self._yaw = 0.0, 0.0, 0.0

    def connect(self, timeout_s: float) -> None:
        address = (str(self.get_parameter("host").value), int(self.get_parameter("port").value))
        try:
            self._socket = socket.create_connection(address, timeout_s)
            self._socket.setblocking(False)
        except OSError as error:
            raise MotionError(f"no rover at {address}: {error}", ErrorCode.CONNECTION_LOST) from error

    def disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def halt(self) -> None:
        # From any thread, and without waiting: a few bytes into a socket.
        if self._socket is not None:
            self._send("stop")

    def perform(self, call: SkillCall, motion: Motion) -> Returned:
        # Arguments come checked, in the units of the robot's profile: metres and degrees.
        if call.skill == "say":
            self.get_logger().info(str(call.args[0]))
            return None
        amount = float(str(call.args[0]))
        self._answer()  # what an earlier, cancelled motion still had to say
        self._send(f"{call.skill} {amount:g}")
        end = self.pacer.now() + LONGEST_S
        while (answer := self._answer()) is None:
            motion.sleep(POLL_S)  # ends this motion at once when it is cancelled
            if self.pacer.now() > end:
                self.halt()
                raise MotionError(f"{call.text} took over {LONGEST_S:g} s", ErrorCode.MOTION_TIMEOUT)
        if answer != "done":
            raise MotionError(f"{call.text}: the rover says {answer!r}")
        if call.skill == "turn":
            self._yaw += math.radians(amount)
        else:
            self._x += amount * math.cos(self._yaw)
            self._y += amount * math.sin(self._yaw)
        return None

    def sense(self) -> Sensed:
        return Sensed((self._x, self._y, 0.0), (0.0, 0.0, math.sin(self._yaw / 2), math.cos(self._yaw / 2)))

    def _send(self, line: str) -> None:
        try:
            with self._sending:
                if self._socket is not None:
                    self._socket.sendall(f"{line}\n".encode())
        except OSError as error:
            raise MotionError(f"the rover is gone: {error}", ErrorCode.CONNECTION_LOST) from error

    def _answer(self) -> str | None:
        """The last whole line that came, without waiting."""
        with contextlib.suppress(BlockingIOError):
            data = self._socket.recv(4096) if self._socket is not None else b""
            if not data:
                raise MotionError("the rover hung up", ErrorCode.CONNECTION_LOST)
            self._heard += data
        *lines, self._heard = self._heard.split(b"\n")
        return lines[-1].decode() if lines else None
