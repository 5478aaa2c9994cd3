"""Processors that are kept from deep sleep while robots are at work, on a file that stands for Linux's."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from ros_harness import Program, eventually
from timely_bridge.fleet import fleet_of
from timely_bridge.run_fleet import start_fleet
from timely_bridge.testing import FakeSegment, FakeServer
from timely_interfaces.action import ExecuteTask
from timely_robots import wakeful
from timely_robots.wakeful import AS_THEY_LIKE, PARAMETER, Wakeful


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "cpu_dma_latency"
    path.touch()
    return path


def test_it_holds_its_request_while_there_is_work(device: Path) -> None:
    awake = Wakeful(20, device)
    assert not awake.held
    assert device.read_bytes() == b""
    awake.want(True)
    awake.want(True)
    assert awake.held
    assert struct.unpack("=i", device.read_bytes()) == (20,)
    awake.want(False)
    awake.want(False)
    assert not awake.held


def test_it_asks_for_nothing_unless_told_to(device: Path) -> None:
    awake = Wakeful(AS_THEY_LIKE, device)
    awake.want(True)
    assert not awake.held
    assert not awake.problem
    assert device.read_bytes() == b""


def test_where_it_may_not_it_says_why_and_goes_on(tmp_path: Path) -> None:
    awake = Wakeful(0, tmp_path / "none")
    assert "none" in awake.problem
    awake.want(True)
    assert not awake.held
    folder = Wakeful(0, tmp_path)  # it may be written, but not as a file
    folder.want(True)
    assert not folder.held
    assert "directory" in folder.problem


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_bridge_and_driver_hold_it_from_a_tasks_beginning_to_its_end(
    domain_id: int, device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeful, "DEVICE", device)
    drone = {
        "profile": "sim-drone",
        "skill_set": "drone",
        "parameters": {"speed": 20.0, "seed": 1, PARAMETER: 5},
    }
    fleet = fleet_of({"server_url": "http://fake", "robots": {"drone1": drone}, "bridge": {PARAMETER: 0}})
    server = FakeServer({"wait": (FakeSegment("d(60);", 60.0),)}, ahead=0)
    running = start_fleet(fleet, domain_id=domain_id, client_factory=server)
    program = Program(domain_id)
    nodes = (running.bridge, running.drivers["drone1"])
    try:
        assert not any(node._wakeful.held for node in nodes)
        goal = program.send(ExecuteTask, "/drone1/execute_task", task="wait")
        eventually(lambda: all(node._wakeful.held for node in nodes), "the processors may sleep")
        assert goal.result().outcome == "complete"
        eventually(lambda: not any(node._wakeful.held for node in nodes), "they are never let go")
    finally:
        program.close()
        assert running.close()
