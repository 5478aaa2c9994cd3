"""What each kind of fault does to a fleet, and how the fleet is repaired afterwards."""

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from timely_interfaces.srv import ResetStop, StopFleet

from timely.core.errors import EngineFailed
from timely_ros_bench.faults.fleet_processes import FaultFleet
from timely_ros_bench.faults.history import FaultHistory, Silence, StopRecord
from timely_ros_bench.faults.observer import FaultObserver
from timely_ros_bench.faults.rounds import Fault

CUT_S = 5.0
CUTS = {"dds_cut": "both", "dds_cut_sent": "sent", "dds_cut_received": "received"}
"""Kind -> what the driver loses."""
HANGS = {"driver_hangs": "driver of {}", "bridge_hangs": "bridge", "server_hangs": "server"}
"""Kind -> the process that stops for a while."""
DISKS = {"driver_disk_hangs": "{}", "bridge_disk_hangs": "bridge", "server_disk_hangs": "server"}
"""Kind -> the switch of the process whose disk hangs for a while."""
STOP, RESET = "/timely_bridge/stop_fleet", "/timely_bridge/reset"
STOP_S, ANSWER_S = 1.0, 5.0
"""Deadline of a stop for the drivers; longest wait for the bridge."""
SECOND_BRIDGE_S = 4.0
"""A bridge has found the robots so long after its start."""
REPAIR_S = 60.0
RETRY_S = 0.5

Action = tuple[float, Callable[[], None]]
"""Seconds after the fault's begin, and what happens then."""


@dataclass(slots=True)
class FaultStrikes:
    """Carries faults out, and adds silences and stops to the history.

    Attributes:
        stopped: the fleet may be stopped, and needs a reset.
    """

    world: FaultFleet
    observer: FaultObserver
    history: FaultHistory
    stopped: bool = False

    def strike(self, fault: Fault) -> None:
        """Carry out a fault and its companion, which begins while the first one lasts; returns when both are over."""
        actions: list[Action] = []
        begin_s = 0.0
        for one in (fault, fault.companion):
            if one is not None:
                begin_s += one.delay_s
                actions += [(begin_s + after_s, act) for after_s, act in self._actions(one)]
        start_s = time.monotonic()
        for when_s, act in sorted(actions, key=lambda action: action[0]):
            time.sleep(max(0.0, start_s + when_s - time.monotonic()))
            act()

    def repair(self, fault: Fault) -> None:
        for one in (fault, fault.companion):
            if one is None:
                continue
            if one.kind == "driver_killed":
                self.world.start_driver(one.robot)
            elif one.kind in ("emulator_dies", "battery"):
                self.world.start_robot(one.robot)

    def reset(self) -> None:
        """Release a fleet that was stopped; raises EngineFailed if a robot is not released in time."""
        deadline_s = time.monotonic() + REPAIR_S
        while self.stopped:
            reset_s = time.monotonic()
            self.history.stops = [
                replace(stop, reset_s=min(stop.reset_s, reset_s)) for stop in self.history.stops
            ]
            try:
                answer = self.observer.call(ResetStop, RESET, timeout_s=ANSWER_S)
                self.stopped = not answer.success
                complaint = answer.message
            except EngineFailed as error:
                complaint = str(error)
            if self.stopped and time.monotonic() > deadline_s:
                raise EngineFailed(f"the stop was not reset: {complaint}", where="bench faults")
            if self.stopped:
                time.sleep(RETRY_S)

    def _actions(self, fault: Fault) -> list[Action]:
        world, robot = self.world, fault.robot

        def begin_and_end(
            begin: Callable[[], None], end: Callable[[], None], last_s: float = fault.hold_s
        ) -> list[Action]:
            return [(0.0, begin), (last_s, end)]

        match fault.kind:
            case "emulator_dies":
                return [(0.0, lambda: world.kill(f"emulator of {robot}"))]
            case "driver_killed":
                return [(0.0, lambda: world.kill(f"driver of {robot}"))]
            case "server_killed":
                return begin_and_end(lambda: world.kill("server"), world.start_server)
            case "bridge_killed":
                return begin_and_end(lambda: world.kill("bridge"), lambda: self._return_bridge(fault))
            case "fleet_stop":
                return [(0.0, self._stop)]
            case "two_bridges":
                last_s = SECOND_BRIDGE_S + fault.hold_s
                return begin_and_end(world.start_second_bridge, lambda: world.kill("second bridge"), last_s)
            case "disk_full":
                return begin_and_end(lambda: world.fill_disk(full=True), lambda: world.fill_disk(full=False))
            case kind if kind in DISKS:
                cut = world.cuts[DISKS[kind].format(robot)]
                return begin_and_end(lambda: cut.hang_disk(hangs=True), lambda: cut.hang_disk(hangs=False))
            case "clock_jumps":
                cut, clock = world.cuts[robot], "ahead" if fault.segment % 2 else "behind"
                return begin_and_end(lambda: cut.set_clock(clock), lambda: cut.set_clock("true"))
            case "new_scene":
                return [(0.0, lambda: self.observer.change_scene(robot))]
            case "overload":
                return begin_and_end(world.begin_overload, world.end_overload)
            case kind if kind in HANGS:
                role = HANGS[kind].format(robot)
                return begin_and_end(
                    lambda: world.signal(role, signal.SIGSTOP), lambda: self._wake(role, fault)
                )
            case kind if kind in CUTS:
                return begin_and_end(
                    lambda: world.cuts[robot].set(CUTS[kind]), lambda: self._join(robot, kind), CUT_S
                )
        return []  # the fault is in the task

    def _join(self, robot: str, kind: str) -> None:
        """End a cut."""
        if kind != "dds_cut_sent":
            self._note_silence([robot], CUT_S)
        self.world.cuts[robot].set("none")

    def _wake(self, role: str, fault: Fault) -> None:
        if fault.kind == "bridge_hangs":
            self._note_silence(self.world.robots, fault.hold_s)
        self.world.signal(role, signal.SIGCONT)

    def _return_bridge(self, fault: Fault) -> None:
        self._note_silence(self.world.robots, fault.hold_s)
        self.world.start_bridge()

    def _note_silence(self, robots: Sequence[str], seconds: float) -> None:
        """Drivers have received nothing of their bridge until now."""
        now_s = time.monotonic()
        self.history.silences += [Silence(robot, now_s - seconds, now_s) for robot in robots]

    def _stop(self) -> None:
        self.stopped = True
        try:
            answer = self.observer.call(StopFleet, STOP, StopFleet.Request(deadline_s=STOP_S), ANSWER_S)
        except EngineFailed:
            return  # the bridge is away and has claimed nothing
        answered_s = time.monotonic()
        self.history.stops += [
            StopRecord(robot, answered_s, state)
            for robot, state in zip(answer.robots, answer.states, strict=True)
        ]
