"""The thread that spins nodes: what ends with it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from ros_harness import Program
from test_ros_bridge import SCRIPTS, World, a_fleet
from timely_bridge.testing import FakeServer
from timely_interfaces.action import ExecuteTask

pytestmark = [pytest.mark.ros, pytest.mark.timeout(120)]


def participants() -> int:
    """DDS participants of this process: Fast DDS has an event thread for each."""
    count = 0
    for name in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):
            count += name.read_text().startswith("dds.ev")
    return count


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_nodes_that_end_leave_no_dds_participant(domain_id: int) -> None:
    before = participants()
    here = World(domain_id, a_fleet(1, 0), FakeServer(SCRIPTS, ahead=0))
    other = Program(domain_id)
    assert here.task("drone1", "fly").result().outcome == "complete"
    other.client(ExecuteTask, "/drone1/execute_task")
    assert participants() == before + 3
    other.close()
    here.close()
    assert participants() == before
