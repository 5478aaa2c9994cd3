"""The sockets of Tello drivers: each hears its drone alone, and several processes of a machine may have drones."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from emulated_robots import need, own_host
from ros_harness import eventually
from timely_robots.error_codes import ErrorCode
from timely_robots.segments import MotionError
from timely_robots.tello import drone as drone_module
from timely_robots.tello.drone import STATE_PORT, TelloDrone
from timely_robots.tello.link import open_tello_link

from timely.core.clock import SystemClock
from timely.core.errors import InvalidInput

pytestmark = pytest.mark.ros

HOSTS = (own_host(101), own_host(102))
PORT = 18889


class Sender:
    """The network of a drone at ``host``: sends states, and answers a command."""

    def __init__(self, host: str) -> None:
        self.commands = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.commands.bind((host, PORT))
        self.commands.settimeout(5.0)

    def send_state(self, battery: int, more: bytes = b"vgx:0;vgy:0;vgz:0;yaw:3;h:50;") -> None:
        self.commands.sendto(more + b"bat:%d;\r\n" % battery, ("127.0.0.1", STATE_PORT))

    def answer(self, text: bytes) -> bytes:
        command, source = self.commands.recvfrom(100)
        self.commands.sendto(text, source)
        return command

    def close(self) -> None:
        self.commands.close()


@pytest.fixture
def open_drone() -> Iterator[Any]:
    need("djitellopy")
    with ExitStack() as stack:
        yield lambda host: stack.enter_context(closing(TelloDrone(host, PORT)))


@pytest.fixture
def senders(open_drone: Any) -> Iterator[list[Sender]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Sender(host))) for host in HOSTS]


def test_state_and_answers_of_each_drone_go_to_its_own_driver(open_drone: Any, senders: list[Sender]) -> None:
    drones = [open_drone(host) for host in HOSTS]
    for drone, sender, battery in zip(drones, senders, (70, 40), strict=True):
        sender.send_state(battery)
        drone.send("command")
        assert sender.answer(b"ok %d" % battery) == b"command"
    for drone, battery in zip(drones, (70, 40), strict=True):
        assert eventually(drone.new_state)["bat"] == battery
        eventually(lambda drone=drone: drone.answers, "no answer came")  # type: ignore[misc]
        assert drone.answers == [b"ok %d" % battery]
        assert drone.new_state() == {}, "a state counts once"


def test_the_end_of_a_drone_takes_no_answers_from_its_successor(
    open_drone: Any, senders: list[Sender]
) -> None:
    earlier = TelloDrone(HOSTS[0], PORT)
    earlier.close()
    drone = open_drone(HOSTS[0])
    del earlier
    drone.send("command")
    senders[0].answer(b"ok")
    eventually(lambda: drone.answers, "no answer came")


ENDS = """
import gc, sys
from timely_robots.tello.drone import TelloDrone

drone = TelloDrone("127.0.0.1", 18889)
drone.close()
kept_modules = dict(sys.modules)
gc.freeze()  # as a driver does
"""


@pytest.mark.process
def test_a_driver_ends_without_a_traceback_of_the_library() -> None:
    need("djitellopy")
    command = [sys.executable, "-c", ENDS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == ""


def test_a_packet_of_another_drone_or_a_damaged_one_is_no_state(
    open_drone: Any, senders: list[Sender]
) -> None:
    drone = open_drone(HOSTS[0])
    for damaged in (b"", b"vgx:0;vgy:0;vgz:0;yaw:3;", b"vgx:0;vgy:0;vgz:0;yaw:3;h:\xff\xfe;"):
        senders[0].send_state(70, damaged)
        assert drone.new_state() == {}
    senders[1].send_state(40)
    assert drone.new_state() == {}
    senders[0].send_state(70)
    assert eventually(drone.new_state)["bat"] == 70


def test_a_drone_has_one_driver_on_a_machine(open_drone: Any) -> None:
    with closing(TelloDrone(HOSTS[0], PORT)), pytest.raises(MotionError, match="another driver") as refused:
        open_tello_link(HOSTS[0], PORT, 1.0, SystemClock())
    assert refused.value.code == ErrorCode.CONNECTION_LOST
    open_drone(HOSTS[0])
    with pytest.raises(InvalidInput, match="another driver"):
        open_drone(HOSTS[0])


def test_a_state_port_that_another_program_holds_is_a_lost_connection(
    open_drone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("", 0))
        monkeypatch.setattr(drone_module, "STATE_PORT", other.getsockname()[1])
        with pytest.raises(MotionError, match="UDP port 8890") as refused:
            open_tello_link(HOSTS[0], PORT, 1.0, SystemClock())
    assert refused.value.code == ErrorCode.CONNECTION_LOST
    open_drone(HOSTS[0])


def test_a_state_socket_that_is_silent_is_opened_anew(
    open_drone: Any, senders: list[Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drone_module, "REOPEN_S", 0.0)
    drone = open_drone(HOSTS[0])
    drone._states.connect((HOSTS[1], 0))  # as deaf as after a change of this machine's address

    def heard() -> Any:
        senders[0].send_state(70)
        return drone.new_state()

    assert eventually(heard)["bat"] == 70
