"""The live comparison on a fake engine: runs are kept and continued, turns rotate, predictions are judged."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from timely.bench.live import engine, prediction
from timely.bench.live.prediction import LiveBenchPredictor, live_benchmark_step_noise
from timely.bench.live.report import (
    compare_live_bench_pairs,
    live_bench_prediction_errors,
    live_bench_report_text,
    make_live_bench_report,
)
from timely.bench.live.runs import SETTINGS_FILE, LiveBenchRuns
from timely.bench.live.settings import SYSTEMS, LiveBenchSettings
from timely.cli.main import run_timely_command as timely
from timely.core.errors import EngineFailed, InvalidInput
from timely.engines.replay_types import BackendRun, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.fit import save_step_time_profile
from timely.engines.step_time.learned import LearnedSpeed
from timely.engines.step_time.profile import StepTime, load_step_profile

SETTINGS = LiveBenchSettings({"wid1": 10.0, "wid3": 10.0}, ("timely", "fcfs", "vllm"))
PROFILE = "cpu-smollm2"


class Machine:
    """Takes the place of the real engine: the simulator, ``factor`` times as slow in answering the robot."""

    def __init__(self, factor: float = 1.0, stop_after: int = 10_000) -> None:
        self.factor = factor
        self.stop_after = stop_after
        self.ran: list[tuple[str, str]] = []
        self.closed = 0

    async def run(self, tasks: Sequence[PlannedTask], options: ReplayOptions) -> BackendRun:
        if len(self.ran) == self.stop_after:
            raise EngineFailed("out of luck")
        self.ran.append((options.discipline, options.mode))
        chosen = replace(options, profile=PROFILE)
        # A warm engine has learned its step times.
        speed = LearnedSpeed()
        Simulator(chosen, speed=speed).run(tasks)
        run = Simulator(chosen, speed=speed).run(tasks)
        for record in run.records:
            late = (record.start_s[0] - record.arrived_s) * (self.factor - 1.0)
            record.start_s = [start + late for start in record.start_s]
            record.end_s = [end + late for end in record.end_s]
        return run

    async def close(self) -> None:
        self.closed += 1


def quiet(line: str) -> None:
    pass


@pytest.mark.process
async def test_runs_are_kept_and_gone_on_with(tmp_path: Path) -> None:
    machine = Machine(stop_after=4)
    with pytest.raises(EngineFailed):
        await LiveBenchRuns(tmp_path, SETTINGS).measure(machine, 2, say=quiet)
    assert machine.closed == 1
    runs, machine = LiveBenchRuns(tmp_path, SETTINGS), Machine()
    assert await runs.measure(machine, 2, say=quiet) == 0
    assert len(machine.ran) == 2 * 2 * 3 - 4
    assert list(runs.pending(2)) == []
    assert {name for name in os.listdir(tmp_path) if name.startswith("wid1-")} == {
        f"wid1-{system}-{number}.json" for system in SETTINGS.systems for number in (1, 2)
    }


def test_each_repetition_begins_with_another_system(tmp_path: Path) -> None:
    runs = list(LiveBenchRuns(tmp_path, SETTINGS).pending(2))
    assert [system for workload, system, _ in runs if workload == "wid1"] == [
        "timely", "fcfs", "vllm", "fcfs", "vllm", "timely",
    ]  # fmt: skip


async def test_no_run_begins_when_the_budget_is_spent(tmp_path: Path) -> None:
    machine = Machine()
    assert await LiveBenchRuns(tmp_path, SETTINGS).measure(machine, 1, budget_s=-1.0, say=quiet) == 6
    assert machine.ran == []


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    LiveBenchRuns(tmp_path, SETTINGS)
    with pytest.raises(InvalidInput, match="other settings"):
        LiveBenchRuns(tmp_path, replace(SETTINGS, seed=8))
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(InvalidInput, match="not valid JSON"):
        LiveBenchRuns(tmp_path, SETTINGS)


@pytest.mark.process
async def test_a_prediction_that_holds_and_one_that_does_not(tmp_path: Path) -> None:
    good, slow = LiveBenchRuns(tmp_path / "a", SETTINGS), LiveBenchRuns(tmp_path / "b", SETTINGS)
    await good.measure(Machine(), 1, say=quiet)
    await slow.measure(Machine(factor=1.3), 1, say=quiet)
    sure = load_step_profile(PROFILE).model_copy(update={"fit_error": {}})
    file = tmp_path / "sure.yaml"
    save_step_time_profile(file, sure)
    exact, off = make_live_bench_report(good, str(file)), make_live_bench_report(slow, str(file))
    assert all(row["holds"] and row["error"] == pytest.approx(0.0, abs=1e-6) for row in exact["close"])
    assert len(exact["close"]) == 2 * 3 * 2
    assert exact["pairs"]
    assert all(row["holds"] for row in exact["pairs"])
    assert all(row["inside"] for row in exact["close"])
    assert all(row["error"] == pytest.approx(1 / 1.3 - 1.0, abs=1e-6) for row in off["close"])
    assert not any(row["holds"] for row in off["close"])
    page = live_bench_report_text(off)
    assert "| vllm | 1 |" in page
    assert "0 of 12; the worst -23%" in page
    assert "0 within the range of its simulations" in page


def test_a_fit_that_is_no_good_still_gives_a_prediction() -> None:
    profile = load_step_profile(PROFILE).model_copy(
        update={"fit_error": {"decode_median": 2.0, "decode_p90": 4.0}}
    )
    assert live_benchmark_step_noise(profile) == (0.9, 0.0)


@pytest.mark.process
async def test_a_profile_that_admits_errors_gives_a_mean_and_a_range(tmp_path: Path) -> None:
    runs = LiveBenchRuns(tmp_path, replace(SETTINGS, workloads={"wid1": 10.0}))
    await runs.measure(Machine(), 1, say=quiet)
    assert min(live_benchmark_step_noise(load_step_profile(PROFILE))) > 0.02
    row = make_live_bench_report(runs, PROFILE)["workloads"]["wid1"]["timely"]
    least, greatest = row["range"]["response mean"]
    assert least < row["predicted"]["response mean"] < greatest
    assert least < row["measured"]["response mean"] < greatest
    assert make_live_bench_report(runs, PROFILE)["workloads"]["wid1"]["timely"] == row  # drawn by the seed


@pytest.mark.process
async def test_a_prediction_begins_with_what_the_engine_had_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the steps before the run, not from those in it; without any, from serving the tasks once."""
    runs = LiveBenchRuns(tmp_path, replace(SETTINGS, workloads={"wid1": 10.0}, systems=("timely",)))
    await runs.measure(Machine(), 1, say=quiet)
    (tmp_path / "steps-1.jsonl").write_text(journal(3.0) + journal(1.0, 1000.0))
    sizes = {"kv_blocks": 1456, "block_tokens": 32, "max_batch": 64, "token_budget": 1024}
    (tmp_path / "sizes.json").write_text(json.dumps(sizes))
    kept = tmp_path / "wid1-timely-1.json"
    run = json.loads(kept.read_text())
    speeds: list[float] = []
    observed: list[int] = []

    class Noting(Simulator):
        def __init__(self, *arguments: Any, speed: LearnedSpeed | None = None, **options: Any) -> None:
            if speed is not None:
                speeds.append(speed.step_s(2, 0))
                observed.append(speed.step_count)
            super().__init__(*arguments, speed=speed, **options)

    monkeypatch.setattr(prediction, "Simulator", Noting)
    step_s = StepTime(load_step_profile(PROFILE).step_s)(2, 0, 0, 0.0, 1000)

    def learned(since_s: float | None) -> list[float]:
        speeds.clear()
        run["steps"] = since_s and {"file": "steps-1.jsonl", "since_s": since_s, "until_s": since_s + 900.0}
        kept.write_text(json.dumps(run))
        make_live_bench_report(runs, "runs")
        return speeds

    nothing = LearnedSpeed().step_s(2, 0)
    assert learned(1000.0)[0] == pytest.approx(3.0 * step_s, rel=0.2)
    assert learned(0.001)[0] == pytest.approx(3.0 * step_s, rel=0.2)
    assert observed[-1] == 1
    with (tmp_path / "steps-1.jsonl").open("a") as file:
        # Before the warm-up and after it, which is two steps; and that of another run.
        for when_s in (0.002, 15.0, 2000.0):
            file.write(json.dumps({"event": "switch", "t_s": when_s, "discipline": "timely"}) + "\n")
    assert learned(0.001)[0] == pytest.approx(3.0 * step_s, rel=0.2)
    assert observed[-1] == 2
    first, *others = learned(None)
    assert first == nothing
    assert all(speed > 1.2 * nothing for speed in others)


def test_utilities_differ_by_a_share_of_the_most_or_of_what_is_lost() -> None:
    def row(value: float) -> dict[str, Any]:
        name = "utility, urgent"
        return {
            "measured": {name: value}, "predicted": {name: value}, "by_repetition": {name: {0: value}},
            "range": {name: (value, value)}, "most": {name: 2.0},
        }  # fmt: skip

    def compared(first: float, second: float) -> bool:
        return bool(compare_live_bench_pairs("w", {"a": row(first), "b": row(second)}))

    assert compared(0.1, -0.1)  # a tenth of the most
    assert not compared(0.02, -0.02)
    assert compared(-20.0, -22.0)
    assert not compared(-20.0, -20.5)


def test_pairs_tell_whether_their_repetitions_agree() -> None:
    def row(values: dict[int, float]) -> dict[str, Any]:
        name, mean = "response p50", sum(values.values()) / len(values)
        return {
            "measured": {name: mean}, "predicted": {name: mean}, "by_repetition": {name: values},
            "range": {name: (mean, mean)}, "most": {},
        }  # fmt: skip

    rows = {"a": row({0: 1.0, 1: 3.0}), "b": row({0: 2.0, 1: 4.0}), "c": row({0: 3.0, 1: 2.0})}
    agreed = {tuple(pair["systems"]): pair["agreed"] for pair in compare_live_bench_pairs("w", rows)}
    assert agreed == {("a", "b"): True, ("a", "c"): False, ("b", "c"): False}


def test_pairs_tell_who_should_have_won() -> None:
    def row(measured: float, predicted: float) -> dict[str, Any]:
        name = "response p50"
        return {
            "measured": {name: measured},
            "predicted": {name: predicted},
            "by_repetition": {name: {0: measured}},
            "range": {name: (predicted, predicted)},
            "most": {},
        }

    rows = {"a": row(1.0, 1.0), "b": row(1.04, 0.9), "c": row(1.2, 0.8)}
    holds = {tuple(pair["systems"]): pair["holds"] for pair in compare_live_bench_pairs("w", rows)}
    assert holds == {("a", "c"): False, ("b", "c"): False}  # a and b are within five per cent
    assert [near["holds"] for near in live_bench_prediction_errors("w", rows)] == [True, False, False]


async def test_a_task_that_did_not_end_fails_the_run(tmp_path: Path) -> None:
    class Broken(Machine):
        async def run(self, tasks: Sequence[PlannedTask], options: ReplayOptions) -> BackendRun:
            run = await super().run(tasks, options)
            run.records[0].outcome = "failed"
            return run

    with pytest.raises(EngineFailed, match="1 of "):
        await LiveBenchRuns(tmp_path, SETTINGS).measure(Broken(), 1, say=quiet)
    assert os.listdir(tmp_path) == [SETTINGS_FILE]


@pytest.mark.process
def test_the_command_goes_on_until_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine()
    monkeypatch.setattr(engine, "LiveBenchVllm", lambda folder, settings: machine)
    arguments = ["bench", "live", "--workloads", "wid1:20", "--systems", "timely,vllm", "--repetitions", "1"]
    arguments += ["--out", str(tmp_path / "runs"), "--json", str(tmp_path / "live.json")]
    assert timely([*arguments, "--budget", "0"]) == 75
    assert "2 runs are left" in capsys.readouterr().err
    assert timely(arguments) == 0
    assert "wid1, 20 s" in capsys.readouterr().out
    report = json.loads((tmp_path / "live.json").read_text())
    assert set(report["workloads"]["wid1"]) == {"timely", "vllm"}
    assert len(machine.ran) == 2


def journal(factor: float, begin_s: float = 0.0, every_s: float = 10.0) -> str:
    """Sixty steps of a machine ``factor`` times as slow as the profile, from ``begin_s`` on."""
    step_s = StepTime(load_step_profile(PROFILE).step_s)
    lines = []
    for number in range(60):
        decodes, context = number % 6 + 1, 500 * (number % 6 + 1) + 7 * number
        prompt = 100 * (number % 3)
        counts = {"decodes": decodes, "prefills": min(prompt, 1), "prefill_tokens": prompt}
        counts |= {"prefill_squares": prompt * prompt, "context_tokens": context}
        begun_s = begin_s + every_s * number
        time_s = factor * step_s(decodes, min(prompt, 1), prompt, prompt * prompt, context)
        lines.append({"event": "timed", "t_s": begun_s, "end_s": begun_s + time_s, **counts})
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.process
async def test_each_run_is_predicted_with_its_own_steps(tmp_path: Path) -> None:
    """The machine was three times as slow in the second run; the steps of each run show it."""
    runs = LiveBenchRuns(tmp_path, replace(SETTINGS, workloads={"wid1": 10.0}, systems=("fcfs",)))
    await runs.measure(Machine(), 2, say=quiet)
    (tmp_path / "steps-1.jsonl").write_text(journal(1.0) + journal(3.0, 1000.0))
    (tmp_path / "sizes.json").write_text(
        json.dumps({"kv_blocks": 1456, "block_tokens": 32, "max_batch": 64, "token_budget": 1024})
    )
    kept = tmp_path / "wid1-fcfs-2.json"

    def predicted(since_s: float) -> float:
        run = json.loads(kept.read_text())
        run["steps"] = {"file": "steps-1.jsonl", "since_s": since_s, "until_s": since_s + 900.0}
        kept.write_text(json.dumps(run))
        return float(
            make_live_bench_report(runs, "runs")["workloads"]["wid1"]["fcfs"]["predicted"]["response mean"]
        )

    other = tmp_path / "wid1-fcfs-1.json"
    put_away = other.rename(tmp_path / "first.json")
    as_calibrated = make_live_bench_report(runs, PROFILE)["workloads"]["wid1"]["fcfs"]["predicted"][
        "response mean"
    ]
    assert predicted(0.0) == pytest.approx(as_calibrated, rel=0.05)
    slow = predicted(1000.0)
    assert slow > 2.0 * as_calibrated
    other.write_text(put_away.read_text())
    both = make_live_bench_report(runs, "runs")["workloads"]["wid1"]["fcfs"]
    kept.unlink()
    alone = make_live_bench_report(runs, "runs")["workloads"]["wid1"]["fcfs"]["predicted"]["response mean"]
    assert both["predicted"]["response mean"] == pytest.approx((alone + slow) / 2.0)
    assert set(both["by_repetition"]["response mean"]) == {0, 1}


@pytest.mark.process
async def test_a_run_is_predicted_with_the_drift_in_it(tmp_path: Path) -> None:
    """The machine was twice as slow after the tasks as while they ran, so the mean of both is wrong."""
    runs = LiveBenchRuns(tmp_path, replace(SETTINGS, workloads={"wid1": 10.0}, systems=("fcfs",)))
    await runs.measure(Machine(), 1, say=quiet)
    first, origin_s = runs.settings.tasks("wid1")[0], 1000.0
    arrival = {"event": "arrive", "t_s": origin_s + first.arrival_s, "job": f"{first.job}-1.234-ab12"}
    steps = journal(1.0, origin_s, 1.0) + journal(2.0, origin_s + 60.0, 1.0)
    (tmp_path / "steps-1.jsonl").write_text(json.dumps(arrival) + "\n" + steps)
    (tmp_path / "sizes.json").write_text(
        json.dumps({"kv_blocks": 1456, "block_tokens": 32, "max_batch": 64, "token_budget": 1024})
    )
    kept = tmp_path / "wid1-fcfs-1.json"
    run = json.loads(kept.read_text())
    run["steps"] = {"file": "steps-1.jsonl", "since_s": origin_s - 5.0, "until_s": origin_s + 200.0}
    kept.write_text(json.dumps(run))

    def predicted(report: dict[str, Any]) -> float:
        return float(report["workloads"]["wid1"]["fcfs"]["predicted"]["response mean"])

    as_calibrated = make_live_bench_report(runs, PROFILE)
    without, with_drift = (
        make_live_bench_report(runs, "runs"),
        make_live_bench_report(runs, "runs-with-drift"),
    )
    assert predicted(without) > 1.3 * predicted(as_calibrated)
    assert predicted(with_drift) == pytest.approx(predicted(as_calibrated), rel=0.05)
    assert with_drift["profile"] == "runs-with-drift"
    least, greatest = with_drift["drift"]
    assert greatest / least == pytest.approx(2.0, rel=0.05)
    assert f"{least:.2f} to {greatest:.2f} times as long" in live_bench_report_text(with_drift)
    assert without["drift"] is None
    assert "drifted" not in live_bench_report_text(without)
    predictor = LiveBenchPredictor(runs, "runs-with-drift")
    predictor.predict("fcfs", "wid1", 0, run)
    (drift,) = predictor.drifts
    assert drift(-500.0) == drift(500.0) == 1.0


def test_a_workload_is_served_at_a_load(tmp_path: Path) -> None:
    settings = replace(SETTINGS, workloads={"wid2": 100.0, "wid2@0.25": 100.0, "surges@0.5": 100.0})
    full, quarter = settings.tasks("wid2"), settings.tasks("wid2@0.25")
    assert 0.15 < len(quarter) / len(full) < 0.35
    assert {(task.prompt_tokens, task.shared_prefix_tokens) for task in full + quarter} == {(600, 480)}
    gaps_s = [after.arrival_s - task.arrival_s for task, after in pairwise(settings.tasks("surges@0.5"))]
    assert max(gaps_s) > 5.0


def test_robots_are_served_beside_plain_requests(tmp_path: Path) -> None:
    settings = replace(SETTINGS, workloads={"robots-and-chat@0.5": 100.0})
    tasks = settings.tasks("robots-and-chat@0.5")
    chats = [task for task in tasks if task.plain]
    assert 50 < len(chats) < 110  # 0.8 a second
    assert len(tasks) - len(chats) > 50
    assert [task.arrival_s for task in tasks] == sorted(task.arrival_s for task in tasks)
    assert max(task.arrival_s for task in chats) < 100.0
    assert len({task.output_tokens for task in chats}) > 20
    assert all(task.segment_bound is None and task.shared_prefix_tokens == 0 for task in chats)


@pytest.mark.process
async def test_the_offered_load_is_the_work_that_comes_in_a_second(tmp_path: Path) -> None:
    workloads = {"wid1@0.2": 30.0, "wid1@0.8": 30.0}
    runs = LiveBenchRuns(tmp_path, replace(SETTINGS, workloads=workloads, systems=("fcfs",)))
    await runs.measure(Machine(), 1, say=quiet)
    report = make_live_bench_report(runs, PROFILE)
    low, high = report["offered_load"].values()
    ratio = len(runs.settings.tasks("wid1@0.8")) / len(runs.settings.tasks("wid1@0.2"))
    assert high / low == pytest.approx(ratio, rel=0.35)
    assert f"offered load {low:.2f}" in live_bench_report_text(report)


def test_each_repetition_has_tasks_of_its_own(tmp_path: Path) -> None:
    """The same for all systems; what hangs on a millisecond in one trace does not in the next."""
    runs = LiveBenchRuns(tmp_path, SETTINGS)
    first, again, second = (
        runs.settings.tasks("wid1"),
        runs.settings.tasks("wid1", 0),
        runs.settings.tasks("wid1", 1),
    )
    assert first == again
    assert [task.arrival_s for task in first] != [task.arrival_s for task in second]


@pytest.mark.process
async def test_systems_are_compared_on_the_same_tasks(tmp_path: Path) -> None:
    """A repetition that one system lacks is left out of all; without a common one each has what there is."""
    runs = LiveBenchRuns(tmp_path, replace(SETTINGS, workloads={"wid1": 10.0}, systems=("fcfs", "vllm")))
    await runs.measure(Machine(), 2, say=quiet)
    (tmp_path / "wid1-fcfs-2.json").unlink()

    def repetitions() -> dict[str, set[int]]:
        rows = make_live_bench_report(runs, PROFILE)["workloads"]["wid1"]
        return {system: set(row["by_repetition"]["response mean"]) for system, row in rows.items()}

    assert repetitions() == {"fcfs": {0}, "vllm": {0}}
    (tmp_path / "wid1-vllm-1.json").unlink()
    assert repetitions() == {"fcfs": {0}, "vllm": {1}}


async def test_each_task_is_predicted_with_its_own_admission_delay(tmp_path: Path) -> None:
    """The journal has the delay of each request under vLLM's name for it."""
    runs = LiveBenchRuns(tmp_path, replace(SETTINGS, workloads={"wid1": 10.0}, systems=("fcfs",)))
    await runs.measure(Machine(), 1, say=quiet)
    first = runs.settings.tasks("wid1")[0]
    events = [
        {"event": "arrive", "t_s": 5.0, "job": f"{first.job}-1.234-ab12"},
        {"event": "step", "t_s": 5.4, "tokens": {}},
    ]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (tmp_path / "steps-1.jsonl").write_text(lines + journal(1.0))
    (tmp_path / "sizes.json").write_text(
        json.dumps({"kv_blocks": 1456, "block_tokens": 32, "max_batch": 64, "token_budget": 1024})
    )
    kept = tmp_path / "wid1-fcfs-1.json"
    run = json.loads(kept.read_text())

    def predicted(since_s: float) -> float:
        run["steps"] = {"file": "steps-1.jsonl", "since_s": since_s, "until_s": 700.0}
        kept.write_text(json.dumps(run))
        return float(
            make_live_bench_report(runs, "runs")["workloads"]["wid1"]["fcfs"]["predicted"]["response mean"]
        )

    # By these steps, ten seconds apart, the usual delay before a task's first step is 5 s; that of the first is 0.4 s.
    assert predicted(6.0) - predicted(1.0) == pytest.approx(4.6, abs=0.1)


def test_the_admission_delay_is_that_of_an_idle_engine(tmp_path: Path) -> None:
    runs = LiveBenchRuns(tmp_path, SETTINGS)
    assert LiveBenchPredictor(runs, PROFILE).admission_s == 0.0

    def step(begin_s: float, end_s: float) -> str:
        counts = dict.fromkeys(
            ("decodes", "prefills", "prefill_tokens", "prefill_squares", "context_tokens"), 1
        )
        return json.dumps({"event": "timed", "t_s": begin_s, "end_s": end_s, **counts}) + "\n"

    def arrive(when_s: float) -> str:
        return json.dumps({"event": "arrive", "t_s": when_s, "job": "a"}) + "\n"

    (tmp_path / "steps-1.jsonl").write_text(
        # Idle: 4 ms. In the middle of a step: does not count. Idle: 6 ms, two at once. Never served: nothing.
        arrive(1.0) + step(1.004, 1.5) + arrive(1.2) + step(1.5, 2.0)
        + arrive(3.0) + arrive(3.0) + step(3.006, 3.1) + arrive(9.0)
    )  # fmt: skip
    assert LiveBenchPredictor(runs, PROFILE).admission_s == pytest.approx(0.005)


def test_a_parked_plan_keeps_its_slot_in_a_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine of 256 slots evicted 233 parked plans of a run; its prediction none."""
    profile = load_step_profile(PROFILE)
    few = profile.model_copy(update={"limits": profile.limits.model_copy(update={"max_batch": 2})})
    save_step_time_profile(tmp_path / "few.yaml", few)
    predictor = LiveBenchPredictor(LiveBenchRuns(tmp_path / "runs", SETTINGS), str(tmp_path / "few.yaml"))
    holders: list[int] = []

    class Watched(Simulator):
        def run(self, *arguments: Any, **options: Any) -> BackendRun:
            run = super().run(*arguments, **options)
            holders.append(int(max(map(sum, zip(run.series["running"], run.series["parked"], strict=True)))))
            return run

    monkeypatch.setattr(prediction, "Simulator", Watched)
    predictor.predict("timely", "wid1", 0, {})
    assert holders
    assert max(holders) == 2


@pytest.mark.process
async def test_a_profile_of_the_runs_own_steps(tmp_path: Path) -> None:
    runs = LiveBenchRuns(tmp_path, SETTINGS)
    with pytest.raises(InvalidInput, match="no steps"):
        make_live_bench_report(runs, "runs")
    (tmp_path / "steps-1.jsonl").write_text(journal(2.0))
    sizes = {"kv_blocks": 1000, "block_tokens": 32, "max_batch": 64, "token_budget": 512}
    (tmp_path / "sizes.json").write_text(json.dumps(sizes))
    profile = LiveBenchPredictor(runs, "runs").profile
    step_s = StepTime(load_step_profile(PROFILE).step_s)
    assert profile.kv.blocks == 1000
    assert StepTime(profile.step_s)(3, 1, 100, 1e4, 900) == pytest.approx(
        2.0 * step_s(3, 1, 100, 1e4, 900), rel=0.02
    )
    await runs.measure(Machine(), 1, say=quiet)
    assert make_live_bench_report(runs, "runs")["profile"] == "runs"


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--workloads", "wid9"], "unknown workload 'wid9'"),
        (["--workloads", "wid1:soon"], "'soon' is no number"),
        (["--workloads", "wid1:0"], "at least 1 s"),
        (["--workloads", "wid2@fast"], "'fast' is no load"),
        (["--workloads", "wid2@0"], "a load of 0; it must be over 0"),
        (["--workloads", "robots-and-azure"], "robots-and-azure has prompts that are too long here"),
        (["--workloads", "own-qoserve"], "own-qoserve has prompts that are too long here"),
        (["--systems", "best"], "unknown system 'best'"),
    ],
)
def test_bad_input(more: list[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert timely(["bench", "live", "--out", str(tmp_path), *more]) == 2
    message = capsys.readouterr().err
    assert part in message
    assert message.count("\n") == 1


def test_systems_are_the_papers() -> None:
    options = {system: LiveBenchSettings({"wid1": 1.0}).options(system) for system in SYSTEMS}
    served = {system: (of_system.discipline, of_system.mode) for system, of_system in options.items()}
    assert (served.pop("vllm"), served.pop("vllm-stream")) == (("fcfs", "whole"), ("fcfs", "stream"))
    assert served == {system: (system, "segmented") for system in served}
