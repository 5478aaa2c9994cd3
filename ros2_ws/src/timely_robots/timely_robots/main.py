"""Run one robot driver as a ROS 2 node.

timely_driver --kind sim --ros-args -r __ns:=/drone1 -p profile:=sim-drone -p skill_set:=drone -p autostart:=true
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from timely.core.errors import TimelyError
from timely_robots.registry import ROBOTS, robot_class
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.rclpy_utils import Spinner, isolated_context
from timely_robots.ros.realtime import realtime_process
from timely_robots.ros.shutdown import stop_on_signals, wait_for_stop


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until interrupted; 0, or 2 on bad input."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    at = argv.index("--ros-args") if "--ros-args" in argv else len(argv)
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--kind", default="sim", help=f"one of: {', '.join(ROBOTS)}; or module:class")
    options = parser.parse_args(argv[:at])
    try:
        kind = robot_class(options.kind)
    except TimelyError as error:
        sys.stderr.write(f"timely_driver: {error}\n")
        return 2
    stop = stop_on_signals()
    context = isolated_context(args=argv[at:])
    spinner = Spinner(context, [DriverNode(kind(), context=context)], name="driver").start()
    with realtime_process():
        wait_for_stop(stop, context)
    return 0 if spinner.close() else 1


if __name__ == "__main__":
    sys.exit(main())
