"""What is closed is gone at once: a process with over 32 DDS participants is not discovered on loopback."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from bridge_doubles import FakeServer
from ros_harness import Program
from timely_bridge.fleet import parse_bridge_fleet
from timely_bridge.run_fleet import start_bridge_fleet
from timely_interfaces.action import ExecuteTask

DRONE = {"profile": "sim-drone", "skill_set": "drone", "parameters": {"speed": 20.0, "seed": 1}}
pytestmark = [pytest.mark.ros]
THREADS = Path("/proc/self/task")


def dds_threads() -> int:
    """Threads of DDS participants in this process."""
    return sum((task / "comm").read_text().startswith("dds.") for task in THREADS.iterdir())


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
def test_a_closed_fleet_and_program_leave_no_participant(domain_id: int) -> None:
    before = dds_threads()
    fleet = parse_bridge_fleet({"server_url": "http://fake", "robots": {"drone1": DRONE}})
    running = start_bridge_fleet(fleet, domain_id=domain_id, client_factory=FakeServer({}))
    program = Program(domain_id)
    try:
        assert dds_threads() > before
        program.send(ExecuteTask, "/drone1/execute_task", task="no such task").cancel()
    finally:
        program.close()
        assert running.close()
    assert dds_threads() == before
