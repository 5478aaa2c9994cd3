"""Runs two robots for a long, accelerated time and checks whether anything grows: ``timely bench soak``.

Server (a scripted model), fleet and this program are a process each. Their memory, files, sockets, threads and children
are read once a simulated minute. At the end no task may be left in the bridge.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.action import ActionClient
from timely_interfaces.action import ExecuteTask
from timely_robots.ros.actions import RosActionCall
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

from timely.core.child_process import ChildProcesses
from timely.core.errors import EngineFailed
from timely.core.progress import Say

ROBOTS = {"drone1": ("sim-drone", "drone"), "arm1": ("sim-arm", "arm")}
TASKS = {
    "drone1": ("Look for the chair", "Go up and take a picture", "Is there a cat?"),
    "arm1": ("Put the apple on the plate", "Clean the desk", "Show me the bottle"),
}
START_S, END_S = 60.0, 20.0
WARM = 0.25
"""Share of the run that does not count: imports, caches, the first of everything."""
GROWTH_MB, GROWTH = 3.0, 0.02
"""Memory is flat if the median of the last quarter exceeds that of the second by no more than this."""


def measure_soak(
    minutes: float = 24.0, speed: float = 40.0, *, seed: int = 1, say: Say = lambda line: None
) -> dict[str, Any]:
    """Two robots for ``minutes`` of their own time, which goes ``speed`` times as fast as ours.

    Returns for each process ``rss_mb`` (medians of an early and the last third), ``files``, ``threads`` and
    ``children`` (first and last reading after warming up). Adds the outcomes of the tasks, the
    tasks that are left, and ``flat``: nothing grew, and no task is left.

    Raises:
        EngineFailed: a part did not start, or ended.
    """
    with ChildProcesses("timely-soak-") as children:
        folder = children.folder
        serve = ["serve", "--engine", "scripted", "--port", "0", "--state-dir", str(folder / "state")]
        server = children.start("server", [sys.executable, "-m", "timely.cli.main", *serve])
        url = server.wait_for_line("serving on ").split()[0]
        robots = {
            robot: {"driver": "sim", "profile": profile, "skill_set": skills, "parameters": {"speed": speed}}
            for robot, (profile, skills) in ROBOTS.items()
        }
        (folder / "fleet.yaml").write_text(json.dumps({"robots": robots}))
        options = ["--fleet", str(folder / "fleet.yaml"), "--server-url", url, "--one-process"]
        options += ["--record", str(folder / "soak.mcap"), "--record-mb", "1", "--record-files", "2"]
        fleet = children.start("fleet", [sys.executable, "-m", "timely_bridge.run_fleet", *options])
        fleet.wait_for_line("fleet ready")
        pids = {"server": server.pid, "fleet": fleet.pid}
        pids["program"] = os.getpid()
        worker = _SoakWorker(seed)
        try:
            samples = worker.run(60.0 * minutes / speed, minutes, pids, say)
            tasks_left = worker.count_tasks_left()
            children.check()
        finally:
            worker.close()
        recorded_mb = sum(file.stat().st_size for file in folder.glob("soak*.mcap")) / 1e6
    return _judge_soak(samples, worker, tasks_left, minutes, speed, recorded_mb)


def _judge_soak(
    samples: list[dict[str, dict[str, float]]],
    worker: _SoakWorker,
    tasks_left: int,
    minutes: float,
    speed: float,
    mb: float,
) -> dict[str, Any]:
    warm_samples = samples[int(WARM * len(samples)) :]
    third = max(1, len(warm_samples) // 3)
    result: dict[str, Any] = {
        "minutes": minutes,
        "speed": speed,
        "tasks": worker.tasks,
        "outcomes": worker.outcomes,
        "tasks_left": tasks_left,
        "recorded_mb": round(mb, 2),
        "processes": {},
    }
    flat = tasks_left == 0
    for name in warm_samples[0]:
        rss = [look[name]["rss_mb"] for look in warm_samples]
        early, late = statistics.median(rss[:third]), statistics.median(rss[-third:])
        process: dict[str, Any] = {"rss_mb": [round(early, 1), round(late, 1)]}
        for what in ("files", "threads", "children"):
            process[what] = [int(warm_samples[0][name][what]), int(warm_samples[-1][name][what])]
        process["flat"] = late - early <= GROWTH_MB + GROWTH * early and all(
            process[what][1] <= process[what][0] + 1 for what in ("files", "threads", "children")
        )
        flat = flat and process["flat"]
        result["processes"][name] = process
    return result | {"flat": flat}


class _SoakWorker:
    """Gives each robot one task after the other."""

    def __init__(self, seed: int) -> None:
        self.tasks = 0
        self.outcomes: dict[str, int] = {}
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._open: set[str] = set()
        self._at_bridge: dict[str, int] = {}
        context = isolated_ros_context()
        node = rclpy.create_node("timely_soak", context=context)
        self._clients = {robot: ActionClient(node, ExecuteTask, f"/{robot}/execute_task") for robot in ROBOTS}
        node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)
        self._spinner = RosSpinner(context, [node], name="soak").start()

    def run(
        self, seconds: float, minutes: float, pids: dict[str, int], say: Say
    ) -> list[dict[str, dict[str, float]]]:
        """Work for so long; a look at every process once a simulated minute."""
        if not all(client.wait_for_server(START_S) for client in self._clients.values()):
            raise EngineFailed("the bridge did not appear", where="bench soak")
        samples: list[dict[str, dict[str, float]]] = []
        begin_s = time.monotonic()
        every_s = seconds / max(8.0, minutes)
        while (passed_s := time.monotonic() - begin_s) < seconds:
            for robot in ROBOTS:
                if robot not in self._open:
                    self._send(robot)
            if passed_s >= every_s * len(samples):
                samples.append({name: _soak_process_sample(pid) for name, pid in pids.items()})
                say(f"{passed_s / seconds:.0%}: {self.tasks} tasks, {samples[-1]['fleet']['rss_mb']:.0f} MB")
            time.sleep(0.005)
        deadline = time.monotonic() + END_S
        while self._open and time.monotonic() < deadline:
            time.sleep(0.02)
        samples.append({name: _soak_process_sample(pid) for name, pid in pids.items()})
        return samples

    def count_tasks_left(self) -> int:
        """Tasks that the bridge still has, by its own word, and goals of ours without a result."""
        self._at_bridge.clear()
        deadline = time.monotonic() + END_S
        while len(self._at_bridge) < len(ROBOTS) and time.monotonic() < deadline:
            time.sleep(0.05)
        silent = len(ROBOTS) - len(self._at_bridge)
        return len(self._open) + silent + sum(self._at_bridge.values())

    def close(self) -> None:
        self._spinner.close()

    def _send(self, robot: str) -> None:
        goal = ExecuteTask.Goal(task=self._rng.choice(TASKS[robot]))
        self._open.add(robot)

        def on_result(response: Any) -> None:
            outcome = response.result.outcome
            with self._lock:
                self.tasks += 1
                self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
            self._open.discard(robot)

        self._spinner.call(RosActionCall(self._clients[robot], goal, on_result).send)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.hardware_id in ROBOTS:
                values = {value.key: value.value for value in status.values}
                self._at_bridge[status.hardware_id] = int(values.get("tasks", 0))


def _soak_process_sample(pid: int) -> dict[str, float]:
    """Of a process: memory in MB, open files and sockets, threads, children."""
    folder = Path(f"/proc/{pid}")
    try:
        status = dict(
            line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
        )
        children = sum(
            len((task / "children").read_text().split())
            for task in (folder / "task").iterdir()
            if task.exists()
        )
        files = len(list((folder / "fd").iterdir()))
    except OSError as error:
        raise EngineFailed(f"process {pid} is gone: {error}", where="bench soak") from error
    return {
        "rss_mb": int(status["VmRSS"].split()[0]) / 1024.0,
        "threads": float(status["Threads"]),
        "files": float(files),
        "children": float(children),
    }
