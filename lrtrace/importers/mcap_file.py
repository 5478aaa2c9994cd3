"""Reads ROS 2 recordings (MCAP) of the bridge's topics into recorded tasks; needs no ROS 2 installation.

It selects messages by type, not by topic: ``Segment``, ``SegmentReport``, ``RobotState`` and ``Task`` of
``timely_interfaces``. The action's feedback has segments too, but the parser does not accept its type name. A task
without an agent gets the robot's namespace, the first part of the topic. Without a ``Task`` message a task arrives with
its first segment.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lrtrace.errors import BadInput
from lrtrace.importers.recorded_tasks import ImportedSegment, ImportedTask
from lrtrace.job import NORMAL, Tuf
from lrtrace.jsonl import open_trace_input

PACKAGE = "timely_interfaces"
DONE, FAILED, VALUE = 2, 3, 4
"""``SegmentReport.kind``."""


def import_mcap(path: str | Path, *more: str | Path) -> list[ImportedTask]:
    """Every task of a recording. An incomplete recording is read up to its end.

    Args:
        more: further files of the recording, in order. A bounded recording has several files.

    Raises:
        BadInput: no MCAP file, no message of these types, or the reader is not installed.
    """
    recording = _ImportedRecording(Path(path))
    for part in (recording.path, *map(Path, more)):
        for topic, kind, at_s, message in _read_mcap_messages(part, frozenset(recording.handlers)):
            try:
                recording.handlers[kind](topic, at_s, message)
            except (AttributeError, TypeError) as error:
                raise BadInput(f"{kind} has another form: {error}", where=f"{part}, {topic}") from error
    if not recording.tasks:
        raise BadInput("no Segment or Task message of timely_interfaces in it", where=str(path))
    return recording.finish()


def _read_mcap_messages(path: Path, kinds: frozenset[str]) -> Iterator[tuple[str, str, float, Any]]:
    """(topic, type without package, log time in seconds, message) of every message of these types, in file order."""
    try:
        from mcap.reader import NonSeekingReader
        from mcap_ros2.decoder import DecoderFactory
    except ImportError as error:
        needs = "MCAP files need mcap-ros2-support: install the extra 'ros'"
        raise BadInput(needs, where=str(path)) from error
    any_read = False
    with open_trace_input(path) as stream:
        messages = NonSeekingReader(stream).iter_messages(log_time_order=False)
        factory = DecoderFactory()
        while True:
            try:
                schema, channel, message = next(messages)
            except StopIteration:
                return
            except Exception as error:
                # A killed recorder leaves an incomplete chunk, at which the reader raises errors of many kinds.
                # Earlier chunks are complete, since chunks have checksums.
                if any_read:
                    return
                raise BadInput(f"not a readable MCAP file: {error}", where=str(path)) from error
            any_read = True
            package, _, kind = ("", "", "") if schema is None else schema.name.rpartition("/")
            if not package.startswith(PACKAGE) or kind not in kinds:
                continue
            where = f"{path}, {channel.topic}"
            decode = factory.decoder_for(channel.message_encoding, schema)
            if decode is None:
                raise BadInput(f"{kind} is recorded in an encoding other than CDR", where=where)
            try:
                content = decode(message.data)
            except Exception as error:  # the library raises errors of many kinds
                raise BadInput(f"{kind} cannot be decoded: {error}", where=where) from error
            yield channel.topic, kind, message.log_time / 1e9, content


class _ImportedRecording:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.tasks: dict[str, ImportedTask] = {}
        self.task_ids: set[str] = set()
        self.robots: dict[str, str] = {}
        self.namespaces: dict[str, str] = {}
        self.handlers: dict[str, Callable[[str, float, Any], None]] = {
            "Task": self.on_task,
            "Segment": self.on_segment,
            "SegmentReport": self.on_report,
            "RobotState": self.on_state,
        }

    def task(self, topic: str, at_s: float, task_id: str) -> ImportedTask:
        task = self.tasks.get(task_id)
        if task is None:
            task = self.tasks[task_id] = ImportedTask(task_id, at_s, f"{self.path}, task {task_id}")
            self.namespaces[task_id] = _mcap_topic_namespace(topic)
        elif task_id not in self.task_ids:
            task.arrival_s = min(task.arrival_s, at_s)
        return task

    def on_task(self, topic: str, at_s: float, message: Any) -> None:
        """An accepted goal. The bridge repeats the message every second, and once at the end."""
        task = self.task(topic, at_s, message.task_id)
        if message.task_id not in self.task_ids:
            self.task_ids.add(message.task_id)
            task.arrival_s = at_s
        task.task, task.scene, task.skill_set = message.task, message.scene, message.skill_set
        task.agent, task.app = message.agent, message.app or None
        # The bridge identifies a robot by its namespace. The robot's state names its profile.
        task.robot = getattr(message, "robot", "")
        urgency = getattr(message, "urgency", -1)
        task.urgency = urgency if urgency >= 0 else None
        task.tuf = _imported_mcap_tuf(message.tuf)
        task.outcome = getattr(message, "outcome", "") or task.outcome

    def on_segment(self, topic: str, at_s: float, message: Any) -> None:
        task = self.task(topic, at_s, message.task_id)
        segment = ImportedSegment(
            message.index,
            message.text,
            message.tokens,
            message.execution_s if math.isfinite(message.execution_s) and message.execution_s > 0 else 0.0,
            blocking=message.blocking,
        )
        task.segments.setdefault(message.index, segment)

    def on_report(self, topic: str, at_s: float, message: Any) -> None:
        segment = self.task(topic, at_s, message.task_id).segments.get(message.segment)
        if segment is None:
            return
        if message.kind in (DONE, VALUE) and math.isfinite(message.elapsed_s):
            segment.elapsed_s = max(0.0, message.elapsed_s)
        segment.failed = segment.failed or message.kind == FAILED
        segment.executed = getattr(message, "executed", None) or segment.executed

    def on_state(self, topic: str, at_s: float, message: Any) -> None:
        """A robot's state, which gives the robot of a namespace."""
        self.robots[_mcap_topic_namespace(topic)] = message.robot

    def finish(self) -> list[ImportedTask]:
        """The tasks by arrival, with agents and robots from the whole recording."""
        for task_id, task in self.tasks.items():
            namespace = self.namespaces[task_id]
            task.agent = task.agent or namespace
            task.robot = self.robots.get(namespace, "") or task.robot
        return sorted(self.tasks.values(), key=lambda task: task.arrival_s)


def _mcap_topic_namespace(topic: str) -> str:
    parts = [part for part in topic.split("/") if part]
    return parts[0] if len(parts) > 1 else ""


def _imported_mcap_tuf(message: Any) -> Tuf:
    try:
        if message.cutoff_s > 0:
            return Tuf.from_dict({"ert_s": message.ert_s, "cutoff_s": message.cutoff_s, "beta": message.beta})
        return Tuf(message.ert_s, message.alpha, message.beta)
    except BadInput:
        # The bridge refused a goal with a broken utility, so the goal has no segments and is not in the trace.
        return NORMAL
