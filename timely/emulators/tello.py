"""The Tello emulator on the wire: text commands over UDP, a state stream, and a network that may be bad."""

import heapq
import itertools
import random
import select
import socket
import threading
from typing import Self

from timely.core.clock import Clock
from timely.core.errors import InvalidInput
from timely.emulators.clock import EmulatorClock
from timely.emulators.command_log import EmulatorCommandLog, MotionEnd
from timely.emulators.network import EmulatedNetworkFaults
from timely.emulators.tello_body import EmulatedTelloBody
from timely.emulators.tello_motions import TelloPhysics

COMMAND_PORT, STATE_PORT = 18889, 8890
"""A real Tello listens on 8889; but its client binds that port on all addresses, so a drone on loopback cannot."""
STATE_EVERY_S = 0.1
LONGEST_WAIT_S = 0.05
LARGEST = 1024
LAST_PORT = 65535


class TelloEmulator:
    """One drone at ``(host, command_port)``; state goes to the client's address, at ``state_port``.

    Args:
        host: where it is, e.g. 127.0.0.2: one loopback address a drone.
        seed: of noise and network faults: the same commands and answers have the same fate.
        battery: percent at the start, 0 to 100.
        speed: factor by which it is faster than a real drone; its client needs the same.

    Raises:
        InvalidInput: the address or a port cannot be used, or the battery is out of range.
    """

    def __init__(
        self,
        host: str,
        command_port: int = COMMAND_PORT,
        *,
        state_port: int = STATE_PORT,
        faults: EmulatedNetworkFaults | None = None,
        seed: int = 0,
        battery: float = 100.0,
        physics: TelloPhysics | None = None,
        journal: EmulatorCommandLog | None = None,
        clock: Clock | None = None,
        speed: float = 1.0,
    ) -> None:
        self.faults = faults or EmulatedNetworkFaults()
        self.journal = journal or EmulatorCommandLog()
        self._clock = clock or EmulatorClock(speed)
        self._speed = speed
        if not 0.0 <= battery <= 100.0:
            raise InvalidInput(f"must be 0 to 100 percent, got {battery:g}", where="battery")
        if not 0 < state_port <= LAST_PORT:
            raise InvalidInput(f"must be 1 to {LAST_PORT}, got {state_port}", where="state port")
        self._rng = random.Random(f"network {seed}")
        self._state_rng = random.Random(f"states {seed}")
        self.body = EmulatedTelloBody(random.Random(f"body {seed}"), physics or TelloPhysics(), battery)
        self.body.now = self._clock.now()
        self._state_port = state_port
        self._client: tuple[str, int] | None = None
        self._order = itertools.count()
        self._inbox: list[tuple[float, int, bytes, tuple[str, int]]] = []
        self._outbox: list[tuple[float, int, socket.socket, bytes, tuple[str, int]]] = []
        self._state_due_s = self.body.now
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._commands = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._states = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._commands.bind((host, command_port))
            self._states.bind((host, 0))
        except (OSError, OverflowError) as error:
            self._close_sockets()
            raise InvalidInput(f"cannot be used: {error}", where=f"{host}:{command_port}") from error
        self._commands.setblocking(False)
        self.address: tuple[str, int] = self._commands.getsockname()[:2]

    def start(self) -> Self:
        """Run on a thread of its own until ``close``."""
        self._thread = threading.Thread(target=self.run, name=f"tello {self.address[0]}", daemon=True)
        self._thread.start()
        return self

    def run(self) -> None:
        """Fly until ``stop`` is called, from another thread."""
        try:
            while not self._stop.is_set():
                self._turn()
        finally:
            self._close_sockets()

    def stop(self) -> None:
        """Make ``run`` return within a moment; the drone falls silent, wherever it is."""
        self._stop.set()

    def close(self, timeout_s: float = 5.0) -> None:
        """``stop``, and wait for the thread."""
        self.stop()
        if self._thread is None:
            self._close_sockets()
        else:
            self._thread.join(timeout_s)

    def _close_sockets(self) -> None:
        self._commands.close()
        self._states.close()

    def _turn(self) -> None:
        now = self._clock.now()
        due = [self._state_due_s, now + LONGEST_WAIT_S]
        due += [queue[0][0] for queue in (self._inbox, self._outbox) if queue]
        if self.body.motion is not None:
            due.append(self.body.motion.end_s)
        readable, _, _ = select.select([self._commands], [], [], max(0.0, min(due) - now) / self._speed)
        if readable:
            self._receive()
        now = self._clock.now()
        while self._inbox and self._inbox[0][0] <= now:
            when, _, data, source = heapq.heappop(self._inbox)
            self._settle(when)
            self._take(data, source)
        self._settle(now)
        if now >= self._state_due_s:
            self._state_due_s = now + STATE_EVERY_S
            self._send_state()
        while self._outbox and self._outbox[0][0] <= now:
            _, _, via, data, target = heapq.heappop(self._outbox)
            try:
                via.sendto(data, target)
            except OSError:
                # No socket listens at the target, so the datagram is lost.
                continue

    def _send_state(self) -> None:
        if self._client is not None and not self.body.dead:
            target = (self._client[0], self._state_port)
            self._send(self._states, self.body.state(), target, self._state_rng)

    def _receive(self) -> None:
        try:
            data, source = self._commands.recvfrom(LARGEST)
        except OSError:
            return  # an earlier answer had no receiver
        for delay in self.faults.copies(self._rng):
            heapq.heappush(self._inbox, (self._clock.now() + delay, next(self._order), data, source))

    def _take(self, data: bytes, source: tuple[str, int]) -> None:
        text = data.decode("utf-8", "replace").strip()
        reply, outcome, ends = self.body.handle(text)
        self.journal.write(self._clock.now(), "command", text, outcome)
        self._finish(ends)
        if self.body.awake:
            self._client = source
        if reply:
            self._send(self._commands, reply, source, self._rng)

    def _settle(self, now: float) -> None:
        self._finish(self.body.advance(now))

    def _finish(self, ends: list[MotionEnd]) -> None:
        self.journal.write_ends(self._clock.now(), ends)
        for one in ends:
            if one.reply and self._client is not None:
                self._send(self._commands, one.reply, self._client, self._rng)

    def _send(self, via: socket.socket, text: str, target: tuple[str, int], rng: random.Random) -> None:
        for delay in self.faults.copies(rng):
            item = (self._clock.now() + delay, next(self._order), via, text.encode(), target)
            heapq.heappush(self._outbox, item)
