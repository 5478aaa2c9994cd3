"""A process for each driver, started again with back-off: a crash of a vendor's library ends one driver alone."""

import contextlib
import importlib.util
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from timely_robots.driver_parameters import MANAGED_PARAMETERS, check_ros_parameter_names
from timely_robots.language import robot_executor_skill_set
from timely_robots.registry import robot_class
from timely_robots.robot import Robot
from timely_robots.ros.driver_settings import ros_driver_parameters
from timely_robots.segments import MotionError

from lrtrace.errors import BadInput
from lrtrace.profiles import load_robot_profile
from timely.core.child_process import STACKS_END, ChildProcess, core_module_command
from timely.core.errors import InvalidInput, Unsupported
from timely.core.json_log import JsonLogOutput, log_fields
from timely_bridge.fleet import BridgeFleet, BridgeFleetRobot

log = logging.getLogger(__name__)

CHECK_PERIOD_S = 0.1
FIRST_RESTART_S, LONGEST_RESTART_S = 0.5, 30.0
"""The delay of a restart; each restart doubles it."""
STABLE_S = 60.0
"""A driver that ran for so long is restarted after the shortest delay again."""
LOG_BYTES = 16 * 2**20
"""A longer log of a driver is emptied. With ``json_log`` its lines were copied before."""
STOP_S = 8.0
STACKS_S = 1.5
"""Longest wait for the stacks of drivers that hang."""
VENDOR_PACKAGES: Mapping[str, str] = {"tello": "djitellopy", "indy7": "neuromeka"}
"""Kind of robot -> the vendor's package, which may be in another environment."""


def bridge_driver_python(kind: str) -> str:
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
class _BridgeDriverProcess:
    robot: str
    command: list[str]
    log: Path
    child: ChildProcess | None = None
    started_s: float = 0.0
    restart_s: float = FIRST_RESTART_S
    """The delay of the next restart."""
    due_s: float | None = None
    restarts: int = 0
    copied_bytes: int = 0
    """Of its log."""
    pid: int = 0
    """Of the latest process."""


class BridgeDriverProcesses:
    """The drivers of a fleet, each in its process. They end with this process.

    Args:
        folder: for parameter files and logs.
        ros_args: further arguments of every driver, after ``--ros-args``.
        json_log: gets the drivers' lines.

    Raises:
        InvalidInput: no such driver, profile, skill set or parameter, or an unusable setting. Unsupported: a
            vendor's package is missing.
    """

    def __init__(
        self,
        fleet: BridgeFleet,
        folder: Path,
        *,
        domain_id: int | None = None,
        ros_args: Sequence[str] = (),
        json_log: JsonLogOutput | None = None,
    ) -> None:
        self._json_log = json_log
        self._environment = {} if domain_id is None else {"ROS_DOMAIN_ID": str(domain_id)}
        self._processes = {
            robot.name: _BridgeDriverProcess(
                robot.name,
                _bridge_driver_command(fleet, robot, folder, ros_args, json_log=json_log is not None),
                folder / f"{robot.name}.log",
            )
            for robot in fleet.robots
        }
        """Robot -> the process of its driver."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="driver supervisor", daemon=True)

    def start(self) -> None:
        """Start every driver. They are restarted from now on."""
        for process in self._processes.values():
            self._start(process)
        self._thread.start()

    def failure(self, name: str) -> str:
        """The last line that a driver wrote before it ended; empty while it never ended."""
        process = self._processes[name]
        if not process.restarts and process.due_s is None:
            return ""
        lines = process.log.read_text(errors="replace").strip().splitlines()
        with contextlib.suppress(ValueError, TypeError, LookupError):
            return str(json.loads(lines[-1])["message"])
        return lines[-1] if lines else "no output"

    @property
    def restarts(self) -> dict[str, int]:
        """Robot -> how often its driver was started again."""
        return {name: process.restarts for name, process in self._processes.items()}

    def pid(self, name: str) -> int:
        """The process id of a driver; 0 while there is none."""
        child = self._processes[name].child
        return child.pid if child is not None and child.running else 0

    def close(self) -> bool:
        """End every driver; its robot is brought to rest. False if one had to be killed."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        children = {
            name: process.child for name, process in self._processes.items() if process.child is not None
        }
        for child in children.values():
            child.interrupt()
        _wait_for_bridge_drivers_until(lambda: not any(child.running for child in children.values()), STOP_S)
        hung = {name: child for name, child in children.items() if child.running}
        for child in hung.values():
            child.ask_for_stacks()
        _wait_for_bridge_drivers_until(
            lambda: all(STACKS_END in child.stacks() for child in hung.values()), STACKS_S
        )
        for name, child in hung.items():
            text = "the driver of %s did not end within %g s and is killed; its threads:\n%s"
            log.warning(text, name, STOP_S, child.stacks() or "they wrote nothing")
        for child in children.values():
            child.close()
        self._check_logs()
        return not hung

    def _check_logs(self) -> None:
        """Copy the drivers' new lines to the log, and bound their files.

        A driver that wrote to the log itself would wait for a slow terminal.
        """
        for process in self._processes.values():
            with contextlib.suppress(OSError), process.log.open("r+b") as file:
                is_full = os.fstat(file.fileno()).st_size > LOG_BYTES
                is_writing = process.child is not None and process.child.running
                if self._json_log is not None:
                    # A driver that has ended leaves its last line as it is.
                    whole_lines = is_writing and not is_full
                    self._copy_log(process, file, self._json_log, whole_lines=whole_lines)
                if is_full and is_writing:
                    # What comes at this moment is lost. The last words of a driver that has ended stay.
                    file.truncate(0)
                    process.copied_bytes = 0

    @staticmethod
    def _copy_log(
        process: _BridgeDriverProcess, file: BinaryIO, json_log: JsonLogOutput, *, whole_lines: bool
    ) -> None:
        file.seek(process.copied_bytes)
        lines = file.read()
        if whole_lines:
            lines = lines[: lines.rfind(b"\n") + 1]
        process.copied_bytes += len(lines)
        with log_fields({"robot": process.robot, "pid": process.pid}):
            for line in lines.decode(errors="replace").splitlines():
                json_log.write_printed(line)

    def _start(self, process: _BridgeDriverProcess) -> None:
        where = f"driver of {process.robot}"
        process.child = child = ChildProcess(
            where, process.command, self._environment, log=process.log
        ).start()
        process.pid = child.pid
        with contextlib.suppress(OSError):
            # Until it is ready, a driver takes no precedence over those that move a robot.
            os.setpriority(os.PRIO_PROCESS, child.pid, max(0, os.getpriority(os.PRIO_PROCESS, 0)))
        process.started_s, process.due_s, process.copied_bytes = time.monotonic(), None, 0

    def _supervise(self) -> None:
        while not self._stop.wait(CHECK_PERIOD_S):
            self._check_logs()
            for process in self._processes.values():
                self._check(process)

    def _check(self, process: _BridgeDriverProcess) -> None:
        now_s, child = time.monotonic(), process.child
        if process.due_s is not None:
            if now_s >= process.due_s:
                process.restarts += 1
                try:
                    self._start(process)
                except OSError as error:
                    _bridge_driver_restart_delay(process, f"did not start: {error}")
            return
        if child is None or not child.ended:
            return
        if now_s - process.started_s >= STABLE_S:
            process.restart_s = FIRST_RESTART_S
        status = _bridge_driver_exit_text(child.exit_code)
        child.close()
        _bridge_driver_restart_delay(process, f"ended with {status}")


def _wait_for_bridge_drivers_until(is_done: Callable[[], bool], timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_done() and time.monotonic() < deadline_s:
        time.sleep(0.01)


def _bridge_driver_restart_delay(process: _BridgeDriverProcess, reason: str) -> None:
    process.due_s = time.monotonic() + process.restart_s
    with log_fields({"robot": process.robot}):
        log.warning("the driver of %s %s; it starts again in %g s", process.robot, reason, process.restart_s)
    process.restart_s = min(2.0 * process.restart_s, LONGEST_RESTART_S)


def bridge_robot_class(robot: BridgeFleetRobot) -> type[Robot]:
    """The class of a robot of the fleet.

    Raises:
        InvalidInput: there is no such driver, profile or skill set, or one cannot be used.
    """
    try:
        kind = robot_class(robot.driver)
        load_robot_profile(robot.profile)
        robot_executor_skill_set(robot.skill_set)
    except (BadInput, InvalidInput, MotionError) as error:
        raise InvalidInput(str(error), where=robot.where) from error
    return kind


def _bridge_driver_command(
    fleet: BridgeFleet, robot: BridgeFleetRobot, folder: Path, ros_args: Sequence[str], *, json_log: bool
) -> list[str]:
    kind = bridge_robot_class(robot)
    settings = {setting.name for setting in kind.SETTINGS}
    try:
        driver = kind({name: value for name, value in robot.parameters.items() if name in settings})
    except InvalidInput as error:
        raise InvalidInput(error.message, where=f"{robot.where}.parameters.{error.where}") from error
    declared = [*MANAGED_PARAMETERS, *ros_driver_parameters(driver)]
    check_ros_parameter_names(robot.parameters, declared, f"{robot.where}.parameters")
    values = {**fleet.driver_parameters(robot), "autostart": True}
    file = folder / f"{robot.name}.yaml"
    file.write_text(json.dumps({f"/{robot.name}/driver": {"ros__parameters": values}}))  # JSON is YAML
    arguments = ["--kind", robot.driver, "--robots", robot.name]
    arguments += ["--log-format", "json", "--print-text"] if json_log else []
    arguments += ["--ros-args", "--params-file", str(file)]
    arguments += [item for item in ros_args if item != "--ros-args"]
    return core_module_command("timely_robots.main", arguments, python=bridge_driver_python(robot.driver))


def _bridge_driver_exit_text(code: int | None) -> str:
    if code is not None and code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"signal {names.get(-code, -code)}"
    return f"exit code {code}"
