"""The goals in progress, on the disk: a bridge that was killed and is started again takes them up, or ends them."""

import base64
import contextlib
import fcntl
import json
import math
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from timely.core.clock import machine_boot_id
from timely.core.errors import InvalidInput
from timely.core.files import append_file_line, core_write_file
from timely_bridge.interfaces import SegmentExecution
from timely_bridge.outcome import BridgeTimeline

FILE, BEHIND, LOCK, IDENTITY = "goals.jsonl", "goals-behind.jsonl", "lock", "identity"
IDENTITY_PATTERN = re.compile(r"[0-9a-f]{32}")
MAX_BYTES = 1_000_000
"""A longer journal is written anew, without the goals that have ended."""


@dataclass(slots=True)
class BridgePlanEntry:
    """A plan of a goal.

    Attributes:
        replaces: the fields of ``plan_run.Replan``; None for the first plan.
        before: what was planned and executed before this plan.
        began: the driver may have segments of this plan.
        session: of the driver that has them.
        executions: executions that have ended, by segment.
    """

    token: str
    replaces: dict[str, Any] | None = None
    before: BridgeTimeline = field(default_factory=BridgeTimeline)
    began: bool = False
    session: int = 0
    executions: dict[int, SegmentExecution] = field(default_factory=dict)


@dataclass(slots=True)
class BridgeGoalEntry:
    """A goal: its robot, its request as ROS 2 encodes it, its plans."""

    robot: str
    request: bytes = b""
    plans: dict[str, BridgePlanEntry] = field(default_factory=dict)
    """By task id, in order."""
    cancelled: bool = False
    lives: int = 0
    """How often a bridge was started with this goal in its journal."""
    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def began(self) -> bool:
        """The driver may have segments of it."""
        return any(plan.began for plan in self.plans.values())

    def take(self, line: dict[str, Any]) -> None:
        """Take a line of the journal in. Raises an exception if the line is damaged."""
        task_id = line.get("task")
        if "life" in line:
            self.lives = int(line["life"])
            self.lines = [one for one in self.lines if "life" not in one]
        elif "cancelled" in line:
            self.cancelled = True
        elif "token" in line:
            before = line.get("before")
            self.plans[str(task_id)] = BridgePlanEntry(
                str(line["token"]),
                line.get("replaces"),
                _bridge_timeline_from_json(before) if before else BridgeTimeline(),
            )
            self.request = self.request or base64.b64decode(line.get("request", ""))
        elif "began" in line:
            self.plans[str(task_id)].began, self.plans[str(task_id)].session = True, int(line["began"])
        elif "done" in line:
            elapsed_s, end_s = (float(one) for one in line["times"])
            value = line["value"]
            self.plans[str(task_id)].executions[int(line["done"])] = SegmentExecution(
                "done", elapsed_s=elapsed_s, end_s=end_s, value=None if value is None else str(value)
            )
        self.lines.append(line)


class BridgeGoalJournal:
    """Writes a line for each change. A line is in the file when a call returns, so it survives the end of the process.

    A full disk refuses lines. The file then gets the name ``BEHIND``, and is written anew when there is room. A bridge
    that starts with such a file takes no goal up: the goal may have ended or been cancelled since.

    All calls may wait for the disk, and come from one thread. The folder belongs to one bridge at a time, which
    ``close`` ends.

    Args:
        folder: where the journal is kept; None keeps nothing.
        now_s: seconds on the machine's monotonic clock.

    Attributes:
        unfinished_goals: goals that an earlier life of the bridge left.
        identity: of the bridge, the same in all its lives and of no other bridge; empty if none is kept.
        owner: the name of that life's leases; empty if it is unknown.
        silence_s: time since that life was last seen alive, seconds; infinite if it is unknown, or if lines are lost.
        problem: why the last line could not be written; empty if it could. Goals go on without the journal.

    Raises:
        InvalidInput: the folder or the file cannot be used, or another bridge uses it.
    """

    def __init__(self, folder: Path | None = None, now_s: float = math.nan) -> None:
        self._file: Path | None = None
        self._lock: int | None = None
        self._goals: dict[str, BridgeGoalEntry] = {}
        self._limit_bytes = MAX_BYTES
        self._behind = False
        """Lines of the file are lost."""
        self.owner, self.silence_s = "", math.inf
        self.problem = self.identity = ""
        if folder is not None:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._read_life(os.pread(self._lock, 4096, 0), now_s)
                self.identity = read_bridge_identity(folder)
                self._file = folder / FILE
                lines = self._read_lines(folder)
            except OSError as error:
                self.close()
                reason = "another bridge uses it" if isinstance(error, BlockingIOError) else error.strerror
                raise InvalidInput(f"cannot be used: {reason}", where=str(folder)) from error
            for line in lines:
                self._read(line)
            for name, goal in self._goals.items():
                goal.take({"goal": name, "life": goal.lives + 1})
            self._rewrite()
        self.unfinished_goals = dict(self._goals)

    def live(self, owner: str, now_s: float) -> None:
        """Write that the bridge is alive, and the name of its leases; to be called about once a second."""
        if self._lock is None:
            return
        if self._behind:
            self._rewrite()
        line = json.dumps({"boot": machine_boot_id(), "owner": owner, "alive_s": round(now_s, 3)})
        try:
            os.pwrite(self._lock, line.ljust(256).encode(), 0)
        except OSError as error:
            self.problem = str(error)
        else:
            if not self._behind:
                self.problem = ""

    def put(
        self,
        goal: str,
        robot: str,
        task_id: str,
        token: str,
        *,
        request: bytes = b"",
        replaces: dict[str, Any] | None = None,
        before: BridgeTimeline | None = None,
    ) -> None:
        """Record that a plan of a goal begins, unless the journal has the plan.

        Args:
            request: of the goal, as ROS 2 encodes it.
            replaces: the fields of ``plan_run.Replan``.
            before: what was planned and executed before this plan.
        """
        entry = self._goals.get(goal)
        if entry is not None and task_id in entry.plans:
            return
        line: dict[str, Any] = {"goal": goal, "robot": robot, "task": task_id, "token": token}
        if entry is None:
            line["request"] = base64.b64encode(request).decode()
        if replaces is not None:
            line["replaces"] = replaces
        if before is not None:
            line["before"] = _bridge_timeline_to_json(before)
        self._add(goal, line)

    def begin(self, goal: str, task_id: str, session: int) -> None:
        """Record that the first segment of a plan is about to be sent to the driver of this session."""
        self._add(goal, {"goal": goal, "task": task_id, "began": session})

    def finish(self, goal: str, task_id: str, segment: int, execution: SegmentExecution) -> None:
        times = [execution.elapsed_s, execution.end_s]
        self._add(
            goal, {"goal": goal, "task": task_id, "done": segment, "times": times, "value": execution.value}
        )

    def cancel(self, goal: str) -> None:
        """Record that a goal is ended on request, so that no later start of the bridge continues it."""
        self._add(goal, {"goal": goal, "cancelled": True})

    def end(self, goal: str) -> None:
        self._goals.pop(goal, None)
        self._append({"goal": goal, "ended": True})

    def close(self) -> None:
        """Give the folder up; nothing is written any more."""
        self._file = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _add(self, goal: str, line: dict[str, Any]) -> None:
        if "robot" not in line and goal not in self._goals:
            return  # it has ended
        entry = self._goals.setdefault(goal, BridgeGoalEntry(str(line.get("robot", ""))))
        entry.take(line)
        self._append(line)

    def _append(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        if self._behind:
            self._rewrite()
            return
        try:
            size = append_file_line(self._file, json.dumps(line).encode())
        except OSError as error:
            self._fall_behind(error)
            return
        if size > self._limit_bytes:
            self._rewrite()

    def _rewrite(self) -> None:
        """Write the journal anew, if the disk has room."""
        try:
            self._write()
            self.problem = ""
        except InvalidInput as error:
            self._fall_behind(error)

    def _fall_behind(self, error: Exception) -> None:
        """The disk has refused lines."""
        self.problem, behind, self._behind = str(error), self._behind, True
        if self._file is not None and not behind:
            # A new name needs no room on the disk.
            with contextlib.suppress(OSError):
                self._file.rename(self._file.with_name(BEHIND))

    def _write(self) -> None:
        text = "".join(json.dumps(line) + "\n" for goal in self._goals.values() for line in goal.lines)
        self._limit_bytes = max(MAX_BYTES, 2 * len(text))
        if self._file is not None:
            core_write_file(self._file, text)
            self._file.with_name(BEHIND).unlink(missing_ok=True)
            self._behind = False

    def _read_lines(self, folder: Path) -> list[bytes]:
        whole, behind = folder / FILE, folder / BEHIND
        if not whole.exists() and behind.exists():
            self.silence_s = math.inf
            whole = behind
        return whole.read_bytes().split(b"\n") if whole.exists() else []

    def _read(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            name = str(entry["goal"])
            if entry.get("ended"):
                self._goals.pop(name, None)
            else:
                goal = self._goals.get(name) or BridgeGoalEntry(str(entry["robot"]))
                goal.take(entry)
                self._goals[name] = goal
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # empty, or cut off by a crash: nothing followed from it yet

    def _read_life(self, line: bytes, now_s: float) -> None:
        try:
            entry = json.loads(line)
            if entry["boot"] == machine_boot_id() and now_s >= entry["alive_s"]:
                self.owner, self.silence_s = str(entry["owner"]), now_s - float(entry["alive_s"])
        except (ValueError, KeyError, TypeError):
            return  # a first start, or a line of an earlier version


def read_bridge_identity(folder: Path) -> str:
    """The identity of the bridge with this folder, a new one at the first start.

    Empty if the disk refuses it: it would be lost again.

    Raises:
        OSError: the file cannot be read.
    """
    file = folder / IDENTITY
    if file.exists() and IDENTITY_PATTERN.fullmatch(identity := file.read_text(errors="replace").strip()):
        return identity
    identity = secrets.token_hex(16)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        core_write_file(file, f"{identity}\n")
    except (InvalidInput, OSError):
        return ""
    return identity


def _bridge_timeline_to_json(timeline: BridgeTimeline) -> dict[str, Any]:
    first_start_s = None if math.isnan(timeline.first_start_s) else timeline.first_start_s
    return {**asdict(timeline), "first_start_s": first_start_s}


def _bridge_timeline_from_json(data: dict[str, Any]) -> BridgeTimeline:
    first_start_s = data["first_start_s"]
    spans: Sequence[Sequence[float]] = data["spans"]
    return BridgeTimeline(
        float(data["arrival_s"]),
        math.nan if first_start_s is None else float(first_start_s),
        [(float(start_s), float(end_s)) for start_s, end_s in spans],
        [str(text) for text in data["plan"]],
        [str(text) for text in data["executed"]],
    )
