"""A driver for a robot that takes lines of text over TCP: ``drive METRES``, ``turn DEGREES``, ``stop``.

The robot answers each motion with ``done`` or ``error ...`` at its end. For your robot, replace the protocol.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
from collections.abc import Mapping
from typing import Any

from timely_robots.clock import RobotClock
from timely_robots.error_codes import ErrorCode
from timely_robots.robot import Robot, RobotStatus, Setting
from timely_robots.segments import Motion, MotionError, SkillCall, SkillValue

POLL_S = 0.02
LONGEST_S = 30.0


class Rover(Robot):
    """One rover at ``host:port``."""

    kind = "rover"
    SETTINGS = (Setting("host", "127.0.0.1"), Setting("port", 7777))

    def __init__(self, settings: Mapping[str, Any] | None = None, clock: RobotClock | None = None) -> None:
        super().__init__(settings, clock)
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._buffer = b""
        self._x, self._y, self._yaw = 0.0, 0.0, 0.0

    def connect(self, timeout_s: float) -> None:
        address = (self.settings["host"], self.settings["port"])
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

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        # Arguments come checked, in the units of the robot's profile: metres and degrees.
        if call.skill == "say":
            self.log.info(str(call.args[0]))
            return None
        amount = float(str(call.args[0]))
        self._answer()  # drops the answer of an earlier, cancelled motion
        self._send(f"{call.skill} {amount:g}")
        end = self.clock.now() + LONGEST_S
        while (answer := self._answer()) is None:
            motion.sleep(POLL_S)  # ends this motion at once when it is cancelled
            if self.clock.now() > end:
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

    def status(self) -> RobotStatus:
        return RobotStatus(
            (self._x, self._y, 0.0), (0.0, 0.0, math.sin(self._yaw / 2), math.cos(self._yaw / 2))
        )

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
                raise MotionError("the rover closed the connection", ErrorCode.CONNECTION_LOST)
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return lines[-1].decode() if lines else None
