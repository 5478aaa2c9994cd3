"""Measures stops of busy robots, half of them with a driver that hangs, is cut off or was killed.

Emulated robots with the vendors' own clients, drivers, bridge and server run in processes of their own. Other processes
load the computer, and further tasks wait for each robot. The robots' logs decide what was true (``stop_judge``).
A trial stops the whole fleet, which serves the next trial as well.
"""

import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from timely_interfaces.msg import RobotState
from timely_interfaces.srv import ResetStop, StopFleet

from timely.core.checkpoint import remove_checkpoint
from timely.core.child_process import ChildProcess
from timely.core.errors import EngineFailed
from timely.core.progress import Say
from timely_ros_bench.faults.fleet_processes import FaultFleet
from timely_ros_bench.faults.measure import running_fault_fleet
from timely_ros_bench.faults.motions import SEGMENTS_APART, SPOTS
from timely_ros_bench.faults.observer import FaultErrand, FaultObserver
from timely_ros_bench.faults.rounds import SEGMENTS, faulty_robot_kind, faulty_robot_names
from timely_ros_bench.faults.strikes import RESET, STOP
from timely_ros_bench.stop_judge import StopBenchClaim, StopBenchLogReader, StopBenchTally

ROBOTS, REPETITIONS = 4, 40
FAULTS = ("hung", "cut", "killed")
WAIT_S = 60.0
DEADLINE_S = 1.0
"""Of each stop, as that of ``~/stop``. A stop with a faulty driver always takes so long."""
QUEUED_TASKS = 5
"""Further tasks that wait for each robot."""
BURNERS = 1
"""Processes that load the computer."""
BURN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
LOW_BATTERY = 0.5
"""A drone with less gets a new battery before the next stop."""
INSIST_S = 3.0
"""Results that did not come for so long are requested again."""
RESTARTS = 10
BEFORE_STOP_S = (0.1, 1.0)
"""From the first motion to the fault."""
SETTLE_S = 0.2
"""From a fault to the stop: a process needs this long to be gone."""


def measure_stop(
    robots: int = ROBOTS,
    repetitions: int = REPETITIONS,
    *,
    seed: int = 0,
    domain_id: int | None = None,
    checkpoint: Path | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Stop busy robots so many times at least; every second robot stop meets a faulty driver.

    Of a fleet of one Tello and Indy7 arms, none, all, and twice one half of the drivers are broken in turn.
    When a part does not come back, the fleet is started anew and the trial is repeated, ``RESTARTS`` times at most.

    Args:
        repetitions: stops of robots; a trial stops each robot once.
        checkpoint: a file of the trials so far. A run that finds it goes on after them, and removes it at its end.

    Returns:
        ``trials``, ``stops`` (of robots) and ``faulty``: how many of them met a faulty driver.
        ``first_command_ms`` and ``at_rest_s`` (``p50``, ``p99``, ``max``) of moving robots without a fault.
        ``client_ms``: the part of ``first_command_ms`` before the middleware had the request. The client is an
        ordinary process.
        ``acknowledged`` and ``unknown``: robots, over all stops. ``false_success``: claims that the robot's own log
        refutes, and successful stops with a faulty driver. ``cases``: a line for each of those.

    Raises:
        EngineFailed: a part did not start or come back. Unsupported: no vendor's library or no C compiler.
    """
    names = faulty_robot_names(["tello", *["indy7"] * (robots - 1)])
    domain = domain_id if domain_id is not None else int(os.environ.get("ROS_DOMAIN_ID", "0")) or 100
    tally = StopBenchTally.load(checkpoint, names, seed)
    restarts = 0
    while tally.stops < repetitions:
        try:
            with running_fault_fleet(names, seed + restarts, domain) as (world, observer), _stop_bench_load():
                fleet = _StopBenchTrials(world, observer, names)
                while tally.stops < repetitions:
                    rng = random.Random(f"{seed} {tally.trials}")
                    fault, broken_names = choose_stop_faults(names, tally.trials, rng)
                    fleet.play(fault, broken_names, rng, tally)
                    tally.save(checkpoint, names, seed)
                    say(
                        f"{tally.stops}/{repetitions} {fault or 'no fault'}: {tally.false_success} false so far"
                    )
        except EngineFailed as error:
            restarts += 1
            if restarts > RESTARTS:
                raise
            say(f"the fleet is started anew: {error}")
    result = tally.result()
    if not result["samples"]:
        raise EngineFailed("no robot was moving when it was stopped", where="bench stop")
    remove_checkpoint(checkpoint)
    return {**result, "restarts": restarts}


def choose_stop_faults(names: Sequence[str], trial: int, rng: random.Random) -> tuple[str, list[str]]:
    """The fault of a trial and the robots with broken drivers: none, all, and both halves of the fleet in turn.

    Four trials have every kind of fault.
    """
    half = len(names) // 2
    count = (0, len(names), half, len(names) - half)[trial % 4]
    fault = FAULTS[(trial % 4 + trial // 4) % len(FAULTS)] if count else ""
    return fault, sorted(rng.sample(list(names), count))


@contextmanager
def _stop_bench_load() -> Iterator[None]:
    burners = [ChildProcess("load", [sys.executable, "-c", BURN]).start() for _ in range(BURNERS)]
    try:
        yield
    finally:
        for burner in burners:
            burner.close()


class _StopBenchTrials:
    """One trial after the other, with the same fleet."""

    def __init__(self, world: FaultFleet, observer: FaultObserver, names: Sequence[str]) -> None:
        self._world, self._observer, self._names = world, observer, names
        self._logs = {name: StopBenchLogReader(world.logs[name]) for name in names}
        observer.connect(StopFleet, STOP, WAIT_S)
        observer.connect(ResetStop, RESET, WAIT_S)

    def play(
        self, fault: str, broken_names: Sequence[str], rng: random.Random, tally: StopBenchTally
    ) -> None:
        """Make all robots busy, break some drivers, stop, repair, judge, reset."""
        observer = self._observer
        self._prepare()
        errands = [self._send(name) for _ in range(1 + QUEUED_TASKS) for name in self._names]
        self._until(lambda: self._busy(errands), "the robots were never all busy")
        time.sleep(rng.uniform(*BEFORE_STOP_S))
        with self._break_drivers(broken_names, fault):
            called_s = time.monotonic()
            answer = observer.call(StopFleet, STOP, StopFleet.Request(deadline_s=DEADLINE_S))
            answered_s = time.monotonic()
            client_s = observer.handed_over_s - called_s
        states = dict(zip(answer.robots, answer.states, strict=True))
        self._until(
            lambda: all(errand.ended for errand in errands), "tasks did not end after the stop", errands
        )
        self._until(lambda: self._all(RobotState.STOPPED), "a robot that came back was not stopped")
        for name in self._names:
            claim = StopBenchClaim(called_s, answered_s, states.get(name, "missing"), name in broken_names)
            tally.add(name, claim, self._logs[name].read())
        if answer.success and broken_names:
            tally.false_success += 1
            tally.cases.append(f"success with {', '.join(broken_names)} {fault}")
        tally.client_s.append(client_s)  # Not before: a trial that is cut off is repeated with another fleet.
        tally.trials += 1
        observer.call(ResetStop, RESET)
        self._until(lambda: self._all(RobotState.READY), "the robots are not ready after the reset")

    def _busy(self, errands: list[FaultErrand]) -> bool:
        """All robots execute a task. A robot whose tasks have all ended gets another one."""
        for name in self._names:
            if all(errand.ended for errand in errands if errand.robot == name):
                errands.append(self._send(name))
        return self._all(RobotState.EXECUTING)

    def _prepare(self) -> None:
        for name in self._names:
            last = self._observer.last(name)
            if faulty_robot_kind(name) == "tello" and last is not None and last.battery < LOW_BATTERY:
                self._world.kill(f"driver of {name}")
                self._world.kill(f"emulator of {name}")
                self._world.start_robot(name)
                self._world.start_driver(name)
        self._until(
            lambda: (
                self._observer.served_since(-math.inf)
                and self._all(RobotState.READY)
                and all(self._observer.reachable(name) for name in self._names)
            ),
            "the fleet is not ready",
        )

    def _send(self, name: str) -> FaultErrand:
        if faulty_robot_kind(name) == "indy7":
            plan = [f"move_to('{spot}');" for spot in list(SPOTS)[:SEGMENTS]] * 3
        else:
            plan = ["mf(200);", "mb(200);"] * 6
        return self._observer.send(name, SEGMENTS_APART.join(plan), [plan])

    @contextmanager
    def _break_drivers(self, names: Sequence[str], fault: str) -> Iterator[None]:
        world = self._world
        for name in names:
            if fault == "hung":
                world.signal(f"driver of {name}", signal.SIGSTOP)
            elif fault == "cut":
                world.cuts[name].set("both")
            else:
                world.kill(f"driver of {name}")
        if names:
            time.sleep(SETTLE_S)
        try:
            yield
        finally:
            for name in names:
                if fault == "hung":
                    world.signal(f"driver of {name}", signal.SIGCONT)
                elif fault == "cut":
                    world.cuts[name].set("none")
                else:
                    world.start_driver(name)

    def _all(self, mode: int) -> bool:
        states = [self._observer.last(name) for name in self._names]
        return all(state is not None and state.mode == mode for state in states)

    def _until(self, what: Callable[[], bool], complaint: str, errands: Sequence[FaultErrand] = ()) -> None:
        deadline_s = time.monotonic() + WAIT_S
        insist_s = time.monotonic() + INSIST_S
        while not what():
            if time.monotonic() > deadline_s:
                raise EngineFailed(f"{complaint}: {self._complaint()}", where="bench stop")
            if time.monotonic() > insist_s:
                insist_s += INSIST_S
                for errand in errands:
                    if not errand.ended:
                        self._observer.insist(errand)
            time.sleep(0.02)

    def _complaint(self) -> str:
        modes = {
            name: (last.mode, last.detail) if (last := self._observer.last(name)) else None
            for name in self._names
        }
        return f"{modes}; {self._world.output('bridge')[-500:]}"
