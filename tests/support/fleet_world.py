"""A fleet of simulated robots and their bridge over ROS 2, with a server that behaves and a robot program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bridge_doubles import FakeSegment, FakeServer
from ros_harness import Goal, Program, eventually
from timely_bridge.fleet import BridgeFleet, parse_bridge_fleet
from timely_bridge.run_fleet import RunningBridgeFleet, start_bridge_fleet
from timely_interfaces.action import ExecuteTask

PLAN = (FakeSegment("mf(100);", 2.5), FakeSegment("?s('dog')==True{", 1.5), FakeSegment("g('dog')}", 2.5))
LONG = (FakeSegment("d(60);", 60.0), FakeSegment("mf(100);", 2.5))
PICK = (FakeSegment("pick('cup');", 3.0), FakeSegment("place('table');", 3.0))
SCRIPTS = {
    "fly": PLAN,
    "wait": LONG,
    "stay": LONG[:1] * 20,
    "tidy": PICK,
    "blocked": (FakeSegment("rp();", 0.5, blocking=True), *PLAN[:1]),
}


def a_fleet(robots: int = 2, arms: int = 1, speed: float = 20.0, **bridge: Any) -> BridgeFleet:
    parameters = {"speed": speed, "times": "expected", "seed": 1}
    drones = {
        f"drone{index}": {"profile": "sim-drone", "skill_set": "drone", "parameters": parameters}
        for index in range(1, robots + 1)
    }
    others = {
        f"arm{index}": {"profile": "sim-arm", "skill_set": "arm", "parameters": parameters}
        for index in range(1, arms + 1)
    }
    return parse_bridge_fleet({"server_url": "http://fake", "robots": {**drones, **others}, "bridge": bridge})


class World:
    """A fleet, a server and a robot program."""

    def __init__(self, domain_id: int, fleet: BridgeFleet, server: FakeServer, **options: Any) -> None:
        self.server = server
        self.fleet: RunningBridgeFleet = start_bridge_fleet(
            fleet, domain_id=domain_id, client_factory=server, **options
        )
        self.program = Program(domain_id)

    def task(self, robot: str, task: str, **fields: Any) -> Goal:
        return self.program.send(ExecuteTask, f"/{robot}/execute_task", task=task, **fields)

    def close(self) -> None:
        self.program.close()
        assert self.fleet.close(), "the fleet did not end in time"
        assert self.fleet.spinner.errors == 0, "a callback raised"
        assert self.server.closed


@contextmanager
def fleet_world(
    domain_id: int, fleet: BridgeFleet | None = None, server: FakeServer | None = None, **options: Any
) -> Iterator[World]:
    """A world to its end, whatever happens in it."""
    here = World(domain_id, fleet or a_fleet(), server or FakeServer(SCRIPTS, ahead=0), **options)
    try:
        yield here
    finally:
        here.close()


def lease_of(world: World) -> dict[str, Any]:
    """The bridge's lease on the first drone, as fields of a segment."""
    lease = world.fleet.bridge._robots["drone1"].port.lease
    eventually(lambda: lease.is_held, "the bridge has no lease")
    return {"owner": lease.owner, "epoch": lease.epoch}
