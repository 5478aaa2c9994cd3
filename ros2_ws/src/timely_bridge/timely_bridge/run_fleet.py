"""The one-command start: the bridge and a fleet's drivers in one process, without ros2cli or launch.

    python -m timely_bridge.run_fleet --server-url http://127.0.0.1:8000 --fleet fleet.yaml

One process for many nodes on purpose: discovery among many processes is what limits the size of a fleet on one machine.
Ends on SIGINT or SIGTERM (tasks are cancelled, robots brought to rest), with ``--until-stdin-closes`` also when the
program that started it goes away.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rclpy.exceptions import ParameterException
from rclpy.lifecycle import TransitionCallbackReturn
from timely_robots.registry import robot_class
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.rclpy_utils import Spinner, isolated_context
from timely_robots.ros.realtime import realtime_process
from timely_robots.ros.shared_memory import clean as clean_shared_memory
from timely_robots.ros.shutdown import stop_on_signals, stop_with_parent, wait_for_stop

from timely.client import AsyncTimelyClient
from timely.core.errors import EngineFailed, InvalidInput, TimelyError
from timely_bridge.fleet import Fleet, load_fleet
from timely_bridge.interfaces import ClientFactory
from timely_bridge.node import BridgeNode
from timely_bridge.recorder import McapFiles, RecorderNode, bounds_of

SETTLE_S = 5.0


class RunningFleet:
    """The bridge and its drivers, spinning; made by ``start_fleet``."""

    def __init__(
        self,
        bridge: BridgeNode,
        drivers: dict[str, DriverNode],
        spinner: Spinner,
        recording: McapFiles | None = None,
    ) -> None:
        self.recording = recording
        self.bridge = bridge
        self.drivers = drivers
        self.spinner = spinner

    def close(self) -> bool:
        """End all tasks and motions, then the nodes; False if something did not end in time. Safe to call twice."""
        settled = self.bridge.settle(SETTLE_S)
        ended = self.spinner.close() and settled
        return (self.recording is None or self.recording.close()) and ended


def start_fleet(
    fleet: Fleet,
    *,
    domain_id: int | None = None,
    client_factory: ClientFactory = AsyncTimelyClient,
    driver_arguments: dict[str, Any] | None = None,
    ros_args: list[str] | None = None,
    recording: McapFiles | None = None,
) -> RunningFleet:
    """Make, configure and activate all nodes, and spin them on a thread of their own.

    Args:
        fleet: what to start; its ``server_url`` is where the bridge connects to.
        domain_id: ROS domain; None takes ROS_DOMAIN_ID.
        client_factory, driver_arguments: other clients, and constructor arguments of drivers, in tests.
        recording: takes tasks, segments, reports and states, and is closed with the fleet.

    Raises:
        UnknownName: no such kind of driver. InvalidInput: a parameter is unusable. EngineFailed: a node did not start.
    """
    kinds = {robot.name: robot_class(robot.driver) for robot in fleet.robots}
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    context = isolated_context(domain_id, ros_args)
    with contextlib.ExitStack() as undo:
        undo.callback(context.try_shutdown)
        nodes: list[Any] = []
        undo.callback(lambda: [node.destroy_node() for node in nodes])
        try:
            drivers = {}
            for robot in fleet.robots:
                driver = DriverNode(
                    kinds[robot.name](),
                    namespace=robot.name,
                    context=context,
                    overrides=fleet.driver_parameters(robot),
                    **(driver_arguments or {}),
                )
                nodes.append(driver)
                drivers[robot.name] = driver
            bridge = BridgeNode(
                context=context, overrides=fleet.bridge_parameters(), client_factory=client_factory
            )
            nodes.append(bridge)
            if recording is not None:
                nodes.append(RecorderNode(list(drivers), recording, context=context))
        except (ParameterException, ValueError, TypeError) as error:
            # rclpy's own complaint about a parameter's type or range.
            raise InvalidInput(str(error), where="parameters of the fleet") from error
        managed: list[Any] = [*drivers.values(), bridge]
        for node in managed:
            for step in (node.trigger_configure, node.trigger_activate):
                if step() != TransitionCallbackReturn.SUCCESS:
                    raise EngineFailed(f"node {node.get_fully_qualified_name()} did not start; see its log")
        spinner = Spinner(context, nodes, name="fleet").start()
        undo.pop_all()
    return RunningFleet(bridge, drivers, spinner, recording)


def run_fleet(
    fleet: Fleet,
    stop: threading.Event,
    *,
    on_ready: Callable[[RunningFleet], None] | None = None,
    **options: Any,
) -> bool:
    """Run a fleet until ``stop`` is set; True if everything ended cleanly. Raises as ``start_fleet``."""
    running = start_fleet(fleet, **options)
    try:
        if on_ready is not None:
            on_ready(running)
        wait_for_stop(stop, running.spinner.context)
    finally:
        ended = running.close()
    return ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until interrupted; 0, 1 if something went wrong, 2 on bad input."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    at = argv.index("--ros-args") if "--ros-args" in argv else len(argv)
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
    options = parser.parse_args(argv[:at])
    stop = stop_on_signals()
    if options.until_stdin_closes:
        stop_with_parent(stop)
    clean_shared_memory()
    try:
        fleet = load_fleet(options.fleet)
        if options.server_url:
            fleet = replace(fleet, server_url=options.server_url)
        recording = None
        if options.record is not None:
            recording = McapFiles(options.record, bounds_of(options.record_mb, options.record_files))
        with contextlib.ExitStack() as steady:

            def ready(running: RunningFleet) -> None:
                steady.enter_context(realtime_process())
                print(f"fleet ready: {', '.join(running.drivers)}", flush=True)

            ended = run_fleet(
                fleet,
                stop,
                on_ready=ready,
                domain_id=options.domain_id,
                ros_args=argv[at:],
                recording=recording,
            )
    except TimelyError as error:
        sys.stderr.write(f"timely_fleet: {error}\n")
        return 2 if isinstance(error, InvalidInput) else 1
    return 0 if ended else 1


if __name__ == "__main__":
    sys.exit(main())
