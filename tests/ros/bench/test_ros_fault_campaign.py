"""A campaign judges the plan of a task and the one that replaces it, each by itself."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from timely_interfaces.msg import ErrorCode, RobotState
from timely_ros_bench import stop
from timely_ros_bench.faults.campaign import NEXT_PLAN_S, FaultCampaign
from timely_ros_bench.faults.process_waits import (
    FaultProcessWaits,
    fault_waits_in_words,
    read_fault_process_waits,
)
from timely_ros_bench.faults.rounds import Fault
from timely_ros_bench.faults.tally import FaultTally
from timely_ros_bench.stop_judge import StopBenchTally

from timely.core.errors import EngineFailed
from timely.emulators.command_log import EmulatorCommandLog

PLANS = [["mf(20);", "tc(21);"], ["mf(68);", "tc(69);"]]


@pytest.mark.parametrize(
    ("motions", "kinds"),
    [
        (["forward 20", "forward 68", "cw 69"], []),
        (["forward 20", "forward 68"], ["false_complete"]),
        (["forward 20", "forward 68", "cw 21", "cw 69"], ["after_end"]),
        (["forward 20", "forward 20", "forward 68", "cw 69"], ["repeated"]),
    ],
)
def test_a_task_that_is_replanned(tmp_path: Path, motions: list[str], kinds: list[str]) -> None:
    log = tmp_path / "tello1.jsonl"
    with EmulatorCommandLog(log) as journal:
        for number, motion in enumerate(motions):
            begin_s = 10.0 + number
            journal.write(begin_s + 0.9, "motion", motion, "done", start_s=begin_s, end_s=begin_s + 0.9)
    second_s = 10.0 + motions.index("forward 68")
    observer = SimpleNamespace(
        connect=lambda *_: None,
        plans={"ros-ab": ["ros-ab", "ros-ab-r1"]},
        ends={"ros-ab": ("cancelled", int(ErrorCode.PREEMPTED), second_s)},
        leases={},
    )
    world = SimpleNamespace(server_state=tmp_path, logs={"tello1": [log]})
    campaign = FaultCampaign(world, observer, FaultTally())  # type: ignore[arg-type]
    result = SimpleNamespace(outcome="complete", error_code=0)
    errand = SimpleNamespace(
        task_id="ros-ab", robot="tello1", plans=PLANS, sent_s=9.0, ended=True, result=result, end_s=[20.0]
    )
    campaign._errands.append((errand, "round 1", Fault("new_scene", "tello1", 0, 0.0)))  # type: ignore[arg-type]
    assert [kind for kind, _ in campaign._judge_history()] == kinds


def test_the_end_of_a_plan_is_that_of_its_task_when_no_other_plan_follows(tmp_path: Path) -> None:
    failed = ("failed", int(ErrorCode.BRIDGE_INACTIVE))
    observer = SimpleNamespace(
        connect=lambda *_: None, plans={}, ends={"ros-ab": (*failed, time.monotonic())}, leases={}
    )
    world = SimpleNamespace(server_state=tmp_path, logs={})
    campaign = FaultCampaign(world, observer, FaultTally())  # type: ignore[arg-type]
    errand: Any = SimpleNamespace(task_id="ros-ab", ended=False)
    fault = Fault("bridge_killed", "tello1", 0, 0.0)
    assert campaign._end(errand, fault) is None
    observer.ends["ros-ab"] = (*failed, time.monotonic() - NEXT_PLAN_S - 0.1)
    assert campaign._end(errand, fault) == observer.ends["ros-ab"]
    observer.plans["ros-ab"] = ["ros-ab", "ros-ab-r1"]
    assert campaign._end(errand, fault) is None


def test_a_round_fails_when_the_servers_log_cannot_be_read(tmp_path: Path) -> None:
    observer = SimpleNamespace(connect=lambda *_: None, leases={})
    world = SimpleNamespace(server_state=tmp_path, logs={})
    tally = FaultTally()
    campaign = FaultCampaign(world, observer, tally)  # type: ignore[arg-type]
    fault = Fault("new_scene", "tello1", 0, 0.0)
    (tmp_path / "tasks" / "00000001.log").mkdir(parents=True)
    campaign._count(fault, {}, [])
    assert (tally.failed_rounds, tally.violations["unreadable"]) == (1, 1)
    campaign._count(fault, {}, [])
    assert tally.failed_rounds == 1


def test_results_are_requested_of_the_bridge_that_lives() -> None:
    """DDS lists the action of a killed bridge for a while."""
    looks, steps = itertools.count(), list[str]()

    def served_since(when_s: float) -> bool:
        if next(looks) < 3:
            return False
        steps.append("served")
        return True

    errand: Any = SimpleNamespace(task_id="ros-ab", ended=False, end_s=[20.0])

    def insist(errand: Any) -> None:
        steps.append("requested")
        errand.ended, errand.result = True, SimpleNamespace(outcome="complete", error_code=0)

    observer = SimpleNamespace(
        connect=lambda *_: None,
        plans={},
        served_since=served_since,
        reachable=lambda name: True,
        insist=insist,
    )
    world = SimpleNamespace(server_state=Path(), logs={}, robots=["sim1"])
    campaign = FaultCampaign(world, observer, FaultTally())  # type: ignore[arg-type]
    campaign._see_to_the_end(Fault("bridge_killed", "sim1", 0, 0.0), {"sim1": errand})
    assert steps == ["served", "requested"]


def test_a_violation_says_which_parts_waited_for_the_machine() -> None:
    before = {"server": FaultProcessWaits({1: 0.5, 2: 0.0}, 3), "bridge": FaultProcessWaits({7: 1.0}, 0)}
    now = {
        "server": FaultProcessWaits({1: 0.6, 2: 1.3, 3: 0.2}, 5),
        "bridge": FaultProcessWaits({7: 1.01}, 0),
        "driver of arm1": FaultProcessWaits({9: 1.75}, 0),
        "driver of sim1": FaultProcessWaits({11: 0.9}, 0),
    }
    assert fault_waits_in_words(before, now) == (
        "; server waited 1.3 s for a processor and 2 times for a page"
        "; driver of arm1 waited 1.8 s for a processor"
    )
    here = read_fault_process_waits(os.getpid())
    assert threading.get_native_id() in here.threads
    assert read_fault_process_waits(2**30) == FaultProcessWaits()


def test_a_stop_trial_that_is_cut_off_leaves_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a trial is repeated with another fleet."""
    for name, value in {"WAIT_S": 0.05, "QUEUED_TASKS": 0, "BEFORE_STOP_S": (0.0, 0.0)}.items():
        monkeypatch.setattr(stop, name, value)
    last = SimpleNamespace(mode=RobotState.READY, battery=1.0, detail="")
    errand = SimpleNamespace(robot="tello1", ended=False)

    def send(*_: object) -> object:
        last.mode = RobotState.EXECUTING
        return errand

    def call(*_: object) -> object:
        errand.ended = True
        return SimpleNamespace(robots=["tello1"], states=["halted"], success=True)

    observer = SimpleNamespace(
        connect=lambda *_: None, last=lambda _: last, served_since=lambda _: True, reachable=lambda _: True,
        send=send, call=call, handed_over_s=time.monotonic(),
    )  # fmt: skip
    world = SimpleNamespace(logs={"tello1": []}, output=lambda _: "")
    tally = StopBenchTally()
    trials = stop._StopBenchTrials(world, observer, ["tello1"])  # type: ignore[arg-type]
    with pytest.raises(EngineFailed, match="a robot that came back was not stopped"):
        trials.play("", [], random.Random(0), tally)
    assert tally == StopBenchTally()
