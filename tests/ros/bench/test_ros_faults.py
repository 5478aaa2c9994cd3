"""Short runs of ``timely bench faults`` and ``timely bench stop``: real processes, broken and stopped."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from emulated_robots import need
from timely_ros_bench import faults, stop
from timely_ros_bench.faults import fleets, measure, tally
from timely_ros_bench.faults.dds_cut import CUTS, FaultDdsCut, build_fault_dds_cut, fault_bench_dds_udp_only
from timely_ros_bench.faults.judge import VIOLATIONS
from timely_ros_bench.faults.rounds import fault_schedule, faulty_robot_names

from timely.cli import main as shell
from timely.core.errors import EngineFailed, InvalidInput, Unsupported

SEED = 103
"""Four faults, each of another kind."""


@pytest.mark.long
@pytest.mark.ros
@pytest.mark.timeout(400)
def test_a_drone_and_its_network_processes_and_middleware_break_and_no_promise_does(domain_id: int) -> None:
    lines: list[str] = []
    fleet = ("tello", "sim")
    struck = {fault.kind for fault in fault_schedule(4, SEED, faulty_robot_names(fleet))}
    assert struck == {"two_bridges", "emulator_dies", "bridge_killed", "driver_killed"}
    need("djitellopy")
    result = measure.measure_faults(4, SEED, fleet=fleet, domain_id=domain_id, say=lines.append).result()
    assert result["violations"] == dict.fromkeys(VIOLATIONS, 0), lines
    assert result["lost_tasks"] == 0, lines
    assert (result["rounds"], result["faults"], result["tasks"]) == (4, 4, 8)
    assert sum(result["outcomes"].values()) == result["tasks"]
    assert any(not label.startswith("complete") for label in result["outcomes"]), "nothing was broken"
    assert result["restarts"] >= 3
    assert len([line for line in lines if "/4 " in line]) == 4


@pytest.mark.ros
@pytest.mark.timeout(400)
def test_a_busy_fleet_stops_and_a_faulty_driver_is_unknown(domain_id: int) -> None:
    need("neuromeka", "djitellopy")
    result = stop.measure_stop(2, 8, domain_id=domain_id)
    assert result["false_success"] == 0, result["cases"]
    assert (result["acknowledged"], result["unknown"], result["faulty"]) == (4, 4, 4)
    assert (result["trials"], result["stops"]) == (4, 8)
    assert 0 < result["samples"] <= 4
    assert 0.0 < result["first_command_ms"]["p50"] < 500.0
    assert 0.0 < result["at_rest_s"]["max"] < 5.0


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []

    class Campaign:
        def __init__(self, world: Any, observer: Any, tally: tally.FaultTally) -> None:
            self.tally = tally

        def play(self, number: int, fault: Any, rng: random.Random) -> str:
            if len(played) == 3:
                played.append(-1)
                raise EngineFailed("the bridge does not come back")
            played.append(number)
            self.tally.rounds += 1
            return "complete NONE"

    @contextmanager
    def fleet(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(restarts=1), None

    monkeypatch.setattr(measure, "FaultCampaign", Campaign)
    monkeypatch.setattr(measure, "running_fault_fleet", fleet)
    file = tmp_path / "faults.json.partial"
    with pytest.raises(EngineFailed):
        measure.measure_faults(5, 1, fleet=["sim"], checkpoint=file)
    with pytest.raises(InvalidInput, match="no checkpoint of this run"):
        measure.measure_faults(5, 2, fleet=["sim"], checkpoint=file)
    result = faults.measure_fault_fleets(5, 1, fleet=["sim"], checkpoint=file)
    assert played == [0, 1, 2, -1, 3, 4]
    assert (result["rounds"], result["restarts"]) == (5, 2)
    assert not file.exists()


@pytest.mark.ros
def test_two_fleets_share_the_rounds_each_in_its_own_network(tmp_path: Path) -> None:
    lines: list[str] = []
    if subprocess.run([*fleets.fault_bench_network_command(), "true"], check=False, timeout=20.0).returncode:
        pytest.skip("this system allows no network namespaces")
    file = tmp_path / "faults.json.partial"
    result = faults.measure_fault_fleets(2, SEED, fleet=["sim"], fleets=2, checkpoint=file, say=lines.append)
    assert (result["rounds"], result["lost_tasks"], result["failed_rounds"]) == (2, 0, 0), lines
    assert {line.partition(":")[0] for line in lines} == {"fleet 1", "fleet 2"}
    assert {line.split()[2] for line in lines} == {"1/2", "2/2"}
    assert list(tmp_path.iterdir()) == []


def test_a_fleet_has_the_privileges_of_the_benchmark() -> None:
    raise_priority = [sys.executable, "-c", "import os; os.nice(-1)"]
    here, there = (
        subprocess.run([*command, *raise_priority], check=False, capture_output=True, timeout=20.0).returncode
        for command in ([], fleets.fault_bench_network_command())
    )
    assert there == here


@pytest.mark.process
def test_a_fleet_that_fails_leaves_the_others_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "fleet.py"
    script.write_text(
        "import json, sys\n"
        "count, seed, robots, first, fleets, file = sys.argv[1:]\n"
        "if first == '1' and seed == '2':\n"
        "    sys.exit('the bridge does not come back')\n"
        "run = {'robots': [f'{robots}1'], 'seed': int(seed), 'share': [int(first), int(fleets)]}\n"
        f"run['violations'] = {list(VIOLATIONS)}\n"
        "open(file, 'w').write(json.dumps({**run, 'tally': {'rounds': 2, 'outcomes': {'complete NONE': 2}}}))\n"
    )
    monkeypatch.setattr(fleets, "ONE_FLEET", str(script))
    monkeypatch.setattr(fleets, "fault_bench_network_command", list)
    file = tmp_path / "faults.json.partial"
    with pytest.raises(EngineFailed, match="fleet 2 ended with 1: the bridge does not come back"):
        faults.measure_fault_fleets(4, 2, fleet=["sim"], fleets=2, checkpoint=file)
    assert [one.name for one in tmp_path.glob("faults*")] == ["faults.json.partial.1-of-2"]
    result = faults.measure_fault_fleets(4, 1, fleet=["sim"], fleets=2, checkpoint=tmp_path / "other")
    assert (result["rounds"], result["outcomes"]) == (4, {"complete NONE": 4})
    assert not list(tmp_path.glob("other*"))


def test_half_of_the_stops_meet_a_faulty_driver_of_each_kind() -> None:
    for robots in (1, 2, 3, 4):
        names = [f"arm{number}" for number in range(robots)]
        trials = [stop.choose_stop_faults(names, trial, random.Random(trial)) for trial in range(12)]
        assert sum(len(broken) for _, broken in trials) == 6 * robots
        assert all(bool(fault) == bool(broken) for fault, broken in trials)
    assert {fault for fault, _ in trials[1:4]} == {fault for fault, _ in trials[1::4]} == set(stop.FAULTS)


@pytest.mark.process
def test_the_cut_is_a_switch_for_the_ports_of_one_domain(tmp_path: Path) -> None:
    library = build_fault_dds_cut(tmp_path)
    assert library.exists()
    cut = FaultDdsCut(library, tmp_path / "switch", 7, tmp_path / "state")
    assert (cut.environment["TIMELY_CUT_LOW"], cut.environment["TIMELY_CUT_HIGH"]) == ("9150", "9400")
    for number, kind in enumerate(CUTS):
        cut.set(kind)
        assert (tmp_path / "switch").read_bytes() == b"%d00" % number
    assert "127.0.0.1" in Path(fault_bench_dds_udp_only()["FASTDDS_DEFAULT_PROFILES_FILE"]).read_text()


WRITER = """
import os, pathlib, sys, threading
from timely.core.files import append_file_line, core_write_file
state = pathlib.Path(sys.argv[1])
def write():
    core_write_file(state / "whole", "x")
    append_file_line(state / "lines", b"x", flush=True)
    (state / "lines").rename(state / "renamed")
writing = threading.Thread(target=write, daemon=True)
writing.start()
(state.parent / "log").write_text("x")
writing.join(0.3)
print(sorted(os.listdir(state)), flush=True)
sys.stdin.readline()
writing.join(60)
print(sorted(os.listdir(state)), flush=True)
"""


@pytest.mark.process
def test_a_disk_that_hangs_holds_up_the_state_of_one_program_until_it_answers(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    cut = FaultDdsCut(build_fault_dds_cut(tmp_path), tmp_path / "switch", 7, state)
    cut.hang_disk(hangs=True)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(state)],
        env={**os.environ, **cut.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert not [name for name in eval(program.stdout.readline()) if not name.startswith(".")]
        assert (tmp_path / "log").read_text() == "x", "the rest of the disk"
        cut.hang_disk(hangs=False)
        output, _ = program.communicate("\n", timeout=60)
    assert (program.returncode, output) == (0, "['renamed', 'whole']\n")


def test_without_a_compiler_the_cut_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(Unsupported, match="C compiler"):
        build_fault_dds_cut(tmp_path)


def test_a_broken_promise_is_exit_code_1_and_in_the_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[Any] = []

    def measured(count: int, seed: int, **options: Any) -> dict[str, Any]:
        calls.append((count, seed, options["fleet"], options["fleets"]))
        return tally.FaultTally(
            rounds=count,
            faults=count,
            tasks=2,
            violations={**dict.fromkeys(VIOLATIONS, 0), "repeated": seed},
        ).result()

    monkeypatch.setattr(faults, "measure_fault_fleets", measured)
    assert (
        shell.run_timely_command(["bench", "faults", "--count", "3", "--robots", "sim, sim", "--json"]) == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert result["violations"]["repeated"] == 0
    assert result["bound"] == pytest.approx(1.0 - 0.05 ** (1 / 3), abs=1e-6)
    assert (
        shell.run_timely_command(
            ["bench", "faults", "--count", "3", "--seed", "1", "--fleets", "2", "--json"]
        )
        == 1
    )
    result = json.loads(capsys.readouterr().out)
    assert result["violations"]["repeated"] == result["history_violations"]["repeated"] == 1
    assert result["violations"].keys() - result["history_violations"].keys() == {"late_hold"}
    assert calls == [(3, 0, ["sim", "sim"], 1), (3, 1, ["tello", "indy7", "sim", "sim"], 2)]
    assert shell.run_timely_command(["bench", "faults", "--count", "0"]) == 2


def test_a_stop_is_measured_and_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = {
        "first_command_ms": {"p50": 1.0, "p99": 7.5, "max": 8.0},
        "at_rest_s": {"p50": 0.5, "p99": 1.0, "max": 1.0},
        "stops": 40,
        "acknowledged": 30,
        "unknown": 10,
        "false_success": 0,
    }
    monkeypatch.setattr(stop, "measure_stop", lambda *args, **options: result)
    assert shell.run_timely_command(["bench", "stop", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == result
    result["false_success"] = 1
    assert shell.run_timely_command(["bench", "stop"]) == 1

    def broken(*args: Any, **options: Any) -> Any:
        raise EngineFailed("the fleet did not start", where="bench stop")

    monkeypatch.setattr(stop, "measure_stop", broken)
    assert shell.run_timely_command(["bench", "stop"]) == 1
    assert "did not start" in capsys.readouterr().err
