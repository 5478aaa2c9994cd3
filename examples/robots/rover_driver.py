"""A driver for a robot that answers lines of text over TCP: ``drive METRES``, ``turn DEGREES``, ``stop``."""

import cmath
import contextlib
import math
import socket
import threading
from collections.abc import Mapping

from timely_robots.clock import RobotClock
from timely_robots.error_codes import ErrorCode
from timely_robots.robot import Robot, RobotStatus, Setting
from timely_robots.segments import Motion, MotionError, SkillCall, SkillValue

POLL_S, LONGEST_S, LONGEST_CONNECT_S = 0.02, 30.0, 2.0


class Rover(Robot):
    """It answers each line once: a motion at its end by ``done`` or ``error ...``, a stop by ``stopped``."""

    kind = "rover"
    SETTINGS = (Setting("host", "127.0.0.1"), Setting("port", 7777))

    def __init__(self, settings: Mapping[str, object] | None = None, clock: RobotClock | None = None) -> None:
        super().__init__(settings, clock)
        self._socket: socket.socket | None = None
        self._lock, self._answer, self._unanswered, self._is_lost = threading.Lock(), "", 0, False
        self._place, self._yaw = 0j, 0.0

    def connect(self, timeout_s: float) -> None:
        host, port = self.settings["host"], self.settings["port"]
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise MotionError(f"no rover at {host}:{port}: {error}", ErrorCode.CONNECTION_LOST) from error
        self._socket.settimeout(None)
        self._unanswered, self._is_lost = 0, False
        threading.Thread(target=self._read, args=(self._socket,), daemon=True).start()

    def disconnect(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            with contextlib.suppress(OSError), connection:
                connection.shutdown(socket.SHUT_RDWR)  # ends the reader

    def halt(self) -> None:
        self._send("stop")  # from any thread, and without waiting: a few bytes into a socket

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        # Arguments come checked, in the units of the robot's profile: metres and degrees.
        if call.skill == "say":
            self.log.info(str(call.args[0]))
            return None
        amount = float(str(call.args[0]))
        if self._is_lost:  # it was switched off; perhaps it is back
            self.disconnect()
            self.connect(LONGEST_CONNECT_S)
        self._await_answers(motion)  # of an earlier, cancelled motion
        self._send(f"{call.skill} {amount:g}")
        self._await_answers(motion)
        if self._unanswered or self._answer != "done":
            raise MotionError(f"{call.text}: the rover says {self._answer!r}")
        if call.skill == "turn":
            self._yaw += math.radians(amount)
        else:
            self._place += cmath.rect(amount, self._yaw)
        return None

    def status(self) -> RobotStatus:
        position = (self._place.real, self._place.imag, 0.0)
        orientation = (0.0, 0.0, math.sin(self._yaw / 2), math.cos(self._yaw / 2))
        at_rest = not (self._unanswered or self._is_lost)
        return RobotStatus(position, orientation, at_rest=at_rest, link_lost=self._is_lost)

    def _await_answers(self, motion: Motion) -> None:
        end_s = self.clock.now() + LONGEST_S
        while self._unanswered and not self._is_lost:
            motion.sleep(POLL_S)  # ends this motion at once when it is cancelled
            if self.clock.now() > end_s:
                self.halt()
                raise MotionError(f"no answer within {LONGEST_S:g} s", ErrorCode.MOTION_TIMEOUT)

    def _send(self, line: str) -> None:
        with self._lock:
            if self._socket is None or self._is_lost:
                raise MotionError("the rover is gone", ErrorCode.CONNECTION_LOST)
            self._unanswered += 1
            try:
                self._socket.sendall(f"{line}\n".encode())
            except OSError as error:
                raise MotionError(f"the rover is gone: {error}", ErrorCode.CONNECTION_LOST) from error

    def _read(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection.makefile() as lines:
            for line in lines:
                with self._lock:
                    self._answer, self._unanswered = line.strip(), self._unanswered - 1
        if connection is self._socket:  # and not one that was replaced
            self._is_lost = True
