"""Rounds of faults: tasks for all robots, one fault, the tasks' ends, everything whole again, the verdict."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from timely_bridge.error_codes import bridge_error_name
from timely_interfaces.msg import ErrorCode, RobotState

from timely.client import TimelyClient
from timely.core.errors import EngineFailed, TimelyError, UnknownName
from timely_ros_bench.faults.fleet_processes import RESERVE, World
from timely_ros_bench.faults.judge import (
    Said,
    Violations,
    judge_ros_fault_holding,
    judge_ros_fault_motions,
    judge_ros_fault_outcome,
)
from timely_ros_bench.faults.motions import (
    STALL_TOKENS,
    fault_bench_log_motions,
    fault_bench_plan_motions,
    fault_round_plan,
)
from timely_ros_bench.faults.observer import Errand, Observer
from timely_ros_bench.faults.rounds import Fault, faulty_robot_kind

CUT_S = 5.0
EMPTY_SOON = 20.1
"""Per cent: a drone that starts with so little has reached its reserve after some nine seconds in the air."""
START_S = 60.0
TASK_LIMIT_S = 60.0
"""A task that has not ended then is lost; the longest deadline on its way is 25 s."""
PATIENCE_S = 4.0
"""The other robots' tasks are cancelled so long after the struck one's end, as an operator would."""


@dataclass(slots=True)
class Campaign:
    """Rounds of faults and what they showed."""

    world: World
    observer: Observer
    rng: random.Random
    violations: Violations = field(default_factory=Violations)
    lost: int = 0
    tasks: int = 0
    held: int = 0
    """How often a robot waited for its next segment and said so."""
    outcomes: dict[str, int] = field(default_factory=dict)

    def play(self, number: int, fault: Fault) -> str:
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
        heard = {name: len(self.observer.said[name]) for name in self.world.robots}
        plans = {name: fault_round_plan(name, number, self.rng) for name in self.world.robots}
        errands = {
            name: self.observer.send(name, self._task(fault, name, plans[name]), plans[name])
            for name in plans
        }
        self.tasks += len(errands)
        self._strike(fault)
        self._see_to_the_end(fault, errands)
        self.make_whole()
        ends = {}
        for name, errand in errands.items():
            who = f"round {number + 1} ({fault.kind} of {fault.robot}), {name}"
            said = self.observer.said[name][heard[name] :]
            ends[name] = self._judge(fault, name, errand, said, begin_s, who)
        return ends[fault.robot]

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
                        f"{self.world.said(f'driver of {name}')}",
                        where="bench faults",
                    )
        now_s = time.monotonic()

        def ready() -> bool:
            return self.observer.served_since(now_s) and all(map(self.observer.reachable, self.world.robots))

        if not self._until(ready, START_S):
            raise EngineFailed(
                f"the bridge does not come back: {self.world.said('bridge')}", where="bench faults"
            )

    def _at_rest(self, name: str) -> bool:
        last = self.observer.last(name)
        if last is None or time.monotonic() - last.heard_s > 1.0 or last.mode != RobotState.READY:
            return False
        # Its driver is well, but is the robot itself?
        return not any(complaint in last.detail for complaint in ("nothing heard", "does not answer"))

    def _nearly_empty(self, name: str) -> bool:
        last = self.observer.last(name)
        return last is not None and last.battery < RESERVE + 0.02 and self._at_rest(name)

    def _task(self, fault: Fault, name: str, plan: Sequence[str]) -> str:
        """The plan in words that the scripted model understands."""
        parts = list(plan)
        if name == fault.robot and fault.kind == "late_segment":
            # Early in the plan: later the robot has so much to do that the stall would be over before it shows.
            parts[1] += f"@{STALL_TOKENS}"
        if name == fault.robot and fault.kind == "unsafe_plan":
            parts[fault.segment + 1] = "move_to(7);" if faulty_robot_kind(name) == "indy7" else "mf(900);"
        return "|".join(parts)

    def _strike(self, fault: Fault) -> None:
        if fault.kind in ("late_segment", "unsafe_plan", "battery"):
            return
        since = len(self.observer.said[fault.robot])

        def under_way() -> bool:
            return any(
                one.executing and one.segment >= fault.segment
                for one in self.observer.said[fault.robot][since:]
            )

        self._until(under_way, 25.0)
        time.sleep(fault.delay_s)
        if fault.kind == "emulator_dies":
            self.world.kill(f"emulator of {fault.robot}")
        elif fault.kind == "driver_killed":
            self.world.kill(f"driver of {fault.robot}")
        elif fault.kind == "bridge_killed":
            self.world.kill("bridge")
            self.world.start_bridge()
        elif fault.kind == "server_killed":
            self.world.kill("server")
            time.sleep(self.rng.uniform(0.0, 2.0))
            self.world.start_server()
        elif fault.kind == "dds_cut":
            self.world.cuts[fault.robot].set(True)
            time.sleep(CUT_S)
            self.world.cuts[fault.robot].set(False)

    def _see_to_the_end(self, fault: Fault, errands: dict[str, Errand]) -> None:
        begin_s = time.monotonic()
        if fault.kind == "bridge_killed":
            self._until(lambda: all(map(self.observer.reachable, errands)), START_S)
            for errand in errands.values():
                self.observer.insist(errand)
        struck = errands[fault.robot]
        # An answer of a server that has just appeared may get lost. It is requested again by the goal's id.
        while not self._until(lambda: struck.ended, 5.0) and time.monotonic() - begin_s < TASK_LIMIT_S:
            self.observer.insist(struck)
        if fault.kind == "driver_killed":
            self.world.start_driver(fault.robot)
        if fault.kind in ("emulator_dies", "battery"):
            self.world.start_robot(fault.robot)
        self._until(lambda: all(errand.ended for errand in errands.values()), PATIENCE_S)
        for errand in errands.values():
            if not errand.ended:
                self.observer.cancel(errand)
        while not self._until(lambda: all(e.ended for e in errands.values()), 5.0):
            if time.monotonic() - begin_s > TASK_LIMIT_S:
                break
            for errand in errands.values():
                if not errand.ended:
                    self.observer.insist(errand)

    def _judge(
        self, fault: Fault, name: str, errand: Errand, said: list[Said], begin_s: float, who: str
    ) -> str:
        violations, label = self.violations, ""
        outcome = self._outcome(fault, errand)
        if outcome is None:
            self.lost += 1
            violations.cases.append(f"lost: {who}")
        else:
            judge_ros_fault_outcome(*outcome, violations, who)
            label = f"{outcome[0]} {bridge_error_name(outcome[1])}"
            self.outcomes[label] = self.outcomes.get(label, 0) + 1
        moved = fault_bench_log_motions(name, self.world.logs[name], begin_s)
        sent = fault_bench_plan_motions(name, errand.plan)
        judge_ros_fault_motions(sent, [motion.what for motion in moved], violations, who)
        # What a driver says while it is cut off, or dead, nobody can hear.
        if not (name == fault.robot and fault.kind in ("dds_cut", "driver_killed")):
            self.held += judge_ros_fault_holding(said, moved, sent, violations, who)
        return label

    def _outcome(self, fault: Fault, errand: Errand) -> tuple[str, int] | None:
        """How a task ended: by the bridge, or, where it died with the task, by the server that planned it."""
        if errand.ended and errand.result.outcome:
            return str(errand.result.outcome), int(errand.result.error_code)
        if fault.kind != "bridge_killed":
            return None
        client = TimelyClient(self.world.url)
        try:
            end: dict[str, Any] = {}

            def settled() -> bool:
                end.update(client.task(errand.task_id))
                return bool(end.get("outcome"))

            self._until(settled, 20.0, every_s=0.2)
        except UnknownName:
            return None
        except TimelyError:
            return None
        finally:
            client.close()
        words = {"complete": ("complete", 0), "cancelled": ("cancelled", int(ErrorCode.CANCELLED))}
        return (
            words.get(str(end.get("outcome")), ("failed", int(ErrorCode.ENGINE_FAILED)))
            if end.get("outcome")
            else None
        )

    def _until(self, what: Callable[[], bool], timeout_s: float, every_s: float = 0.02) -> bool:
        deadline = time.monotonic() + timeout_s
        while not what():
            if time.monotonic() > deadline:
                return False
            time.sleep(every_s)
        return True
