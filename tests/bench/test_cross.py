"""The cross table: every discipline runs on every workload, and the table says who is best where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from optional_packages import require_package

from lrtrace.compose.composition import compose_workload
from timely.bench import cross
from timely.bench.checkpoints import BenchCheckpoints
from timely.cli.main import run_timely_command

require_package("sklearn")


def test_a_table_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross, "ROBOTS_S", 20.0)
    names = ["fcfs", "timely"]
    runs = cross.benchmark_cross_table(names, ["wid2-400"], [1, 2], BenchCheckpoints())
    columns = cross.benchmark_cross_measures(["wid2-400"])
    assert list(runs) == names
    assert all(set(row) == {column.name for column in columns} for row in runs.values())
    assert all(0.0 < value <= 100.0 for values in runs["timely"].values() for value in values)
    table = cross.cross_table_json(runs, ["wid2-400"])
    assert cross.best_benchmark_value(table["rows"], columns[0]) == max(
        row[columns[0].name] for row in table["rows"].values()
    )


def test_a_table_has_means_intervals_and_units() -> None:
    column = "drafts accepted unevenly, 30 CP, latency, s"
    table = cross.cross_table_json({"edf": {column: [1.0, 3.0]}, "fcfs": {column: [2.0]}}, ["drafts"])
    assert table["rows"] == {"edf": {column: 2.0}, "fcfs": {column: 2.0}}
    low, high = table["intervals"]["edf"][column]
    # Student's t of one degree of freedom: 12.71 times the standard error of the mean, which is 1.
    assert (low, high) == pytest.approx((-10.71, 14.71))
    assert table["intervals"]["fcfs"][column] is None  # one seed has none
    assert table["units"] == {column: "s"}
    assert table["headline"] == [column]
    assert table["better"] == {column: "lower"}


def test_every_column_has_a_unit() -> None:
    units = {measure.unit for measure in cross.benchmark_cross_measures(list(cross.WORKLOADS))}
    assert units == {"%", "s", "s/token"}


def test_the_printed_table_has_intervals_and_units(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cross, "ROBOTS_S", 20.0)
    arguments = ["bench", "cross", "--disciplines", "fcfs", "--workloads", "wid2-400"]
    assert run_timely_command([*arguments, "--seeds", "2"]) == 0
    printed = capsys.readouterr().out
    assert "WID2, 400, %" in printed
    assert "urgent, %" in printed
    assert " ±" in printed
    assert "± is half of the 95% interval of the mean over 2 seeds" in printed
    assert run_timely_command([*arguments, "--seeds", "1"]) == 0
    assert "±" not in capsys.readouterr().out


def test_robots_tasks_do_not_give_the_lengths_of_their_plans_away() -> None:
    """A task's limit was the length of its plan, which histories of lengths and costs of applications read."""
    trace = compose_workload("wid1", 1, duration_s=60.0)
    tasks = cross.cross_robot_tasks(trace.jobs, trace.header.network_s)
    assert len({task.output_tokens for task in tasks}) > 5
    assert {task.limit_tokens for task in tasks} == {cross.LIMIT_TOKENS}
    assert max(task.output_tokens for task in tasks) < cross.LIMIT_TOKENS


def test_less_is_better_where_it_is_time() -> None:
    measure = cross.CrossMeasure("s", "s", "s")
    assert cross.best_benchmark_value({"a": {"s": 2.0}, "b": {"s": 1.0}}, measure) == 1.0


@pytest.mark.long
@pytest.mark.process
def test_every_discipline_runs_on_every_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from timely.bench.papers.justitia import workloads
    from timely.bench.papers.sagesched import setting
    from timely.bench.papers.semantic import spikes as evaluation
    from timely.disciplines import registry

    real = workloads.paper_workload
    monkeypatch.setattr(cross, "ROBOTS_S", 15.0)
    monkeypatch.setattr(cross, "SPIKE", (5, 0.1))
    monkeypatch.setattr(evaluation, "POINTS", 3)
    monkeypatch.setattr(setting, "REQUESTS", 30)
    monkeypatch.setattr(setting, "PAST", 100)
    monkeypatch.setattr(
        workloads, "paper_workload",
        lambda seed, *, window_s: real(seed, applications=6, window_s=window_s / 50),
    )  # fmt: skip
    target, page = tmp_path / "cross.json", tmp_path / "cross.md"
    assert (
        run_timely_command(["bench", "cross", "--seeds", "1", "--json", str(target), "--markdown", str(page)])
        == 0
    )
    table = json.loads(target.read_text())
    values = table["rows"]
    assert set(values) == set(registry.discipline_names())
    columns = {column.name for column in cross.benchmark_cross_measures(list(cross.WORKLOADS))}
    for row in values.values():
        assert set(row) == columns
        assert all(isinstance(value, float) for value in row.values())
    assert set(table["better"]) == set(table["units"]) == columns
    assert table["better"]["drafts accepted unevenly, 30 CP, latency, s"] == "lower"
    assert len(table["headline"]) == len(cross.WORKLOADS)
    assert set(table["headline"]) < columns
    assert page.read_text().count("\n") == len(values) + 2


def test_unknown_names_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_timely_command(["bench", "cross", "--workloads", "wid9"]) == 2
    assert "unknown workload 'wid9'" in capsys.readouterr().err
    assert run_timely_command(["bench", "cross", "--disciplines", "fifo"]) == 2
    assert "unknown discipline 'fifo'" in capsys.readouterr().err
    assert run_timely_command(["bench", "cross", "--budget", "10"]) == 2
    assert "--resume FILE" in capsys.readouterr().err
