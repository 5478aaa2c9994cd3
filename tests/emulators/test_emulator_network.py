"""The bad network, the journal and the command line of the emulators."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from emulated_robots import own_host

from timely.core.errors import InvalidInput
from timely.emulators.cli import run_emulator_command
from timely.emulators.command_log import EmulatorCommandLog
from timely.emulators.indy7 import CONTROL_PORT
from timely.emulators.network import EmulatedNetworkFaults
from timely.emulators.tello import TelloEmulator

ROVER = Path(__file__).parents[2] / "examples/robots/rover.py"


def test_faults_come_as_often_as_asked_and_the_same_for_a_seed() -> None:
    faults = EmulatedNetworkFaults(loss=0.2, duplicate=0.2, delay_s=0.01, jitter_s=0.01)

    def fates(seed: int) -> list[int]:
        rng = random.Random(seed)
        return [len(faults.copies(rng)) for _ in range(4000)]

    counts = fates(1)
    assert counts == fates(1)
    assert counts.count(0) / 4000 == pytest.approx(0.2, abs=0.03)
    assert counts.count(2) / 4000 == pytest.approx(0.16, abs=0.03)
    assert all(0.01 <= delay <= 0.02 for delay in faults.copies(random.Random(3)))


@pytest.mark.parametrize("wrong", [{"loss": 1.1}, {"duplicate": -0.1}, {"delay_s": -1.0}])
def test_impossible_faults_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        EmulatedNetworkFaults(**wrong)


def test_the_journal_is_lines_of_json(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    with EmulatorCommandLog(file, keep=2) as journal:
        for number in range(3):
            journal.write(float(number), "command", f"up {number}", "ok")
        journal.write(9.0, "motion", "up 2", "done", start_s=2.0, end_s=8.5)
        assert len(journal.records()) == 2
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 4
    assert all({"t_s", "command", "outcome", "start_s", "end_s"} <= set(line) for line in lines)
    assert (lines[3]["start_s"], lines[3]["end_s"]) == (2.0, 8.5)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dragon"],
        ["tello", "--loss", "2"],
        ["tello", "--loss", "much"],
        ["tello", "--host", "203.0.113.9"],
        ["tello", "--log", "/no/such/folder/log"],
        ["tello", "--battery", "500"],
        ["tello", "--battery", "nan"],
        ["tello", "--state-port", "70000"],
        ["tello", "--state-port", "0"],
        ["tello", "--speed", "inf"],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_emulator_command(arguments) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("timely-emulate")


@pytest.mark.process
def test_a_port_of_an_arm_in_use_is_one_line() -> None:
    """gRPC would write a line of its own before it."""
    pytest.importorskip("neuromeka")
    host = own_host(94)
    with socket.create_server((host, CONTROL_PORT)):
        done = subprocess.run(
            [sys.executable, "-m", "timely.emulators.cli", "indy7", "--host", host],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    message = f"timely-emulate: {host}:{CONTROL_PORT}: cannot be used; is an emulator running there?\n"
    assert (done.returncode, done.stderr) == (2, message)


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["abc"], ["0"], ["65536"], ["7777", "8888"]])
def test_the_example_rover_says_how_it_is_called(arguments: list[str]) -> None:
    command = [sys.executable, str(ROVER), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "usage: rover.py [PORT]\n")


def test_the_fate_of_answers_does_not_depend_on_the_state_stream() -> None:
    """How many packets of state lie between two answers depends on the time, and the seed must not."""
    fates: list[list[bytes]] = []
    for packets in (0, 7):
        drone = TelloEmulator(own_host(93), 0, faults=EmulatedNetworkFaults(loss=0.5), seed=3)
        try:
            drone.body.awake, drone._client = True, ("127.0.0.1", 9)
            for number in range(20):
                for _ in range(packets):
                    drone._send_state()
                drone._take(f"speed {10 + number}".encode(), ("127.0.0.1", 9))
                drone._take(f"speed {number}".encode(), ("127.0.0.1", 9))
            fates.append([item[3] for item in sorted(drone._outbox) if item[2] is drone._commands])
        finally:
            drone.close()
    assert 5 < len(fates[0]) < 35
    assert fates[0] == fates[1]


def ask(client: socket.socket, address: tuple[str, int], text: str) -> str:
    client.sendto(text.encode(), address)
    return client.recv(1024).decode()


def test_a_drone_answers_and_streams_its_state_to_who_woke_it() -> None:
    states = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with states, client:
        for sock in (states, client):
            sock.bind(("127.0.0.1", 0))
            sock.settimeout(5.0)
        drone = TelloEmulator(own_host(91), 0, state_port=states.getsockname()[1]).start()
        try:
            assert ask(client, drone.address, "command") == "ok"
            data, source = states.recvfrom(1024)
            assert source[0] == own_host(91)
            assert b"bat:100;" in data
            assert ask(client, drone.address, "forward 10") == "out of range"
            assert [record["outcome"] for record in drone.journal.records("command")] == [
                "ok",
                "out of range",
            ]
        finally:
            drone.close()
        with pytest.raises(OSError, match=r"closed|descriptor"):
            drone._commands.getsockname()


@pytest.mark.process
def test_the_command_runs_until_interrupted(tmp_path: Path) -> None:
    log, host = tmp_path / "drone.jsonl", own_host(92)
    command = [sys.executable, "-m", "timely.cli.main", "emulate", "tello", "--host", host]
    command += ["--command-port", "18890", "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert f"Tello at {host}:18890" in process.stdout.readline()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.settimeout(5.0)
                assert ask(client, (host, 18890), "command") == "ok"
            process.send_signal(signal.SIGINT)
            assert process.wait(10.0) == 0
        finally:
            process.kill()
    (line,) = log.read_text().splitlines()
    assert json.loads(line)["command"] == "command"


def test_a_log_on_a_full_disk_is_named() -> None:
    with (
        EmulatorCommandLog(Path("/dev/full")) as log,
        pytest.raises(InvalidInput, match="cannot write it") as full,
    ):
        log.write(0.0, "command", "takeoff", "ok")
    assert full.value.where == "/dev/full"
