"""The option ``--log-format`` of the programs with ROS 2 nodes, and their lines as JSON objects."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.impl.logging_severity import LoggingSeverity

from timely.core.json_log import LOG_FIELDS, JsonLogOutput, log_fields

ROS_LOGGER_FIELDS: dict[str, Mapping[str, str | int]] = {}
"""Name of a node's logger -> what each of its lines has."""


def parse_ros_program_arguments(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> tuple[argparse.Namespace, list[str]]:
    """The program's options with ``--log-format``, and the arguments of ROS 2, which begin with ``--ros-args``.

    Args:
        arguments: None takes those of the command line.
    """
    argv = list(sys.argv[1:] if arguments is None else arguments)
    at = argv.index("--ros-args") if "--ros-args" in argv else len(argv)
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="json: every line is a JSON object on standard error, with robot, task and trace; default text",
    )
    return parser.parse_args(argv[:at]), argv[at:]


def start_ros_json_log(*, redirects: bool = True) -> JsonLogOutput:
    """Make every line of this process and its children a JSON object on standard error (``JsonLogOutput``).

    Python's lines of nodes have ``LOG_FIELDS`` and ``ROS_LOGGER_FIELDS``, which ROS 2 would lose. ROS 2 itself gets
    the default format, without colours, also in children: other lines would not be known as those of a node.

    Args:
        redirects: as for ``JsonLogOutput``.
    """
    os.environ |= {
        "RCUTILS_CONSOLE_OUTPUT_FORMAT": "[{severity}] [{time}] [{name}]: {message}",
        "RCUTILS_COLORIZED_OUTPUT": "0",
    }
    output, log_in_ros = JsonLogOutput(redirects=redirects), rclpy_implementation.rclpy_logging_rcutils_log

    def log(
        severity: int, name: str, message: str, function_name: str, file_name: str, line_number: int
    ) -> None:
        output.written_ros_loggers.add(name)
        with log_fields({**ROS_LOGGER_FIELDS.get(name, {}), **LOG_FIELDS.get({})}):
            output.write(name, LoggingSeverity(severity).name, message)
        # A second line of the message would be taken for another one.
        message = " ".join(message.splitlines())
        log_in_ros(severity, name, message, function_name, file_name, line_number)

    rclpy_implementation.rclpy_logging_rcutils_log = log
    return output
