"""Recordings: a server's event log and a ROS 2 recording become traces and runs, with measured times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lrtrace.errors import BadInput
from lrtrace.importers.event_log import import_event_log
from lrtrace.importers.mcap_file import import_mcap
from lrtrace.importers.recorded_tasks import ImportConversion, convert_to_imported_trace, import_skill_samples
from lrtrace.job import URGENT, TraceHeader, TraceJob
from lrtrace.profiles import find_robot_profile
from lrtrace.record.samples import RecordedSample
from lrtrace.trace import Trace, write_trace
from timely.replay.trace import replay_task_from_job

OPENED = {"t_s": 0.0, "event": "opened", "timely_events": 1, "wall_time": "2025-01-31T10:00:00.000+00:00",
          "engine": "vllm", "discipline": "timely", "mode": "segmented"}  # fmt: skip


def task(t_s: float, task_id: str, **changes: Any) -> dict[str, Any]:
    return {
        "t_s": t_s,
        "event": "task",
        "task_id": task_id,
        "agent": "drone-1",
        "app": None,
        "robot": "tello",
        "skill_set": "drone",
        "task": "Go up.",
        "scene": "table",
        "history": "",
        "tuf": {"ert_s": 0.2, "alpha": -6.67, "beta": 2.0},
        "urgency": 1,
        "priority": 0.0,
        "network_s": 0.008,
        **changes,
    }


def segment(t_s: float, task_id: str, index: int, text: str, **changes: Any) -> dict[str, Any]:
    return {
        "t_s": t_s,
        "event": "segment",
        "task_id": task_id,
        "index": index,
        "text": text,
        "tokens": 4,
        "ready_s": t_s - 0.01,
        "execution_s": 2.5,
        "blocking": False,
        **changes,
    }


def report(t_s: float, task_id: str, index: int, kind: str, **changes: Any) -> dict[str, Any]:
    return {"t_s": t_s, "event": "report", "task_id": task_id, "segment": index, "kind": kind, **changes}


def settled(t_s: float, task_id: str, outcome: str, *times: tuple[float, float, bool]) -> dict[str, Any]:
    segments = [
        {"index": index, "start_s": start, "end_s": end, "reported": reported}
        for index, (start, end, reported) in enumerate(times)
    ]
    return {"t_s": t_s, "event": "settled", "task_id": task_id, "outcome": outcome, "segments": segments}


LOG: list[dict[str, Any]] = [
    OPENED,
    task(1.0, "a"),
    {"t_s": 1.1, "event": "generated_soon", "task_id": "a", "unknown": True},
    segment(1.2, "a", 0, "mu(40);"),
    report(1.3, "a", 0, "started"),
    segment(2.0, "a", 1, "?iv('book')==True{", execution_s=0.001, blocking=True),
    segment(2.1, "a", 2, "tp()}", execution_s=0.001),
    task(2.5, "b", agent="drone-2", tuf={"ert_s": 1.0, "alpha": -2.0, "beta": 1.0}, urgency=3, app="house"),
    {"t_s": 2.6, "event": "generated", "task_id": "a", "outcome": "complete", "prompt_tokens": 1310,
     "cached_tokens": 1216, "tokens": 18},
    report(3.9, "a", 0, "done", elapsed_s=2.61),
    report(3.95, "a", 1, "value", value="True"),
    report(3.951, "a", 2, "done"),
    segment(4.0, "b", 0, "mf(100);tc(90);"),
    settled(5.0, "a", "complete", (1.3, 3.9, True), (3.9, 3.95, True), (3.95, 3.951, True)),
    report(6.0, "b", 0, "failed", reason="wind"),
    settled(6.0, "b", "failed", (4.0, 6.0, True)),
    {"t_s": 6.5, "event": "refused", "agent": "x", "code": "invalid_input", "detail": ""},
    task(7.0, "c"),
    settled(7.5, "c", "cancelled"),
    {"t_s": 8.0, "event": "closed"},
]  # fmt: skip


def write(folder: Path, events: list[dict[str, Any]], *, end: str = "\n") -> Path:
    path = folder / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, events)) + end)
    return path


def trace_of(path: Path, **options: Any) -> tuple[TraceHeader, list[TraceJob], ImportConversion]:
    conversion = ImportConversion()
    header, jobs = convert_to_imported_trace(import_event_log(path), "day", conversion, **options)
    return header, list(jobs), conversion


def samples_of(path: Path) -> tuple[list[RecordedSample], ImportConversion]:
    conversion = ImportConversion()
    return list(
        import_skill_samples(import_event_log(path), {"tello": find_robot_profile("tello")}, conversion)
    ), conversion


def test_event_log_to_trace(tmp_path: Path) -> None:
    header, jobs, conversion = trace_of(write(tmp_path, LOG))
    assert header.network_s == 0.008
    assert [(job.job, job.arrival_s, job.agent) for job in jobs] == [(0, 0.0, "drone-1"), (1, 1.5, "drone-2")]
    first, second = jobs
    assert first.tuf == URGENT
    assert (first.urgency, first.robot, first.skill_set, first.scene) == (1, "tello", "drone", "table")
    assert (first.prompt_tokens, first.shared_prefix_tokens) == (1310, 1216)
    assert [piece.text for piece in first.plan] == ["mu(40);", "?iv('book')==True{", "tp()}"]
    # The robot's stopwatch before the times at which its reports came.
    assert [piece.execution_s for piece in first.plan] == pytest.approx([2.61, 0.05, 0.001])
    assert first.plan[0].extra == {"estimate_s": 2.5}
    assert first.plan[1].extra["blocking"] is True
    assert first.extra == {"task_id": "a", "outcome": "complete"}
    assert (second.app, second.prompt_tokens, second.shared_prefix_tokens) == ("house", 1300, 1216)
    left_out = {"task without a segment": 1}
    assert conversion.summary() == {"made": 2, "assumed_prompts": 1, "left_out": left_out}
    _, jobs, _ = trace_of(write(tmp_path, LOG), prompt_tokens=900, shared_prefix_tokens=1000)
    assert (jobs[1].prompt_tokens, jobs[1].shared_prefix_tokens) == (900, 900)


def test_what_a_request_said_of_itself_is_in_the_trace(tmp_path: Path) -> None:
    """A replay of a recorded day served without the priorities and sizes of applications that its requests named."""
    log = [
        OPENED,
        task(1.0, "a", priority=-3.0, app="house/1", app_requests=4, max_tokens=96, expected_tokens=40.5),
        segment(1.2, "a", 0, "mu(40);"),
        task(2.0, "b", app_requests=None, max_tokens=None),
        segment(2.2, "b", 0, "mu(40);"),
    ]
    _, (first, second), _ = trace_of(write(tmp_path, log))
    hints = {"priority": -3.0, "app_requests": 4, "max_tokens": 96, "expected_tokens": 40.5}
    assert first.extra == {"task_id": "a", **hints}
    assert second.extra == {"task_id": "b"}
    planned = replay_task_from_job(first)
    assert (planned.hints.priority, planned.hints.app_requests, planned.max_tokens) == (-3.0, 4, 96)
    assert planned.hints.expected_tokens == 40.5
    with pytest.raises(BadInput, match=r"events.jsonl:2: priority: must be a number, got high"):
        trace_of(write(tmp_path, [OPENED, task(1.0, "a", priority="high")]))


def test_the_stopwatch_of_a_robot_that_returns_a_value_counts(tmp_path: Path) -> None:
    """The times at which reports came stood in for it; a recording of ROS 2 had it right."""
    log = [
        OPENED,
        task(1.0, "a"),
        segment(2.0, "a", 0, "?iv('book')==True{", blocking=True),
        report(3.0, "a", 0, "value", value="True", elapsed_s=0.75),
        settled(4.0, "a", "complete", (2.0, 3.0, True)),
    ]
    _, (job,), _ = trace_of(write(tmp_path, log))
    assert job.plan[0].execution_s == 0.75


def test_a_converted_log_is_a_valid_trace(tmp_path: Path) -> None:
    header, jobs, _ = trace_of(write(tmp_path, LOG))
    path = tmp_path / "day.lrtrace.jsonl"
    write_trace(path, header, jobs)
    assert list(Trace(path)) == jobs


def test_event_log_to_samples(tmp_path: Path) -> None:
    samples, conversion = samples_of(write(tmp_path, LOG))
    assert [(sample.skill, sample.args, sample.units, sample.elapsed_s) for sample in samples] == [
        ("move_up", {"distance": 40.0}, {"distance": "cm"}, 2.61),
        ("is_visible", {"object": "book"}, {}, 0.05),
    ]
    assert {sample.robot for sample in samples} == {"tello"}
    assert conversion.left_out == {"call in a branch that seems not taken": 1, "segment failed": 1}


def test_unmeasured_and_joint_segments_say_nothing(tmp_path: Path) -> None:
    log = [
        OPENED,
        task(1.0, "a"),
        segment(1.1, "a", 0, "mf(100);"),
        segment(1.2, "a", 1, "mf(50);mf(60);"),
        segment(1.3, "a", 2, "->True"),
        *(report(6.0, "a", index, "done") for index in (1, 2)),
        report(1.1, "a", 0, "started"),
        settled(9.0, "a", "complete", (1.1, 3.0, True), (3.0, 6.0, True), (6.0, 6.0, True)),
    ]
    samples, conversion = samples_of(write(tmp_path, log))
    assert samples == []
    assert conversion.left_out == {
        "segment not measured": 1,
        "segment with several calls": 1,
        "segment that ran no call": 1,
    }


def test_calls_inside_a_block_count_when_they_took_time(tmp_path: Path) -> None:
    log = [
        OPENED,
        task(1.0, "a"),
        segment(1.1, "a", 0, "?s('cat')==True{"),
        segment(1.2, "a", 1, "g('cat')}"),
        segment(1.3, "a", 2, "tp();"),
        *(report(8.0, "a", index, "done") for index in range(3)),
        settled(9.0, "a", "complete", (1.1, 3.0, True), (3.0, 5.6, True), (5.6, 5.601, True)),
    ]
    samples, _ = samples_of(write(tmp_path, log))
    assert [sample.skill for sample in samples] == ["scan", "goto", "take_picture"]


def test_the_rounds_of_a_loop_are_no_run_of_its_last_call(tmp_path: Path) -> None:
    log = [
        OPENED,
        task(1.0, "a"),
        segment(1.1, "a", 0, "4{mf(50);"),
        segment(1.2, "a", 1, "tc(90)}"),
        segment(1.3, "a", 2, "?ox('cat')>4{"),
        segment(1.4, "a", 3, "g('cat')}"),
        segment(1.5, "a", 4, "3{tp()}"),
        segment(1.6, "a", 5, "mu(40);"),
        *(report(40.0, "a", index, "done") for index in range(6)),
        settled(41.0, "a", "complete", *((5.0 * index, 5.0 * index + 4.0, True) for index in range(6))),
    ]
    samples, conversion = samples_of(write(tmp_path, log))
    assert [sample.skill for sample in samples] == ["move_forward", "object_x", "goto", "move_up"]
    assert conversion.left_out == {"call in a loop that went round": 2}


def test_a_task_goes_on_after_a_restart(tmp_path: Path) -> None:
    log = [
        OPENED,
        task(1.0, "a"),
        segment(5.0, "a", 0, "tp();"),
        OPENED,
        segment(0.5, "a", 1, "mu(40);"),
        task(1.0, "b"),
        report(1.2, "a", 1, "done", elapsed_s=2.0),
        segment(1.5, "b", 0, "mu(40);"),
        settled(4.0, "a", "complete", (-4.0, 0.0, True), (0.6, 2.6, True)),
    ]
    _, jobs, _ = trace_of(write(tmp_path, log))
    assert [(job.arrival_s, len(job.plan), job.extra.get("outcome")) for job in jobs] == [
        (0.0, 2, "complete"),
        (6.0, 1, None),
    ]
    assert jobs[0].plan[1].execution_s == 2.0


def test_a_reused_task_id_is_another_task(tmp_path: Path) -> None:
    log = [
        OPENED,
        task(1.0, "a"),
        segment(5.0, "a", 0, "tp();"),
        OPENED,
        task(1.0, "a"),
        segment(1.5, "a", 0, "mu(40);"),
    ]
    _, jobs, _ = trace_of(write(tmp_path, log))
    assert [(job.arrival_s, len(job.plan)) for job in jobs] == [(0.0, 1), (6.0, 1)]


def test_tasks_come_by_arrival_also_from_a_log_whose_clock_went_back(tmp_path: Path) -> None:
    log = write(tmp_path, [OPENED, task(2.0, "second"), task(1.0, "first"), task(2.0, "third")])
    assert [one.task_id for one in import_event_log(log)] == ["first", "second", "third"]


def test_a_killed_server_leaves_a_readable_log(tmp_path: Path) -> None:
    path = write(tmp_path, LOG[:5], end='\n{"t_s": 9.0, "event": "segm')
    assert [len(tasks.segments) for tasks in import_event_log(path)] == [1]


@pytest.mark.parametrize("joint", ["\n", ""])
def test_a_log_that_goes_on_after_a_tear_is_readable(
    tmp_path: Path, joint: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, LOG[:5], end='\n{"t_s": 9.0, "event": "segm' + joint)
    path.write_text(path.read_text() + "\n".join(map(json.dumps, LOG[:5])) + "\n")
    assert [len(tasks.segments) for tasks in import_event_log(path)] == [1, 1]
    assert f"{path}:6" in caplog.text


@pytest.mark.parametrize(
    ("events", "line", "reason"),
    [
        ([], 1, "empty"),
        (LOG[1:], 1, "starts with the event 'opened'"),
        ([OPENED | {"timely_events": 2}], 1, "timely_events: must be 1, got 2"),
        ([OPENED, {"t_s": 1.0}], 2, "event: must be a name"),
        ([OPENED, task(1.0, "a") | {"t_s": "x"}], 2, "t_s: must be a number of seconds"),
        ([OPENED, task(1.0, "a") | {"task_id": 3}], 2, "task_id: must be text"),
        ([OPENED, task(1.0, "a", tuf={"alpha": 1})], 2, "tuf.alpha: must be zero or negative"),
        ([OPENED, task(1.0, "a", network_s=-0.5)], 2, "network_s: must be zero or more seconds, got -0.5"),
        ([OPENED, task(1.0, "a"), task(2.0, "b", network_s=-0.5)], 3, "network_s: must be zero or more"),
        ([OPENED, task(1.0, "a"), segment(1.0, "a", -1, "x")], 3, "index: must be an integer"),
        ([OPENED, task(1.0, "a"), segment(1.0, "a", 0, "x", tokens=None)], 3, "tokens: must be an integer"),
        ([OPENED, task(1.0, "a") | {"t_s": 10**400}], 2, "t_s: must be a number of seconds"),
        ([OPENED, task(1.0, "a"), settled(2.0, "a", "x") | {"segments": 5}], 3, "segments: must be a list"),
        ([OPENED, task(1.0, "a"), settled(2.0, "a", "x") | {"segments": [5]}], 3, "segments: must be a list"),
    ],
)
def test_broken_logs_are_named(tmp_path: Path, events: list[dict[str, Any]], line: int, reason: str) -> None:
    path = write(tmp_path, events)
    with pytest.raises(BadInput) as caught:
        import_event_log(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "events",
    [
        [task(1.0, "\ud800"), segment(1.2, "\ud800", 0, "mu(40);")],
        [task(1.0, "a"), segment(1.2, "a", 0, "mu(40);"), settled(2.0, "a", "\ud800")],
    ],
    ids=["task_id", "outcome"],
)
def test_a_text_that_no_trace_can_hold_is_named(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    with pytest.raises(BadInput, match=r"events\.jsonl:2: (task_id|outcome): must be JSON"):
        trace_of(write(tmp_path, [OPENED, *events]))


@pytest.mark.parametrize("argument", ["1e999", "nan", "1e13", "'\ud800'"])
def test_an_argument_that_a_fit_would_refuse_is_named(tmp_path: Path, argument: str) -> None:
    events = [
        OPENED,
        task(1.0, "a"),
        segment(1.2, "a", 0, f"mu({argument});"),
        report(1.3, "a", 0, "done", elapsed_s=2.0),
    ]
    with pytest.raises(BadInput, match=r"events\.jsonl:2: segment 0: args\.distance: must be"):
        samples_of(write(tmp_path, events))


def test_a_broken_line_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, LOG[:5], end='\n{"t_s": 9.0, "event": "segm\n{}\n')
    with pytest.raises(BadInput, match=":6: not valid JSON"):
        import_event_log(path)
    assert not caplog.text


def test_a_run_shorter_than_nothing_is_none_that_a_fit_would_refuse(tmp_path: Path) -> None:
    events = [
        OPENED,
        task(1.0, "a"),
        segment(1.2, "a", 0, "mu(40);"),
        report(1.3, "a", 0, "done", elapsed_s=-2.0),
    ]
    samples, _ = samples_of(write(tmp_path, events))
    assert [sample.elapsed_s for sample in samples] == [0.0]


def test_a_robot_without_a_profile_is_named(tmp_path: Path) -> None:
    path = write(
        tmp_path, [LOG[0], task(1.0, "a", robot="ufo"), *LOG[3:4], report(3.9, "a", 0, "done", elapsed_s=2.0)]
    )
    with pytest.raises(BadInput, match=r"events\.jsonl:2: robot: no profile for 'ufo'"):
        samples_of(path)
    path = write(
        tmp_path,
        [
            LOG[0],
            task(1.0, "a"),
            segment(1.2, "a", 0, "warp(9);"),
            report(3.9, "a", 0, "done", elapsed_s=2.0),
        ],
    )
    with pytest.raises(BadInput, match=r"events\.jsonl:2: segment 0: .*unknown skill 'warp'"):
        samples_of(path)


# ROS 2 recordings.

TIME = "builtin_interfaces/Time stamp"
TIME_DEFINITION = "=" * 80 + "\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
SEGMENT = f"""{TIME}
string task_id
uint32 index
string text
uint32 tokens
float64 execution_s
bool blocking
"""
REPORT = f"""uint8 STARTED=0
uint8 DONE=2
uint8 FAILED=3
{TIME}
string task_id
uint32 segment
uint8 kind
float64 elapsed_s
float64 remaining_s
string value
uint16 error_code
string reason
"""
STATE = "string robot\nuint8 mode\n"
TASK = """string task_id
string task
string scene
string skill_set
string robot
timely_interfaces/TimeUtility tuf
string agent
string app
int8 urgency
"""
TUF_DEFINITION = (
    "=" * 80
    + "\nMSG: timely_interfaces/TimeUtility\nfloat64 ert_s\nfloat64 alpha\nfloat64 beta\nfloat64 cutoff_s\n"
)
STAMP = SimpleNamespace(sec=0, nanosec=0)


class Bag:
    """Writes an MCAP file as ``ros2 bag record`` and the bridge do."""

    def __init__(self, path: Path) -> None:
        from mcap_ros2.writer import Writer

        self.file = path.open("wb")
        self.writer = Writer(self.file)
        definitions = {
            "msg/Segment": SEGMENT + TIME_DEFINITION,
            "msg/SegmentReport": REPORT + TIME_DEFINITION,
            "msg/RobotState": STATE,
            "msg/Task": TASK + TUF_DEFINITION,
        }
        self.schemas = {
            name.partition("/")[2]: self.writer.register_msgdef(f"timely_interfaces/{name}", text)
            for name, text in definitions.items()
        }
        self.schemas["String"] = self.writer.register_msgdef("std_msgs/msg/String", "string data\n")

    def add(self, topic: str, kind: str, at_s: float, /, **fields: Any) -> None:
        self.writer.write_message(
            topic, self.schemas[kind], SimpleNamespace(**fields), log_time=round(at_s * 1e9), publish_time=0
        )

    def segment(self, task_id: str, index: int, text: str) -> SimpleNamespace:
        return SimpleNamespace(
            stamp=STAMP, task_id=task_id, index=index, text=text, tokens=4, execution_s=2.5, blocking=False
        )

    def close(self) -> None:
        if self.file.closed:
            return
        self.writer.finish()
        self.file.close()


@pytest.fixture
def bag(tmp_path: Path) -> Iterator[Bag]:
    pytest.importorskip("mcap_ros2")
    bag = Bag(tmp_path / "day.mcap")
    yield bag
    bag.close()


def done(index: int, elapsed_s: float, kind: int = 2) -> dict[str, Any]:
    return {"stamp": STAMP, "task_id": "a", "segment": index, "kind": kind, "elapsed_s": elapsed_s,
            "remaining_s": 0.0, "value": "", "error_code": 0, "reason": ""}  # fmt: skip


def test_mcap_with_tasks(bag: Bag, tmp_path: Path) -> None:
    utility = SimpleNamespace(ert_s=0.2, alpha=0.0, beta=2.0, cutoff_s=0.5)
    bag.add("/chatter", "String", 99.0, data="not ours")
    bag.add("/drone_1/state", "RobotState", 99.5, robot="tello", mode=1)
    bag.add("/tasks", "Task", 100.0, task_id="a", task="Go up.", scene="table", skill_set="drone", robot="tello",
            tuf=utility, agent="drone-1", app="", urgency=-1)  # fmt: skip
    bag.add("/drone_1/segments", "Segment", 100.2, **vars(bag.segment("a", 0, "mu(40);")))
    bag.add("/drone_1/reports", "SegmentReport", 100.3, **done(0, 0.0, kind=0))
    bag.add("/drone_1/segments", "Segment", 101.0, **vars(bag.segment("a", 1, "tp();")))
    bag.add("/drone_1/reports", "SegmentReport", 102.9, **done(0, 2.61))
    bag.add("/drone_1/reports", "SegmentReport", 103.0, **done(1, 0.002))
    bag.close()
    (tasks,) = import_mcap(tmp_path / "day.mcap")
    assert (tasks.arrival_s, tasks.agent, tasks.robot, tasks.skill_set) == (
        100.0,
        "drone-1",
        "tello",
        "drone",
    )
    assert (tasks.app, tasks.urgency) == (None, None)
    assert tasks.tuf.alpha == pytest.approx(-2 / 0.3)
    conversion = ImportConversion()
    header, jobs = convert_to_imported_trace([tasks], "day", conversion)
    (job,) = jobs
    assert [(piece.text, piece.execution_s) for piece in job.plan] == [("mu(40);", 2.61), ("tp();", 0.002)]
    samples = list(import_skill_samples([tasks], {"tello": find_robot_profile("tello")}, ImportConversion()))
    assert [(sample.skill, sample.elapsed_s) for sample in samples] == [
        ("move_up", 2.61),
        ("take_picture", 0.002),
    ]
    assert header.name == "day"


def test_mcap_without_task_messages(bag: Bag, tmp_path: Path) -> None:
    for index, at_s in enumerate((50.0, 53.0)):
        bag.add("/arm_1/segments", "Segment", at_s, **vars(bag.segment("a", index, "home();")))
        bag.add("/arm_1/report", "SegmentReport", at_s + 2, **done(index, 1.5 + index, kind=2 + index))
    bag.add("/arm_1/state", "RobotState", 60.0, robot="indy7", mode=1)
    bag.close()
    (tasks,) = import_mcap(tmp_path / "day.mcap")
    assert (tasks.arrival_s, tasks.agent, tasks.robot) == (50.0, "arm_1", "indy7")
    conversion = ImportConversion()
    samples = list(import_skill_samples([tasks], {"indy7": find_robot_profile("indy7")}, conversion))
    assert [(sample.skill, sample.elapsed_s) for sample in samples] == [("home", 1.5)]
    assert conversion.left_out == {"segment failed": 1}


def test_mcap_that_was_cut_off(bag: Bag, tmp_path: Path) -> None:
    for index in range(2000):
        bag.add("/d/segments", "Segment", index, **vars(bag.segment(f"t{index}", 0, "tp();" * 200)))
    bag.close()
    path = tmp_path / "day.mcap"
    whole = len(import_mcap(path))
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    assert 0 < len(import_mcap(path)) < whole == 2000


def test_a_message_that_is_broken_is_named(bag: Bag, tmp_path: Path) -> None:
    bag.add("/d/segments", "Segment", 1.0, **vars(bag.segment("a", 0, "tp();")))
    data = b"\x00\x01\x00\x00\xff"
    writer = bag.writer._writer
    writer.add_message(1, log_time=2, data=data, publish_time=2)
    bag.close()
    with pytest.raises(BadInput, match=r"day\.mcap, /d/segments: Segment cannot be decoded: "):
        import_mcap(tmp_path / "day.mcap")


def test_a_message_of_another_form_is_named(bag: Bag, tmp_path: Path) -> None:
    bag.schemas["Segment"] = bag.writer.register_msgdef(
        "timely_interfaces/msg/Segment",
        "string task_id\nstring index\nstring text\nint32 tokens\nstring execution_s\nbool blocking\n",
    )
    fields = {
        "task_id": "a",
        "index": "0",
        "text": "tp();",
        "tokens": 4,
        "execution_s": "2",
        "blocking": False,
    }
    bag.add("/d/segments", "Segment", 1.0, **fields)
    bag.close()
    with pytest.raises(BadInput, match=r"day\.mcap, /d/segments: Segment has another form: "):
        import_mcap(tmp_path / "day.mcap")


def test_files_that_are_no_recording(bag: Bag, tmp_path: Path) -> None:
    bag.add("/chatter", "String", 1.0, data="not ours")
    bag.close()
    with pytest.raises(BadInput, match="no Segment or Task message"):
        import_mcap(tmp_path / "day.mcap")
    (tmp_path / "noise.mcap").write_bytes(b"this is not MCAP at all, not even a little")
    with pytest.raises(BadInput, match=r"noise\.mcap: not a readable MCAP file"):
        import_mcap(tmp_path / "noise.mcap")
    with pytest.raises(BadInput, match="cannot read it"):
        import_mcap(tmp_path / "none.mcap")
