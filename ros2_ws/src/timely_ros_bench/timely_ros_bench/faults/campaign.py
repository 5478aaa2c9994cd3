"""Rounds of faults: tasks for all robots, one fault or a pair, the tasks' ends, everything whole again, the verdict."""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from timely_bridge.error_codes import bridge_error_name
from timely_interfaces.msg import RobotState
from timely_interfaces.srv import ResetStop, StopFleet

from timely.core.errors import EngineFailed
from timely_ros_bench.faults.fleet_processes import RESERVE, FaultFleet
from timely_ros_bench.faults.history import FaultHistory, LeaseRecord, TaskRecord, judge_fault_history
from timely_ros_bench.faults.judge import FaultObservedState, Violation, judge_ros_fault_holding
from timely_ros_bench.faults.motions import (
    PLANS_APART,
    SEGMENTS_APART,
    STALL_TOKENS,
    fault_bench_log_motions,
    fault_bench_plan_motions,
    fault_round_plan_number,
    fault_round_plans,
)
from timely_ros_bench.faults.observer import FaultErrand, FaultObserver
from timely_ros_bench.faults.process_waits import fault_waits_in_words
from timely_ros_bench.faults.rounds import Fault, faulty_robot_kind
from timely_ros_bench.faults.server_log import FaultServerLog
from timely_ros_bench.faults.strikes import RESET, STOP, FaultStrikes
from timely_ros_bench.faults.tally import FaultTally

EMPTY_SOON = 20.1
"""Per cent: a drone that starts with so little has reached its reserve after some nine seconds in the air."""
START_S = 60.0
TASK_LIMIT_S = 60.0
"""A task that has not ended then is lost; the longest deadline on its way is 25 s."""
PENDING_TIMEOUT_S = 4.0
"""The other robots' tasks are cancelled so long after the struck one's end, as an operator would."""
NEXT_PLAN_S = 2.0
"""A bridge announces the plan that replaces one so long after that one's end, at most."""
SILENT_FAULTS = ("dds_cut", "dds_cut_sent", "driver_killed", "driver_hangs", "clock_jumps")
"""Faults in which the states of the robot's driver are not published or received, or have wrong stamps."""
TASK_FAULTS = ("late_segment", "unsafe_plan", "battery")
BRIDGE = "timely_bridge-"
"""The owners of its leases begin so."""


@dataclass(slots=True)
class FaultCampaign:
    """Rounds of faults of one fleet.

    Attributes:
        history: of this fleet, judged as a whole after each round.
    """

    world: FaultFleet
    observer: FaultObserver
    tally: FaultTally
    history: FaultHistory = field(default_factory=FaultHistory)
    _strikes: FaultStrikes = field(init=False)
    _server_log: FaultServerLog = field(init=False)
    _errands: list[tuple[FaultErrand, str, Fault]] = field(default_factory=list)
    """All tasks, each with the title and the fault of its round."""
    _cases: set[Violation] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._strikes = FaultStrikes(self.world, self.observer, self.history)
        self._server_log = FaultServerLog(self.world.server_state)
        self.observer.connect(StopFleet, STOP, START_S)
        self.observer.connect(ResetStop, RESET, START_S)

    def play(self, number: int, fault: Fault, rng: random.Random) -> str:
        """One round: tasks for all, the fault, the tasks' ends, everything whole again, the verdict.

        Returns:
            What became of the struck robot's task, in words; empty if it was lost.
        """
        self.make_whole()
        begin_s = time.monotonic()
        if fault.kind == "battery":
            self.world.start_robot(fault.robot, battery=EMPTY_SOON)
            self._until(lambda: self._nearly_empty(fault.robot), 25.0)
            begin_s = time.monotonic()
        state_counts = {name: len(self.observer.states[name]) for name in self.world.robots}
        waits = self.world.waits()
        plans = {name: fault_round_plans(name, number, rng) for name in self.world.robots}
        errands = {
            name: self.observer.send(name, self._task(fault, name, plans[name]), plans[name])
            for name in plans
        }
        title = " and ".join(f"{one.kind} of {one.robot}" for one in (fault, fault.companion) if one)
        self._errands += [(errand, f"round {number + 1}, {title}", fault) for errand in errands.values()]
        if fault.kind not in TASK_FAULTS:
            self._await_segment(fault)
        self._strikes.strike(fault)
        self._see_to_the_end(fault, errands)
        self._strikes.reset()
        self.make_whole()
        slow = fault_waits_in_words(waits, self.world.waits())
        violations, ends = list[Violation](), {}
        for name, errand in errands.items():
            who = f"round {number + 1} ({title}{slow}), {name}"
            states = self.observer.states[name][state_counts[name] :]
            ends[name] = self._judge(fault, name, errand, states, begin_s, violations, who)
        self._count(fault, ends, violations)
        return ends[fault.robot]

    def _count(self, fault: Fault, ends: dict[str, str], late_holds: list[Violation]) -> None:
        tally, violations = self.tally, [*late_holds, *self._judge_history()]
        tally.rounds += 1
        tally.faults += len(fault.kinds)
        tally.tasks += len(ends)
        tally.lost_tasks += sum(not label for label in ends.values())
        tally.failed_rounds += bool(violations)
        for label in filter(None, ends.values()):
            tally.outcomes[label] = tally.outcomes.get(label, 0) + 1
        for kind, _ in violations:
            tally.violations[kind] += 1
        tally.cases += [f"{kind}: {case}" for kind, case in violations]

    def _judge_history(self) -> list[Violation]:
        """The violations in the history of this fleet that no earlier round has shown."""
        server = self._server_log.read()
        self.history.log_problems = [f"{name} {why}" for name, why in self._server_log.problems.items()]
        self.history.tasks = []
        for errand, title, fault in self._errands:
            plan_ids = self.observer.plans.get(errand.task_id, [errand.task_id])
            for plan_id in plan_ids:
                end = self._end(errand, fault)
                if plan_id != plan_ids[-1]:
                    end = self.observer.ends.get(plan_id, end)
                outcome, code, end_s = end or ("", 0, math.inf)
                # A full disk keeps no segment that was released meanwhile.
                task = server.get(plan_id) if "disk_full" not in fault.kinds else None
                plan = errand.plans[fault_round_plan_number(plan_id)]
                self.history.tasks.append(
                    TaskRecord(
                        f"{plan_id} of {title}",
                        errand.robot,
                        fault_bench_plan_motions(errand.robot, plan),
                        errand.sent_s,
                        end_s,
                        outcome,
                        code,
                        task.released_s if task is not None else None,
                        task.reported_segments if task is not None else (),
                        BRIDGE,
                    )
                )
        self.history.motions = {
            name: fault_bench_log_motions(name, files, -math.inf) for name, files in self.world.logs.items()
        }
        self.history.leases = [
            LeaseRecord(name, since_s, owner)
            for name, leases in self.observer.leases.items()
            for since_s, owner in leases
        ]
        cases = [case for case in judge_fault_history(self.history) if case not in self._cases]
        self._cases.update(cases)
        return cases

    def _end(self, errand: FaultErrand, fault: Fault) -> tuple[str, int, float] | None:
        """Outcome, code and time of a task's end: its result, or what a bridge that was started again published."""
        if errand.ended and errand.result.outcome:
            return str(errand.result.outcome), int(errand.result.error_code), errand.end_s[0]
        if "bridge_killed" not in fault.kinds:
            return None
        plan_ids = self.observer.plans.get(errand.task_id, [errand.task_id])
        end = self.observer.ends.get(plan_ids[-1])
        # Another plan may follow the end of one.
        return end if end is not None and time.monotonic() - end[2] > NEXT_PLAN_S else None

    def make_whole(self) -> None:
        """Wait until every robot is at rest and can be sent a task; start a driver again that does not come round.

        Raises:
            EngineFailed: something does not come back.
        """
        for name in self.world.robots:
            if not self._until(lambda: self._at_rest(name), 25.0):  # noqa: B023
                self.world.start_driver(name)
                if not self._until(lambda: self._at_rest(name), START_S):  # noqa: B023
                    raise EngineFailed(
                        f"{name} does not come back: {self.observer.last(name)}; its driver says "
                        f"{self.world.output(f'driver of {name}')}",
                        where="bench faults",
                    )
        if not self._await_bridge():
            raise EngineFailed(
                f"the bridge does not come back: {self.world.output('bridge')}", where="bench faults"
            )

    def _await_bridge(self) -> bool:
        """Wait until the bridge that lives now serves all robots; DDS still lists the action of one that was killed."""
        now_s, names = time.monotonic(), self.world.robots
        return self._until(
            lambda: self.observer.served_since(now_s) and all(map(self.observer.reachable, names)), START_S
        )

    def _at_rest(self, name: str) -> bool:
        last = self.observer.last(name)
        if last is None or time.monotonic() - last.received_s > 1.0 or last.mode != RobotState.READY:
            return False
        # Its driver is well, but is the robot itself?
        return not any(complaint in last.detail for complaint in ("nothing heard", "does not answer"))

    def _nearly_empty(self, name: str) -> bool:
        last = self.observer.last(name)
        return last is not None and last.battery < RESERVE + 0.02 and self._at_rest(name)

    def _task(self, fault: Fault, name: str, plans: Sequence[Sequence[str]]) -> str:
        """The plans in words that the scripted model understands."""
        parts = list(plans[0])
        if name == fault.robot and fault.kind == "late_segment":
            # Early in the plan: later the robot has so much to do that the stall would be over before it shows.
            parts[1] += f"@{STALL_TOKENS}"
        if name == fault.robot and fault.kind == "unsafe_plan":
            parts[fault.segment + 1] = "move_to(7);" if faulty_robot_kind(name) == "indy7" else "mf(900);"
        return PLANS_APART.join(SEGMENTS_APART.join(plan) for plan in (parts, *plans[1:]))

    def _await_segment(self, fault: Fault) -> None:
        """Return when the fault's segment is under way."""
        since = len(self.observer.states[fault.robot])
        self._until(
            lambda: any(
                one.executing and one.segment >= fault.segment
                for one in self.observer.states[fault.robot][since:]
            ),
            25.0,
        )

    def _see_to_the_end(self, fault: Fault, errands: dict[str, FaultErrand]) -> None:
        begin_s = time.monotonic()
        if "bridge_killed" in fault.kinds:
            self._await_bridge()
            for errand in errands.values():
                self.observer.insist(errand)
        errand_at_fault = errands[fault.robot]
        # An answer of a server that has just appeared may get lost. It is requested again by the goal's id.
        while not self._until(lambda: self._end(errand_at_fault, fault) is not None, 5.0):
            if time.monotonic() - begin_s > TASK_LIMIT_S:
                break
            self.observer.insist(errand_at_fault)
        self._strikes.repair(fault)
        self._until(lambda: not self._open_errands(errands, fault), PENDING_TIMEOUT_S)
        for errand in self._open_errands(errands, fault):
            self.observer.cancel(errand)
        while not self._until(lambda: not self._open_errands(errands, fault), 5.0):
            if time.monotonic() - begin_s > TASK_LIMIT_S:
                break
            for errand in self._open_errands(errands, fault):
                self.observer.insist(errand)

    def _open_errands(self, errands: dict[str, FaultErrand], fault: Fault) -> list[FaultErrand]:
        return [errand for errand in errands.values() if self._end(errand, fault) is None]

    def _judge(
        self,
        fault: Fault,
        name: str,
        errand: FaultErrand,
        states: list[FaultObservedState],
        begin_s: float,
        violations: list[Violation],
        who: str,
    ) -> str:
        """Judge whether one robot held in time; its task's end in words, empty if it was lost."""
        is_silent = any(
            one is not None and one.robot == name and one.kind in SILENT_FAULTS
            for one in (fault, fault.companion)
        )
        # A robot is at rest, and not holding, between a plan and the one that replaces it.
        if not is_silent and len(self.observer.plans.get(errand.task_id, ())) < 2:
            motions = fault_bench_log_motions(name, self.world.logs[name], begin_s)
            plan = fault_bench_plan_motions(name, errand.plans[0])
            died_s = self.world.killed_s.get(f"emulator of {name}", math.inf)
            self.tally.held += judge_ros_fault_holding(states, motions, plan, violations, who, died_s)
        end = self._end(errand, fault)
        return "" if end is None else f"{end[0]} {bridge_error_name(end[1])}"

    def _until(self, what: Callable[[], bool], timeout_s: float, every_s: float = 0.02) -> bool:
        deadline = time.monotonic() + timeout_s
        while not what():
            if time.monotonic() > deadline:
                return False
            time.sleep(every_s)
        return True
