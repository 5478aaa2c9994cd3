"""Run the bridge alone as a ROS 2 node; drivers run elsewhere: ``ros2 run timely_bridge timely_bridge``."""

import argparse
import sys
from collections.abc import Sequence

from timely_robots.ros.json_log import parse_ros_program_arguments, start_ros_json_log
from timely_robots.ros.realtime import realtime_ros_process
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

from timely.core.child_process import core_stop_event
from timely.core.errors import TimelyError
from timely_bridge.node import BridgeNode

SETTLE_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until interrupted; 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="timely_bridge",
        usage="%(prog)s [-h] [--log-format {text,json}] [--ros-args ...]",
        description="The bridge alone as a ROS 2 node; `timely_fleet` starts it together with the drivers.",
    )
    options, ros_args = parse_ros_program_arguments(parser, arguments)
    if options.log_format == "json":
        start_ros_json_log()
    stop = core_stop_event(with_parent=False)
    try:
        context = isolated_ros_context(args=ros_args)
        node = BridgeNode(context=context)
    except TimelyError as error:
        sys.stderr.write(f"timely_bridge: {error}\n")
        return 2
    spinner = RosSpinner(context, [node], name="bridge").start()
    with realtime_ros_process():
        spinner.wait(stop)
    node.settle(SETTLE_S)
    return 0 if spinner.close() else 1


if __name__ == "__main__":
    sys.exit(main())
