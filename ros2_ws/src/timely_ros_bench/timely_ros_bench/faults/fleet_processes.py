"""All parts of the fleet that is broken, each in a process of its own that can be killed and started again."""

import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from timely_bridge.driver_processes import bridge_driver_python

from timely.core.child_process import ChildProcess, core_module_command, free_tcp_port
from timely_ros_bench.faults.dds_cut import FaultDdsCut, build_fault_dds_cut, fault_bench_dds_udp_only
from timely_ros_bench.faults.motions import SPOTS
from timely_ros_bench.faults.overload import FaultOverload
from timely_ros_bench.faults.process_waits import FaultProcessWaits, read_fault_process_waits
from timely_ros_bench.faults.rounds import faulty_robot_kind

LOSS = DUPLICATES = 0.2
RESERVE = 0.2
"""Share of its battery with which a drone lands."""
EMULATOR, SERVER = "timely_ros_bench.emulated_robot", "timely_ros_bench.planned_server"


class FaultFleet:
    """All parts of a fleet, each of which can be killed and started again."""

    def __init__(self, robots: Sequence[str], folder: Path, domain: int, seed: int) -> None:
        self.robots = list(robots)
        self.folder = folder
        self.logs: dict[str, list[Path]] = {name: [] for name in robots}
        self.restarts = 0
        self.server_state = folder / "server"
        self._seed = seed
        self._domain = domain
        self._port = free_tcp_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._parts: dict[str, ChildProcess] = {}
        self.killed_s: dict[str, float] = {}
        """When a process was last killed, seconds on the monotonic clock."""
        self._overload: FaultOverload | None = None
        self._python = {name: bridge_driver_python(faulty_robot_kind(name)) for name in robots}
        library = build_fault_dds_cut(folder)
        states = dict.fromkeys(robots, folder / "state") | {
            "server": self.server_state,
            "bridge": folder / "bridge",
        }
        self.cuts = {
            name: FaultDdsCut(library, folder / f"{name}.cut", domain, states[name]) for name in states
        }
        """Of each robot's driver, and of server and bridge."""
        self._environment = {
            **os.environ,
            "ROS_DOMAIN_ID": str(domain),
            "PYTHONUNBUFFERED": "1",
            "TIMELY_STATE_DIR": str(folder / "state"),
            **fault_bench_dds_udp_only(),
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
        arguments = ["--port", str(self._port), "--ready", str(ready), "--state-dir", str(self.server_state)]
        part = self._begin("server", SERVER, arguments, more=self.cuts["server"].environment)
        part.wait_for_file(ready)

    def start_bridge(self) -> None:
        self._start_bridge("bridge", self.folder / "bridge")

    def start_second_bridge(self) -> None:
        """Another bridge for the same robots, as on another computer."""
        number = len(list(self.folder.glob("second-bridge-*.yaml")))
        self._start_bridge("second bridge", self.folder / f"second-bridge-{number}")

    def _start_bridge(self, role: str, state_folder: Path) -> None:
        robots = {
            name: {
                "profile": _faulty_robot_profile(name),
                "skill_set": "arm" if faulty_robot_kind(name) == "indy7" else "drone",
            }
            for name in self.robots
        }
        settings = {
            "server_url": self.url,
            "robots": self.robots,
            "autostart": True,
            "driver_timeout_s": 5.0,
            "segment_timeout_s": 10.0,
            "execution_margin_s": 10.0,
            "heartbeat_period_s": 0.5,
            "replan_attempts": 1,
            "state_folder": str(state_folder),
            **robots,
        }
        more = self.cuts[role].environment if role in self.cuts else {}
        self._begin(role, "timely_bridge.main", self._parameters(state_folder.name, settings), more=more)

    def start_robot(self, name: str, *, battery: float = 100.0) -> None:
        """The emulator of a robot, if it has one."""
        kind = faulty_robot_kind(name)
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
        self._begin(f"emulator of {name}", EMULATOR, arguments, python=self._python[name])

    def start_driver(self, name: str) -> None:
        kind = faulty_robot_kind(name)
        settings: dict[str, Any] = {
            "profile": _faulty_robot_profile(name),
            "skill_set": "arm" if kind == "indy7" else "drone",
            "autostart": True,
            "connect_timeout_s": 20.0,
        }
        driver_kind = kind
        if kind == "tello":
            settings |= {"host": self._host(name), "command_port": 18889, "battery_reserve": RESERVE}
        elif kind == "indy7":
            things = [f"{thing}:{x},{y},{z}" for thing, (x, y, z) in SPOTS.items()]
            settings |= {"host": self._host(name), "things": things, "speed_percent": 60.0}
        else:
            driver_kind = "timely_ros_bench.logged_sim:LoggedBenchRobot"
            settings |= {"log": str(self._log(name)), "times": "expected"}
        arguments = ["--kind", driver_kind, *self._parameters(name, settings), "-r", f"__ns:=/{name}"]
        self._begin(
            f"driver of {name}",
            "timely_robots.main",
            arguments,
            python=self._python[name],
            more=self.cuts[name].environment,
        )

    def kill(self, role: str) -> None:
        self._parts[role].kill()
        self.killed_s[role] = time.monotonic()

    def signal(self, role: str, number: int) -> None:
        self._parts[role].signal(number)

    def fill_disk(self, *, full: bool) -> None:
        """Let server, bridge and drivers write no more byte to any file, or end that.

        The drivers of simulated robots go on, since they write the robots' own logs.
        """
        drivers = [f"driver of {name}" for name in self.robots if faulty_robot_kind(name) != "sim"]
        for role in ("server", "bridge", *drivers):
            pid = self._parts[role].pid
            if pid:  # it may have been killed
                _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if full else most, most))

    def begin_overload(self) -> None:
        """Request more plans than the server can serve."""
        self.end_overload()
        self._overload = FaultOverload(self.url)

    def end_overload(self) -> None:
        if self._overload is not None:
            self._overload.end()

    def waits(self) -> dict[str, FaultProcessWaits]:
        """How long each part could not run since its start."""
        return {role: read_fault_process_waits(part.pid) for role, part in self._parts.items() if part.pid}

    def output(self, role: str) -> str:
        return self._parts[role].quote()

    def close(self) -> None:
        self.end_overload()
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
    ) -> ChildProcess:
        if role in self._parts:
            self.restarts += 1
            self._parts[role].close()
        part = ChildProcess(
            role,
            core_module_command(module, arguments, python=python),
            {**self._environment, **(more or {})},
            where="bench",
        )
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


def _faulty_robot_profile(name: str) -> str:
    kind = faulty_robot_kind(name)
    return "sim-drone" if kind == "sim" else kind
