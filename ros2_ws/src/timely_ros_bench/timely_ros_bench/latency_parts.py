"""The parts of ``timely bench ros``, each in a process of its own: server, drivers, bridge.

All write the times of segments on Linux's monotonic clock.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from timely_bridge.fleet import BridgeFleet, parse_bridge_fleet
from timely_bridge.node import BridgeNode
from timely_robots.registry import robot_class
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.realtime import realtime_ros_process
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context
from timely_robots.segments import SegmentOrder

from timely.core.child_process import START_S, core_stop_event
from timely.core.cpu_latency import PARAMETER
from timely.core.errors import EngineFailed, TimelyError
from timely.core.files import core_write_file
from timely.engines.base import GenerationRequest, SegmentReady
from timely.engines.scripted import ScriptedEngine
from timely.engines.scripts import ScriptedSegment
from timely.server.app import create_app
from timely.server.server_thread import ServerThread

ROLES = ("server", "drivers", "bridge")
SHORTEST_S, LONGEST_S = 1.5, 3.0
"""Bounds of the segments' execution times; the mean is 2.25 s.

TimelyLLM's workloads have means of 1.7, 1.7 and 2.3 s, as ``lrtrace`` composes them. Here every robot is always busy.
"""

TOKENS = (3, 7)
"""Bounds of the segments' lengths, tokens; TimelyLLM's mean is 5."""

Times = dict[str, float]
"""``task/segment`` -> seconds on the monotonic clock."""


def _run_latency_server(folder: Path, segments: int, seed: int) -> None:
    rng = random.Random(seed)
    closed_s: Times = {}

    class RecordingEngine(ScriptedEngine):
        async def generate(self, request: GenerationRequest) -> Any:
            async for event in super().generate(request):
                if isinstance(event, SegmentReady):
                    closed_s[f"{event.task_id}/{event.index}"] = event.ready_s
                yield event

    def planner(request: GenerationRequest) -> list[ScriptedSegment]:
        parts = [
            (round(rng.uniform(SHORTEST_S, LONGEST_S), 2), rng.randint(*TOKENS)) for _ in range(segments)
        ]
        return [ScriptedSegment(f"d({seconds});", seconds, tokens) for seconds, tokens in parts]

    stop = core_stop_event()
    with ServerThread(create_app(RecordingEngine(planner=planner, token_s=0.01))) as server:
        core_write_file(folder / "server.url", server.url)
        stop.wait()
    core_write_file(folder / "closed.json", json.dumps(closed_s))


def _latency_fleet(folder: Path, robots: int, seed: int) -> BridgeFleet:
    entries = {
        latency_robot_name(index): {
            "profile": "sim-drone",
            "skill_set": "drone",
            "parameters": {"times": "expected", "seed": seed + index},
        }
        for index in range(robots)
    }
    return parse_bridge_fleet({"server_url": (folder / "server.url").read_text(), "robots": entries})


def _run_latency_drivers(folder: Path, robots: int, seed: int) -> None:
    received_s: Times = {}

    def note(order: SegmentOrder, when_s: float) -> None:
        received_s[f"{order.task_id}/{order.index}"] = when_s

    def make(context: Any) -> list[Any]:
        fleet = _latency_fleet(folder, robots, seed)
        drivers = [
            DriverNode(
                robot_class(robot.driver)(),
                namespace=robot.name,
                context=context,
                overrides=fleet.driver_parameters(robot),
            )
            for robot in fleet.robots
        ]
        for driver in drivers:
            driver.on_order = note
        return drivers

    _spin_latency_nodes(make, folder / "drivers.ready")
    core_write_file(folder / "received.json", json.dumps(received_s))


def _run_latency_bridge(folder: Path, robots: int, seed: int, wake_latency_us: int) -> None:
    def make(context: Any) -> list[Any]:
        parameters = _latency_fleet(folder, robots, seed).bridge_parameters()
        return [BridgeNode(context=context, overrides={**parameters, PARAMETER: wake_latency_us})]

    _spin_latency_nodes(make, folder / "bridge.ready", lambda nodes: all(nodes[0].drivers_ready().values()))


def _spin_latency_nodes(
    make: Callable[[Any], list[Any]], ready: Path, complete: Callable[[list[Any]], bool] = lambda nodes: True
) -> None:
    """Start nodes, say so when they are ``complete``, and end them when told to."""
    stop = core_stop_event()
    context = isolated_ros_context()
    nodes = make(context)
    for node in nodes:
        node.trigger_configure()
        node.trigger_activate()
    spinner = RosSpinner(context, nodes, name="bench").start()
    try:
        with realtime_ros_process():
            deadline = time.monotonic() + START_S
            while not complete(nodes):
                if stop.wait(0.05) or time.monotonic() > deadline:
                    raise EngineFailed("not every driver appeared")
            core_write_file(ready, "yes")
            stop.wait()
    finally:
        spinner.close()


def latency_robot_name(index: int) -> str:
    return f"drone{index}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one part until it is stopped; 0, or 1 if it failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--role", choices=ROLES, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    for name in ("robots", "segments", "seed", "wake-latency-us"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args(arguments)
    try:
        if options.role == "server":
            _run_latency_server(options.folder, options.segments, options.seed)
        elif options.role == "drivers":
            _run_latency_drivers(options.folder, options.robots, options.seed)
        else:
            _run_latency_bridge(options.folder, options.robots, options.seed, options.wake_latency_us)
    except TimelyError as error:
        sys.stderr.write(f"bench ros: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
