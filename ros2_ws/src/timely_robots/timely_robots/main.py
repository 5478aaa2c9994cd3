"""Run one robot driver as a ROS 2 node, or several of one kind.

timely_driver --kind sim --ros-args -r __ns:=/drone1 -p profile:=sim-drone -p skill_set:=drone -p autostart:=true

With ``--robots`` each name is the namespace of a driver; each driver has a thread of its own.
"""

import argparse
import sys
from collections.abc import Sequence

from timely.core.child_process import core_stop_event
from timely.core.errors import InvalidInput, TimelyError
from timely_robots.registry import ROBOTS, robot_class
from timely_robots.robot_names import check_robot_names
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.json_log import parse_ros_program_arguments, start_ros_json_log
from timely_robots.ros.realtime import realtime_ros_process
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until interrupted; 0, or 2 on bad input."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--kind", default="sim", help=f"one of: {', '.join(ROBOTS)}; or module:class")
    parser.add_argument("--robots", nargs="+", metavar="NAME", help="namespaces of the drivers")
    # For a parent that makes objects of the other lines (``timely_fleet``).
    parser.add_argument("--print-text", action="store_true", help=argparse.SUPPRESS)
    options, ros_args = parse_ros_program_arguments(parser, arguments)
    if options.log_format == "json":
        start_ros_json_log(redirects=not options.print_text)
    stop = core_stop_event(with_parent=False)
    context = None
    drivers: list[DriverNode] = []
    robots = options.robots or [""]
    try:
        check_robot_names(options.robots or (), "--robots")
        context = isolated_ros_context(args=ros_args)
        kind = robot_class(options.kind)
        for name in robots:
            drivers.append(DriverNode(kind(), namespace=name, context=context))
        # A remapping of the namespace would put all of them into one.
        if len({driver.get_namespace() for driver in drivers}) != len(drivers):
            raise InvalidInput("one namespace for several robots", where="__ns")
    except TimelyError as error:
        sys.stderr.write(f"timely_driver: {error}\n")
        if context is not None:
            RosSpinner(context, drivers).close()
        return 2
    # The last one that is closed ends the context.
    spinners = [
        RosSpinner(context, [driver], name=f"{name} driver", owns_context=driver is drivers[-1]).start()
        for name, driver in zip(robots, drivers, strict=True)
    ]
    with realtime_ros_process():
        spinners[0].wait(stop)
    ended = [spinner.close() for spinner in spinners]
    return 0 if all(ended) else 1


if __name__ == "__main__":
    sys.exit(main())
