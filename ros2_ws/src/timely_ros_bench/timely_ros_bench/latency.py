"""Measures what ROS 2 adds: from a segment closed in the engine to the callback of the robot's driver.

    python -m timely_ros_bench.latency --robots 1 10 30 [--segments 20] [--default-system] [--json FILE]

Server (real HTTP and scheduling, a scripted model), bridge, drivers and robot programs run in processes of their own.
All read Linux's monotonic clock.

Processors are kept out of deep sleep with the bridge's parameter ``wake_latency_us``, as cyclictest does.
``--default-system`` leaves them alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timely_bridge.fleet import Fleet, fleet_of

from timely.core.child_process import START_S, ChildProcess, module_command, stop_event
from timely.core.cpu_latency import AS_THEY_LIKE, PARAMETER, wake_latency_for_measurement
from timely.core.errors import EngineFailed, TimelyError
from timely.core.files import write_file

ROBOTS = (1, 10, 30)
SEGMENTS = 20
SHORTEST_S, LONGEST_S = 1.5, 3.0
"""Bounds of the segments' execution times; the mean is 2.25 s.

TimelyLLM's workloads have means of 1.7, 1.7 and 2.3 s, as ``lrtrace`` composes them. Here every robot is always busy.
"""

TOKENS = (3, 7)
"""Bounds of the segments' lengths, tokens; TimelyLLM's mean is 5."""

UNANSWERED_S = 2.0
"""The result of a goal that was not accepted for so long is requested by the goal's id."""

MODULE = "timely_ros_bench.latency"
ROLES = ("server", "drivers", "bridge", "clients")
TASK = "wait"
FIRST_DOMAIN, LAST_DOMAIN = 1, 101

Times = dict[str, float]
"""``task/segment`` -> seconds on the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from the engine to a point on the way, over all segments of a run."""

    samples: tuple[float, ...]

    def quantile_ms(self, level: float) -> float:
        """Milliseconds that a share ``level`` of the segments did not exceed (nearest rank)."""
        ordered = sorted(self.samples)
        return 1e3 * ordered[max(0, math.ceil(level * len(ordered)) - 1)]

    def to_dict(self) -> dict[str, float]:
        """``p50_ms``, ``p99_ms``, ``max_ms`` and the number of ``segments``."""
        return {
            "p50_ms": round(1e3 * statistics.median(self.samples), 3),
            "p99_ms": round(self.quantile_ms(0.99), 3),
            "max_ms": round(1e3 * max(self.samples), 3),
            "segments": len(self.samples),
        }


def measure_latency(
    robots: int,
    segments: int = SEGMENTS,
    *,
    seed: int = 0,
    domain_id: int | None = None,
    wake_latency_us: int = AS_THEY_LIKE,
) -> dict[str, float]:
    """One run: every robot executes one plan of so many segments, all of them at once.

    Args:
        wake_latency_us: the bridge's parameter.

    Returns:
        ``p50_ms``, ``p99_ms``, ``max_ms`` and ``segments``.

    Raises:
        EngineFailed: a part did not start, or a task failed; says which.
    """
    domain = domain_id if domain_id is not None else FIRST_DOMAIN + os.getpid() % (LAST_DOMAIN - FIRST_DOMAIN)
    environment = dict(os.environ)
    environment.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    environment["ROS_DOMAIN_ID"] = str(domain)
    limit_s = START_S + segments * LONGEST_S * 3.0
    with tempfile.TemporaryDirectory(prefix="timely-bench.") as folder:
        place = Path(folder)
        plan = ["--folder", folder, "--robots", str(robots), "--segments", str(segments), "--seed", str(seed)]
        plan += ["--wake-latency-us", str(wake_latency_us)]
        parts = {
            role: ChildProcess(
                role, module_command(MODULE, ["--role", role, *plan]), environment, where="bench ros"
            )
            for role in ROLES
        }
        try:
            parts["server"].start()
            parts["server"].wait_for_file(place / "server.url")
            for role in ("drivers", "bridge"):
                parts[role].start()
                parts[role].wait_for_file(place / f"{role}.ready")
            parts["clients"].start()
            parts["clients"].finish(limit_s)
            for role in ("bridge", "drivers", "server"):
                parts[role].interrupt()
                parts[role].finish(START_S)
        finally:
            for part in parts.values():
                part.close()
        closed, received = (
            json.loads((place / name).read_text()) for name in ("closed.json", "received.json")
        )
    expected = robots * segments
    if len(closed) != expected or set(closed) != set(received):
        raise EngineFailed(f"{len(closed)} segments closed, {len(received)} received, {expected} expected")
    return Latency(tuple(received[key] - closed[key] for key in closed)).to_dict()


# --- The parts, each in its own process ---


def _serve(folder: Path, segments: int, seed: int) -> None:
    from timely.engines.base import GenerationRequest, SegmentReady
    from timely.engines.scripted import ScriptedEngine, ScriptedSegment
    from timely.server.app import create_app
    from timely.server.server_thread import ServerThread

    rng = random.Random(seed)
    closed: Times = {}

    class Noting(ScriptedEngine):
        """Keeps when each segment was closed."""

        async def generate(self, request: GenerationRequest) -> Any:
            async for event in super().generate(request):
                if isinstance(event, SegmentReady):
                    closed[f"{event.task_id}/{event.index}"] = event.ready_s
                yield event

    def planner(request: GenerationRequest) -> list[ScriptedSegment]:
        parts = [
            (round(rng.uniform(SHORTEST_S, LONGEST_S), 2), rng.randint(*TOKENS)) for _ in range(segments)
        ]
        return [ScriptedSegment(f"d({seconds});", seconds, tokens) for seconds, tokens in parts]

    stop = stop_event()
    with ServerThread(create_app(Noting(planner=planner, token_s=0.01))) as server:
        write_file(folder / "server.url", server.url)
        stop.wait()
    write_file(folder / "closed.json", json.dumps(closed))


def _fleet(folder: Path, robots: int, seed: int) -> Fleet:
    entries = {
        _name(index): {
            "profile": "sim-drone",
            "skill_set": "drone",
            "parameters": {"times": "expected", "seed": seed + index},
        }
        for index in range(robots)
    }
    return fleet_of({"server_url": (folder / "server.url").read_text(), "robots": entries})


def _drive(folder: Path, robots: int, seed: int) -> None:
    from timely_robots.registry import robot_class
    from timely_robots.ros.driver_node import DriverNode
    from timely_robots.segments import SegmentOrder

    received: Times = {}

    def note(order: SegmentOrder, when_s: float) -> None:
        received[f"{order.task_id}/{order.index}"] = when_s

    def make(context: Any) -> list[Any]:
        fleet = _fleet(folder, robots, seed)
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

    _spin(make, folder / "drivers.ready")
    write_file(folder / "received.json", json.dumps(received))


def _bridge(folder: Path, robots: int, seed: int, wake_latency_us: int) -> None:
    from timely_bridge.node import BridgeNode

    def make(context: Any) -> list[Any]:
        parameters = _fleet(folder, robots, seed).bridge_parameters()
        return [BridgeNode(context=context, overrides={**parameters, PARAMETER: wake_latency_us})]

    _spin(make, folder / "bridge.ready", lambda nodes: nodes[0].drivers_alive == robots)


def _spin(
    make: Callable[[Any], list[Any]], ready: Path, complete: Callable[[list[Any]], bool] = lambda nodes: True
) -> None:
    """Start nodes, say so when they are ``complete``, and end them when told to."""
    from timely_robots.ros.rclpy_utils import Spinner, isolated_context
    from timely_robots.ros.realtime import realtime_process

    stop = stop_event()
    context = isolated_context()
    nodes = make(context)
    for node in nodes:
        node.trigger_configure()
        node.trigger_activate()
    spinner = Spinner(context, nodes, name="bench").start()
    try:
        with realtime_process():
            deadline = time.monotonic() + START_S
            while not complete(nodes):
                if stop.wait(0.05) or time.monotonic() > deadline:
                    raise EngineFailed("not every driver appeared")
            write_file(ready, "yes")
            stop.wait()
    finally:
        spinner.close()


def _ask(robots: int, segments: int, seed: int) -> None:
    import rclpy
    from rclpy.action import ActionClient
    from timely_interfaces.action import ExecuteTask
    from timely_robots.ros.rclpy_utils import (
        Spinner,
        assumed_goal_handle,
        isolated_context,
        new_goal_id,
        send_goal,
    )

    rng = random.Random(seed)
    context = isolated_context()
    node = rclpy.create_node("bench", context=context)
    clients = [ActionClient(node, ExecuteTask, f"/{_name(index)}/execute_task") for index in range(robots)]
    outcomes: list[str] = []
    all_ended = threading.Event()

    def ended(future: Any) -> None:
        result = future.result().result
        outcomes.append(
            result.outcome if not result.error_code else f"{result.error_code} {result.error_msg}"
        )
        if len(outcomes) == robots:
            all_ended.set()

    unanswered: dict[int, tuple[float, Callable[[], None]]] = {}

    def send(index: int) -> None:
        client, goal_id = clients[index], new_goal_id()

        def taken(handle: Any) -> None:
            if unanswered.pop(index, None) is not None:
                handle.get_result_async().add_done_callback(ended)

        # An acceptance can get lost while bridge and clients are still finding each other.
        unanswered[index] = (time.monotonic(), lambda: taken(assumed_goal_handle(client, goal_id)))
        sent = send_goal(client, ExecuteTask.Goal(task=TASK), goal_id=goal_id)
        sent.add_done_callback(lambda future: taken(future.result()))

    stop = stop_event()
    spinner = Spinner(context, [node], name="bench").start()
    try:
        deadline = time.monotonic() + START_S
        while not all(client.server_is_ready() for client in clients):
            if stop.wait(0.05) or time.monotonic() > deadline:
                raise EngineFailed("the bridge's actions did not appear")
        for index in range(robots):
            spinner.call(send, index)
            stop.wait(rng.uniform(0.0, 2.0 * LONGEST_S / robots))
        limit = time.monotonic() + START_S + segments * LONGEST_S * 2.0
        while not all_ended.wait(0.2):
            if stop.is_set() or time.monotonic() > limit:
                raise EngineFailed(f"{len(outcomes)} of {robots} tasks ended")
            for sent_s, insist in list(unanswered.values()):
                if time.monotonic() > sent_s + UNANSWERED_S:
                    spinner.call(insist)
    finally:
        spinner.close()
    bad = [outcome for outcome in outcomes if outcome != "complete"]
    if bad:
        raise EngineFailed(f"{len(bad)} of {robots} tasks failed, one with: {bad[0]}")


def _name(index: int) -> str:
    return f"drone{index}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, or one of its parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--robots", type=int, nargs="+", default=list(ROBOTS))
    parser.add_argument("--segments", type=int, default=SEGMENTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--default-system", action="store_true", help="let the processors sleep as they like")
    parser.add_argument("--wake-latency-us", type=int, default=AS_THEY_LIKE, help=argparse.SUPPRESS)
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        if options.role == "server":
            _serve(options.folder, options.segments, options.seed)
        elif options.role == "drivers":
            _drive(options.folder, options.robots[0], options.seed)
        elif options.role == "bridge":
            _bridge(options.folder, options.robots[0], options.seed, options.wake_latency_us)
        elif options.role == "clients":
            _ask(options.robots[0], options.segments, options.seed)
        else:
            results = {}
            latency_us, how = wake_latency_for_measurement(options.default_system)
            print(how, flush=True)
            for robots in options.robots:
                results[str(robots)] = one = measure_latency(
                    robots, options.segments, seed=options.seed, wake_latency_us=latency_us
                )
                print(
                    f"{robots:3d} robots: median {one['p50_ms']:.2f} ms, p99 {one['p99_ms']:.2f} ms, "
                    f"worst {one['max_ms']:.2f} ms over {one['segments']} segments",
                    flush=True,
                )
            if options.json is not None:
                write_file(
                    options.json,
                    json.dumps({"wake_latency_us": latency_us, "robots": results}, indent=2) + "\n",
                )
    except TimelyError as error:
        sys.stderr.write(f"bench ros: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
