"""What `timely replay` writes: the contract's fields, right sums, the same bytes from every process."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from timely.cli.main import run_timely_command as timely
from timely.core.errors import InvalidInput, UnknownName, Unsupported
from timely.core.files import core_write_file
from timely.engines.replay_types import ReplayOptions
from timely.replay.explain import explain_replay_job, replay_explanation_text
from timely.replay.perfetto import replay_perfetto_text
from timely.replay.report import _report_ecdf, _report_name_key, html_replay_report
from timely.replay.result_file import read_replay_result, replay_result_text
from timely.replay.results import replay_latency_distribution, replay_result_hash
from timely.replay.run import load_replay_backend, replay_through_engine
from timely.replay.svg import MAX_POINTS, Line, _replay_svg_points, replay_svg_chart, replay_svg_ticks
from timely.replay.trace import ReplayTasks

HEADER = {"lrtrace": 1, "name": "tiny", "seed": 7, "network_s": 0.008}


def job(number: int, arrival_s: float, **fields: object) -> dict[str, object]:
    plan = [
        {"text": "?s('scissors')==True{", "tokens": 7, "execution_s": 1.5563},
        {"text": "g('scissors')}", "tokens": 6, "execution_s": 0.002},
        {"text": "l('<b>done</b>');", "tokens": 4, "execution_s": 0.001},
    ]
    urgent = number % 3 == 0
    tuf = (
        {"ert_s": 0.2, "alpha": -6.67, "beta": 2.0} if urgent else {"ert_s": 1.0, "alpha": -2.0, "beta": 1.0}
    )
    return {
        "job": number, "arrival_s": arrival_s, "agent": f"drone-{number % 4}", "app": None, "robot": "tello",
        "skill_set": "drone", "task": "Find <scissors> & co.", "scene": "desk", "prompt_tokens": 1300,
        "shared_prefix_tokens": 1200, "tuf": tuf, "urgency": 3, "plan": plan, **fields,
    }  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.lrtrace.jsonl"
    jobs = [job(k, round(0.7 * (k // 4), 3)) for k in range(16)]
    path.write_text("\n".join(json.dumps(line) for line in [HEADER, *jobs]) + "\n")
    return path


def result_of(trace: Path, **options: object) -> dict[str, Any]:
    tasks = ReplayTasks(trace)
    return replay_through_engine(tasks, ReplayOptions(**options), trace=tasks.name)  # type: ignore[arg-type]


def test_a_result_says_with_which_options_it_came_about(trace: Path) -> None:
    assert result_of(trace)["options"] == {}
    result = result_of(trace, discipline="edf", warm_prefixes=True, token_budget=512, seed=3)
    assert result["options"] == {"warm_prefixes": True, "token_budget": 512}
    assert (result["discipline"], result["seed"]) == ("edf", 3)


def test_the_contracts_fields_are_there(trace: Path) -> None:
    result = result_of(trace)
    assert {"discipline", "mode", "engine", "profile", "trace", "wall_s", "summary", "jobs"} <= set(result)
    summary = result["summary"]
    assert {
        "jobs", "share_served", "utility_mean", "utility_max_mean", "response_s", "waiting_s", "by_class",
    } <= set(summary)  # fmt: skip
    assert set(summary["response_s"]) == {"mean", "p50", "p90", "p99"}
    assert set(summary["by_class"]) == {"urgent", "normal"}
    assert summary["by_class"]["urgent"]["jobs"] == 6
    assert {
        "job", "agent", "app", "outcome", "arrival_s", "first_token_s", "last_token_s", "response_time_s",
        "waiting_time_s", "completion_s", "utility", "preemptions", "recomputed_tokens", "segments",
    } <= set(result["jobs"][0])  # fmt: skip
    assert set(result["jobs"][0]["segments"][0]) == {"index", "tokens", "ready_s", "start_s", "end_s"}


@pytest.mark.parametrize("mode", ["segmented", "stream", "whole"])
def test_a_jobs_numbers_agree_with_each_other(trace: Path, mode: str) -> None:
    result = result_of(trace, mode=mode)
    utilities = []
    for entry in result["jobs"]:
        free, waited = entry["arrival_s"], 0.0
        for segment in entry["segments"]:
            assert segment["start_s"] >= segment["ready_s"] - 1e-9
            assert segment["start_s"] >= free - 1e-9
            waited += segment["start_s"] - free
            free = segment["end_s"]
        assert entry["waiting_time_s"] == pytest.approx(waited, abs=1e-7)
        assert entry["completion_s"] == pytest.approx(free)
        assert entry["response_time_s"] == pytest.approx(entry["segments"][0]["start_s"] - entry["arrival_s"])
        late = entry["response_time_s"] - entry["ert_s"]
        slope, top = (-6.67, 2.0) if entry["class"] == "urgent" else (-2.0, 1.0)
        assert entry["utility"] == pytest.approx(min(top, slope * late + top))
        utilities.append(entry["utility"])
        if mode == "whole":
            assert len({segment["ready_s"] for segment in entry["segments"]}) == 1
    assert result["summary"]["utility_mean"] == pytest.approx(sum(utilities) / len(utilities))


def test_a_task_not_served_counts_with_its_utility_at_the_end(trace: Path) -> None:
    result = result_of(trace, until_s=0.05)
    assert result["summary"]["share_served"] == 0.0
    entry = result["jobs"][0]
    assert (entry["outcome"], entry["completion_s"]) == ("unfinished", None)
    end = result["end_s"] - entry["arrival_s"]
    assert entry["utility"] == pytest.approx(min(2.0, -6.67 * (end - 0.2) + 2.0))


def test_distribution_interpolates_and_leaves_out_what_never_happened() -> None:
    assert replay_latency_distribution([1.0, 2.0, 3.0, math.nan]) == {
        "mean": 2.0,
        "p50": 2.0,
        "p90": 2.8,
        "p99": 2.98,
    }
    assert replay_latency_distribution([])["mean"] is None


def test_same_seed_same_result(trace: Path) -> None:
    def digest(**options: object) -> str:
        return replay_result_hash(result_of(trace, estimate_noise=0.4, **options))

    assert digest(seed=1) == digest(seed=1)
    assert digest(seed=1) != digest(seed=2)


@pytest.mark.process
def test_same_seed_same_result_in_every_process(trace: Path) -> None:
    digests = set()
    for hash_seed in ("0", "1", "random"):
        code = (
            "from timely.replay.trace import ReplayTasks;"
            "from timely.replay.run import replay_through_engine as replay;"
            "from timely.replay.results import replay_result_hash;"
            "from timely.engines.replay_types import ReplayOptions;"
            f"print(replay_result_hash(replay(ReplayTasks({str(trace)!r}), ReplayOptions(estimate_noise=0.4, seed=3))))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_unsorted_traces_are_replayed_in_order(tmp_path: Path, trace: Path) -> None:
    lines = trace.read_text().splitlines()
    shuffled = tmp_path / "shuffled.lrtrace.jsonl"
    shuffled.write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    arrivals = [task.arrival_s for task in ReplayTasks(shuffled)]
    assert arrivals == sorted(arrivals)


# ---------------------------------------------------------------- files


def test_result_file_round_trip_is_atomic_and_a_line_a_job(tmp_path: Path, trace: Path) -> None:
    result = result_of(trace)
    path = tmp_path / "r.json"
    core_write_file(path, replay_result_text(result))
    assert json.loads(json.dumps(read_replay_result(path))) == json.loads(json.dumps(result))
    assert sum(line.startswith('  {"job"') for line in path.read_text().splitlines()) == 16
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    with pytest.raises(InvalidInput, match="cannot write"):
        core_write_file(tmp_path / "nowhere" / "r.json", "{}")


@pytest.mark.parametrize("content", ["", "[]", "{", '{"jobs": 3}'])
def test_what_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=re.escape(str(path))):
        read_replay_result(path)


def test_report_is_self_contained_and_escapes(trace: Path) -> None:
    page = html_replay_report(result_of(trace))
    assert not re.search(r"(?:src|href)\s*=|@import|url\(|https?://", page)
    assert "<scissors>" not in page
    assert "Response time" in page
    data = re.search(r'id="timeline-data">(.*?)</script>', page, re.S)
    assert data is not None
    timeline = json.loads(data[1])
    assert timeline["robots"] == ["drone-0", "drone-1", "drone-2", "drone-3"]
    assert len(timeline["jobs"]) == 16


def test_report_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.lrtrace.jsonl"
    path.write_text(json.dumps(HEADER) + "\n")
    result = result_of(path)
    assert result["summary"]["jobs"] == 0
    assert "nothing to show" in html_replay_report(result)
    assert json.loads(replay_perfetto_text(result))["traceEvents"]


def test_chrome_trace_covers_each_job_without_overlap(trace: Path) -> None:
    events = json.loads(replay_perfetto_text(result_of(trace)))["traceEvents"]
    names = [e for e in events if e["ph"] == "M" and e["name"] == "thread_name" and e["pid"] == 3]
    assert len({e["args"]["name"].partition(" (")[0] for e in names}) == 4
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            rows.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["dur"]))
    for spans in rows.values():
        spans.sort()
        for (begin, length), (following, _) in itertools.pairwise(spans):
            assert following >= begin + length - 0.01
    assert {e["name"] for e in events if e["pid"] == 2 and e["ph"] == "X"} >= {"prompt", "decode"}


def test_chart_and_ticks() -> None:
    assert replay_svg_ticks(0.0, 1.0, 5) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert replay_svg_ticks(0.0, 0.0, 5) == [0.0]
    picture = replay_svg_chart("t", [Line("a<b", "urgent", [0, 1], [1, 2])], x_label="x", y_label="y")
    assert "a&lt;b" in picture
    assert "polyline" in picture


def test_a_long_line_keeps_its_peaks() -> None:
    """Of a replay with 4,000 points each third was drawn, and a queue of one moment could vanish."""
    queue = [0.0] * 10_000
    queue[4321], queue[8766] = 7.0, -3.0
    line = Line("waiting", "urgent", [float(place) for place in range(len(queue))], queue)
    points = _replay_svg_points(line)
    assert {(0.0, 0.0), (4321.0, 7.0), (8766.0, -3.0), (9999.0, 0.0)} <= set(points)
    assert points == sorted(points)
    assert len(points) <= MAX_POINTS + 2


def test_robots_are_in_the_order_of_their_numbers() -> None:
    names = ["drone-10", "arm", "drone-2", "drone-010", f"drone-{'9' * 5000}", "drone-"]
    assert sorted(names, key=_report_name_key) == [
        "arm", "drone-", "drone-2", "drone-010", "drone-10", f"drone-{'9' * 5000}"
    ]  # fmt: skip


# ---------------------------------------------------------------- explain


def test_explanation_accounts_for_every_wait(trace: Path) -> None:
    result = json.loads(json.dumps(result_of(trace, discipline="pud", max_batch=2)))
    queued = 0.0
    for entry in result["jobs"]:
        explanation = explain_replay_job(result, str(entry["job"]))
        assert explanation.journal
        waits = sum(wait.end_s - wait.begin_s for wait in explanation.waits)
        assert waits == pytest.approx(entry["waiting_time_s"], abs=1e-5)
        for wait in explanation.waits:
            parts = wait.queued_s + wait.idle_s + wait.prompt_s + wait.decode_s + wait.network_s
            assert parts == pytest.approx(wait.end_s - wait.begin_s, abs=1e-6)
            queued += wait.queued_s
            if wait.queued_steps:
                assert wait.instead
    assert queued > 0.05
    words = "".join(
        replay_explanation_text(explain_replay_job(result, str(entry["job"]))) for entry in result["jobs"]
    )
    assert "served meanwhile" in words
    assert "chosen, with keys" in words
    assert " 1 step" in words
    assert " 1 steps" not in words


def test_a_prompt_that_waits_for_decoding_is_explained_in_words(trace: Path) -> None:
    result = result_of(trace, discipline="semantic", max_batch=8)
    texts = [replay_explanation_text(explain_replay_job(result, str(number))) for number in range(16)]
    reason = "the most important job was decoding, and prompts wait meanwhile"
    assert any(re.search(rf"\d steps?: {reason}$", text, re.MULTILINE) for text in texts)
    assert not any(re.search(r"steps?: \w+$", text, re.MULTILINE) for text in texts)


def test_explanation_without_a_journal_says_so(trace: Path) -> None:
    result = result_of(trace, journal=False)
    assert "no journal" in replay_explanation_text(explain_replay_job(result, "0"))


def test_explaining_a_stranger_lists_the_known(trace: Path) -> None:
    with pytest.raises(UnknownName, match="known: 0, 1"):
        explain_replay_job(result_of(trace), "99")


@pytest.mark.parametrize(
    "change",
    [
        {"jobs": [5]}, {"jobs": [{"job": 0}]}, {"jobs": 5}, {"journal": 5}, {"journal": [1]},
        {"journal": {"runs": {"0": [1]}}},
    ],
)  # fmt: skip
def test_explaining_a_broken_result_is_one_line_and_exit_2(
    tmp_path: Path, trace: Path, change: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({**result_of(trace), **change}))
    assert timely(["explain", str(path), "0"]) == 2
    error = capsys.readouterr().err
    assert str(path) in error or error.startswith("timely: journal: ")
    assert error.count("\n") == 1


def test_a_number_that_no_float_holds_is_one_line_too(
    tmp_path: Path, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of(trace)
    result["jobs"][0]["utility"] = 10**400
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(result))
    assert timely(["explain", str(path), "0"]) == 2
    assert "not the result of `timely replay --json`" in capsys.readouterr().err


# ---------------------------------------------------------------- command line


def test_command_writes_all_it_is_asked_for(
    tmp_path: Path, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name for name in ("r.json", "r.html", "r.trace.json")]
    arguments = ["replay", str(trace), "--engine", "sim", "--discipline", "pud", "--profile", "unit"]
    assert (
        timely([*arguments, "--json", str(files[0]), "--html", str(files[1]), "--perfetto", str(files[2])])
        == 0
    )
    assert all(file.stat().st_size > 1000 for file in files)
    assert "urgent" in capsys.readouterr().out
    assert timely(["explain", str(files[0]), "3"]) == 0
    assert "before its first action" in capsys.readouterr().out
    assert timely(["replay", str(trace), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["jobs"] == 16


def test_step_times_scatter_by_the_seed(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def summary(*arguments: str) -> object:
        assert timely(["replay", str(trace), "--json", "-", *arguments]) == 0
        return json.loads(capsys.readouterr().out)["summary"]

    noisy = summary("--step-noise", "0.2")
    assert noisy == summary("--step-noise", "0.2")
    assert noisy != summary()
    assert noisy != summary("--step-noise", "0.2", "--seed", "1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step-noise", "1"], "step_noise: must be from 0 to less than 1"),
        (["--discipline", "nope"], "unknown discipline 'nope'"),
        (["--mode", "nope"], "unknown mode 'nope'"),
        (["--engine", "nope"], "unknown engine 'nope'"),
        (["--profile", "nope"], "unknown step-time profile 'nope'"),
        (["--eviction", "nope"], "unknown eviction 'nope'"),
        (["--max-batch", "0"], "max-batch"),
        (["--step-noise", "nan"], "'--step-noise'"),
        (["--estimate-factor", "nan"], "'--estimate-factor'"),
        (["--estimate-factor", "-1"], "'--estimate-factor'"),
        (["--estimate-noise", "inf"], "estimate_noise: must be from 0"),
        (["--estimate-noise", "900"], "estimate_noise: must be from 0 to 10"),  # its factors overflowed
        (["--until", "nan"], "'--until'"),
        (["--until", "-1"], "'--until'"),
        (["--json", "/nowhere/at/all.json"], "/nowhere"),
    ],
)
def test_bad_options_are_one_line_and_exit_2(
    trace: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert timely(["replay", str(trace), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_whether_a_segment_blocks_is_true_or_false(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any text counted as true, "false" as well."""
    line = job(0, 0.0)
    plan = line["plan"]
    assert isinstance(plan, list)
    plan[0]["blocking"] = "false"
    trace.write_text("\n".join(json.dumps(one) for one in (HEADER, line)) + "\n")
    assert timely(["replay", str(trace)]) == 2
    assert "job 0: blocking must be true or false, got 'false'" in capsys.readouterr().err


def test_a_task_without_a_response_counts_in_the_curves_of_the_report() -> None:
    """The curve ended at 1, as if each task had been served."""
    assert _report_ecdf([3.0, None, 1.0, None]) == ([1.0, 3.0], [0.25, 0.5])
    assert _report_ecdf([None]) == ([], [])


def test_a_broken_trace_line_says_file_line_and_reason(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = trace.read_text().splitlines()
    lines[3] = json.dumps(job(2, 0.0, prompt_tokens=-4))
    trace.write_text("\n".join(lines) + "\n")
    assert timely(["replay", str(trace)]) == 2
    error = capsys.readouterr().err
    assert f"{trace}:4" in error
    assert "prompt_tokens" in error
    assert timely(["replay", str(trace) + ".none"]) == 2


def test_an_engine_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.replay.run.find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="install timely-serving"):
        load_replay_backend("vllm")
