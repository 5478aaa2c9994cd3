"""Systems on traces of your own: the numbers of ``timely replay``, their intervals, and what is refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from lrtrace.compose.composition import compose_workload
from lrtrace.trace import write_trace
from timely.bench.compare import MEASURES, compare_systems
from timely.cli.main import run_timely_command
from timely.core.errors import InvalidInput
from timely.engines.replay_types import ReplayOptions
from timely.replay.run import replay_through_engine
from timely.replay.trace import ReplayTasks

OPTIONS = ReplayOptions(profile="timelyllm-4090", journal=False)


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    """Drones with urgent tasks and, as the third, arms without."""
    paths = []
    for seed, workload in enumerate(("wid1", "wid1", "wid3")):
        composition = compose_workload(workload, seed, duration_s=30.0)
        paths.append(tmp_path / f"{seed}.lrtrace.jsonl")
        write_trace(paths[-1], composition.header, composition.jobs)
    return paths


def test_the_numbers_are_those_of_replays(traces: list[Path]) -> None:
    rows = compare_systems(traces[:2], ["edf", "vllm"], OPTIONS)["systems"]
    replays = [
        replay_through_engine(ReplayTasks(trace), ReplayOptions("fcfs", "whole", OPTIONS.profile))
        for trace in traces[:2]
    ]
    vllm = rows["vllm"]
    assert vllm["response p50"]["values"] == [result["summary"]["response_s"]["p50"] for result in replays]
    urgent = replays[0]["summary"]["by_class"]["urgent"]
    assert vllm["utility, urgent"]["values"][0] == 100 * urgent["utility_mean"] / urgent["utility_max_mean"]
    in_time = [job["response_time_s"] <= job["ert_s"] for job in replays[1]["jobs"]]
    assert vllm["all in time"]["values"][1] == 100 * sum(in_time) / len(in_time)
    assert vllm["served"]["mean"] == 100.0


def test_intervals_and_differences_are_over_the_traces(traces: list[Path]) -> None:
    rows = compare_systems(traces[:2], ["edf", "vllm"], OPTIONS)["systems"]
    ours, vllm = rows["edf"]["response p50"], rows["vllm"]["response p50"]
    middle, width = sum(ours["values"]) / 2, abs(ours["values"][0] - ours["values"][1])
    # Student's t of one degree of freedom: 12.71 times the standard error of the mean.
    assert ours["interval"] == pytest.approx([middle - 6.355 * width, middle + 6.355 * width])
    assert (ours["difference"], ours["difference_interval"]) == (0.0, [0.0, 0.0])
    assert vllm["difference"] == pytest.approx(vllm["mean"] - ours["mean"])
    assert vllm["difference_interval"][0] < vllm["difference"] < vllm["difference_interval"][1]


def test_one_trace_has_no_interval_and_a_measure_that_one_lacks_none_at_all(traces: list[Path]) -> None:
    one = compare_systems(traces[:1], ["edf"], OPTIONS)["systems"]["edf"]
    assert one["served"]["interval"] is None
    mixed = compare_systems(traces[1:], ["edf"], OPTIONS)["systems"]["edf"]
    assert mixed["urgent in time"] is None
    assert mixed["utility, urgent"] is None
    assert mixed["all in time"]["mean"] > 0


def test_a_trace_without_a_job_is_refused(traces: list[Path]) -> None:
    header = traces[1].read_text().partition("\n")[0]
    traces[1].write_text(header)
    with pytest.raises(InvalidInput, match=r"1\.lrtrace\.jsonl: has no job"):
        compare_systems(traces, ["edf"], OPTIONS)


def test_the_command_prints_and_writes_the_table(
    traces: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--json", str(tmp_path / "c.json"), "--markdown", str(tmp_path / "c.md")]
    names = list(map(str, traces))
    call = ["bench", "compare", *names, "--systems", "edf,vllm", *files]
    assert run_timely_command(call) == 0
    out = capsys.readouterr().out
    assert "Differences from edf:" in out
    assert "response p90, s" in out
    written = json.loads((tmp_path / "c.json").read_text())
    assert written["units"] == MEASURES
    assert written["command"] == shlex.join(["timely", *call])
    lines = (tmp_path / "c.md").read_text().splitlines()
    assert lines[0].startswith("| system | urgent in time, % |")
    assert lines[2].startswith("| `edf` |  | ")
    assert " ±" in lines[2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["x", "--systems", "tmely"], "timely: --systems: unknown system 'tmely'; known: "),
        (
            ["x", "--systems", "timely-jump-ahead"],
            "timely: --systems: a trace does not have what timely-jump-ahead",
        ),
        (["x", "--systems", ","], "timely: --systems: names no system"),
        (["x", "./x", "--systems", "edf"], "timely: x: is named twice"),
        (["x", "--profile", "nosuch", "--systems", "edf"], "timely: x: cannot read it"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_timely_command(["bench", "compare", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith(says)
    assert err.count("\n") == 1
