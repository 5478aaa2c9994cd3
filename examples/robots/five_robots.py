"""Three Tellos and two Indy7 at once on one machine: the vendors' own clients, emulated robots, a real model's plans.

    .venv-robots/bin/python examples/robots/five_robots.py --seconds 90

Starts a server (.venv/bin/timely), five emulators and the fleet. Sends every robot one task after the other, and
sometimes an urgent one in between. Then it compares the emulators' own logs with the segments that were sent:
every action has to be in one of them, once, in order. Ends with status 1 if one is not.
"""

import argparse
import ipaddress
import json
import os
import random
import re
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from timely.core.child_process import ChildProcesses
from timely.core.errors import EngineFailed

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = ipaddress.IPv4Address("127.0.0.0")
COMMANDS = {
    "move_forward": "forward", "move_backward": "back", "move_left": "left", "move_right": "right",
    "move_up": "up", "move_down": "down", "turn_cw": "cw", "turn_ccw": "ccw",
}  # fmt: skip
TURN, FORWARD = r"c?cw \d+", r"forward \d+"
COMPOUND = {
    "scan": [r"cw 60"] * 5,
    "scan_abstract": [r"cw 60"] * 5,
    "goto": [TURN, *[FORWARD] * 4],
    "orienting": [TURN],
}
"""What a Tello may be told for a skill that looks: none of it is certain."""
LINE, CLOSE, OPEN = r"MoveL\(.*", r"SetDO\(0=1\)", r"SetDO\(0=0\)"
ARM = {
    "home": [r"MoveJ\(.*"],
    "move_to": [LINE],
    "pick": [LINE, LINE, CLOSE, LINE],
    "take": [LINE, LINE, CLOSE, LINE],
    "place": [LINE, LINE, OPEN, LINE],
    "drop": [LINE, OPEN],
    "open": [OPEN],
    "close": [CLOSE],
}
EARLY_S, LATE_S = 0.5, 1.5
"""How far a robot's log and the reports of its driver may be apart: they are two clocks' words over a network."""

ROOM = ["chair:0:200", "bottle:90:150", "cat:-60:200"]
DESK = [
    "cup:0.45,-0.1,0.1", "plate:0.4,0.2,0.1", "red box:0.5,0.1,0.1", "blue box:0.3,0.3,0.1", "green box:0.5,-0.25,0.1",
    "bin:0.35,-0.25,0.1", "apple:0.55,0.0,0.1", "pencil:0.35,0.05,0.1", "paper:0.4,-0.3,0.1", "bottle:0.55,0.2,0.1",
    "table:0.45,0.0,0.1", "banana:0.3,-0.35,0.1", "onion:0.25,0.35,0.1",
    "fruit bowl:0.3,0.2,0.1", "basket:0.5,-0.15,0.1",
]  # fmt: skip
TASKS = {
    "drone": [
        ("Look for the chair.", "chair, bottle"),
        ("Find the bottle.", "chair"),
        ("Go up and take a picture.", ""),
        ("Check for a cat and a bottle.", "cat"),
        ("Turn around once.", ""),
        ("Move forward one metre and come back.", ""),
    ],
    "arm": [
        ("Put the cup on the plate.", "cup, plate, red box, bin"),
        ("Throw the red box into the bin.", "cup, plate, red box, bin"),
        ("Show me the plate.", "cup, plate, red box, bin"),
        ("Go to the rest position.", "cup, plate"),
    ],
}
FULL_HAND = ("Drop what you hold into the bin.", "bin")
"""To an arm that was called away with something in its hand."""
URGENT = {"drone": ("A man is walking towards me.", ""), "arm": ("Move out of the way.", "cup, plate")}


# --- Did the robots do what they were told, and nothing else? ---


@dataclass(frozen=True)
class Atom:
    """One thing that a robot may be told, as a pattern; ``certain`` if it must come before what stands after it."""

    pattern: str
    certain: bool
    segment: int
    call: str


@dataclass
class SentTask:
    """A task's segments as they went to the driver, and when it said that it began them (monotonic seconds)."""

    skill_set: str = ""
    texts: dict[int, str] = field(default_factory=dict)
    started_s: dict[int, float] = field(default_factory=dict)
    ended_s: float = 0.0


def atoms_of(task: SentTask) -> list[Atom]:
    """All that a robot may be told for the segments that it began, in order; loops written out."""
    from timely.plans.language.parser import SegmentParser
    from timely.plans.language.syntax import Block, If, Loop, PlanCall, plan_node_calls
    from timely.plans.skill_library import load_skill_set

    began = [task.texts[index] for index in sorted(task.texts) if index in task.started_s]
    parser = SegmentParser(load_skill_set(task.skill_set))
    ends = []
    for text in began:
        parser.feed(text)
        ends.append(parser.position)
    audit: list[Atom] = []

    def call_atoms(call: PlanCall, certain: bool) -> None:
        segment = next((n for n, end in enumerate(ends) if call.at < end), len(ends) - 1)
        if call.skill in COMMANDS:
            amount = call.args[0] if isinstance(call.args[0], (int, float)) else r"\d+"
            audit.append(Atom(f"{COMMANDS[call.skill]} {amount}", certain, segment, call.text))
        elif call.skill == "approach":
            audit.append(Atom("forward 100", certain, segment, call.text))
        elif call.skill in COMPOUND:
            audit.extend(Atom(pattern, False, segment, call.text) for pattern in COMPOUND[call.skill])
        elif call.skill in ARM:
            audit.extend(Atom(pattern, certain, segment, call.text) for pattern in ARM[call.skill])

    def walk(node: Any, certain: bool) -> None:
        if isinstance(node, Block):
            for statement in node.statements:
                walk(statement, certain)
        elif isinstance(node, Loop):
            for _ in range(node.count):
                walk(node.body, certain)
        elif isinstance(node, If):
            for branch in node.branches:
                walk(branch.condition, False)
                walk(branch.body, False)
        else:
            for call in plan_node_calls(node):
                call_atoms(call, certain)

    walk(parser.program.body, True)  # which a cut may have left open
    return audit


def audit(records: Sequence[dict[str, Any]], tasks: Sequence[SentTask]) -> tuple[int, list[str]]:
    """(actions of a robot's log, what is wrong): each must be explained, once, in the order of the segments."""
    actions = sorted(
        (record["start_s"] if record["start_s"] is not None else record["t_s"], record["command"])
        for record in records
        if (record["event"] == "motion" and not record["command"].startswith(("takeoff", "land")))
        or record["command"].startswith("SetDO")
    )
    plans = sorted((task for task in tasks if task.started_s), key=lambda task: min(task.started_s.values()))
    atoms = [atoms_of(plan) for plan in plans]
    # Near the end of one plan and the start of the next both may explain a command: follow all ways to read it.
    readings, wrong = {(0, 0)}, list[str]()
    for at_s, command in actions:
        audit = {
            (number, place + 1)
            for current, position in readings
            for number in range(current, len(plans))
            for place in _places(
                atoms[number], position if number == current else 0, command, plans[number], at_s
            )
        }
        if not audit:
            around = [plan.texts for plan in plans if plan.ended_s + LATE_S >= at_s][:2]
            wrong.append(f"{command} at {at_s:.2f} s is in no segment, or again, or out of order: {around}")
        readings = audit or readings
    return len(actions), wrong


def _places(atoms: Sequence[Atom], start: int, command: str, plan: SentTask, at_s: float) -> Iterator[int]:
    """Where the plan may have this command next, without leaving out anything that had to come before."""
    if not min(plan.started_s.values()) - EARLY_S <= at_s <= plan.ended_s + LATE_S:
        return
    for place in range(start, len(atoms)):
        atom = atoms[place]
        if re.fullmatch(atom.pattern, command) and at_s >= plan.started_s.get(atom.segment, 0.0) - EARLY_S:
            yield place
        if atom.certain:
            return


# --- The parts ---


def fleet_of(first: int) -> tuple[dict[str, Any], dict[str, str]]:
    """(fleet file, loopback address of each robot)."""
    names = ("drone1", "drone2", "drone3", "arm1", "arm2")
    hosts = {name: str(LOOPBACK + first + n) for n, name in enumerate(names, 1)}
    own: dict[str, dict[str, Any]] = {
        "tello": {"command_port": 18889, "things": ROOM},
        "indy7": {"things": DESK, "speed_percent": 60.0},
    }
    robots = {}
    for name, host in hosts.items():
        driver, skill_set = ("tello", "drone") if name.startswith("drone") else ("indy7", "arm")
        parameters = {"host": host, **own[driver]}
        robots[name] = {
            "driver": driver, "profile": driver, "skill_set": skill_set, "parameters": parameters,
        }  # fmt: skip
    return {"robots": robots, "bridge": {"on_busy": "preempt"}}, hosts


class Program:
    """Sends tasks to all robots and keeps what was said about them."""

    def __init__(self, robots: Sequence[str], seed: int) -> None:
        import rclpy
        from rclpy.action import ActionClient
        from timely_interfaces.action import ExecuteTask
        from timely_interfaces.msg import RobotState, Segment, SegmentReport, Task
        from timely_robots.ros.rclpy_utils import LATCHED_QOS
        from timely_robots.ros.rclpy_utils import TASKS as TASK_QOS
        from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

        self.tasks: dict[str, dict[str, SentTask]] = {robot: {} for robot in robots}
        self.outcomes: Counter[str] = Counter()
        self.responses: dict[str, list[float]] = {"urgent": [], "normal": []}
        self.errors: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._rng = random.Random(seed)
        self._open: dict[str, int] = dict.fromkeys(robots, 0)
        self._holds: dict[str, bool] = {}
        self._action = ExecuteTask
        context = isolated_ros_context()
        node = rclpy.create_node("five_robots", context=context)
        self._clients = {robot: ActionClient(node, ExecuteTask, f"/{robot}/execute_task") for robot in robots}
        for robot in robots:
            for kind, topic, on_message, qos in (
                (Task, "task", self._on_task, TASK_QOS),
                (Segment, "segments", self._on_segment, 200),
                (RobotState, "state", self._on_state, LATCHED_QOS),
                (SegmentReport, "segment_reports", self._on_report, 200),
            ):
                node.create_subscription(kind, f"/{robot}/{topic}", partial(on_message, robot), qos)
        self._spinner = RosSpinner(context, [node], name="five robots").start()

    def _task(self, robot: str, task_id: str) -> SentTask:
        return self.tasks[robot].setdefault(task_id, SentTask())

    def _on_task(self, robot: str, message: Any) -> None:
        with self._lock:
            task = self._task(robot, message.task_id)
            task.skill_set = message.skill_set
            task.ended_s = time.monotonic()

    def _on_segment(self, robot: str, message: Any) -> None:
        with self._lock:
            self._task(robot, message.task_id).texts[message.index] = message.text

    def _on_report(self, robot: str, message: Any) -> None:
        now = time.monotonic()
        with self._lock:
            task = self._task(robot, message.task_id)
            task.started_s.setdefault(message.segment, now - message.elapsed_s)
            task.ended_s = now

    def _on_state(self, robot: str, message: Any) -> None:
        self._holds[robot] = bool(message.holding)

    def ready(self, timeout_s: float) -> bool:
        """Every robot's bridge is there."""
        return all(client.wait_for_server(timeout_s) for client in self._clients.values())

    def send(self, robot: str, *, urgent: bool = False) -> None:
        """Send a random task; from any thread."""
        from timely_interfaces.msg import TimeUtility
        from timely_robots.ros.actions import send_ros_goal

        kind = "drone" if robot.startswith("drone") else "arm"
        words, scene = URGENT[kind] if urgent else self._rng.choice(TASKS[kind])
        if self._holds.get(robot) and not urgent:
            words, scene = FULL_HAND
        goal = self._action.Goal(task=words, scene=scene)
        if urgent:
            goal.tuf = TimeUtility(ert_s=0.2, alpha=-6.67, beta=2.0)
        with self._lock:
            self._open[robot] += 1

        def note_result(future: Any) -> None:
            result = future.result().result
            with self._lock:
                self._open[robot] -= 1
                self.outcomes[result.outcome] += 1
                if result.response == result.response:
                    self.responses["urgent" if urgent else "normal"].append(result.response)
                if result.outcome in ("failed", "refused"):
                    self.errors[f"{result.error_code} {result.error_msg}"[:120]] += 1

        def follow_goal(future: Any) -> None:
            future.result().get_result_async().add_done_callback(note_result)

        self._spinner.call(lambda: send_ros_goal(self._clients[robot], goal).add_done_callback(follow_goal))

    def idle(self, robot: str) -> bool:
        """Nothing is under way for this robot."""
        with self._lock:
            return self._open[robot] == 0

    def close(self) -> None:
        """End."""
        self._spinner.close()


def main() -> int:
    """Run; 0 if every action is explained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=90.0, help="for which tasks are sent")
    parser.add_argument("--urgent-every", type=float, default=7.0, help="seconds between urgent tasks")
    parser.add_argument("--engine", default="vllm", help="vllm or scripted")
    parser.add_argument(
        "--timely", default=str(ROOT / ".venv" / "bin" / "timely"), help="the server's command"
    )
    parser.add_argument("--server-url", default="", help="a server that runs already")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first-host", type=int, default=110, help="emulators live at 127.0.0.N and up")
    parser.add_argument("--json", type=Path, help="write the result here, too")
    options = parser.parse_args()
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    try:
        with ChildProcesses("five-robots-") as parts:
            audit = _run(options, parts)
    except EngineFailed as error:
        raise SystemExit(str(error)) from error
    if options.json is not None:
        options.json.write_text(json.dumps(audit, indent=2) + "\n")
    print(json.dumps(audit, indent=2))
    return 1 if audit["wrong"] else 0


def _run(options: argparse.Namespace, parts: ChildProcesses) -> dict[str, Any]:
    url, folder = options.server_url, parts.folder
    if not url:
        server = parts.start("server", [options.timely, "serve", "--engine", options.engine, "--port", "0"])
        url = server.wait_for_line("serving on ", 300.0).split()[0]
    fleet, hosts = fleet_of(options.first_host)
    (folder / "fleet.yaml").write_text(json.dumps(fleet))  # JSON is YAML
    for robot, host in hosts.items():
        kind = "tello" if robot.startswith("drone") else "indy7"
        emulator = ["timely.emulators.cli", kind, "--host", host, "--log", str(folder / f"{robot}.jsonl")]
        parts.start(robot, [sys.executable, "-m", *emulator]).wait_for_line("Ctrl-C ends it", 30.0)
    driving = ["timely_bridge.run_fleet", "--fleet", str(folder / "fleet.yaml"), "--server-url", url]
    drivers = parts.start("fleet", [sys.executable, "-m", *driving])
    drivers.wait_for_line("fleet ready", 60.0)
    program = Program(list(hosts), options.seed)
    try:
        _send_tasks(program, list(hosts), options)
    finally:
        program.close()
    drivers.stop()
    action_counts: dict[str, int] = {}
    wrong: list[str] = []
    for robot in hosts:
        records = [json.loads(line) for line in (folder / f"{robot}.jsonl").read_text().splitlines()]
        action_counts[robot], problems = audit(records, list(program.tasks[robot].values()))
        wrong += [f"{robot}: {problem}" for problem in problems]
    return {
        "engine": options.engine,
        "seconds": options.seconds,
        "outcomes": dict(program.outcomes),
        "response_p50_s": {
            kind: round(statistics.median(values), 3) for kind, values in program.responses.items() if values
        },
        "segments": sum(len(task.texts) for tasks in program.tasks.values() for task in tasks.values()),
        "actions": action_counts,
        "wrong": wrong,
        "errors": dict(program.errors),
    }


def _send_tasks(program: Program, robots: list[str], options: argparse.Namespace) -> None:
    if not program.ready(30.0):
        raise SystemExit("the bridge did not appear")
    rng = random.Random(options.seed)
    begin_s = time.monotonic()
    urgent_s = begin_s + options.urgent_every
    while (now := time.monotonic()) < begin_s + options.seconds:
        for robot in robots:
            if program.idle(robot):
                program.send(robot)
        if now >= urgent_s:
            program.send(rng.choice(robots), urgent=True)
            urgent_s = now + options.urgent_every
        time.sleep(0.1)
    end_s = time.monotonic() + 60.0
    while not all(program.idle(robot) for robot in robots) and time.monotonic() < end_s:
        time.sleep(0.1)
    time.sleep(0.5)  # the last words about it


if __name__ == "__main__":
    sys.exit(main())
