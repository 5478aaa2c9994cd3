"""Plays a script of tasks over ROS 2: each robot gets its tasks one after the other, none before its time.

    python -m timely_bridge.task_player SCRIPT.json

The script is ``{"tasks": [{"at_s", "robot", "task", "scene", "skill_set", "tuf": {"ert_s", "alpha", "beta"},
"urgency"}], "until_s"}``, times in seconds from the start; what has not begun by ``until_s`` is left out. One JSON
line a task goes to standard output when it ends. With ``--until-stdin-closes`` it also ends, and cancels what runs,
when the program that started it goes away.
"""

import argparse
import json
import math
import os
import re
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from action_msgs.msg import GoalStatus
from rclpy.action import ActionClient
from rclpy.node import Node
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import TimeUtility
from timely_robots.ros.actions import RosActionCall
from timely_robots.ros.rclpy_utils import steady_ros_clock
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

from timely.core.child_process import core_stop_event
from timely.core.errors import EngineFailed, InvalidInput, TimelyError
from timely.core.files import core_read_json

SERVER_WAIT_S = 20.0
CHECK_PERIOD_S = 0.2
"""How often the player checks whether it has to stop."""
CANCEL_WAIT_S = 3.0
NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*")


class BridgeTaskPlayer(Node):
    """Sends the goals. All its state lives on the executor's thread."""

    def __init__(self, tasks: Sequence[Mapping[str, Any]], context: Any, until_s: float) -> None:
        super().__init__("timely_player", context=context)
        self.until_s = until_s
        self.queues: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        for task in sorted(tasks, key=lambda task: float(task["at_s"])):
            self.queues[str(task["robot"])].append(task)
        self.clients_ = {
            robot: ActionClient(self, ExecuteTask, f"/{robot}/execute_task") for robot in self.queues
        }
        self.busy: dict[str, RosActionCall] = {}
        self.goals_left = sum(len(queue) for queue in self.queues.values())
        self.finished = threading.Event()
        self.begin_s = 0.0

    def wait_for_bridge(self, timeout_s: float, stop: threading.Event) -> bool:
        """Wait until every robot's action is served; False when ``stop`` was set before.

        Raises:
            EngineFailed: one is not served in time.
        """
        deadline = time.monotonic() + timeout_s
        for robot, client in self.clients_.items():
            while not client.wait_for_server(timeout_sec=CHECK_PERIOD_S):
                if stop.is_set():
                    return False
                if time.monotonic() > deadline:
                    raise EngineFailed(f"no bridge serves {robot}", where=f"/{robot}/execute_task")
        return not stop.is_set()

    def begin(self) -> None:
        """Start the clock; tasks are looked for ten times a second."""
        self.begin_s = time.monotonic()
        self.create_timer(0.1, self._look, clock=steady_ros_clock())
        if not self.goals_left:
            self.finished.set()

    def _look(self) -> None:
        now = time.monotonic() - self.begin_s
        if now > self.until_s:
            for queue in self.queues.values():
                self.goals_left -= len(queue)
                queue.clear()
            if self.goals_left == 0:
                self.finished.set()
        for call in list(self.busy.values()):
            if call.unanswered:
                call.insist()
        for robot, queue in self.queues.items():
            if robot not in self.busy and queue and float(queue[0]["at_s"]) <= now:
                self._send(robot, queue.popleft())

    def _send(self, robot: str, task: Mapping[str, Any]) -> None:
        tuf = task.get("tuf") or {}
        goal = ExecuteTask.Goal(
            task=str(task["task"]),
            scene=str(task.get("scene", "")),
            skill_set=str(task.get("skill_set", "")),
            agent=robot,
            urgency=int(task.get("urgency", -1)),
            tuf=TimeUtility(**{key: float(value) for key, value in tuf.items()}),
        )
        self.busy[robot] = call = RosActionCall(
            self.clients_[robot], goal, partial(self._on_result, robot, task)
        )
        call.send()

    def _on_result(self, robot: str, task: Mapping[str, Any], response: Any) -> None:
        if response is None:
            result = {"outcome": "refused", "error_msg": "the goal was not taken"}
        elif response.status == GoalStatus.STATUS_UNKNOWN:
            result = {"outcome": "failed", "error_msg": "the bridge does not know the goal"}
        else:
            result = _plain_player_result(response.result)
        self.busy.pop(robot, None)
        self.goals_left -= 1
        print(json.dumps({"robot": robot, "task": task["task"], **result}), flush=True)
        if self.goals_left == 0:
            self.finished.set()

    def cancel_all(self) -> None:
        """Cancel everything that runs, and send nothing further."""
        for queue in self.queues.values():
            self.goals_left -= len(queue)
            queue.clear()
        for call in list(self.busy.values()):
            call.cancel()
        if not self.busy:
            self.finished.set()


def _plain_player_result(result: Any) -> dict[str, Any]:
    names = ("plan", "outcome", "error_code", "error_msg", "response", "waiting", "utility")
    values = {name: getattr(result, name) for name in names}
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in values.items()
    }


def _read_player_script(path: Path) -> tuple[list[dict[str, Any]], float]:
    """The tasks of a script, and the latest time at which one may begin, seconds after the start.

    Raises:
        InvalidInput: the file cannot be read, or a task lacks a field; says which.
    """
    data = core_read_json(path)
    tasks = data.get("tasks")
    if not isinstance(tasks, list):
        raise InvalidInput("needs a list under 'tasks'", where=str(path))
    for number, task in enumerate(tasks):
        for name in ("at_s", "robot", "task"):
            if not isinstance(task, dict) or name not in task:
                raise InvalidInput(f"needs {name}", where=f"{path}, task {number}")
        _check_player_task(task, f"{path}, task {number}")
    until_s = data.get("until_s", math.inf)
    if isinstance(until_s, bool) or not isinstance(until_s, (int, float)):
        raise InvalidInput("until_s must be a number of seconds", where=str(path))
    return tasks, float(until_s)


def _check_player_task(task: Mapping[str, Any], where: str) -> None:
    """Raise InvalidInput for a field of another type."""
    for name in ("robot", "task", "scene", "skill_set"):
        if not isinstance(task.get(name, ""), str):
            raise InvalidInput("must be a text", where=f"{where}, {name}")
    if NAMESPACE.fullmatch(task["robot"]) is None:
        raise InvalidInput("must be the namespace of a robot", where=f"{where}, robot")
    tuf = task.get("tuf") or {}
    if not isinstance(tuf, dict) or not tuf.keys() <= set(TimeUtility.get_fields_and_field_types()):
        raise InvalidInput("must be an object of ert_s, alpha and beta", where=f"{where}, tuf")
    numbers = {"at_s": task["at_s"], "urgency": task.get("urgency", -1), **tuf}
    for name, number in numbers.items():
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not math.isfinite(number):
            raise InvalidInput("must be a finite number", where=f"{where}, {name}")
    if not -1 <= numbers["urgency"] <= 4:
        raise InvalidInput("must be -1 to 4", where=f"{where}, urgency")


def play_bridge_tasks(
    tasks: Sequence[Mapping[str, Any]],
    stop: threading.Event,
    *,
    until_s: float = math.inf,
    domain_id: int | None = None,
) -> bool:
    """Play until all tasks ended or ``stop`` is set; True if all ended by themselves."""
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    context = isolated_ros_context(domain_id)
    player = BridgeTaskPlayer(tasks, context, until_s)
    spinner = RosSpinner(context, [player], name="player").start()
    try:
        if not player.wait_for_bridge(SERVER_WAIT_S, stop):
            return False
        spinner.call_and_wait(player.begin, 5.0)
        while not player.finished.wait(CHECK_PERIOD_S):
            if stop.is_set():
                spinner.call_and_wait(player.cancel_all, 5.0)
                player.finished.wait(CANCEL_WAIT_S)
                return False
        return True
    finally:
        spinner.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all tasks ended by themselves, 1 otherwise, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="timely_play", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("script", type=Path)
    parser.add_argument("--domain-id", type=int, default=None)
    parser.add_argument("--until-stdin-closes", action="store_true")
    options = parser.parse_args(arguments)
    stop = core_stop_event(with_parent=options.until_stdin_closes)
    try:
        tasks, until_s = _read_player_script(options.script)
        return 0 if play_bridge_tasks(tasks, stop, until_s=until_s, domain_id=options.domain_id) else 1
    except TimelyError as error:
        sys.stderr.write(f"timely_play: {error}\n")
        return 2 if isinstance(error, InvalidInput) else 1


if __name__ == "__main__":
    sys.exit(main())
