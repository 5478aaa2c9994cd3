"""The command line: every command's result and JSON, and one line with exit code 2 for whatever is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrtrace.cli import main, run_lrtrace_command
from lrtrace.job import TraceHeader, TraceJob, TraceSegment
from lrtrace.profiles import load_robot_profile
from lrtrace.record.samples import RecordedSample, write_recorded_samples
from lrtrace.stats import TraceStats, measure_trace_stats, plot_trace_stats
from lrtrace.trace import Trace

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lrtrace(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run_lrtrace_command([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def result(path: str | Path) -> dict[str, Any]:
    values = json.loads(Path(path).read_text())
    assert isinstance(values, dict)
    return values


def test_compose_then_stats(lrtrace: Run) -> None:
    code, out, err = lrtrace(
        "compose", "--workload", "wid1", "--seed", 7, "-o", "w.lrtrace.jsonl", "--json", "c.json"
    )
    assert (code, err) == (0, "")
    assert "w.lrtrace.jsonl: " in out
    composed = result("c.json")
    assert composed["jobs"] == len(list(Trace("w.lrtrace.jsonl")))
    code, out, err = lrtrace("stats", "w.lrtrace.jsonl", "--json", "s.json")
    assert (code, err) == (0, "")
    stats = result("s.json")
    assert stats["jobs"] == composed["jobs"] == sum(stats["by_class"].values())
    assert stats["prompt_tokens"]["mean"] == 1300
    assert stats["tasks_per_event"]["max"] <= 8
    assert "tasks in progress" in out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--arrivals", "times.txt", "--eps", 2), "--eps: has no effect: --arrivals gives the times"),
        (
            ("--arrivals", "times.txt", "--duration", 9),
            "--duration: has no effect: --arrivals gives the times",
        ),
        (("--events", "1,2", "--max-tpe", 3), "--max-tpe: has no effect: --events gives the tasks"),
        (("--events", "1,2", "--trace-ids", "1-3"), "--trace-ids: has no effect: --events gives the tasks"),
        (("--robot", "arm=indy7"), "--robot: no task is for arm"),
    ],
)
def test_compose_refuses_options_without_an_effect(
    lrtrace: Run, options: tuple[object, ...], says: str
) -> None:
    """A trace was written as if the option had counted, and its header named it."""
    Path("times.txt").write_text("1.5\n2\n")
    code, _, err = lrtrace("compose", "--workload", "wid1", "-o", "w.lrtrace.jsonl", *options)
    assert (code, err) == (2, f"lrtrace: {says}\n")
    assert not Path("w.lrtrace.jsonl").exists()


def test_the_header_names_only_what_a_workload_is_composed_of(lrtrace: Run) -> None:
    Path("times.txt").write_text("1.5\n2\n")
    arguments = ("--arrivals", "times.txt", "--events", "1,(2,3)")
    assert lrtrace("compose", "--workload", "wid1", "-o", "w.lrtrace.jsonl", *arguments)[0] == 0
    composed = Trace("w.lrtrace.jsonl").header.extra["composed"]
    assert not {"eps", "duration_s", "max_tpe", "trace_ids"} & set(composed)
    assert composed["agents"] == 25


def test_no_more_tasks_are_in_progress_than_there_are_robots(lrtrace: Run) -> None:
    """A robot that took its next task at the end of one counted twice, by a rounding error."""
    options = ("--workload", "wid2", "--agents", 10, "--eps", 0.1, "--seed", 3)
    assert lrtrace("compose", *options, "-o", "w.lrtrace.jsonl")[0] == 0
    assert lrtrace("stats", "w.lrtrace.jsonl", "--json", "s.json")[0] == 0
    assert result("s.json")["busy"]["peak"] == 10


@pytest.mark.parametrize("again", [("./x.samples.jsonl",), ("--check", "x.samples.jsonl")])
def test_a_fit_takes_each_recording_once(lrtrace: Run, again: tuple[str, ...]) -> None:
    """The error on runs that were fitted stood in the profile as that on other runs."""
    code, _, err = lrtrace("fit", "x.samples.jsonl", *again, "-o", "x.yaml")
    assert (code, err) == (2, "lrtrace: x.samples.jsonl: is named twice\n")


def test_a_level_goes_with_the_quantile_method(lrtrace: Run) -> None:
    code, _, err = lrtrace("fit", "x.samples.jsonl", "-o", "x.yaml", "--level", 0.9)
    assert (code, err) == (2, "lrtrace: --level: goes with --method quantile\n")


def test_compose_takes_overrides(lrtrace: Run) -> None:
    Path("times.txt").write_text("\ufeff1.5\n\n2\n7.25\n")
    code, *_ = lrtrace(
        "compose", "--workload", "wid1", "-o", "w.lrtrace.jsonl", "--arrivals", "times.txt", "--max-tpe", 3,
        "--agents", 5, "--prompt-tokens", 700, "--network", 0.02, "--trace-ids", "6-8", "--execution", "mean",
        "--robot", "drone=sim-drone", "--when-busy", "drop",
    )  # fmt: skip
    assert code == 0
    trace = Trace("w.lrtrace.jsonl")
    jobs = list(trace)
    assert {job.arrival_s for job in jobs} <= {1.5, 2.0, 7.25}
    assert {(job.prompt_tokens, job.shared_prefix_tokens, job.robot) for job in jobs} == {
        (700, 600, "sim-drone")
    }
    assert {job.extra["trace_id"] for job in jobs} <= {6, 7, 8}
    assert trace.header.network_s == 0.02
    code, *_ = lrtrace(
        "compose", "--workload", "wid1", "-o", "e.lrtrace.jsonl", "--events", "{(Trace1, Trace2), Trace8}",
        "--eps", 2, "--prompt-tokens", 50, "--shared-prefix", 10,
    )  # fmt: skip
    assert code == 0
    assert [job.extra["event"] for job in Trace("e.lrtrace.jsonl")] == [0, 0, 1]
    assert {job.shared_prefix_tokens for job in Trace("e.lrtrace.jsonl")} == {10}


def test_compose_chats_by_paragraph(lrtrace: Run) -> None:
    code, *_ = lrtrace(
        "compose", "--workload", "chat", "-o", "c.lrtrace.jsonl", "--unit", "paragraph", "--duration", 30
    )
    assert code == 0
    assert {job.skill_set for job in Trace("c.lrtrace.jsonl")} == {"story"}


def test_json_to_standard_output(lrtrace: Run) -> None:
    code, out, _ = lrtrace("tasks", "--json", "-")
    assert code == 0
    tasks = json.loads(out)["tasks"]
    assert [task["trace_id"] for task in tasks] == list(range(1, 12))


def test_import_and_sort(lrtrace: Run) -> None:
    Path("burst.csv").write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,A,47,18,65,x\n6,A,47,0,47,x\n"
    )
    code, out, _ = lrtrace(
        "import", "burstgpt", "burst.csv", "-o", "b.lrtrace.jsonl", "--tuf", "0.5,-1,3", "--json", "b.json"
    )
    assert code == 0
    assert "1 rows without prompt or answer" in out
    assert result("b.json") == {"trace": "b.lrtrace.jsonl", "jobs": 1, "skipped": 1}
    (job,) = Trace("b.lrtrace.jsonl")
    assert (job.tuf.ert_s, job.tuf.alpha, job.tuf.beta) == (0.5, -1.0, 3.0)
    plan = (TraceSegment("x", 1),)
    lines = [
        TraceHeader().to_dict(),
        TraceJob(0, 5.0, 1, plan).to_dict(),
        TraceJob(1, 2.0, 1, plan).to_dict(),
    ]
    Path("u.lrtrace.jsonl").write_text("\n".join(map(json.dumps, lines)))
    code, _, err = lrtrace("stats", "u.lrtrace.jsonl")
    assert (code, err.count("\n")) == (2, 1)
    assert "u.lrtrace.jsonl:3: arrival_s" in err
    assert lrtrace("sort", "u.lrtrace.jsonl", "-o", "s.lrtrace.jsonl")[0] == 0
    assert [job.job for job in Trace("s.lrtrace.jsonl")] == [1, 0]
    assert lrtrace("stats", "s.lrtrace.jsonl")[0] == 0


def some_runs() -> list[RecordedSample]:
    rng = np.random.default_rng(1)
    return [
        RecordedSample(
            "tello", "mf", {"distance": float(distance)}, 2.0 + 0.01 * distance + 0.02 * rng.standard_normal()
        )
        for distance in range(20, 220, 10)
    ]


def test_fit_writes_a_profile(lrtrace: Run) -> None:
    write_recorded_samples("runs.samples.jsonl", some_runs())
    code, out, err = lrtrace(
        "fit", "runs.samples.jsonl", "-o", "mine.yaml", "--base", "tello", "--json", "f.json"
    )
    assert (code, err) == (0, "")
    profile = load_robot_profile("mine.yaml")
    assert profile.execution_s("mf", [100]) == pytest.approx(3.0, abs=0.02)
    assert profile.skills["move_forward"].execution.unit == "cm"  # type: ignore[union-attr]
    assert len(profile.measured.date) == 10
    report = result("f.json")["skills"]["move_forward"]
    assert report["samples"] == 20
    assert report["held_out_error"] < 0.05
    assert "held-out error" in out
    code, *_ = lrtrace(
        "fit", "runs.samples.jsonl", "-o", "q.yaml", "--method", "quantile", "--level", 0.9, "--variable", "mf",
        "--on", "bench", "--network", 0.01, "--model", "mf=linear",
    )  # fmt: skip
    assert code == 0
    assert load_robot_profile("q.yaml").skills["mf"].execution.variable
    assert lrtrace("profiles", "./q.yaml")[0] == 0


def test_record_from_an_event_log(lrtrace: Run) -> None:
    events: list[dict[str, Any]] = [
        {"t_s": 0, "event": "opened", "timely_events": 1},
        {"t_s": 1, "event": "task", "task_id": "a", "agent": "d", "robot": "tello", "skill_set": "drone"},
        {
            "t_s": 2,
            "event": "segment",
            "task_id": "a",
            "index": 0,
            "text": "mu(40);",
            "tokens": 4,
            "execution_s": 2.5,
        },
        {"t_s": 5, "event": "report", "task_id": "a", "segment": 0, "kind": "done", "elapsed_s": 2.7},
    ]
    Path("log.jsonl").write_text("\n".join(map(json.dumps, events)) + "\n")
    code, out, _ = lrtrace("record", "log.jsonl", "log.jsonl", "-o", "r.lrtrace.jsonl", "--json", "r.json")
    assert code == 0
    assert [job.arrival_s for job in Trace("r.lrtrace.jsonl")] == [0.0, 1.0]
    assert result("r.json")["made"] == 2
    assert "2 prompts of unknown length count as 1300 tokens (--prompt-tokens, --shared-prefix)\n" in out
    code, out, _ = lrtrace(
        "record", "log.jsonl", "-o", "runs", "--as", "samples", "--profile", "tello=sim-drone"
    )
    assert code == 0
    assert "1 samples from 1 tasks" in out
    assert json.loads(Path("runs").read_text())["robot"] == "sim-drone"
    assert lrtrace("record", "log.jsonl", "-o", "s.samples.jsonl", "--profile", "sim-drone")[0] == 0
    code, _, err = lrtrace("record", "log.jsonl", "-o", "n.lrtrace.jsonl", "--profile", "nope")
    assert (code, Path("n.lrtrace.jsonl").exists()) == (2, False)
    assert "unknown robot profile 'nope'" in err


def test_profiles_are_listed(lrtrace: Run) -> None:
    code, out, _ = lrtrace("profiles")
    assert code == 0
    assert "tello: " in out
    code, out, _ = lrtrace("profiles", "indy7", "--json", "p.json")
    assert code == 0
    assert "move_to(target): 0.8 to 3 s, published" in out
    assert result("p.json")["profiles"][0]["name"] == "indy7"


def test_a_profile_is_shown_with_its_fence_its_failsafe_and_its_short_names(lrtrace: Run) -> None:
    """A line over an argument of both signs is one over its size."""
    _, out, _ = lrtrace("profiles", "tello")
    assert "geofence: z_m [0.0, 10.0], radius_m 30.0\n" in out
    assert "failsafe: hold_s 30.0, then land, battery_reserve 0.1, land_while_stopped True\n" in out
    assert "s/cm, published, abbr mf\n" in out
    Path("mower.yaml").write_text(
        "name: mower\nrobot: a mower\nsource: me\nskills: {turn: {args: {angle: {unit: deg, min: -180, max: 180}}, "
        "execution: {model: linear, argument: angle, unit: deg, measure: magnitude, intercept_s: 0, per_unit_s: 0.02}}}"
    )
    _, out, _ = lrtrace("profiles", "./mower.yaml")
    assert "turn(angle -180..180 deg): 0 s + 0.02 s/|deg|, no basis given\n" in out


def bad_inputs() -> list[tuple[str, tuple[object, ...], str]]:
    """(name, command line, what the line must say). Files: see ``broken_files``."""
    return [
        (
            "broken trace line",
            ("stats", "broken.lrtrace.jsonl"),
            "broken.lrtrace.jsonl:3: plan[0].tokens: must be",
        ),
        ("missing trace", ("stats", "none.jsonl"), "none.jsonl: cannot read it: No such file"),
        (
            "missing coefficient",
            ("profiles", "broken.yaml"),
            "broken.yaml:7: skills.go.execution.per_unit_s: is missing",
        ),
        (
            "missing coefficient",
            ("compose", "--workload", "wid1", "-o", "x", "--robot", "drone=broken.yaml"),
            "broken.yaml:7: skills.go.execution.per_unit_s: is missing",
        ),
        (
            "three samples",
            ("fit", "three.samples.jsonl", "-o", "x.yaml"),
            "three.samples.jsonl:3: mf: 3 samples",
        ),
        ("no samples", ("fit", "empty", "-o", "x.yaml"), "empty: no run that was done"),
        (
            "broken sample",
            ("fit", "broken.samples.jsonl", "-o", "x.yaml"),
            "broken.samples.jsonl:1: elapsed_s",
        ),
        ("profile name", ("fit", "three.samples.jsonl", "-o", "x.txt"), "x.txt: name the profile like"),
        (
            "unknown workload",
            ("compose", "--workload", "wid9", "-o", "x"),
            "unknown workload 'wid9'; known: chat, wid1",
        ),
        (
            "unknown robot",
            ("compose", "--workload", "wid1", "-o", "x", "--robot", "drone=ufo"),
            "robot profile 'ufo'",
        ),
        (
            "wrong robot",
            ("compose", "--workload", "wid1", "-o", "x", "--robot", "drone=indy7"),
            "unknown skill",
        ),
        (
            "robot syntax",
            ("compose", "--workload", "wid1", "-o", "x", "--robot", "tello"),
            "SKILLSET=PROFILE",
        ),
        ("eps", ("compose", "--workload", "wid1", "-o", "x", "--eps", "-1"), "eps: must be positive"),
        ("not a number", ("compose", "--workload", "wid1", "-o", "x", "--eps", "fast"), "--eps"),
        ("seed", ("compose", "--workload", "wid1", "-o", "x", "--seed", "-1"), "--seed"),
        ("network", ("compose", "--workload", "wid1", "-o", "x", "--network", "-1"), "network_s"),
        ("events", ("compose", "--workload", "wid1", "-o", "x", "--events", "(1"), "cannot read an event"),
        ("ids", ("compose", "--workload", "wid1", "-o", "x", "--trace-ids", "1-12"), "unknown trace id 12"),
        (
            "arrivals",
            ("compose", "--workload", "wid1", "-o", "x", "--arrivals", "times.txt"),
            "times.txt:2: must be a",
        ),
        (
            "arrivals",
            ("compose", "--workload", "wid1", "-o", "x", "--arrivals", "none"),
            "none: cannot read it",
        ),
        (
            "no arrivals",
            ("compose", "--workload", "wid1", "-o", "x", "--arrivals", "empty"),
            "empty: no arrivals",
        ),
        (
            "execution",
            ("compose", "--workload", "wid1", "-o", "x", "--execution", "slow"),
            "unknown execution 'slow'",
        ),
        (
            "tokenizer",
            ("compose", "--workload", "wid1", "-o", "x", "--tokenizer", "none"),
            "none: not a tokenizer",
        ),
        ("no folder", ("compose", "--workload", "wid1", "-o", "none/x"), "none/x: cannot write it"),
        ("a folder", ("compose", "--workload", "wid1", "-o", "."), ".: cannot write it: it is a folder"),
        ("no name", ("sort", "good.lrtrace.jsonl", "-o", ""), ".: cannot write it: it is a folder"),
        (
            "JSON a folder",
            ("stats", "good.lrtrace.jsonl", "--json", "/"),
            "/: cannot write it: it is a folder",
        ),
        (
            "JSON no folder",
            ("sort", "good.lrtrace.jsonl", "-o", "x", "--json", "none/x"),
            "none/x: cannot write",
        ),
        (
            "fit plot",
            ("fit", "three.samples.jsonl", "-o", "x.yaml", "--plot", "x.txt"),
            "x.txt: a plot ends in",
        ),
        ("long name", ("sort", "good.lrtrace.jsonl", "-o", "x" * 300), "cannot write it: File name too long"),
        ("no folder", ("tasks", "--json", "none/x"), "none/x: cannot write it"),
        (
            "import speed",
            ("import", "mooncake", "requests.jsonl", "-o", "x", "--speed", "1e-320"),
            "requests.jsonl:2: arrival_s: must be",
        ),
        (
            "fit skill",
            ("fit", "surrogate.samples.jsonl", "-o", "x.yaml"),
            "surrogate.samples.jsonl:1: skill: must be a name",
        ),
        (
            "import format",
            ("import", "csv", "times.txt", "-o", "x"),
            "unknown trace format 'csv'; known: azure",
        ),
        (
            "import row",
            ("import", "azure", "times.txt", "-o", "x"),
            "times.txt:1: column 'TIMESTAMP' is missing",
        ),
        ("tuf", ("import", "azure", "times.txt", "-o", "x", "--tuf", "1,2"), "--tuf: write ERT,ALPHA,BETA"),
        (
            "tuf",
            ("import", "azure", "times.txt", "-o", "x", "--tuf", "1,2,1"),
            "--tuf: alpha: must be zero or neg",
        ),
        ("log", ("record", "times.txt", "-o", "x.lrtrace.jsonl"), "times.txt:1: "),
        ("record output", ("record", "times.txt", "-o", "x"), "x: end the name with"),
        ("record as", ("record", "times.txt", "-o", "x", "--as", "video"), "unknown output 'video'"),
        (
            "model",
            ("fit", "three.samples.jsonl", "-o", "x.yaml", "--model", "mf"),
            "--model: write SKILL=MODEL",
        ),
        ("plot", ("stats", "good.lrtrace.jsonl", "--plot", "x.txt"), "x.txt: a plot ends in"),
        ("option", ("stats", "good.lrtrace.jsonl", "--fast"), "--fast"),
        ("argument", ("stats",), "TRACE"),
        ("command", ("dance",), "dance"),
    ]


@pytest.fixture
def broken_files(tmp_path: Path) -> None:
    header = '{"lrtrace": 1}\n'
    good = json.dumps(TraceJob(0, 0.0, 1, (TraceSegment("x", 1),)).to_dict()) + "\n"
    bad = good.replace('"tokens": 1', '"tokens": 0').replace('"job": 0', '"job": 1')
    (tmp_path / "good.lrtrace.jsonl").write_text(header + good)
    (tmp_path / "broken.lrtrace.jsonl").write_text(header + good + bad)
    (tmp_path / "broken.yaml").write_text(
        "name: broken\nrobot: x\nsource: x\nskills:\n  go:\n    args: {distance: {unit: cm}}\n"
        "    execution: {model: linear, argument: distance, unit: cm, intercept_s: 1.0}\n"
    )
    write_recorded_samples(tmp_path / "three.samples.jsonl", some_runs()[:3])
    (tmp_path / "broken.samples.jsonl").write_text('{"robot": "a", "skill": "b"}\n')
    (tmp_path / "empty").write_text("")
    (tmp_path / "times.txt").write_text("1\nsoon\n")
    request = {"timestamp": 0, "input_length": 1, "output_length": 1}
    rows = [request, request | {"timestamp": 1000}]
    (tmp_path / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = {"robot": "a", "skill": "\ud800", "elapsed_s": 1.0}
    (tmp_path / "surrogate.samples.jsonl").write_text(6 * (json.dumps(run) + "\n"))


@pytest.mark.parametrize(("what", "arguments", "says"), bad_inputs())
def test_bad_input_is_one_line_and_exit_2(
    lrtrace: Run, broken_files: None, tmp_path: Path, what: str, arguments: tuple[object, ...], says: str
) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    code, out, err = lrtrace(*arguments)
    assert code == 2, what
    assert out == ""
    assert err.startswith("lrtrace: ")
    assert says in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before  # nothing half-written


def test_help_and_version(lrtrace: Run) -> None:
    code, out, _ = lrtrace("--help")
    assert code == 0
    assert "..." not in out.partition("Commands:")[2]
    code, out, _ = lrtrace()
    assert code == 0
    assert "compose" in out
    assert lrtrace("--version")[1].startswith("lrtrace ")
    for command in ("compose", "stats", "sort", "import", "record", "fit", "tasks", "profiles"):
        code, out, _ = lrtrace(command, "--help")
        assert code == 0
        assert re.search(r"<\w+( range)?>|\[Path\]|\.\.\.\]\.\.\.", out) is None, (
            "kinds of values are in words"
        )


def test_main_exits_with_the_code(lrtrace: Run) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["stats", "none.jsonl"])
    assert caught.value.code == 2


@pytest.mark.process
def test_as_a_program_with_a_reader_that_leaves(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "lrtrace.cli"]
    done = subprocess.run(
        [*program, "stats", "none"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "lrtrace: none: cannot read it: No such file or directory\n"
    piped = subprocess.run(
        f"{sys.executable} -m lrtrace.cli tasks --json - | head -c 10",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in piped.stderr


def some_stats() -> TraceStats:
    plan = (TraceSegment("x", 2, 1.0), TraceSegment("y", 3, 2.0))
    return measure_trace_stats(
        TraceHeader("unit"),
        [TraceJob(number, float(number // 2), 10, plan, agent="a") for number in range(4)],
    )


def test_stats_by_hand() -> None:
    """Two tasks at 0 s and two at 1 s; each takes the 1 s until the first action and 3 s of execution."""
    values = some_stats().summary()
    assert values["busy"] == {"peak": 4, "mean": pytest.approx(16 / 5)}
    assert values["tasks_per_event"]["mean"] == 2
    assert values["interarrival_s"]["max"] == 1
    assert values["plan_tokens"]["mean"] == 5
    assert values["execution_s"]["p50"] == 3
    assert values["agents"] == 1
    empty = measure_trace_stats(TraceHeader(), []).summary()
    assert (empty["jobs"], empty["jobs_per_s"], empty["execution_s"]) == (0, None, None)


@pytest.mark.process
def test_stats_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot_trace_stats(some_stats(), tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 5000
    plot_trace_stats(measure_trace_stats(TraceHeader(), []), tmp_path / "empty.svg")
    assert (tmp_path / "empty.svg").exists()
