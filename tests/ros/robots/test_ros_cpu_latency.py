"""Bridge and driver keep the processors awake while a task lives, on a file that stands for Linux's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from bridge_doubles import FakeSegment, FakeServer
from ros_harness import LIMIT_S, Program, eventually
from timely_bridge.fleet import parse_bridge_fleet
from timely_bridge.run_fleet import start_bridge_fleet
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import Task

from timely.core import cpu_latency
from timely.core.cpu_latency import PARAMETER


@pytest.mark.ros
def test_bridge_and_driver_hold_it_from_a_tasks_beginning_to_its_end(
    domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "cpu_dma_latency"
    device.touch()
    monkeypatch.setattr(cpu_latency, "DEVICE", device)
    drone = {
        "profile": "sim-drone",
        "skill_set": "drone",
        "parameters": {"speed": 20.0, "seed": 1, PARAMETER: 5},
    }
    fleet = parse_bridge_fleet(
        {"server_url": "http://fake", "robots": {"drone1": drone}, "bridge": {PARAMETER: 0}}
    )
    server = FakeServer({"wait": (FakeSegment("d(60);", 60.0),)}, ahead=0)
    running = start_bridge_fleet(fleet, domain_id=domain_id, client_factory=server)
    program = Program(domain_id)
    nodes = (running.bridge, running.drivers["drone1"])
    try:
        assert not any(node.cpu_latency.is_active for node in nodes)
        goal = program.send(ExecuteTask, "/drone1/execute_task", task="wait")
        eventually(lambda: all(node.cpu_latency.is_active for node in nodes), "the processors may sleep")
        assert goal.result().outcome == "complete"
        eventually(lambda: not any(node.cpu_latency.is_active for node in nodes), "they are never let go")
        driver = running.drivers["drone1"]
        hear = partial(driver._on_task, Task(task_id="of others", phase=Task.PLANNING))
        running.spinner.call_and_wait(hear, LIMIT_S)
        assert driver.cpu_latency.is_active
        running.spinner.call_and_wait(driver.trigger_deactivate, LIMIT_S)
        running.spinner.call_and_wait(hear, LIMIT_S)
        assert not driver.cpu_latency.is_active
    finally:
        program.close()
        assert running.close()
