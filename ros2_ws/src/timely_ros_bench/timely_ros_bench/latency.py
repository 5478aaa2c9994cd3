"""Measures what ROS 2 adds: from a segment closed in the engine to the callback of the robot's driver.

Server (real HTTP and scheduling, a scripted model), bridge, drivers and robot programs run in processes of their own.
All read Linux's monotonic clock. Processors are kept out of deep sleep with the bridge's parameter
``wake_latency_us``, as cyclictest does.
"""

import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

from timely.core.child_process import START_S, ChildProcess, core_module_command
from timely.core.cpu_latency import NO_LIMIT_US
from timely.core.errors import EngineFailed
from timely.core.files import core_write_file
from timely_ros_bench.latency_parts import LONGEST_S, ROLES, latency_robot_name
from timely_ros_bench.quantiles import ros_bench_quantiles

SEGMENTS = 20
MODULE, PLAYER = "timely_ros_bench.latency_parts", "timely_bridge.task_player"
FIRST_DOMAIN, LAST_DOMAIN = 1, 101


def measure_ros_latency(
    robots: int, segments: int = SEGMENTS, *, seed: int = 0, wake_latency_us: int = NO_LIMIT_US
) -> dict[str, float]:
    """One run: every robot executes one plan of so many segments, all of them at once.

    Returns:
        ``p50_ms``, ``p99_ms``, ``max_ms`` and ``segments``.

    Raises:
        EngineFailed: a part did not start, or a task failed; says which.
    """
    domain = FIRST_DOMAIN + os.getpid() % (LAST_DOMAIN - FIRST_DOMAIN)
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
                role, core_module_command(MODULE, ["--role", role, *plan]), environment, where="bench ros"
            )
            for role in ROLES
        }
        core_write_file(place / "script.json", json.dumps({"tasks": _latency_bench_tasks(robots, seed)}))
        play = core_module_command(PLAYER, [str(place / "script.json"), "--until-stdin-closes"])
        parts["programs"] = ChildProcess("robot programs", play, environment, where="bench ros")
        try:
            parts["server"].start()
            parts["server"].wait_for_file(place / "server.url")
            for role in ("drivers", "bridge"):
                parts[role].start()
                parts[role].wait_for_file(place / f"{role}.ready")
            parts["programs"].start()
            parts["programs"].finish(limit_s)
            for role in ("bridge", "drivers", "server"):
                parts[role].interrupt()
                parts[role].finish(START_S)
            results = [json.loads(line) for line in parts["programs"].lines() if line.startswith("{")]
        finally:
            for part in parts.values():
                part.close()
        closed_s, received_s = (
            json.loads((place / name).read_text()) for name in ("closed.json", "received.json")
        )
    bad = [result for result in results if result["outcome"] != "complete"]
    if bad:
        raise EngineFailed(f"{len(bad)} of {robots} tasks failed, one with: {bad[0]}")
    samples_s = [received_s[key] - closed_s[key] for key in closed_s if key in received_s]
    segment_count = robots * segments
    if len(closed_s) != segment_count or set(closed_s) != set(received_s):
        raise EngineFailed(
            f"{len(closed_s)} segments closed, {len(received_s)} received, {segment_count} expected"
        )
    quantiles_ms = {f"{name}_ms": value for name, value in ros_bench_quantiles(samples_s, 1e3, 3).items()}
    return {**quantiles_ms, "segments": len(samples_s)}


def _latency_bench_tasks(robots: int, seed: int) -> list[dict[str, Any]]:
    """A task for each robot, at random times, as a script of the task player."""
    rng, at_s, tasks = random.Random(seed), 0.0, []
    for index in range(robots):
        tasks.append({"at_s": at_s, "robot": latency_robot_name(index), "task": "wait"})
        at_s += rng.uniform(0.0, 2.0 * LONGEST_S / robots)
    return tasks
