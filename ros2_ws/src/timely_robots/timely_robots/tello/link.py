"""The radio link to a Tello: commands, answers, state, keep-alive, and a stop that is repeated until it worked.

djitellopy sends, receives and parses. Its blocking calls are not used for motions. They resend a motion that takes
longer than seven seconds, cannot be cancelled, and take any late answer for the right one. Here every command is sent
once, answers are polled, and late answers are discarded before the next command.
"""

import math
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from timely.core.errors import InvalidInput
from timely_robots.clock import RobotClock
from timely_robots.error_codes import ErrorCode
from timely_robots.robot import vendor_library_error
from timely_robots.segments import MotionError
from timely_robots.tello.drone import STATE_PORT, TelloDrone

COMMAND_PORT = 8889
TICK_S = 0.05
SPACING_S = 0.1
"""The drone ignores commands that follow each other faster."""
KEEP_ALIVE_S = 5.0
"""It lands by itself after 15 s without a command; two of these may be lost."""
UNWATCHED_S = 10.0
"""A drone whose driver has not looked at its state for so long is not kept in the air, since no failsafe would act."""
KEPT_ANSWERS = 20
FORCED_STOP = "forced stop"
"""What some drones answer to a stop instead of ``ok``."""
STATE_SILENCE_S = 3.0
"""The state comes ten times a second; without it for so long the drone is out of reach."""
REVIVE_S = 2.0
TAKEOFF_S = 4.0
"""A drone that takes off stands still for so long at most. Until it hovers it ignores stop and land."""
MOTORS_S = 2.5
"""Motors that run count up, in whole seconds; a count that was the same for so long means that they stand."""
HALT_BURST, HALT_BURST_S = 6, 0.005
"""Copies of a stop, and the time between two. On a link that loses a fifth, 99.2% of stops arrive within 10 ms."""
HALT_AGAIN_S = 0.1
HALT_FAULT_S = 3.0
"""A drone that was not observed at rest so long after a stop has a fault. The stop is repeated all the same."""
HALT_SLOW_S = 0.5
"""Between two repetitions after a fault."""
ANSWER_TRY_S, ANSWER_POLLS = 0.5, 25
"""An answer is waited for so long, in so many polls."""


@dataclass(frozen=True, slots=True)
class TelloState:
    """The last state packet: yaw in degrees clockwise, height in metres, speeds in m/s, battery 0..1."""

    heard_s: float = -math.inf
    packets: int = 0
    yaw_deg: float = 0.0
    height_m: float = 0.0
    speed: float = 0.0
    battery: float = math.nan
    rest_s: float = math.inf
    """Since when nothing has changed: yaw, height, speed zero."""
    motors: int = 0
    """For how long the motors have run since the drone was switched on, seconds."""
    motors_s: float = -math.inf
    """When that number last rose."""


class TelloLink:
    """A connected drone; made by ``open_tello_link``. Safe to use from several threads."""

    def __init__(self, drone: TelloDrone, clock: RobotClock) -> None:
        self._drone = drone
        self._clock = clock
        self._sending = threading.Lock()
        self._sent_s = -math.inf
        self._state = TelloState()
        self._halt_lock = threading.RLock()
        """Held for moments: the end of an earlier stop must not end a new one, and no copy is sent after the end."""
        self._halting: tuple[float, int] | None = None
        """(when the stop was asked for, packets received until then)"""
        self.fault = ""
        """Why a stop has no effect; empty if it has."""
        self.awaiting = False
        """A motion's answer is waited for: nothing else may be asked that is answered with ok."""
        self.takeoff_s = -math.inf
        """When a takeoff was sent whose end was not observed."""
        self.watched_s = math.inf
        """When the driver last looked at the state; infinite where none does."""
        self.returns = 0
        """How often it was heard again after a silence. It may have been switched off meanwhile."""
        self.starts = 0
        """How often it was switched on again, by its count of the motors' time."""
        self._closing = threading.Event()
        self._watch = threading.Thread(target=self._run, name="tello link", daemon=True)
        self._watch.start()

    @property
    def state(self) -> TelloState:
        return self._state

    @property
    def silent_s(self) -> float:
        """For how long nothing has been heard, seconds."""
        return self._clock.now() - self._state.heard_s

    @property
    def flying(self) -> bool:
        """It is off the ground, by its own word. Below the place of its takeoff its height is negative."""
        return self._state.height_m > 0.05 or (self._state.height_m < -0.05 and self.motors_run)

    @property
    def motors_run(self) -> bool:
        """By its own word. Its height may be zero in the air: it is that above the place of its takeoff."""
        return self._state.heard_s - self._state.motors_s < MOTORS_S

    @property
    def away(self) -> bool:
        """It flies, or may fly."""
        return self.flying or self.motors_run

    @property
    def taking_off(self) -> bool:
        """A takeoff was sent, and the drone may not show it yet."""
        return not self.flying and self._clock.now() - self.takeoff_s < TAKEOFF_S

    def send(self, text: str) -> str:
        """Send a command and wait for nothing; why the network refused it, or an empty string."""
        with self._sending:
            self._sent_s = self._clock.now()
            try:
                self._drone.send(text)
            except OSError as error:
                return f"{text}: {error.strerror or error}"
        return ""

    def begin(
        self, text: str, wait: Callable[[float], None], permit: Callable[[], None] = lambda: None
    ) -> None:
        """Send a command whose answer matters: not too soon after the last, with late answers thrown away.

        Args:
            permit: raises an exception if the command must not be sent now.
        """
        wait(max(0.0, self._sent_s + SPACING_S - self._clock.now()))
        permit()
        self.discard_answers()
        if text == "takeoff":
            self.takeoff_s = self._clock.now()
        self.send(text)

    def discard_answers(self) -> None:
        """Forget the answers that have come."""
        self._drone.answers.clear()

    def answer(self) -> str | None:
        """The next answer that is one to a command; None if there is none yet. Answers to queries are passed over."""
        answers = self._drone.answers
        while answers:
            text: str = answers.pop(0).decode("utf-8", "replace").strip()
            # Only keep-alives ask, and what they get is a number.
            if text and not text[0].isdigit():
                return text
        return None

    def insist(self, text: str, timeout_s: float, wait: Callable[[float], None]) -> bool:
        """Send a command that may safely come twice until it is answered with ok; False if it never was."""
        for _ in range(math.ceil(timeout_s / ANSWER_TRY_S)):
            self.begin(text, wait)
            for poll in range(ANSWER_POLLS):
                # In polls, so that a pause of this process is no silence of the drone.
                wait(ANSWER_TRY_S / ANSWER_POLLS)
                if (answer := self.answer()) is None:
                    continue
                if answer.lower() == "ok" or (text == "stop" and answer.lower() == FORCED_STOP):
                    return True
                wait((ANSWER_POLLS - 1 - poll) * ANSWER_TRY_S / ANSWER_POLLS)
                break
        return False

    def halt(self) -> str:
        """Hover now; repeated until the drone is observed at rest, without end. Returns at once, from any thread.

        Returns:
            Why the network refused the first stop; empty if it did not.
        """
        with self._halt_lock:
            self._halting = halting = (self._clock.now(), self._state.packets)
        problem = self.send("stop")
        threading.Thread(target=self._send_copies, args=(halting,), name="tello stop", daemon=True).start()
        return problem

    def _send_copies(self, halting: tuple[float, int]) -> None:
        for _ in range(HALT_BURST):
            if self._clock.wait(self._closing, HALT_BURST_S):
                return
            with self._halt_lock:
                if self._halting is not halting:
                    return
                self.send("stop")

    def end_halt(self) -> None:
        """Repeat the stop no more: for the landing at the end."""
        with self._halt_lock:
            self._halting, self.fault = None, ""

    @property
    def halting(self) -> bool:
        """A stop is still being repeated."""
        return self._halting is not None

    def close(self) -> None:
        self._closing.set()
        if self._watch is not threading.current_thread():
            self._watch.join(5.0)
        self._drone.close()

    def _run(self) -> None:
        while not self._clock.wait(self._closing, TICK_S):
            self._listen()
            now = self._clock.now()
            revive = self.silent_s >= REVIVE_S and not self.awaiting
            is_watched = now - self.watched_s < UNWATCHED_S
            if (halting := self._halting) is not None and not (self.fault and revive):
                since_s, packets = halting
                # Two packets of rest: the first may have been on its way when the stop was sent.
                stands = self._state.packets >= packets + 3 and now - self._state.rest_s >= 0.15
                is_at_rest = stands and not self.taking_off
                late_s = now - max(since_s, self.takeoff_s + TAKEOFF_S)
                if is_at_rest:
                    with self._halt_lock:
                        if self._halting is halting:  # no other stop came meanwhile
                            self.end_halt()
                    continue
                if late_s >= HALT_FAULT_S:
                    self.fault = f"not observed at rest {late_s:.0f} s after the stop"
                if now - self._sent_s >= (HALT_SLOW_S if self.fault else HALT_AGAIN_S):
                    self.send("stop")
            elif revive and is_watched and now - self._sent_s >= 1.0:
                # It may have been switched off and on: it says nothing until it is told to listen.
                self.send("command")
            elif is_watched and now - self._sent_s >= KEEP_ALIVE_S:
                del self._drone.answers[:-KEPT_ANSWERS]  # to earlier ones
                self.send("battery?")

    def _listen(self) -> None:
        raw = self._drone.new_state()
        if not raw:
            return
        now, before = self._clock.now(), self._state
        speed = 0.1 * math.hypot(raw["vgx"], raw["vgy"], raw["vgz"])
        yaw, height = float(raw["yaw"]), 0.01 * raw["h"]
        same = speed == 0.0 and (yaw, height) == (before.yaw_deg, before.height_m)
        battery = 0.01 * float(raw["bat"]) if "bat" in raw else math.nan
        rest_s = (before.rest_s if math.isfinite(before.rest_s) else now) if same else math.inf
        motors = int(raw.get("time", 0))
        motors_s = now if before.packets and motors > before.motors else before.motors_s
        if before.packets:
            self.returns += now - before.heard_s > STATE_SILENCE_S
            self.starts += motors < before.motors
        self._state = TelloState(
            now, before.packets + 1, yaw, height, speed, battery, rest_s, motors, motors_s
        )


def open_tello_link(host: str, port: int, timeout_s: float, clock: RobotClock) -> TelloLink:
    """Connect: the drone answers ``command`` and its state comes.

    Raises:
        MotionError: CONNECTION_LOST: no library, port taken, another driver, or no drone within ``timeout_s``.
    """
    try:
        drone = TelloDrone(socket.gethostbyname(host), port)
    except ImportError as error:
        raise vendor_library_error(error) from error
    except InvalidInput as error:
        raise MotionError(str(error), ErrorCode.CONNECTION_LOST) from error
    except OSError as error:
        raise MotionError(
            f"cannot listen for the drone at {host}: {error}; does another program hold UDP port {STATE_PORT}?",
            ErrorCode.CONNECTION_LOST,
        ) from error
    link = TelloLink(drone, clock)

    def wait(seconds: float) -> None:
        clock.wait(threading.Event(), seconds)

    end = clock.now() + timeout_s
    if link.insist("command", timeout_s, wait):
        while clock.now() < end:
            if link.state.packets:
                return link
            wait(TICK_S)
    link.close()
    raise MotionError(f"no drone at {host}:{port} within {timeout_s:g} s", ErrorCode.CONNECTION_LOST)
