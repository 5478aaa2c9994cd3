"""Driving a robot through a grid: the order, what is written down, going on after a break, and giving up."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from lrtrace.cli import run_lrtrace_command
from lrtrace.errors import BadInput
from lrtrace.fit.execution_time import fit_samples
from lrtrace.plan_text import parse_trace_calls, robot_profile_execution_s
from lrtrace.profiles import load_robot_profile
from lrtrace.record.grid import RecordGrid, read_record_grid
from lrtrace.record.recorder import MAX_FAILURES, RecordedExecution, open_robot_to_record, record_grid
from lrtrace.record.samples import read_recorded_samples
from lrtrace.robot_profile import RobotProfile

GRID = """
repetitions: 6
begin: mu(20);
runs:
  - do: ["mf({cm})", "mb({cm})"]
    with: {cm: [20, 100, 400]}
  - do: ["s('{what}')", "tu({back})"]
    with: [{what: cat, back: 60}, {what: dog, back: 120}]
  - {do: ["tc(90);tu(90)"]}
"""


class Drone:
    """Takes 1 s and 1 s a metre, two percent noise; scans 1 to 3 s. ``breaks_after`` texts it fails for good."""

    def __init__(self, breaks_after: int = 10**9, seed: int = 3) -> None:
        self.profile: RobotProfile = load_robot_profile("tello")
        self.texts: list[str] = []
        self._left = breaks_after
        self._rng = random.Random(seed)

    def execute(self, text: str, timeout_s: float) -> RecordedExecution:
        self.texts.append(text)
        if len(self.texts) > self._left:
            return RecordedExecution("failed", 0.1, "battery empty")
        total = 0.0
        for call in parse_trace_calls(text):
            if call.skill == "s":
                total += self._rng.uniform(1.0, 3.0)
            else:
                total += (1.0 + 0.01 * float(call.args[0])) * self._rng.gauss(1.0, 0.02)
        return RecordedExecution("done", total)

    def close(self) -> None:
        pass


@pytest.fixture
def grid(tmp_path: Path) -> RecordGrid:
    file = tmp_path / "grid.yaml"
    file.write_text(GRID)
    return read_record_grid(file)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_point_comes_once_a_round_in_an_order_of_the_seed(grid: RecordGrid) -> None:
    assert len(grid.units) == 6
    schedule = grid.schedule(1)
    assert schedule == grid.schedule(1)
    assert schedule != grid.schedule(2)
    keys = [key for key, _ in schedule]
    assert len(set(keys)) == 36
    for start in range(0, 36, 6):
        assert {unit.key for _, unit in schedule[start : start + 6]} == {unit.key for unit in grid.units}
    assert keys[:6] != sorted(keys[:6])


def test_single_calls_become_samples_that_fit(grid: RecordGrid, tmp_path: Path) -> None:
    out, drone = tmp_path / "d.samples.jsonl", Drone()
    counts: list[int] = []
    recording = record_grid(grid, drone, out, seed=1, report=lambda state: counts.append(state.done))
    assert drone.texts[0] == "mu(20);"
    assert counts == list(range(37)), "before the first run, and after each one"
    assert (recording.done, recording.samples, recording.stopped) == (36, 60, "")
    samples = list(read_recorded_samples(out))
    assert len(samples) == 60, "the unit with two calls in one text says nothing"
    assert {sample.skill for sample in samples} == {"move_forward", "move_backward", "scan", "turn_ccw"}
    assert {sample.units.get("distance") for sample in samples} == {"cm", None}
    fit = fit_samples(samples, base=drone.profile)
    line = fit.skills["move_forward"]
    assert line.model.model == "linear"
    assert line.model.mean_s({"distance": 200}) == pytest.approx(3.0, rel=0.03)
    assert line.estimate_error == line.held_out < 0.05
    scan = fit.skills["scan"]
    assert scan.model.variable
    assert scan.estimate_error == scan.too_early < 0.2 < scan.held_out
    assert scan.summary()["held_out_too_early"] == round(scan.too_early, 6)


def test_a_fit_is_checked_on_another_recording(
    grid: RecordGrid, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a.samples.jsonl", tmp_path / "b.samples.jsonl"
    record_grid(grid, Drone(seed=1), first, seed=1)
    record_grid(grid, Drone(seed=2), second, seed=2)
    out = tmp_path / "mine.yaml"
    command = ["fit", str(first), "-o", str(out), "--base", "tello", "--check", str(second)]
    assert run_lrtrace_command([*command, "--json", str(tmp_path / "fit.json")]) == 0
    report = json.loads((tmp_path / "fit.json").read_text())["skills"]
    assert 0.0 < report["move_forward"]["checked_error"] < 0.05
    profile = load_robot_profile(out)
    assert profile.skills["move_forward"].held_out_error == round(report["move_forward"]["checked_error"], 4)
    assert profile.skills["move_forward"].execution.samples == 18
    assert profile.measured.samples == 60
    assert "on other runs" in capsys.readouterr().out


def test_no_run_starts_behind_a_begin_that_failed(grid: RecordGrid, tmp_path: Path) -> None:
    out, drone = tmp_path / "d.samples.jsonl", Drone(breaks_after=0)
    recording = record_grid(grid, drone, out, seed=1)
    assert drone.texts == ["mu(20);"]
    assert (recording.done, recording.stopped) == (0, "begin: battery empty")
    assert record_grid(grid, Drone(), out, seed=1).done == 36


def test_an_interrupted_recording_goes_on_where_it_stopped(grid: RecordGrid, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole.samples.jsonl", tmp_path / "broken.samples.jsonl"
    record_grid(grid, Drone(), whole, seed=1)
    robot = Drone()

    class Interrupt(Exception):
        pass

    def interrupt(state: Any) -> None:
        if state.done == 10:
            raise Interrupt

    with pytest.raises(Interrupt):
        record_grid(grid, robot, broken, seed=1, report=interrupt)
    with broken.open("a") as file:
        file.write('{"grid": "half a line')
    again = record_grid(grid, Drone(), broken, seed=1)
    assert (again.resumed, again.done) == (10, 36)
    # In the middle of a unit: its first half is run again.
    text = broken.read_text().splitlines(keepends=True)
    assert [line["run"] for line in lines(broken)] == [line["run"] for line in lines(whole)]
    cut = next(n for n, line in enumerate(lines(broken)) if n > 5 and not line["last"])
    broken.write_text("".join(text[: cut + 1]))
    record_grid(grid, Drone(), broken, seed=1)
    assert [line["run"] for line in lines(broken)] == [line["run"] for line in lines(whole)]
    nothing = Drone()
    record_grid(grid, nothing, broken, seed=1)
    assert nothing.texts == []


def test_a_robot_that_keeps_failing_ends_the_recording(grid: RecordGrid, tmp_path: Path) -> None:
    out = tmp_path / "d.samples.jsonl"
    recording = record_grid(grid, Drone(breaks_after=20), out, seed=1)
    assert recording.stopped == "battery empty"
    assert recording.failed["battery empty"] == MAX_FAILURES
    assert [line["outcome"] for line in lines(out) if "outcome" in line][-1] == "failed"
    assert all(sample.elapsed_s > 0.5 for sample in read_recorded_samples(out)), "failures are no samples"
    again = record_grid(grid, Drone(), out, seed=1)
    assert again.done == 36
    assert again.resumed == recording.done, "with a new battery the failed ones are tried again"
    assert len(list(read_recorded_samples(out))) >= 60


def test_the_time_left_is_the_profiles_corrected_by_the_runs_so_far(grid: RecordGrid, tmp_path: Path) -> None:
    """The first line of a recording says how long it takes, and a slow begin changes nothing."""

    class Slow(Drone):
        def execute(self, text: str, timeout_s: float) -> RecordedExecution:
            self.texts.append(text)
            if text == "mu(20);":
                return RecordedExecution("done", 1000.0)
            return RecordedExecution("done", 2.0 * robot_profile_execution_s(text, self.profile))

    left_s: list[float] = []
    recording = record_grid(
        grid, Slow(), tmp_path / "d.samples.jsonl", seed=1, report=lambda state: left_s.append(state.left_s)
    )
    whole_s = recording.robot_s - 1000.0
    assert left_s[0] == pytest.approx(whole_s / 2.0), "by the profile"
    assert left_s[1] == pytest.approx(whole_s, rel=0.2), "twice as slow"
    assert left_s == [left_s[0], *sorted(left_s[1:], reverse=True)]
    assert left_s[-1] == 0.0


def test_a_skill_that_the_robot_lacks_is_named_before_it_moves(tmp_path: Path) -> None:
    file, drone = tmp_path / "grid.yaml", Drone()
    file.write_text('runs: [{do: ["mf(20)"]}, {do: ["hop(20)"]}]')
    with pytest.raises(BadInput, match=r"hop\(20\): .*unknown skill 'hop'"):
        record_grid(read_record_grid(file), drone, tmp_path / "d.samples.jsonl")
    assert drone.texts == []


@pytest.mark.parametrize("other", [{"seed": 2}, {"profile": "sim-drone"}])
def test_another_recording_is_not_continued(grid: RecordGrid, tmp_path: Path, other: dict[str, Any]) -> None:
    out = tmp_path / "d.samples.jsonl"
    record_grid(grid, Drone(), out, seed=1, repetitions=1)
    drone = Drone()
    drone.profile = load_robot_profile(other.get("profile", "tello"))
    with pytest.raises(BadInput, match="choose another file"):
        record_grid(grid, drone, out, seed=other.get("seed", 1), repetitions=1)


HUNDRED_OF_EACH = ", ".join(f"{name}: {list(range(100, 200))}" for name in "abcd")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("runs: []", "runs: .*at least 1 item"),
        ("runs: [{call: mf(1)}]", "runs.0.do: is missing"),
        ("runs: [{do: []}]", "runs.0.do: .*at least 1 item"),
        ("runs: 5", "runs: .*valid list"),
        ("runs: [7]", "runs.0: must be a mapping$"),
        ("runs: [{do: mf(1)}]", "runs.0.do: .*valid list"),
        ("runs: [{do: [a], call: b}]", "runs.0.call: .*not permitted$"),
        ('runs: [{do: ["mf({cm})"]}]', "no value for 'cm'"),
        ('runs: [{do: ["mf({cm})"], with: {cm: 5}}]', "list of values"),
        ('runs: [{do: ["mf({cm.x})"], with: {cm: [5]}}]', "cannot fill in"),
        ('runs: [{do: ["mf({cm[0]})"], with: {cm: [5]}}]', "cannot fill in"),
        ('runs: [{do: ["mf({})"], with: {cm: [5]}}]', "cannot fill in"),
        (
            f'runs: [{{do: ["mf({{a}}{{b}}{{c}}{{d}})"], with: {{{HUNDRED_OF_EACH}}}}}]',
            "100001 are over 100000",
        ),
        ('runs: [{do: ["mf(20)"]}, {do: ["mf(20)"]}]', "comes twice"),
        ('repetitions: 0\nruns: [{do: ["mf(20)"]}]', "repetitions: .*greater than or equal to 1"),
    ],
)
def test_broken_grids_are_named(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(text)
    with pytest.raises(BadInput, match=reason) as raised:
        read_record_grid(file)
    assert str(file) in raised.value.where


def test_the_shipped_grids_are_for_their_skill_sets() -> None:
    folder = Path(__file__).parents[3] / "examples" / "robots" / "grids"
    for name, profile in (("drone", "tello"), ("arm", "indy7")):
        skills = set()
        units = [unit for file in folder.glob(f"{name}*.yaml") for unit in read_record_grid(file).units]
        for unit in units:
            for text in unit.texts:
                for call in parse_trace_calls(text):
                    assert not load_robot_profile(profile).violations(call.skill, call.args), text
                    skills.add(load_robot_profile(profile).skill_name(call.skill))
        assert skills == set(load_robot_profile(profile).skills)


@pytest.mark.parametrize(
    "arguments",
    [
        ["record", "-o", "x.samples.jsonl"],
        ["record", "-o", "x.samples.jsonl", "--fleet", "no-such.yaml", "log.jsonl"],
        ["record", "-o", "x.samples.jsonl", "--grid", "no-such.yaml"],
        ["record", "-o", "x.samples.jsonl", "--grid", "no-such.yaml", "--fleet", "no-such.yaml"],
    ],
)
def test_bad_command_lines_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_lrtrace_command(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_fleet_without_the_robot_lists_those_it_has(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("robots: {a: {}, b: {}}")
    with pytest.raises(BadInput, match="known: a, b"):
        open_robot_to_record(file, "c", 1.0)


@pytest.mark.parametrize("name", ["tello-emulator", "indy7-emulator", "mujoco-quadrotor", "mujoco-arm"])
def test_the_shipped_measured_profiles_say_how_good_they_are(name: str) -> None:
    profile = load_robot_profile(name)
    assert profile.measured.date
    assert "recording in real time" in profile.measured.setup
    fitted = {skill: entry for skill, entry in profile.skills.items() if entry.basis == "fitted"}
    assert set(fitted) == set(profile.skills)
    assert profile.measured.samples == sum(entry.execution.samples or 0 for entry in fitted.values()) > 300
    for skill, entry in fitted.items():
        assert entry.held_out_error is not None
        if entry.execution.mean_s({"distance": 100, "degrees": 90, "seconds": 1}) > 0.01:
            assert entry.held_out_error < 0.05, skill
