"""One drone through djitellopy, with sockets that leave room for the drivers of other drones on this machine.

The library binds UDP ports 8889 and 8890 for itself, so a second process would get neither.
Here commands leave from a free port, because a Tello answers to the sender's port.
The states of all drones come to port 8890. Each driver has a socket there, connected to the address of its drone. The
kernel hands that drone's packets to this socket alone, so no process stands between drone and driver.
"""

import contextlib
import socket
import threading
import time
from typing import Any

from timely_robots.claim import claim_robot

STATE_PORT = 8890
REOPEN_S = 1.0
"""A state socket that was silent for so long is opened anew, because this machine's own address may have changed."""
LARGEST_BYTES = 1024
ANY_PORT = 0
NECESSARY = ("vgx", "vgy", "vgz", "yaw", "h")
"""A packet without one of these fields was cut on its way, and does not count."""
_opening = threading.Lock()


class TelloDrone:
    """Sends commands to a drone, and has its answers and states.

    Args:
        address: IPv4 address of the drone.
        port: of its commands.

    Raises:
        ImportError: djitellopy is not installed. OSError: a port is taken, or there is no route to the drone.
        InvalidInput: another driver on this machine has the drone.
    """

    def __init__(self, address: str, port: int) -> None:
        from djitellopy import tello

        tello.Tello.LOGGER.setLevel("ERROR")
        self._address = address
        self._claim = claim_robot("tello", f"{address}:{port}")
        try:
            self._states = _tello_state_socket(address)
            self._client = _tello_client(tello, address)
        except OSError:
            self._claim.close()
            raise
        self._client.address = (address, port)
        self._parse = tello.Tello.parse_state
        self._packet_s = time.monotonic()
        self.answers: list[bytes] = tello.drones[address]["responses"]
        """Answers that were not read yet, oldest first."""

    def send(self, text: str) -> None:
        """Send a command; raises OSError when the network refuses it."""
        self._client.send_command_without_return(text)

    def new_state(self) -> dict[str, Any]:
        """The fields of the newest state packet since the last call; empty if none came. For one thread."""
        newest = b""
        with contextlib.suppress(OSError):  # no packet is left, or the socket could not be opened anew
            while True:
                packet, source = self._states.recvfrom(LARGEST_BYTES, socket.MSG_DONTWAIT)
                # Packets of other drones may have come before the socket was connected.
                newest = packet if source[0] == self._address else newest
        now_s = time.monotonic()
        if newest:
            self._packet_s = now_s
            state: dict[str, Any] = self._parse(newest.decode("ascii", "replace"))
            return state if all(name in state for name in NECESSARY) else {}
        if now_s - self._packet_s >= REOPEN_S:
            self._packet_s = now_s
            self._reopen()
        return {}

    def close(self) -> None:
        self._states.close()
        self._claim.close()

    def _reopen(self) -> None:
        self._states.close()
        with contextlib.suppress(OSError):  # without a route; tried again later
            self._states = _tello_state_socket(self._address)


def _tello_state_socket(address: str) -> socket.socket:
    states = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        states.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        states.bind(("", STATE_PORT))
        states.connect((address, ANY_PORT))
    except OSError:
        states.close()
        raise
    return states


def _tello_client(library: Any, address: str) -> Any:
    """The library's object for a drone; the first one of the process finds sockets and receiver already there."""
    with _opening:
        if not library.threads_initialized:
            commands = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            commands.bind(("", ANY_PORT))
            library.client_socket, library.threads_initialized = commands, True
            receiver = library.Tello.udp_response_receiver
            threading.Thread(target=receiver, name="tello answers", daemon=True).start()
        # The end of one object would end the answers of its successor, and fails at the end of Python.
        library.Tello.__del__ = lambda client: None
        return library.Tello(address, retry_count=1)
