"""Records a fleet's tasks, segments, reports and states as MCAP: for Foxglove, and for ``lrtrace record``.

    timely_record --robots drone1 arm1 --output day.mcap --max-mb 256 --max-files 4

Messages are kept as received (CDR), with the definitions of their types. A recording is bounded: when a file is full
the next begins (``day_0.mcap``, ``day_1.mcap`` ...), and the oldest is removed. Files of ``ros2 bag record`` are read
alike.
"""

import argparse
import contextlib
import queue
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import QoSProfile
from timely_interfaces.msg import RobotState, Segment, SegmentReport, Task
from timely_robots.robot_names import check_robot_names
from timely_robots.ros.rclpy_utils import LATCHED_QOS, TASKS
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

from timely.core.child_process import core_stop_event
from timely.core.errors import InvalidInput, TimelyError, Unsupported
from timely.core.files import file_errors

TOPICS: Mapping[str, tuple[type, QoSProfile]] = {
    "task": (Task, TASKS),
    "segments": (Segment, QoSProfile(depth=200)),
    "segment_reports": (SegmentReport, QoSProfile(depth=200)),
    "state": (RobotState, LATCHED_QOS),
}
"""Of each robot: relative topic, type and QoS."""
CHUNK_BYTES = 65_536
"""The most that is lost when the process is killed."""
QUEUE_MESSAGES = 10_000
"""Most messages that wait for the disk; more are dropped and counted."""
FLUSH_S = 1.0
CLOSE_S = 10.0
PRIMITIVES = {"double": "float64", "float": "float32", "boolean": "bool", "octet": "byte"}
"""Type names of generated Python -> names in ROS 2 messages."""
LINE = "=" * 80


def bridge_mcap_definition(kind: Any) -> str:
    """The message definition of a generated type with those of all types in it, as MCAP wants it (``ros2msg``)."""
    texts: dict[str, str] = {}
    pending = [kind]
    while pending:
        fields = []
        for name, type_text in pending[0].get_fields_and_field_types().items():
            base, suffix = _plain_mcap_type(type_text)
            if "/" in base:
                package, _, short = base.partition("/")
                inner = getattr(import_module(f"{package}.msg"), short)
                if base not in texts and inner not in pending:
                    pending.append(inner)
            fields.append(f"{PRIMITIVES.get(base, base)}{suffix} {name}")
        message = pending.pop(0)
        texts[_mcap_type_name(message).replace("/msg/", "/")] = "\n".join(fields) + "\n"
    (_, first), *others = texts.items()
    return first + "".join(f"{LINE}\nMSG: {name}\n{text}" for name, text in others)


def _mcap_type_name(kind: Any) -> str:
    return f"{kind.__module__.split('.')[0]}/msg/{kind.__name__}"


def _plain_mcap_type(type_text: str) -> tuple[str, str]:
    """(element type, array suffix) of a field: ``sequence<double, 3>`` is a ``float64[<=3]``."""
    if type_text.startswith("sequence<"):
        element, _, bound = type_text.removeprefix("sequence<").removesuffix(">").partition(", ")
        return element, f"[<={bound}]" if bound else "[]"
    element, bracket, rest = type_text.partition("[")
    return element, bracket + rest


@dataclass(frozen=True, slots=True)
class BridgeRecordingBounds:
    """Largest size of a recording: bytes of each file, and number of files that are kept."""

    file_bytes: int = 256_000_000
    files: int = 4


class BridgeMcapFiles:
    """A recording on disk, on a thread of its own; ``write`` never waits for the disk.

    One that is started again goes on behind the last file, and the files before count for its bounds.

    Raises:
        Unsupported: the package mcap is not installed. InvalidInput: the file cannot be written.
    """

    def __init__(self, path: Path, bounds: BridgeRecordingBounds | None = None) -> None:
        try:
            import mcap.writer
        except ImportError as error:
            raise Unsupported(
                "recording needs the package mcap: `make setup` installs it", where=str(path)
            ) from error
        self._mcap = mcap.writer
        self._path, self._bounds = path, bounds or BridgeRecordingBounds()
        self.message_count = self.dropped_count = 0
        self.files: list[Path] = []
        self.failure = ""
        self._files_by_number = _recorded_mcap_files(path)
        self._queue: queue.Queue[tuple[str, str, str, int, bytes] | None] = queue.Queue(QUEUE_MESSAGES)
        self._file: IO[bytes] | None = None
        self._writer: Any = None
        self._channels: dict[str, int] = {}
        self._next_file()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def write(self, topic: str, kind: str, schema: str, when_ns: int, data: bytes) -> None:
        """Queue one message; from any thread."""
        try:
            self._queue.put_nowait((topic, kind, schema, when_ns, data))
        except queue.Full:
            self.dropped_count += 1

    def close(self) -> bool:
        """Write what is left and end; False if the disk did not take it in time."""
        try:
            self._queue.put(None, timeout=CLOSE_S)
        except queue.Full:
            return False
        self._thread.join(CLOSE_S)
        return not self._thread.is_alive() and not self.failure

    def _run(self) -> None:
        flushed_s = time.monotonic()
        try:
            while True:
                try:
                    item = self._queue.get(timeout=FLUSH_S)
                except queue.Empty:
                    item = ("", "", "", 0, b"")
                if item is None:
                    break
                if item[0]:
                    self._add(*item)
                if self._file is not None and time.monotonic() - flushed_s >= FLUSH_S:
                    self._file.flush()
                    flushed_s = time.monotonic()
        except (OSError, InvalidInput) as error:
            self.failure = f"the recording ended: {error}"
        finally:
            with contextlib.suppress(OSError):
                self._end_file()

    def _add(self, topic: str, kind: str, schema: str, when_ns: int, data: bytes) -> None:
        if self._file is not None and self._file.tell() >= self._bounds.file_bytes:
            self._end_file()
            self._next_file()
        channel = self._channels.get(topic)
        if channel is None:
            number = self._writer.register_schema(kind, "ros2msg", schema.encode())
            channel = self._channels[topic] = self._writer.register_channel(topic, "cdr", number)
        self._writer.add_message(channel, log_time=when_ns, publish_time=when_ns, data=data)
        self.message_count += 1

    def _next_file(self) -> None:
        number = max(self._files_by_number, default=-1) + 1
        path = self._path.with_name(f"{self._path.stem}_{number}{self._path.suffix}")
        with file_errors(path, "cannot be written"):
            self._file = path.open("wb")
        self._files_by_number[number] = path
        self.files.append(path)
        self._writer = self._mcap.Writer(self._file, chunk_size=CHUNK_BYTES)
        self._writer.start(profile="ros2", library="timely")
        self._channels = {}
        while len(self._files_by_number) > self._bounds.files:
            oldest = self._files_by_number.pop(min(self._files_by_number))
            oldest.unlink(missing_ok=True)
            self.files = [file for file in self.files if file != oldest]

    def _end_file(self) -> None:
        if self._file is not None:
            self._writer.finish()
            self._file.close()
            self._file = None


def _recorded_mcap_files(path: Path) -> dict[int, Path]:
    """The files of a recording by number, those of an earlier start."""
    name = re.compile(re.escape(path.stem) + r"_(\d+)" + re.escape(path.suffix))
    matches = [(name.fullmatch(file.name), file) for file in path.parent.glob(f"*{path.suffix}")]
    return {int(match[1]): file for match, file in matches if match is not None}


class BridgeRecorderNode(Node):
    """Subscribes to the topics of robots and writes their messages to ``files``."""

    def __init__(
        self, robots: Sequence[str], files: BridgeMcapFiles, *, context: Context | None = None
    ) -> None:
        super().__init__("timely_recorder", context=context)
        self.files = files
        for robot in robots:
            for topic, (kind, qos) in TOPICS.items():
                self._listen(f"/{robot}/{topic}", kind, qos)

    def _listen(self, topic: str, kind: Any, qos: QoSProfile) -> None:
        name, schema = _mcap_type_name(kind), bridge_mcap_definition(kind)

        def keep(data: bytes) -> None:
            self.files.write(topic, name, schema, self.get_clock().now().nanoseconds, bytes(data))

        self.create_subscription(kind, topic, keep, qos, raw=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record until interrupted; 0, 1 if something was lost, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="timely_record", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--robots", nargs="+", required=True, metavar="NAME", help="namespaces of the robots")
    parser.add_argument(
        "--output", type=Path, required=True, help="name.mcap; the files are name_0.mcap, ..."
    )
    parser.add_argument("--max-mb", type=float, default=256.0, help="a file; default 256")
    parser.add_argument("--max-files", type=int, default=4, help="that are kept; default 4")
    parser.add_argument("--domain-id", type=int, default=None, help="ROS domain; default: ROS_DOMAIN_ID")
    options = parser.parse_args(arguments)
    stop = core_stop_event(with_parent=False)
    try:
        check_robot_names(options.robots, "--robots")
        context = isolated_ros_context(options.domain_id)
        files = BridgeMcapFiles(options.output, bridge_recording_bounds(options.max_mb, options.max_files))
    except TimelyError as error:
        sys.stderr.write(f"timely_record: {error}\n")
        return 2
    spinner = RosSpinner(
        context, [BridgeRecorderNode(options.robots, files, context=context)], name="recorder"
    ).start()
    print(f"recording {', '.join(options.robots)} to {files.files[0]}", flush=True)
    while not stop.wait(1.0) and rclpy.ok(context=context) and not files.failure:
        pass
    spinner.close()
    whole = files.close()
    print(
        f"{files.message_count} messages in {len(files.files)} files, {files.dropped_count} dropped",
        flush=True,
    )
    return 0 if whole and not files.dropped_count else 1


def bridge_recording_bounds(max_mb: float, max_files: int) -> BridgeRecordingBounds:
    """Bounds as given by a user.

    Raises:
        InvalidInput: they leave no room for anything.
    """
    if not 0.1 <= max_mb <= 100_000.0 or not 1 <= max_files <= 10_000:
        raise InvalidInput("must be at least 0.1 MB and 1 file", where="--max-mb, --max-files")
    return BridgeRecordingBounds(int(max_mb * 1e6), max_files)


if __name__ == "__main__":
    sys.exit(main())
