"""The verdicts of ``timely bench stop``: a claim that the robot's own log refutes is a false success."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from timely_ros_bench.stop_judge import StopBenchClaim, StopBenchLogReader, StopBenchRobotLog, StopBenchTally

from timely.core.errors import InvalidInput
from timely.emulators.command_log import EmulatorCommandLog

PROMPT = StopBenchRobotLog(brakes=[5.0, 10.01], motions=[(8.0, 10.4), (2.0, 4.0)])
LATE = StopBenchRobotLog(brakes=[10.9], motions=[(8.0, 11.5)])


@pytest.mark.parametrize(
    ("log", "claim", "false"),
    [
        (PROMPT, StopBenchClaim(10.0, 10.1, "halted"), ""),
        (PROMPT, StopBenchClaim(10.0, 10.5, "at_rest"), ""),
        (PROMPT, StopBenchClaim(10.0, 10.1, "at_rest"), "it moved for another 0.30 s"),
        (LATE, StopBenchClaim(10.0, 10.5, "halted"), "no braking command"),
        (LATE, StopBenchClaim(10.0, 10.5, "unknown"), ""),
        (LATE, StopBenchClaim(10.0, 10.5, "unknown", faulty=True), ""),
        (PROMPT, StopBenchClaim(10.0, 10.5, "halted", faulty=True), "could not answer"),
        (StopBenchRobotLog([], []), StopBenchClaim(10.0, 10.5, "at_rest"), ""),
    ],
)
def test_a_claim_is_held_against_the_log(log: StopBenchRobotLog, claim: StopBenchClaim, false: str) -> None:
    tally = StopBenchTally()
    tally.add("arm1", claim, log)
    assert tally.false_success == bool(false)
    assert false in "".join(tally.cases)
    assert (tally.unknown, tally.acknowledged) == ((1, 0) if claim.state == "unknown" else (0, 1))


def test_a_robot_that_the_answer_does_not_name_is_unknown_and_a_case() -> None:
    tally = StopBenchTally()
    tally.add("arm1", StopBenchClaim(10.0, 10.1, "missing"), PROMPT)
    assert (tally.unknown, tally.acknowledged, tally.false_success) == (1, 0, 0)
    assert tally.cases == ["arm1: no outcome in the answer"]


def test_times_count_from_the_call_and_for_moving_robots_only() -> None:
    tally = StopBenchTally()
    assert math.isnan(tally.result()["at_rest_s"]["p50"])
    tally.add("arm1", StopBenchClaim(10.0, 10.5, "at_rest"), PROMPT)
    tally.add("arm1", StopBenchClaim(20.0, 20.1, "at_rest"), PROMPT)
    result = tally.result()
    assert (result["samples"], result["stops"], result["faulty"]) == (1, 2, 0)
    assert result["first_command_ms"]["p99"] == pytest.approx(10.0)
    assert result["at_rest_s"]["max"] == pytest.approx(0.4)


def test_the_logs_of_several_lives_are_one(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.jsonl" for number in range(3)]
    with EmulatorCommandLog(files[0]) as journal:
        journal.write(1.0, "command", "forward 20", "ok")
        journal.write(1.5, "command", "stop", "ok")
        journal.write(2.0, "motion", "forward 20", "stopped", start_s=1.0, end_s=2.0)
    files[1].write_text('{"t_s": 3.0, "event": "command", "command": "StopMotion", "outcome": "ok"}\n{"t_s"')
    reader = StopBenchLogReader(files)
    assert reader.read() == StopBenchRobotLog([1.5, 3.0], [(1.0, 2.0)])
    with files[1].open("a") as file:
        file.write(': 4.0, "event": "command", "command": "StopMotion", "outcome": "ok"}\n')
    assert reader.read() == StopBenchRobotLog([1.5, 3.0, 4.0], [(1.0, 2.0)])


@pytest.mark.parametrize(
    ("command", "outcome"), [("forward 200", "accepted"), ("MoveL(450,-100,220,180,0,180 v=60 a=100)", "ok")]
)
def test_a_motion_that_goes_on_refutes_a_stop(tmp_path: Path, command: str, outcome: str) -> None:
    """The log has the motion when it is over, perhaps long after the verdict."""
    files, tally = [tmp_path / "0.jsonl"], StopBenchTally()
    reader = StopBenchLogReader(files)
    with EmulatorCommandLog(files[0]) as log:
        log.write(8.0, "command", command, outcome)
        tally.add("robot", StopBenchClaim(10.0, 10.1, "halted"), reader.read())
        assert "no braking command" in tally.cases[-1]
        log.write(10.05, "command", "StopMotion", "ok")
        tally.add("robot", StopBenchClaim(10.0, 10.1, "halted"), reader.read())
        assert len(tally.cases) == 1
        tally.add("robot", StopBenchClaim(10.0, 10.1, "at_rest"), reader.read())
        assert "it moves on" in tally.cases[-1]
        log.write(10.6, "motion", command, "stopped", start_s=8.0, end_s=10.6)
        tally.add("robot", StopBenchClaim(11.0, 11.1, "at_rest"), reader.read())
        log.write(12.0, "command", command, outcome)
    assert (tally.false_success, tally.at_rest_s) == (2, [])
    files.append(tmp_path / "1.jsonl")
    files[1].touch()
    assert reader.read().motions == [(8.0, 10.6)], "a motion ends with its robot"


def test_a_tally_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "stops.partial"
    tally = StopBenchTally.load(file, ["tello1"], 3)
    assert tally == StopBenchTally()
    tally.add("tello1", StopBenchClaim(10.0, 10.1, "halted"), PROMPT)
    tally.trials += 1
    tally.save(file, ["tello1"], 3)
    assert StopBenchTally.load(file, ["tello1"], 3) == tally
    for robots, seed in ((["tello1"], 4), (["arm1"], 3)):
        with pytest.raises(InvalidInput, match="no checkpoint of this run"):
            StopBenchTally.load(file, robots, seed)
    file.write_text("{")
    with pytest.raises(InvalidInput, match="no checkpoint"):
        StopBenchTally.load(file, ["tello1"], 3)
