"""Judges a whole run as one history: the log of the server, the messages of bridge and drivers, the logs of robots.

Times are seconds on the machine's monotonic clock. A motion belongs to the latest task of its robot that was accepted
before the motion began and has it in its plan. The rules:

* ``lost``, ``untyped``: an accepted task has an end, with a typed outcome.
* ``false_complete``: a task that is complete moved the robot as planned, and so did each segment reported as done.
* ``repeated``, ``out_of_order``, ``out_of_limits``: each motion runs once, in order, within the robot's limits.
* ``unsent``: the server released its segment before.
* ``after_end``: no motion begins after the end of its task.
* ``after_orphan``: no motion begins when the driver has received nothing of the task for longer than its patience.
* ``after_stop``: after an acknowledged stop no motion begins until the reset, and none comes to its usual end.
* ``wrong_owner``: a motion begins only under the lease of the bridge that sent its task.
* ``unreadable``: the log of the server can be read; what it does not say is not judged.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from timely_ros_bench.faults.judge import (
    FaultRobotMotion,
    Violation,
    fault_bench_out_of_limits,
    fault_bench_untyped_outcome,
)

SLACK_S = 0.5
"""Clocks are one, but an end or a lease is published, and a command is on its way, for so long at most."""
REST_S = 4.0
"""An acknowledged stop has brought the robot to rest after so long."""
COMPLETE = "complete"
ACKNOWLEDGED = ("halted", "at_rest")


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task: its plan, and its end by bridge and server. Each segment is one motion of the plan.

    Attributes:
        plan: motions in the words of the robot's log, all different.
        end_s: when its end was received; infinite without one.
        released_s: segment -> when the server released it; None without the server's log.
        reported_segments: segments that the bridge reported to the server as done.
        bridge: the name of the bridge that took the goal; its leases begin with it.
    """

    task_id: str
    robot: str
    plan: Sequence[str]
    accepted_s: float
    end_s: float = math.inf
    outcome: str = ""
    code: int = 0
    released_s: Mapping[int, float] | None = None
    reported_segments: Collection[int] = ()
    bridge: str = ""


@dataclass(frozen=True, slots=True)
class Silence:
    """A time in which a robot's driver received nothing of its bridge."""

    robot: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class StopRecord:
    """A stop of one robot: the claimed state, and the reset; infinite without one."""

    robot: str
    answered_s: float
    state: str
    reset_s: float = math.inf


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """From then on this owner holds the lease of the robot, by its driver."""

    robot: str
    since_s: float
    owner: str


@dataclass(slots=True)
class FaultHistory:
    """All records of a run, in any order.

    Attributes:
        motions: robot -> its motions, out of its own log.
        patience_s: drivers begin no motion of a task without a message for longer.
        log_problems: why parts of the server's log could not be read.
    """

    tasks: list[TaskRecord] = field(default_factory=list)
    motions: dict[str, Sequence[FaultRobotMotion]] = field(default_factory=dict)
    silences: list[Silence] = field(default_factory=list)
    stops: list[StopRecord] = field(default_factory=list)
    leases: list[LeaseRecord] = field(default_factory=list)
    patience_s: float = 3.0
    log_problems: list[str] = field(default_factory=list)


def judge_fault_history(history: FaultHistory) -> list[Violation]:
    """All violations, each with a case. A longer history has the cases of a shorter one again."""
    robots = dict.fromkeys([*(task.robot for task in history.tasks), *history.motions])
    violations = [violation for robot in robots for violation in _FaultRobotJudge(history, robot).judge()]
    return violations + [("unreadable", problem) for problem in history.log_problems]


@dataclass(slots=True, eq=False)
class _FaultTaskProgress:
    """A task, and the motions of its plan that have begun and that are done, by position."""

    record: TaskRecord
    begun_positions: set[int] = field(default_factory=set)
    done_positions: set[int] = field(default_factory=set)
    owner: str = ""
    """Of the lease at the first motion."""

    @property
    def next_position(self) -> int:
        return max(self.begun_positions, default=-1) + 1

    def live(self, when_s: float) -> bool:
        return self.record.accepted_s <= when_s <= self.record.end_s + SLACK_S

    def expects(self, motion: FaultRobotMotion) -> bool:
        plan, position = self.record.plan, self.next_position
        return position < len(plan) and plan[position] == motion.what


class _FaultRobotJudge:
    def __init__(self, history: FaultHistory, robot: str) -> None:
        self._robot, self._patience_s = robot, history.patience_s
        tasks = sorted((one for one in history.tasks if one.robot == robot), key=lambda one: one.accepted_s)
        self._tasks = [_FaultTaskProgress(task) for task in tasks]
        self._motions = sorted(history.motions.get(robot, ()), key=lambda one: one.start_s)
        self._silences = [one for one in history.silences if one.robot == robot]
        self._stops = [one for one in history.stops if one.robot == robot]
        leases = (one for one in history.leases if one.robot == robot)
        self._leases = sorted(leases, key=lambda one: one.since_s)
        self._violations: list[Violation] = []

    def judge(self) -> list[Violation]:
        for motion in self._motions:
            if fault_bench_out_of_limits(motion.what):
                self._add("out_of_limits", motion)
            self._judge_silences(motion)
            self._judge_stops(motion)
            if (task := self._task_of(motion)) is None:
                self._add("unsent", motion)
                continue
            self._judge_owner(task, motion)
            self._judge_order(task, motion)
        for task in self._tasks:
            self._judge_end(task)
        return self._violations

    def _add(self, kind: str, motion: FaultRobotMotion, reason: str = "") -> None:
        case = f"{self._robot}: {motion.what} at {motion.start_s:.2f} s"
        self._violations.append((kind, f"{case}, {reason}" if reason else case))

    def _task_of(self, motion: FaultRobotMotion) -> _FaultTaskProgress | None:
        """The live task that expects the motion next, else a live one with the motion, else the latest one with it."""
        tasks = [
            task
            for task in self._tasks
            if motion.what in task.record.plan and task.record.accepted_s <= motion.start_s
        ]
        live = [task for task in tasks if task.live(motion.start_s)]
        expecting = [task for task in live if task.expects(motion)]
        return next(iter([*expecting, *live, *reversed(tasks)]), None)

    def _judge_order(self, task: _FaultTaskProgress, motion: FaultRobotMotion) -> None:
        record, position = task.record, task.next_position
        if motion.start_s > record.end_s + SLACK_S:
            self._add("after_end", motion, f"{motion.start_s - record.end_s:.1f} s after {record.task_id}")
        if not task.expects(motion):
            position = record.plan.index(motion.what)
            is_repeat = position in task.begun_positions
            self._add("repeated" if is_repeat else "out_of_order", motion, f"of {list(record.plan)}")
        if record.released_s is not None and not record.released_s.get(position, math.inf) <= motion.start_s:
            self._add("unsent", motion, f"segment {position} of {record.task_id}")
        task.begun_positions.add(position)
        if motion.done:
            task.done_positions.add(position)

    def _judge_silences(self, motion: FaultRobotMotion) -> None:
        for silence in self._silences:
            if silence.begin_s + self._patience_s + SLACK_S < motion.start_s < silence.end_s:
                self._add("after_orphan", motion, f"no message since {silence.begin_s:.2f} s")

    def _judge_stops(self, motion: FaultRobotMotion) -> None:
        for stop in self._stops:
            if stop.state not in ACKNOWLEDGED:
                continue
            if stop.answered_s < motion.start_s < stop.reset_s:
                self._add("after_stop", motion, f"{stop.state} was claimed at {stop.answered_s:.2f} s")
                continue
            further_s = motion.end_s - stop.answered_s
            if motion.start_s <= stop.answered_s and further_s > (SLACK_S if motion.done else REST_S):
                self._add("after_stop", motion, f"moved on for {further_s:.1f} s")

    def _judge_owner(self, task: _FaultTaskProgress, motion: FaultRobotMotion) -> None:
        owners = self._owners_at(motion.start_s)
        if not owners:
            return
        task.owner = task.owner or owners[-1]
        bridge = task.record.bridge
        if not any(owner == task.owner and owner.startswith(bridge) for owner in owners):
            self._add("wrong_owner", motion, f"of {bridge or task.owner}, the lease is of {owners[-1]!r}")

    def _owners_at(self, when_s: float) -> list[str]:
        """The owner, and those before and after it within the slack; none before the first state."""
        before = [one for one in self._leases if one.since_s <= when_s - SLACK_S][-1:]
        around = [one for one in self._leases if abs(one.since_s - when_s) < SLACK_S]
        return [one.owner for one in (*before, *around)]

    def _judge_end(self, task: _FaultTaskProgress) -> None:
        record = task.record
        who = f"{record.robot}: {record.task_id}"
        if not record.outcome:
            self._violations.append(("lost", who))
        elif reason := fault_bench_untyped_outcome(record.outcome, record.code):
            self._violations.append(("untyped", f"{who}: {reason}"))
        claims = range(len(record.plan)) if record.outcome == COMPLETE else sorted(record.reported_segments)
        idle = [position for position in claims if position not in task.done_positions]
        if idle:
            self._violations.append(("false_complete", f"{who}: {record.outcome}, not done: {idle}"))
