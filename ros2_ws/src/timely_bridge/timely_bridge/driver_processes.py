"""A process for each driver, started again with back-off: a crash of a vendor's library ends one driver alone."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from timely_robots.registry import robot_class

from timely.core.child_process import ChildProcess, module_command
from timely.core.errors import Unsupported
from timely_bridge.fleet import Fleet, RobotSpec

CHECK_PERIOD_S = 0.1
FIRST_RESTART_S, LONGEST_RESTART_S = 0.5, 30.0
"""The delay of a restart; each restart doubles it."""
STABLE_S = 60.0
"""A driver that ran for so long is restarted after the shortest delay again."""
STOP_S = 8.0
VENDOR_PACKAGES: Mapping[str, str] = {"tello": "djitellopy", "indy7": "neuromeka"}
"""Kind of robot -> the vendor's package, which may be in another environment."""


def python_for(kind: str) -> str:
    """An interpreter that has the vendor's package for this kind of robot.

    Raises:
        Unsupported: there is none.
    """
    package = VENDOR_PACKAGES.get(kind)
    if package is None or importlib.util.find_spec(package) is not None:
        return sys.executable
    other = Path(sys.prefix).parent / ".venv-robots" / "bin" / "python"
    if not other.exists():
        raise Unsupported(f"needs {package}: `make robots` installs it", where=f"driver {kind}")
    return str(other)


@dataclass(slots=True, eq=False)
class _Driver:
    robot: RobotSpec
    command: list[str]
    log: Path
    child: ChildProcess | None = None
    started_s: float = 0.0
    restart_s: float = FIRST_RESTART_S
    """The delay of the next restart."""
    due_s: float | None = None
    restarts: int = field(default=0)


class DriverProcesses:
    """The drivers of a fleet, each in its process. They end with this process.

    Args:
        folder: for parameter files and logs.
        ros_args: further arguments of every driver, after ``--ros-args``.

    Raises:
        UnknownName: no such kind of driver. InvalidInput: a setting is unusable. Unsupported: a vendor's package is
            missing.
    """

    def __init__(
        self, fleet: Fleet, folder: Path, *, domain_id: int | None = None, ros_args: Sequence[str] = ()
    ) -> None:
        self._environment = {} if domain_id is None else {"ROS_DOMAIN_ID": str(domain_id)}
        self._drivers = {
            robot.name: _Driver(robot, _command(fleet, robot, folder, ros_args), folder / f"{robot.name}.log")
            for robot in fleet.robots
        }
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="driver supervisor", daemon=True)

    def start(self) -> None:
        """Start every driver. They are restarted from now on."""
        for driver in self._drivers.values():
            self._start(driver)
        self._thread.start()

    def failure(self, name: str) -> str:
        """The last line that a driver wrote before it ended; empty while it never ended."""
        driver = self._drivers[name]
        if not driver.restarts and driver.due_s is None:
            return ""
        lines = driver.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"

    @property
    def restarts(self) -> dict[str, int]:
        """Robot -> how often its driver was started again."""
        return {name: driver.restarts for name, driver in self._drivers.items()}

    def pid(self, name: str) -> int:
        """The process id of a driver; 0 while there is none."""
        child = self._drivers[name].child
        return child.pid if child is not None and child.running else 0

    def close(self) -> bool:
        """End every driver; its robot is brought to rest. False if one had to be killed."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        children = [driver.child for driver in self._drivers.values() if driver.child is not None]
        for child in children:
            child.interrupt()
        deadline_s = time.monotonic() + STOP_S
        clean = True
        for child in children:
            while child.running and time.monotonic() < deadline_s:
                time.sleep(0.01)
            clean = clean and not child.running
            child.close()
        return clean

    def _start(self, driver: _Driver) -> None:
        where = f"driver of {driver.robot.name}"
        driver.child = ChildProcess(where, driver.command, self._environment, log=driver.log).start()
        driver.started_s, driver.due_s = time.monotonic(), None

    def _supervise(self) -> None:
        while not self._stop.wait(CHECK_PERIOD_S):
            for driver in self._drivers.values():
                self._check(driver)

    def _check(self, driver: _Driver) -> None:
        now_s, child = time.monotonic(), driver.child
        if driver.due_s is not None:
            if now_s >= driver.due_s:
                driver.restarts += 1
                self._start(driver)
            return
        if child is None or not child.ended:
            return
        if now_s - driver.started_s >= STABLE_S:
            driver.restart_s = FIRST_RESTART_S
        sys.stderr.write(
            f"the driver of {driver.robot.name} ended with {_status(child.exit_code)}; "
            f"it starts again in {driver.restart_s:g} s\n"
        )
        child.close()
        driver.due_s = now_s + driver.restart_s
        driver.restart_s = min(2.0 * driver.restart_s, LONGEST_RESTART_S)


def _command(fleet: Fleet, robot: RobotSpec, folder: Path, ros_args: Sequence[str]) -> list[str]:
    kind = robot_class(robot.driver)
    names = {setting.name for setting in kind.SETTINGS}
    kind({name: value for name, value in robot.parameters.items() if name in names})
    file = folder / f"{robot.name}.yaml"
    parameters = {**fleet.driver_parameters(robot), "autostart": True}
    # JSON is YAML.
    file.write_text(json.dumps({"/**": {"ros__parameters": parameters}}))
    arguments = ["--kind", robot.driver, "--ros-args", "-r", f"__ns:=/{robot.name}"]
    arguments += ["--params-file", str(file), *(item for item in ros_args if item != "--ros-args")]
    return module_command("timely_robots.main", arguments, python=python_for(robot.driver))


def _status(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
