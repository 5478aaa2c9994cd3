"""The one-command start: the bridge and a fleet's drivers, without ros2cli or launch.

    python -m timely_bridge.run_fleet --server-url http://127.0.0.1:8000 --fleet fleet.yaml

Each driver has a process of its own, which is started again when it ends (``driver_processes``). ``--one-process`` puts
all nodes into this process: discovery among more than about 30 processes fails on one machine.

Ends on SIGINT or SIGTERM: tasks are cancelled and robots brought to rest. With ``--until-stdin-closes`` it also ends
with the program that started it.
"""

import argparse
import contextlib
import hashlib
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rclpy.lifecycle import TransitionCallbackReturn
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.json_log import parse_ros_program_arguments, start_ros_json_log
from timely_robots.ros.realtime import realtime_ros_process
from timely_robots.ros.shared_memory import clean_ros_shared_memory as clean_shared_memory
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

from timely.core.child_process import core_stop_event
from timely.core.errors import EngineFailed, InvalidInput, TimelyError
from timely.core.files import default_state_folder
from timely.core.temporary_folders import temporary_folder
from timely_bridge.driver_processes import BridgeDriverProcesses, bridge_robot_class
from timely_bridge.fleet import BridgeFleet, check_bridge_server_url, load_bridge_fleet
from timely_bridge.interfaces import ClientFactory
from timely_bridge.node import BridgeNode, bridge_client
from timely_bridge.recorder import BridgeMcapFiles, BridgeRecorderNode, bridge_recording_bounds

log = logging.getLogger(__name__)

SETTLE_S = 5.0
START_S = 60.0
"""Longest start of the drivers' processes."""
MOST_PROCESSES = 30
"""With more, on two cores, the drivers' discovery of each other takes longer than ``START_S``."""


@dataclass(frozen=True, slots=True)
class RunningBridgeFleet:
    """The bridge and its drivers, spinning; made by ``start_fleet``. ``drivers`` are those in this process."""

    bridge: BridgeNode
    drivers: dict[str, DriverNode]
    spinner: RosSpinner
    recording: BridgeMcapFiles | None
    processes: BridgeDriverProcesses | None

    def close(self) -> bool:
        """End all tasks and motions, then the nodes; False if something did not end in time. Safe to call twice."""
        is_settled = self.bridge.settle(SETTLE_S)
        if not is_settled:
            log.warning("a task did not end within %g s", SETTLE_S)
        is_clean = self.processes is None or self.processes.close()
        has_ended = self.spinner.close()
        if not has_ended:
            log.warning("the ROS executor did not end in time")
        is_clean = has_ended and is_settled and is_clean
        return (self.recording is None or self.recording.close()) and is_clean


def start_bridge_fleet(
    fleet: BridgeFleet,
    *,
    domain_id: int | None = None,
    client_factory: ClientFactory = bridge_client,
    ros_args: list[str] | None = None,
    recording: BridgeMcapFiles | None = None,
    processes: BridgeDriverProcesses | None = None,
    stop: threading.Event | None = None,
) -> RunningBridgeFleet:
    """Make, configure and activate all nodes, and spin them on a thread of their own. Returns when all are ready.

    Args:
        fleet: what to start; its ``server_url`` is where the bridge connects to.
        domain_id: ROS domain; None takes ROS_DOMAIN_ID.
        client_factory: other clients, in tests.
        recording: takes tasks, segments, reports and states, and is closed with the fleet.
        processes: runs the drivers in processes of their own; None makes them here.
        stop: waits for these no longer once it is set.

    Raises:
        InvalidInput: no such driver, profile, skill set or parameter, or an unusable value. EngineFailed: a node did
            not start.
    """
    robots_here = fleet.robots if processes is None else ()
    kinds = {robot.name: bridge_robot_class(robot) for robot in robots_here}
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    context = isolated_ros_context(domain_id, ros_args)
    with contextlib.ExitStack() as undo:
        spinner = RosSpinner(context, name="fleet")
        undo.callback(spinner.close)
        try:
            drivers = {}
            for robot in robots_here:
                drivers[robot.name] = driver = DriverNode(
                    kinds[robot.name](),
                    namespace=robot.name,
                    context=context,
                    overrides=fleet.driver_parameters(robot),
                )
                spinner.add(driver)
            bridge = BridgeNode(
                context=context, overrides=fleet.bridge_parameters(), client_factory=client_factory
            )
            spinner.add(bridge)
            if (namespace := bridge.get_namespace()) != "/":
                # The remapping would put every driver into the same namespace.
                raise InvalidInput(f"a fleet has no namespace of its own, got {namespace!r}", where="__ns")
            if recording is not None:
                spinner.add(
                    BridgeRecorderNode([robot.name for robot in fleet.robots], recording, context=context)
                )
        except (ValueError, TypeError) as error:
            # Of a value that is no parameter's.
            raise InvalidInput(str(error), where="parameters of the fleet") from error
        lifecycle_nodes: list[Any] = [*drivers.values(), bridge]
        for node in lifecycle_nodes:
            for step in (node.trigger_configure, node.trigger_activate):
                if step() != TransitionCallbackReturn.SUCCESS:
                    name = node.get_fully_qualified_name()
                    raise EngineFailed(f"node {name} did not start: {node.fault or 'see its log'}")
        spinner.start()
        undo.pop_all()
    running = RunningBridgeFleet(bridge, drivers, spinner, recording, processes)
    if processes is not None:
        try:
            processes.start()
            _wait_for_bridge_drivers(bridge, processes, stop or threading.Event())
        except BaseException:
            running.close()
            raise
    return running


def _wait_for_bridge_drivers(
    bridge: BridgeNode, processes: BridgeDriverProcesses, stop: threading.Event
) -> None:
    """Return when every driver takes segments, or ``stop`` is set.

    Raises:
        EngineFailed: one ended, has a fault, or takes too long.
    """
    deadline_s = time.monotonic() + START_S
    while waiting := [name for name, ready in bridge.drivers_ready().items() if not ready]:
        for name, fault in bridge.driver_faults().items():
            if failure := fault or processes.failure(name):
                raise EngineFailed(f"the driver of {name} did not start: {failure}")
        if time.monotonic() > deadline_s:
            problem = f"no state of the driver of {', '.join(waiting)} within {START_S:g} s"
            if len(bridge.drivers_ready()) > MOST_PROCESSES:
                problem += f"; more than about {MOST_PROCESSES} robots need --one-process"
            raise EngineFailed(problem)
        if stop.wait(0.05):
            return


def bridge_state_folder(fleet_file: str) -> Path:
    """The default folder of the bridge's stop and goals: each path of a fleet file has one."""
    path = Path(fleet_file).absolute()
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    return default_state_folder() / "fleets" / f"{path.stem}-{digest}"


def _bridge_state_text(state_folder: str) -> str:
    """Where stop and goals are. A fleet file that was renamed has a new folder, and its earlier stop is gone."""
    if not state_folder:
        return "stop and goals are not kept"
    is_new = not os.path.isdir(
        os.path.expanduser(state_folder)
    )  # never raises: the bridge says what is wrong
    note = ", which is new: no stop or goal of an earlier start counts" if is_new else ""
    return f"stop and goals are kept in {state_folder}{note}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until interrupted; 0, 1 if something went wrong, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="timely_fleet", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--fleet", required=True, help="YAML file that names the robots")
    parser.add_argument("--server-url", default="", help="overrides the file's")
    parser.add_argument("--domain-id", type=int, default=None, help="ROS domain; default: ROS_DOMAIN_ID")
    parser.add_argument(
        "--record", type=Path, metavar="FILE.mcap", help="record what happens: FILE_0.mcap, ..."
    )
    parser.add_argument("--record-mb", type=float, default=256.0, help="a file; default 256")
    parser.add_argument("--record-files", type=int, default=4, help="that are kept; default 4")
    parser.add_argument(
        "--until-stdin-closes", action="store_true", help="end with the program that started this"
    )
    parser.add_argument(
        "--one-process",
        action="store_true",
        help=f"all drivers in this process, for more than about {MOST_PROCESSES} robots",
    )
    options, ros_args = parse_ros_program_arguments(parser, arguments)
    json_log = start_ros_json_log() if options.log_format == "json" else None
    stop = core_stop_event(with_parent=options.until_stdin_closes)
    clean_shared_memory()
    try:
        fleet = load_bridge_fleet(options.fleet)
        fleet = replace(
            fleet, bridge={"state_folder": str(bridge_state_folder(options.fleet)), **fleet.bridge}
        )
        if options.server_url:
            check_bridge_server_url(options.server_url, "--server-url")
            fleet = replace(fleet, server_url=options.server_url)
        print(_bridge_state_text(str(fleet.bridge["state_folder"])), flush=True)
        recording = None
        if options.record is not None:
            recording = BridgeMcapFiles(
                options.record, bridge_recording_bounds(options.record_mb, options.record_files)
            )
        with contextlib.ExitStack() as while_running:
            processes = None
            if not options.one_process:
                folder = while_running.enter_context(temporary_folder("timely-fleet-"))
                processes = BridgeDriverProcesses(
                    fleet, folder, domain_id=options.domain_id, ros_args=ros_args, json_log=json_log
                )
            running = start_bridge_fleet(
                fleet,
                domain_id=options.domain_id,
                ros_args=ros_args,
                recording=recording,
                processes=processes,
                stop=stop,
            )
            try:
                while_running.enter_context(realtime_ros_process())
                if not stop.is_set():
                    print(f"fleet ready: {', '.join(robot.name for robot in fleet.robots)}", flush=True)
                running.spinner.wait(stop)
            finally:
                is_clean = running.close()
                if recording is not None and recording.failure:
                    sys.stderr.write(f"timely_fleet: {recording.failure}\n")
    except TimelyError as error:
        sys.stderr.write(f"timely_fleet: {error}\n")
        return 2 if isinstance(error, InvalidInput) else 1
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
