"""Measures a stop: from the call of the fleet's ``~/stop`` until no robot gets a motion command, all of them busy.

The robots are driven by set-points, fifty a second, as a robot without commands of its own is. What counts is when the
code that sends them has ended, or the last set-point, if one came even later. Server, fleet and robot program run in
processes of their own, the plans come from the server.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timely_robots.segments import Motion, MotionCancelled, SkillCall, SkillValue
from timely_robots.sim.robot import SimRobot

from timely.core.child_process import START_S, ChildProcess, module_command, stop_event
from timely.core.errors import EngineFailed
from timely.core.files import write_file

ROBOTS, REPETITIONS = 10, 20
SET_POINT_S = 0.02
BUSY_S = 2.5 * SET_POINT_S
"""A robot that got a set-point so shortly before the stop was busy."""
PLAN = "|".join(f"d({1.5 + 0.025 * number:g});" for number in range(60))
MODULE, SERVER = "timely_ros_bench.stop", "timely_ros_bench.planned_server"
WAIT_S = 30.0

Times = Mapping[str, Sequence[float]]
"""robot -> when something happened, seconds on the monotonic clock, ascending."""


class SetPointRobot(SimRobot):
    """A simulated robot that gets a set-point every ``SET_POINT_S``."""

    def connect(self, timeout_s: float) -> None:
        """See ``Robot``."""
        super().connect(timeout_s)
        self.commands: list[float] = []
        self.stops: list[float] = []

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        """See ``Robot``."""
        end = self.clock.now() + self._seconds(call)
        try:
            while self.clock.now() < end:
                motion.check()
                self.commands.append(time.monotonic())
                motion.sleep(SET_POINT_S)
        except MotionCancelled:
            self.stops.append(time.monotonic())
            raise
        return self._world.answer(call)


def stop_delays(windows: Sequence[tuple[float, float]], commands: Times, stops: Times) -> list[float]:
    """For each stop and robot that was busy: seconds from the call until no more set-points came.

    Args:
        windows: of each stop, when it was called, and when nothing can be due to it any more (the reset).
        commands: when a robot got set-points. stops: when the code that sends them ended early.
    """
    delays = []
    for when_s, until_s in windows:
        for robot, times in commands.items():
            if any(when_s - BUSY_S <= one < when_s for one in times):
                after = [one for one in (*times, *stops.get(robot, ())) if when_s <= one < until_s]
                delays.append(max(after) - when_s if after else 0.0)
    return delays


def measure_stop(
    robots: int = ROBOTS, repetitions: int = REPETITIONS, *, seed: int = 0, domain_id: int | None = None
) -> dict[str, float]:
    """Stop a busy fleet so many times.

    Returns:
        ``p50_ms``, ``p99_ms``, ``max_ms``, and how many ``samples`` that is (busy robots times stops).

    Raises:
        EngineFailed: a part did not start, or the fleet was never busy.
    """
    domain = domain_id if domain_id is not None else int(os.environ.get("ROS_DOMAIN_ID", "0")) or 100
    environment = {**os.environ, "ROS_DOMAIN_ID": str(domain)}
    environment.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    with tempfile.TemporaryDirectory(prefix="timely-stop.") as folder:
        place = Path(folder)
        same = ["--folder", folder, "--robots", str(robots), "--seed", str(seed)]

        def child(name: str, module: str, arguments: Sequence[str]) -> ChildProcess:
            return ChildProcess(name, module_command(module, arguments), environment, where="bench stop")

        parts = {
            "server": child("server", SERVER, ["--ready", str(place / "server.url")]),
            "fleet": child("fleet", MODULE, ["--role", "fleet", *same]),
            "program": child(
                "robot program", MODULE, ["--role", "program", "--repetitions", str(repetitions), *same]
            ),
        }
        try:
            parts["server"].start()
            parts["server"].wait_for_file(place / "server.url")
            parts["fleet"].start()
            parts["fleet"].wait_for_file(place / "fleet.ready")
            parts["program"].start()
            parts["program"].finish(START_S + repetitions * WAIT_S)
            parts["fleet"].interrupt()
            parts["fleet"].finish(START_S)
        finally:
            for part in parts.values():
                part.close()
        windows = json.loads((place / "windows.json").read_text())
        commands, stops = json.loads((place / "commands.json").read_text())
    delays = sorted(stop_delays(windows, commands, stops))
    if not delays:
        raise EngineFailed("no robot was busy when it was stopped", where="bench stop")
    return {
        "p50_ms": round(1e3 * statistics.median(delays), 3),
        "p99_ms": round(1e3 * delays[max(0, math.ceil(0.99 * len(delays)) - 1)], 3),
        "max_ms": round(1e3 * delays[-1], 3),
        "samples": len(delays),
    }


# --- The parts, each in its own process ---


def _fly(folder: Path, robots: int, seed: int) -> None:
    from timely_bridge.fleet import fleet_of
    from timely_bridge.run_fleet import start_fleet
    from timely_robots.ros.realtime import realtime_process

    stop = stop_event()
    entry: dict[str, Any] = {
        "driver": f"{MODULE}:SetPointRobot",
        "profile": "sim-drone",
        "skill_set": "drone",
    }
    entries = {
        _name(n): {**entry, "parameters": {"times": "expected", "seed": seed + n}} for n in range(robots)
    }
    url = (folder / "server.url").read_text()
    running = start_fleet(fleet_of({"server_url": url, "robots": entries}))
    try:
        with realtime_process():
            write_file(folder / "fleet.ready", "yes")
            stop.wait()
    finally:
        running.close()
    robots_of: dict[str, Any] = {name: node.robot for name, node in running.drivers.items()}
    times = [
        {name: getattr(node, what) for name, node in robots_of.items()} for what in ("commands", "stops")
    ]
    write_file(folder / "commands.json", json.dumps(times))


class _Program:
    """Keeps every robot busy, and stops them all."""

    def __init__(self, robots: int, seed: int) -> None:
        import rclpy
        from rclpy.action import ActionClient
        from std_srvs.srv import Trigger
        from timely_interfaces.action import ExecuteTask
        from timely_interfaces.msg import RobotState
        from timely_robots.ros.rclpy_utils import LATCHED, Spinner, isolated_context

        self.rng = random.Random(seed)
        self.modes: dict[str, int] = {}
        self._state, self._goal, self._trigger = RobotState, ExecuteTask.Goal, Trigger.Request
        self._left = 0
        context = isolated_context()
        node = rclpy.create_node("stopper", context=context)
        self._clients = [ActionClient(node, ExecuteTask, f"/{_name(n)}/execute_task") for n in range(robots)]
        for n in range(robots):
            name = _name(n)
            node.create_subscription(
                RobotState, f"/{name}/state", lambda state, name=name: self._hear(name, state), LATCHED
            )
        self._services = {
            what: node.create_client(Trigger, f"/timely_bridge/{what}") for what in ("stop", "reset")
        }
        self.spinner = Spinner(context, [node], name="stopper").start()

    def _hear(self, name: str, state: Any) -> None:
        self.modes[name] = state.mode

    def until(self, what: Any, why: str) -> None:
        """Wait, with a deadline."""
        deadline = time.monotonic() + WAIT_S
        while not what():
            if time.monotonic() > deadline:
                raise EngineFailed(why, where="bench stop")
            time.sleep(0.005)

    def call(self, what: str) -> float:
        """Call the fleet's stop or reset, and return when it was called, once it has answered."""
        answered = threading.Event()
        called_s: list[float] = []

        def begin() -> None:
            called_s.append(time.monotonic())
            request = self._services[what].call_async(self._trigger())
            request.add_done_callback(lambda future: answered.set())

        self.spinner.call(begin)
        if not answered.wait(WAIT_S):
            raise EngineFailed(f"the bridge did not answer ~/{what}", where="bench stop")
        return called_s[0]

    def round(self) -> tuple[float, float]:
        """Make all busy, stop them, wait for the tasks' ends; when it was called and when they were over."""
        self._left = len(self._clients)

        def over(future: Any) -> None:
            self._left -= 1

        def send() -> None:
            for client in self._clients:
                client.send_goal_async(self._goal(task=PLAN)).add_done_callback(
                    lambda sent: sent.result().get_result_async().add_done_callback(over)
                )

        self.spinner.call(send)
        self.until(
            lambda: self._count(self._state.EXECUTING) == len(self._clients), "the robots were never all busy"
        )
        time.sleep(self.rng.uniform(0.2, 1.2))
        asked_s = self.call("stop")
        self.until(lambda: self._left == 0, "tasks did not end after the stop")
        time.sleep(0.3)
        over_s = time.monotonic()
        self.call("reset")
        ready = lambda: all(mode == self._state.READY for mode in self.modes.values())  # noqa: E731
        self.until(ready, "the robots are not ready after the reset")
        return asked_s, over_s

    def _count(self, mode: int) -> int:
        return sum(current == mode for current in self.modes.values())

    def ready(self) -> bool:
        """All that is called is there."""
        return (
            all(client.server_is_ready() for client in self._clients)
            and all(service.service_is_ready() for service in self._services.values())
            and len(self.modes) == len(self._clients)
        )


def _stop_again_and_again(folder: Path, robots: int, repetitions: int, seed: int) -> None:
    program = _Program(robots, seed)
    try:
        program.until(program.ready, "the fleet did not appear")
        write_file(folder / "windows.json", json.dumps([program.round() for _ in range(repetitions)]))
    finally:
        program.spinner.close()


def _name(index: int) -> str:
    return f"robot{index}"


def main(arguments: Sequence[str] | None = None) -> int:
    """A part of the benchmark; ``timely bench stop`` is the benchmark."""
    import argparse

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--role", choices=("fleet", "program"), required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--robots", type=int, required=True)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        if options.role == "fleet":
            _fly(options.folder, options.robots, options.seed)
        else:
            _stop_again_and_again(options.folder, options.robots, options.repetitions, options.seed)
    except EngineFailed as error:
        sys.stderr.write(f"bench stop: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
