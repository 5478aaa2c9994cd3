"""Breaks a fleet again and again, at random and seeded, and counts broken promises: ``timely bench faults``.

Real parts, each in a process of its own: the server (a scripted model), the bridge, a driver for each robot, and
emulated robots with the vendors' own clients; the emulated Tello's network loses and doubles one datagram in five
throughout. In each round every robot gets a task and one fault strikes one of them, or all:

* ``late_segment``: the model stalls in the middle of a plan;
* ``unsafe_plan``: the model writes a motion outside the robot's limits;
* ``emulator_dies``, ``battery``: the robot is gone in the middle of a motion, its battery runs out;
* ``driver_killed``, ``bridge_killed``, ``server_killed``: the process gets SIGKILL and is started again;
* ``dds_cut``: the driver's ROS 2 datagrams are lost, both ways, for five seconds.

Then the robots' own logs are compared with what was sent, and every task's end is looked at (``fault_judge``).
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.action import ActionClient
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import RobotState
from timely_robots.rostools import (
    Spinner,
    assumed_handle,
    isolated_context,
    new_goal_id,
    send_goal,
)

from timely.client import TimelyClient
from timely.core.errors import EngineFailed, TimelyError, UnknownName, Unsupported
from timely_bridge.dds_cut import DdsCut, build, udp_only
from timely_bridge.error_codes import name_of
from timely_bridge.fault_judge import (
    VIOLATIONS,
    Moved,
    Said,
    Violations,
    judge_holding,
    judge_motions,
    judge_outcome,
)
from timely_bridge.parts import Part, module_part, put, stop_event

KINDS = (
    "late_segment",
    "unsafe_plan",
    "driver_killed",
    "bridge_killed",
    "server_killed",
    "dds_cut",
    "emulator_dies",
    "battery",
)
OF_A_TELLO = ("battery",)
OF_AN_EMULATOR = ("emulator_dies",)
FLEET = ("tello", "indy7", "sim", "sim")
LOSS = DUPLICATES = 0.2
CUT_S = 5.0
SEGMENTS = 4
TOKENS, TOKEN_S, STALL_TOKENS = 3, 0.05, 110
"""A segment takes a sixth of a second to write, one that stalls five and a half."""
EMPTY_SOON, RESERVE = 20.1, 0.2
"""Per cent and share: a drone that starts with so little has reached its reserve after some nine seconds in the air."""
START_S = 60.0
TASK_LIMIT_S = 60.0
"""A task that has not ended then is lost; the longest deadline on its way is 25 s."""
PATIENCE_S = 4.0
"""The other robots' tasks are cancelled so long after the struck one's end, as an operator would."""
MODULE = "timely_bridge.faults"
LABELS = {"tello": "tello", "indy7": "arm", "sim": "sim"}
"""kind -> what its robots are called; a number follows."""
VENDOR = {"tello": "djitellopy", "indy7": "neuromeka"}
TELLO_WORDS = {"mf": "forward", "mb": "back", "tc": "cw", "tu": "ccw"}
SPOTS = {
    "apple": (0.45, -0.1, 0.12),
    "bowl": (0.4, 0.2, 0.12),
    "cup": (0.5, 0.05, 0.12),
    "plate": (0.42, -0.25, 0.12),
}

Say = Callable[[str], None]


def _silent(line: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One round: what strikes whom, when its segment ``segment`` is under way for ``delay_s``."""

    kind: str
    robot: str
    segment: int
    delay_s: float


def schedule(count: int, seed: int, robots: Sequence[str]) -> list[Fault]:
    """So many faults; every kind that the robots allow comes once before any comes again.

    Args:
        robots: names such as ``tello1``; the letters say the kind of robot.
    """
    rng = random.Random(seed)
    emulated = [name for name in robots if kind_of(name) != "sim"]
    tellos = [name for name in robots if kind_of(name) == "tello"]
    kinds = [
        kind
        for kind in KINDS
        if (kind not in OF_A_TELLO or tellos) and (kind not in OF_AN_EMULATOR or emulated)
    ]
    faults: list[Fault] = []
    while len(faults) < count:
        for kind in rng.sample(kinds, len(kinds)):
            whom = tellos if kind in OF_A_TELLO else emulated if kind in OF_AN_EMULATOR else list(robots)
            faults.append(Fault(kind, rng.choice(whom), rng.randrange(SEGMENTS - 1), rng.uniform(0.0, 1.0)))
    return faults[:count]


def kind_of(robot: str) -> str:
    """The kind of a robot, by its name."""
    label = robot.rstrip("0123456789")
    return next(kind for kind, called in LABELS.items() if called == label)


def plan_of(robot: str, round_number: int, rng: random.Random) -> list[str]:
    """A plan whose motions differ from each other and from those of the rounds before."""
    if kind_of(robot) == "indy7":
        return [f"move_to('{name}');" for name in rng.sample(sorted(SPOTS), SEGMENTS)]
    amount = 20 + 4 * (round_number % 12)
    return [f"mf({amount});", f"tc({amount + 1});", f"mb({amount + 2});", f"tu({amount + 3});"]


def motions_of(robot: str, plan: Sequence[str]) -> list[str]:
    """The plan in the words of the robot's own log."""
    calls = [text.rstrip(";") for text in plan]
    if kind_of(robot) == "tello":
        parts = [re.match(r"(\w+)\((\d+)\)", call) for call in calls]
        return [f"{TELLO_WORDS[part[1]]} {part[2]}" for part in parts if part]
    return calls


def log_motions(robot: str, files: Sequence[Path], since_s: float) -> list[Moved]:
    """What the robot did, out of its own logs, without what a driver does for safety (takeoff, landing, home)."""
    moved = []
    for file in files:
        if not file.exists():
            continue
        for line in file.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # the last line of a program that was killed
            if record["event"] != "motion" or record["start_s"] < since_s:
                continue
            what = _canonical(robot, record["command"])
            if what:
                moved.append(Moved(what, record["start_s"], record["end_s"]))
    return sorted(moved, key=lambda motion: motion.start_s)


def _canonical(robot: str, command: str) -> str:
    if kind_of(robot) == "tello":
        return "" if command.split(maxsplit=1)[0] in ("takeoff", "land") else command
    if kind_of(robot) == "indy7":
        numbers = re.match(r"MoveL\((-?[\d.]+),(-?[\d.]+)", command)
        if numbers is None:
            return ""
        x, y = 0.001 * float(numbers[1]), 0.001 * float(numbers[2])
        name = min(SPOTS, key=lambda one: (SPOTS[one][0] - x) ** 2 + (SPOTS[one][1] - y) ** 2)
        near = abs(SPOTS[name][0] - x) + abs(SPOTS[name][1] - y) < 0.02
        return f"move_to('{name}')" if near else command
    return command


# --- The world: processes ---


class World:
    """All parts of a fleet, each of which can be killed and started again."""

    def __init__(self, robots: Sequence[str], folder: Path, domain: int, seed: int) -> None:
        self.robots = list(robots)
        self.folder = folder
        self.logs: dict[str, list[Path]] = {name: [] for name in robots}
        self.restarts = 0
        self._seed = seed
        self._domain = domain
        self._port = _free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._parts: dict[str, Part] = {}
        self._python = {name: _python_for(name) for name in robots}
        library = build(folder)
        self.cuts = {name: DdsCut(library, folder / f"{name}.cut", domain) for name in robots}
        self._environment = {
            **os.environ,
            "ROS_DOMAIN_ID": str(domain),
            "PYTHONUNBUFFERED": "1",
            **udp_only(folder),
        }

    def start(self) -> None:
        """Everything; raises EngineFailed when the server does not come."""
        self.start_server()
        for name in self.robots:
            self.start_robot(name)
            self.start_driver(name)
        self.start_bridge()

    def start_server(self) -> None:
        """The server; returns when it answers."""
        ready = self.folder / "server.url"
        ready.unlink(missing_ok=True)
        part = self._begin(
            "server", MODULE, ["--role", "server", "--port", str(self._port), "--ready", str(ready)]
        )
        part.wait_for(ready)

    def start_bridge(self) -> None:
        """The bridge."""
        robots = {
            name: {"profile": _profile(name), "skill_set": "arm" if kind_of(name) == "indy7" else "drone"}
            for name in self.robots
        }
        settings = {
            "server_url": self.url,
            "robots": self.robots,
            "autostart": True,
            "driver_silence_s": 2.0,
            "driver_timeout_s": 5.0,
            "segment_timeout_s": 10.0,
            "execution_margin_s": 10.0,
            "heartbeat_period_s": 0.5,
            # Another plan would be the same one again here, and its motions repetitions.
            "replan_attempts": 0,
            **robots,
        }
        self._begin("bridge", "timely_bridge.main", self._parameters("bridge", settings))

    def start_robot(self, name: str, *, battery: float = 100.0) -> None:
        """The emulator of a robot, if it has one."""
        kind = kind_of(name)
        if kind == "sim":
            return
        log = self._log(name)
        arguments = [kind, "--host", self._host(name), "--log", str(log)]
        if kind == "tello":
            faults = ["--loss", str(LOSS), "--duplicate", str(DUPLICATES)]
            arguments += [
                *faults,
                "--battery",
                str(battery),
                "--seed",
                str(self._seed + len(self.logs[name])),
            ]
        self._begin(f"emulator of {name}", "timely.emulators.cli", arguments, python=self._python[name])

    def start_driver(self, name: str) -> None:
        """The driver of a robot."""
        kind = kind_of(name)
        settings: dict[str, Any] = {
            "profile": _profile(name),
            "skill_set": "arm" if kind == "indy7" else "drone",
            "autostart": True,
            "connect_timeout_s": 20.0,
        }
        chosen = kind
        if kind == "tello":
            settings |= {"host": self._host(name), "command_port": 18889, "battery_reserve": RESERVE}
        elif kind == "indy7":
            things = [f"{thing}:{x},{y},{z}" for thing, (x, y, z) in SPOTS.items()]
            settings |= {"host": self._host(name), "things": things, "speed_percent": 60.0}
        else:
            chosen = "timely_bridge.logged_sim:LoggedSim"
            settings |= {"log": str(self._log(name)), "times": "expected"}
        arguments = ["--kind", chosen, *self._parameters(name, settings), "-r", f"__ns:=/{name}"]
        self._begin(
            f"driver of {name}",
            "timely_robots.main",
            arguments,
            python=self._python[name],
            more=self.cuts[name].environment,
        )

    def kill(self, role: str) -> None:
        """SIGKILL."""
        self._parts[role].kill()

    def missing(self) -> list[str]:
        """Parts that have ended by themselves, with what they said."""
        return [f"{role}: {part.said()}" for role, part in self._parts.items() if part.ended]

    def said(self, role: str) -> str:
        """What a part has written."""
        return self._parts[role].said()

    def close(self) -> None:
        """Kill what runs."""
        for part in self._parts.values():
            part.close()

    def _begin(
        self,
        role: str,
        module: str,
        arguments: Sequence[str],
        *,
        python: str = "",
        more: dict[str, str] | None = None,
    ) -> Part:
        if role in self._parts:
            self.restarts += 1
            self._parts[role].close()
        part = module_part(role, module, arguments, {**self._environment, **(more or {})}, python=python)
        self._parts[role] = part
        part.start()
        return part

    def _parameters(self, name: str, settings: dict[str, Any]) -> list[str]:
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump({"/**": {"ros__parameters": settings}}))
        return ["--ros-args", "--params-file", str(file)]

    def _log(self, name: str) -> Path:
        file = self.folder / f"{name}-{len(self.logs[name])}.jsonl"
        self.logs[name].append(file)
        return file

    def _host(self, name: str) -> str:
        return f"127.0.{1 + self._domain % 250}.{1 + self.robots.index(name)}"


def _profile(name: str) -> str:
    kind = kind_of(name)
    return "sim-drone" if kind == "sim" else kind


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _python_for(name: str) -> str:
    """An interpreter that has the vendor's library.

    Raises:
        Unsupported: there is none.
    """
    package = VENDOR.get(kind_of(name))
    if package is None or importlib.util.find_spec(package) is not None:
        return sys.executable
    other = Path(sys.prefix).parent / ".venv-robots" / "bin" / "python"
    if not other.exists():
        raise Unsupported(f"needs {package}: `make robots` installs it", where="bench faults")
    return str(other)


# --- The observer: a robot program that sends tasks and hears states ---


@dataclass(slots=True, eq=False)
class Errand:
    """A task on its way."""

    robot: str
    plan: list[str]
    goal_id: Any
    result: Any = None
    status: int = -1
    handle: Any = None

    @property
    def task_id(self) -> str:
        """The bridge's name of it."""
        return f"ros-{bytes(self.goal_id.uuid).hex()}"

    @property
    def ended(self) -> bool:
        """Its result is there."""
        return self.result is not None


class Observer:
    """Sends tasks and keeps what robots say of themselves."""

    def __init__(self, robots: Sequence[str], domain: int) -> None:
        import rclpy

        self.said: dict[str, list[Said]] = {name: [] for name in robots}
        context = isolated_context(domain)
        self.node = rclpy.create_node("faults", context=context)
        self._clients = {
            name: ActionClient(self.node, ExecuteTask, f"/{name}/execute_task") for name in robots
        }
        keep = QoSProfile(depth=50, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
        for name in robots:
            self.node.create_subscription(
                RobotState, f"/{name}/state", lambda state, name=name: self._hear(name, state), keep
            )
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._diagnosed, 50)
        self._server_s = -math.inf
        self._spinner = Spinner(context, [self.node], name="faults").start()

    def _hear(self, name: str, state: RobotState) -> None:
        stamp_s = state.stamp.sec + 1e-9 * state.stamp.nanosec
        heard = Said(
            state.mode,
            state.session,
            stamp_s,
            time.monotonic(),
            state.task_id,
            state.segment,
            state.battery,
            state.detail,
        )
        self.said[name].append(heard)

    def _diagnosed(self, array: DiagnosticArray) -> None:
        if any(part.hardware_id == "server" and part.level == DiagnosticStatus.OK for part in array.status):
            self._server_s = time.monotonic()

    def served_since(self, when_s: float) -> bool:
        """The bridge has said since then that its server answers."""
        return self._server_s > when_s

    def reachable(self, name: str) -> bool:
        """The bridge's action for the robot is there."""
        return bool(self._clients[name].server_is_ready())

    def last(self, name: str) -> Said | None:
        """What the robot said last."""
        said = self.said[name]
        return said[-1] if said else None

    def send(self, name: str, task: str, plan: list[str]) -> Errand:
        """Send a task."""
        errand = Errand(name, plan, new_goal_id())

        def begin() -> None:
            sent = send_goal(self._clients[name], ExecuteTask.Goal(task=task), None, errand.goal_id)
            sent.add_done_callback(lambda future: self._follow(errand, future.result()))

        self._spinner.call(begin)
        return errand

    def _follow(self, errand: Errand, handle: Any) -> None:
        errand.handle = handle
        handle.get_result_async().add_done_callback(lambda future: self._ended(errand, future))

    @staticmethod
    def _ended(errand: Errand, future: Any) -> None:
        response = future.result()
        if response is not None and not errand.ended:
            errand.status, errand.result = int(response.status), response.result

    def insist(self, errand: Errand) -> None:
        """Ask for the result by the goal's name: after a bridge was started again, or an answer was lost."""
        self._spinner.call(
            lambda: self._follow(errand, assumed_handle(self._clients[errand.robot], errand.goal_id))
        )

    def cancel(self, errand: Errand) -> None:
        """Cancel a task."""
        if errand.handle is not None:
            self._spinner.call(errand.handle.cancel_goal_async)

    def close(self) -> None:
        """Let go."""
        self._spinner.close()


# --- Rounds ---


@dataclass(slots=True)
class Campaign:
    """Rounds of faults and what they showed."""

    world: World
    observer: Observer
    rng: random.Random
    found: Violations = field(default_factory=Violations)
    lost: int = 0
    tasks: int = 0
    held: int = 0
    """How often a robot waited for its next segment and said so."""
    outcomes: dict[str, int] = field(default_factory=dict)

    def play(self, number: int, fault: Fault) -> str:
        """One round: tasks for all, the fault, the tasks' ends, everything whole again, the verdict.

        Returns:
            What became of the struck robot's task, in words; empty if it was lost.
        """
        self.make_whole()
        begin_s = time.monotonic()
        if fault.kind == "battery":
            self.world.start_robot(fault.robot, battery=EMPTY_SOON)
            self._until(lambda: self._nearly_empty(fault.robot), 25.0)
            begin_s = time.monotonic()
        heard = {name: len(self.observer.said[name]) for name in self.world.robots}
        plans = {name: plan_of(name, number, self.rng) for name in self.world.robots}
        errands = {
            name: self.observer.send(name, self._task(fault, name, plans[name]), plans[name])
            for name in plans
        }
        self.tasks += len(errands)
        self._strike(fault)
        self._see_to_the_end(fault, errands)
        self.make_whole()
        ends = {}
        for name, errand in errands.items():
            who = f"round {number + 1} ({fault.kind} of {fault.robot}), {name}"
            said = self.observer.said[name][heard[name] :]
            ends[name] = self._judge(fault, name, errand, said, begin_s, who)
        return ends[fault.robot]

    def make_whole(self) -> None:
        """Wait until every robot is at rest and can be sent a task; start a driver again that does not come round.

        Raises:
            EngineFailed: something does not come back.
        """
        for name in self.world.robots:
            if not self._until(lambda: self._at_rest(name), 25.0):  # noqa: B023
                self.world.start_driver(name)
                if not self._until(lambda: self._at_rest(name), START_S):  # noqa: B023
                    raise EngineFailed(
                        f"{name} does not come back: {self.observer.last(name)}; its driver says "
                        f"{self.world.said(f'driver of {name}')}",
                        where="bench faults",
                    )
        now_s = time.monotonic()

        def ready() -> bool:
            return self.observer.served_since(now_s) and all(map(self.observer.reachable, self.world.robots))

        if not self._until(ready, START_S):
            raise EngineFailed(
                f"the bridge does not come back: {self.world.said('bridge')}", where="bench faults"
            )

    def _at_rest(self, name: str) -> bool:
        last = self.observer.last(name)
        if last is None or time.monotonic() - last.heard_s > 1.0 or last.mode != RobotState.READY:
            return False
        # Its driver is well, but is the robot itself?
        return not any(complaint in last.detail for complaint in ("nothing heard", "does not answer"))

    def _nearly_empty(self, name: str) -> bool:
        last = self.observer.last(name)
        return last is not None and last.battery < RESERVE + 0.02 and self._at_rest(name)

    def _task(self, fault: Fault, name: str, plan: Sequence[str]) -> str:
        """The plan in words that the scripted model understands."""
        parts = list(plan)
        if name == fault.robot and fault.kind == "late_segment":
            # Early in the plan: later the robot has so much to do that the stall would be over before it shows.
            parts[1] += f"@{STALL_TOKENS}"
        if name == fault.robot and fault.kind == "unsafe_plan":
            parts[fault.segment + 1] = "move_to(7);" if kind_of(name) == "indy7" else "mf(900);"
        return "|".join(parts)

    def _strike(self, fault: Fault) -> None:
        if fault.kind in ("late_segment", "unsafe_plan", "battery"):
            return
        since = len(self.observer.said[fault.robot])

        def under_way() -> bool:
            return any(
                one.executing and one.segment >= fault.segment
                for one in self.observer.said[fault.robot][since:]
            )

        self._until(under_way, 25.0)
        time.sleep(fault.delay_s)
        if fault.kind == "emulator_dies":
            self.world.kill(f"emulator of {fault.robot}")
        elif fault.kind == "driver_killed":
            self.world.kill(f"driver of {fault.robot}")
        elif fault.kind == "bridge_killed":
            self.world.kill("bridge")
            self.world.start_bridge()
        elif fault.kind == "server_killed":
            self.world.kill("server")
            time.sleep(self.rng.uniform(0.0, 2.0))
            self.world.start_server()
        elif fault.kind == "dds_cut":
            self.world.cuts[fault.robot].set(True)
            time.sleep(CUT_S)
            self.world.cuts[fault.robot].set(False)

    def _see_to_the_end(self, fault: Fault, errands: dict[str, Errand]) -> None:
        begin_s = time.monotonic()
        if fault.kind == "bridge_killed":
            self._until(lambda: all(map(self.observer.reachable, errands)), START_S)
            for errand in errands.values():
                self.observer.insist(errand)
        struck = errands[fault.robot]
        # An answer of a server that was just found may get lost; asked by its name, it is given again.
        while not self._until(lambda: struck.ended, 5.0) and time.monotonic() - begin_s < TASK_LIMIT_S:
            self.observer.insist(struck)
        if fault.kind == "driver_killed":
            self.world.start_driver(fault.robot)
        if fault.kind in ("emulator_dies", "battery"):
            self.world.start_robot(fault.robot)
        self._until(lambda: all(errand.ended for errand in errands.values()), PATIENCE_S)
        for errand in errands.values():
            if not errand.ended:
                self.observer.cancel(errand)
        while not self._until(lambda: all(e.ended for e in errands.values()), 5.0):
            if time.monotonic() - begin_s > TASK_LIMIT_S:
                break
            for errand in errands.values():
                if not errand.ended:
                    self.observer.insist(errand)

    def _judge(
        self, fault: Fault, name: str, errand: Errand, said: list[Said], begin_s: float, who: str
    ) -> str:
        found, label = self.found, ""
        outcome = self._outcome(fault, errand)
        if outcome is None:
            self.lost += 1
            found.cases.append(f"lost: {who}")
        else:
            judge_outcome(*outcome, found, who)
            label = f"{outcome[0]} {name_of(outcome[1])}"
            self.outcomes[label] = self.outcomes.get(label, 0) + 1
        moved = log_motions(name, self.world.logs[name], begin_s)
        sent = motions_of(name, errand.plan)
        judge_motions(sent, [motion.what for motion in moved], found, who)
        # What a driver says while it is cut off, or dead, nobody can hear.
        if not (name == fault.robot and fault.kind in ("dds_cut", "driver_killed")):
            self.held += judge_holding(said, moved, sent, found, who)
        return label

    def _outcome(self, fault: Fault, errand: Errand) -> tuple[str, int] | None:
        """How a task ended: by the bridge, or, where it died with the task, by the server that planned it."""
        if errand.ended and errand.result.outcome:
            return str(errand.result.outcome), int(errand.result.error_code)
        if fault.kind != "bridge_killed":
            return None
        from timely_interfaces.msg import ErrorCode

        client = TimelyClient(self.world.url)
        try:
            end: dict[str, Any] = {}

            def settled() -> bool:
                end.update(client.task(errand.task_id))
                return bool(end.get("outcome"))

            self._until(settled, 20.0, every_s=0.2)
        except UnknownName:
            return None
        except TimelyError:
            return None
        finally:
            client.close()
        words = {"complete": ("complete", 0), "cancelled": ("cancelled", int(ErrorCode.CANCELLED))}
        return (
            words.get(str(end.get("outcome")), ("failed", int(ErrorCode.ENGINE_FAILED)))
            if end.get("outcome")
            else None
        )

    def _until(self, what: Callable[[], bool], timeout_s: float, every_s: float = 0.02) -> bool:
        deadline = time.monotonic() + timeout_s
        while not what():
            if time.monotonic() > deadline:
                return False
            time.sleep(every_s)
        return True


def names_of(fleet: Sequence[str]) -> list[str]:
    """``tello1``, ``arm1``, ``sim1``, ``sim2`` ... of kinds of robots.

    Raises:
        UnknownName: no such kind here.
    """
    names: list[str] = []
    for kind in fleet:
        if kind not in LABELS:
            raise UnknownName("robot", kind, LABELS, where="robots")
        label = LABELS[kind]
        names.append(f"{label}{1 + sum(name.startswith(label) for name in names)}")
    return names


@contextmanager
def a_world(robots: Sequence[str], seed: int, domain: int) -> Iterator[tuple[World, Observer]]:
    """Everything running; nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="timely-faults.") as folder:
        world = World(robots, Path(folder), domain, seed)
        observer: Observer | None = None
        try:
            world.start()
            os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
            observer = Observer(robots, domain)
            yield world, observer
        finally:
            if observer is not None:
                observer.close()
            world.close()


def measure_faults(
    count: int,
    seed: int = 0,
    *,
    fleet: Sequence[str] = FLEET,
    domain_id: int | None = None,
    say: Say = _silent,
) -> dict[str, Any]:
    """Run so many rounds.

    Returns:
        ``faults``, ``violations`` (by kind), ``lost_tasks``; and ``tasks``, ``outcomes``, ``held``, ``restarts``, and
        ``cases``, a line for each violation.

    Raises:
        EngineFailed: a part does not come back. Unsupported: no vendor's library or no C compiler.
    """
    robots = names_of(fleet)
    domain = domain_id if domain_id is not None else int(os.environ.get("ROS_DOMAIN_ID", "0")) or 101
    with a_world(robots, seed, domain) as (world, observer):
        campaign = Campaign(world, observer, random.Random(seed + 1))
        for number, fault in enumerate(schedule(count, seed, robots)):
            before_s, seen = time.monotonic(), len(campaign.found.cases)
            struck = campaign.play(number, fault)
            say(
                f"{number + 1:4d}/{count} {fault.kind:14s} {fault.robot:6s} {time.monotonic() - before_s:5.1f} s: "
                f"{struck or 'lost'}; {campaign.found.total} violations, {campaign.lost} lost so far"
            )
            for case in campaign.found.cases[seen:]:
                say(f"     {case}")
        return {
            "faults": count,
            "violations": {kind: campaign.found.counts[kind] for kind in VIOLATIONS},
            "lost_tasks": campaign.lost,
            "tasks": campaign.tasks,
            "outcomes": dict(sorted(campaign.outcomes.items())),
            "held": campaign.held,
            "restarts": world.restarts,
            "cases": campaign.found.cases,
        }


# --- The server, in a process of its own ---


def _serve(port: int, ready: Path) -> None:
    from timely.engines.base import GenerationRequest
    from timely.engines.scripted import ScriptedEngine, ScriptedSegment
    from timely.plans import segment_execution_s
    from timely.plans.library import find_skill_set
    from timely.plans.profiles import find_profile
    from timely.server.app import create_app
    from timely.server.run import ServerThread

    def planner(request: GenerationRequest) -> list[ScriptedSegment]:
        skill_set = find_skill_set(request.skill_set)
        profile = find_profile(request.robot or skill_set.profile)
        segments = []
        for part in str(request.extra["task"]).split("|"):
            text, _, tokens = part.partition("@")
            try:
                seconds = segment_execution_s(text, skill_set, profile)
            except TimelyError:
                seconds = 1.0  # what no robot may do has no time; the server will not let it out
            segments.append(ScriptedSegment(text, seconds, int(tokens or TOKENS)))
        return segments

    stop = stop_event()
    with ServerThread(create_app(ScriptedEngine(planner=planner, token_s=TOKEN_S)), port=port) as server:
        put(ready, server.url)
        stop.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """A part of the benchmark; ``timely bench faults`` is the benchmark."""
    import argparse

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--role", choices=("server",), required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ready", type=Path, required=True)
    options = parser.parse_args(arguments)
    _serve(options.port, options.ready)
    return 0


if __name__ == "__main__":
    sys.exit(main())
