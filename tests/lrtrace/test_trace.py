"""The trace format: what is written is read back, streams stay small, and every broken line is named."""

from __future__ import annotations

import errno
import gzip
import json
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrtrace.errors import BadInput
from lrtrace.job import NORMAL, URGENT, TraceHeader, TraceJob, TraceSegment, Tuf
from lrtrace.trace import Trace, write_trace

HEADER = '{"lrtrace": 1, "name": "unit", "seed": 7, "network_s": 0.008}'
JOB: dict[str, Any] = {
    "job": 0,
    "arrival_s": 33.94,
    "agent": "drone-3",
    "app": None,
    "robot": "tello",
    "skill_set": "drone",
    "task": "Find scissors ...",
    "scene": "...",
    "prompt_tokens": 1300,
    "shared_prefix_tokens": 1200,
    "tuf": {"ert_s": 1.0, "alpha": -2.0, "beta": 1.0},
    "urgency": 3,
    "plan": [
        {"text": "?s('scissors')==True{", "tokens": 7, "execution_s": 1.5563},
        {"text": "g('scissors')}", "tokens": 6, "execution_s": 2.4613},
    ],
}


def write(folder: Path, *lines: str | dict[str, Any], header: str = HEADER) -> Path:
    path = folder / "unit.lrtrace.jsonl"
    text = "\n".join([header, *(line if isinstance(line, str) else json.dumps(line) for line in lines)])
    path.write_text(text + "\n", encoding="utf-8")
    return path


def test_reads_the_example_of_the_format(tmp_path: Path) -> None:
    trace = Trace(write(tmp_path, JOB))
    assert trace.header == TraceHeader("unit", 7, 0.008)
    (job,) = trace
    assert (job.job, job.arrival_s, job.agent, job.urgency, job.tuf) == (0, 33.94, "drone-3", 3, NORMAL)
    assert job.tokens == 13
    assert job.execution_s == pytest.approx(4.0176)
    assert job.to_dict() == JOB


def test_unknown_fields_are_kept(tmp_path: Path) -> None:
    raw = JOB | {"wind": "north", "tuf": JOB["tuf"] | {"shape": 1}}
    raw["plan"] = [segment | {"why": ["a", 1]} for segment in JOB["plan"]]
    header = '{"lrtrace": 1, "name": "unit", "author": "me"}'
    trace = Trace(write(tmp_path, raw, header=header))
    again = tmp_path / "again.lrtrace.jsonl"
    write_trace(again, trace.header, trace)
    assert json.loads(again.read_text().splitlines()[0])["author"] == "me"
    assert json.loads(again.read_text().splitlines()[1]) == raw


def test_defaults_of_an_ordinary_request(tmp_path: Path) -> None:
    (job,) = Trace(
        write(tmp_path, {"job": 5, "arrival_s": 0, "prompt_tokens": 9, "plan": [{"text": "", "tokens": 40}]})
    )
    assert (job.tuf, job.app, job.urgency, job.acceptance, job.execution_s) == (NORMAL, None, None, None, 0.0)


def test_cutoff_stands_for_alpha(tmp_path: Path) -> None:
    tuf = {"ert_s": 0.2, "cutoff_s": 0.5, "beta": 2}
    (job,) = Trace(write(tmp_path, JOB | {"tuf": tuf}))
    assert job.tuf.alpha == pytest.approx(-2 / 0.3)
    assert job.tuf.urgent
    assert URGENT.urgent
    assert not NORMAL.urgent


def test_blank_lines_are_no_jobs(tmp_path: Path) -> None:
    assert len(list(Trace(write(tmp_path, "", JOB, "  ", JOB | {"job": 1}, "")))) == 2


def edit(**changes: Any) -> dict[str, Any]:
    return JOB | changes


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in JOB.items() if key != name}


def segment(**changes: Any) -> dict[str, Any]:
    return edit(plan=[JOB["plan"][0], JOB["plan"][1] | changes])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"job": 0,', "not valid JSON: Expecting property name"),
        ("nonsense", "not valid JSON: Expecting value at column 1"),
        ("[1]", "must be an object, got list"),
        ("[" * 100_000, "not valid JSON: nested too deeply"),
        ('{"job": 0, "tuf": {"ert_s": 1, "ert_s": 2}}', "not valid JSON: 'ert_s' is given twice"),
        ('{"job": 0, "arrival_s": NaN}', "not valid JSON: NaN is not a number"),
        ('{"job": 0, "arrival_s": -Infinity}', "not valid JSON: -Infinity is not a number"),
        (without("job"), "job: is missing"),
        (without("arrival_s"), "arrival_s: is missing"),
        (without("prompt_tokens"), "prompt_tokens: is missing"),
        (without("plan"), "plan: is missing"),
        (edit(job=-1), "job: must be an integer of 0 or more, got -1"),
        (edit(job="a"), "job: must be an integer"),
        (edit(job=True), "job: must be an integer"),
        (edit(job=1.5), "job: must be an integer"),
        (edit(arrival_s=-0.1), "arrival_s: must be seconds from 0 to 1e+10, got -0.1"),
        (edit(arrival_s=1.1e10), "arrival_s: must be seconds from 0 to 1e+10, got 11000000000.0"),
        (edit(arrival_s="soon"), "arrival_s: must be"),
        (edit(arrival_s=10**400), "arrival_s: must be"),
        (edit(prompt_tokens=0), "prompt_tokens: must be an integer of 1 or more, got 0"),
        (edit(shared_prefix_tokens=1301), "shared_prefix_tokens: must be at most prompt_tokens=1300"),
        (edit(agent=3), "agent: must be text, got 3"),
        (edit(app=3), "app: must be text"),
        (edit(task="\ud800"), "task: must be text that can be written"),
        (edit(note="\ud800"), "note: must be JSON that can be written"),
        (edit(note=["\ud800"]), "note: must be JSON"),
        (json.dumps(JOB)[:-1] + ', "note": {"x": 1e999}}', "note: must be JSON"),
        (edit(tuf={"note": "\ud800"}), "tuf.note: must be JSON"),
        (segment(note="\ud800"), "plan[1].note: must be JSON"),
        (edit(urgency=5), "urgency: must be an integer from 0 to 4, got 5"),
        (edit(acceptance=1.2), "acceptance: must be a share from 0 to 1, got 1.2"),
        (edit(plan=[]), "plan: must have at least one segment"),
        (edit(plan={}), "plan: must be a list"),
        (edit(plan=[1]), "plan[0]: must be an object"),
        (segment(tokens=0), "plan[1].tokens: must be an integer of 1 or more, got 0"),
        (segment(execution_s=-1), "plan[1].execution_s: must be seconds from 0 to 1e+10, got -1"),
        (segment(text=None), "plan[1].text: must be text"),
        (edit(plan=[{"text": "x"}]), "plan[0].tokens: is missing"),
        (edit(tuf=[]), "tuf: must be an object"),
        (edit(tuf={"alpha": 1}), "tuf.alpha: must be zero or negative, got 1"),
        (edit(tuf={"beta": 0}), "tuf.beta: must be positive, got 0"),
        (edit(tuf={"ert_s": -1}), "tuf.ert_s: must be"),
        (edit(tuf={"ert_s": 1, "cutoff_s": 1}), "tuf.cutoff_s: must be later than ert_s"),
        (edit(tuf={"alpha": -1, "cutoff_s": 2}), "tuf.alpha: give alpha or cutoff_s"),
        (edit(job=9), "job: 9 was there before"),
        (edit(arrival_s=1.0), "arrival_s: 1.0 is before 20.0 of the job above"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str | dict[str, Any], reason: str) -> None:
    path = write(tmp_path, edit(job=9, arrival_s=20.0), "", line, edit(job=10))
    with pytest.raises(BadInput) as caught:
        list(Trace(path))
    message = str(caught.value)
    assert message.startswith(f"{path}:4: {reason}")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (json.dumps(JOB), "1: lrtrace: is missing; the first line must be a header"),
        ('{"lrtrace": 2}', "1: lrtrace: must be 1, the only version there is, got 2"),
        ('{"lrtrace": true}', "1: lrtrace: must be 1"),
        ('{"lrtrace": 1, "seed": "x"}', "1: seed: must be an integer"),
        ('{"lrtrace": 1, "network_s": -1}', "1: network_s: must be"),
        ('{"lrtrace": 1, "name": 3}', "1: name: must be text"),
        ('{"lrtrace": 1, "author": "\\ud800"}', "1: author: must be JSON"),
        ("\n\n", "1: empty: a trace starts with a header line"),
        ("\ufeff\x00", "1: not valid JSON"),
    ],
)
def test_a_broken_header_is_named(tmp_path: Path, header: str, reason: str) -> None:
    path = tmp_path / "broken.lrtrace.jsonl"
    path.write_text(header)
    with pytest.raises(BadInput) as caught:
        Trace(path)
    assert str(caught.value).startswith(f"{path}:{reason}")


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"job": "\xff\xfe"}\n')
    with pytest.raises(BadInput, match=r":2: not UTF-8 text"):
        list(Trace(path))


def test_a_compressed_file_is_told_from_a_broken_one(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(BadInput, match=r": compressed with gzip; unpack it first$"):
        Trace(path)


def test_an_endless_line_is_refused_without_reading_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lrtrace.jsonl.MAX_LINE_BYTES", 1000)
    with pytest.raises(BadInput, match=r":2: longer than 1000 bytes"):
        list(Trace(write(tmp_path, edit(task="x" * 1000))))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read it: No such file"):
        Trace(tmp_path / "none.jsonl")
    with pytest.raises(BadInput, match=r"cannot write it: No such file"):
        write_trace(tmp_path / "none" / "x.jsonl", TraceHeader(), [])


def test_a_read_only_file_system_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It also refuses to remove a temporary file that does not exist."""

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(BadInput) as caught:
        write_trace(tmp_path / "x.jsonl", TraceHeader(), [])
    assert str(caught.value) == f"{tmp_path / 'x.jsonl'}: cannot write it: Read-only file system"


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """Its header was read, and then no job: a replay of nothing, without an error."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match="a pipe: a trace is read more than once"):
        Trace(pipe)


def test_writer_leaves_no_half_file(tmp_path: Path) -> None:
    path = tmp_path / "out.lrtrace.jsonl"

    def jobs() -> Any:
        yield TraceJob(0, 0.0, 1, (TraceSegment("x", 1),))
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_trace(path, TraceHeader(), jobs())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match="job: 0 was written before"):
        write_trace(path, TraceHeader(), [TraceJob(0, 0.0, 1, (TraceSegment("x", 1),))] * 2)
    assert list(tmp_path.iterdir()) == []


def test_unordered_files_can_be_read_by_arrival(tmp_path: Path) -> None:
    times = [5.0, 1.0, 3.0, 1.0, 0.5]
    path = write(tmp_path, *(edit(job=number, arrival_s=time) for number, time in enumerate(times)))
    jobs = list(Trace(path).jobs_by_arrival())
    assert [job.job for job in jobs] == [4, 1, 3, 2, 0]
    with pytest.raises(BadInput, match=r":3: job: 0 was there before"):
        list(Trace(write(tmp_path, JOB, JOB)).jobs_by_arrival())


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
seconds = st.floats(0, 1e6)
segments = st.builds(TraceSegment, texts, st.integers(1, 10**6), seconds)
tufs = st.builds(Tuf, seconds, st.floats(-1e6, 0), st.floats(1e-6, 1e6))


@st.composite
def job_lists(draw: st.DrawFn) -> list[TraceJob]:
    numbers = draw(st.lists(st.integers(0, 2**40), unique=True, max_size=5))
    arrivals = sorted(draw(st.lists(seconds, min_size=len(numbers), max_size=len(numbers))))
    return [
        TraceJob(
            number,
            arrival,
            prompt := draw(st.integers(1, 10**6)),
            tuple(draw(st.lists(segments, min_size=1, max_size=3))),
            agent=draw(texts),
            task=draw(texts),
            shared_prefix_tokens=draw(st.integers(0, prompt)),
            tuf=draw(tufs),
            app=draw(st.none() | texts),
            urgency=draw(st.none() | st.integers(0, 4)),
            acceptance=draw(st.none() | st.floats(0, 1)),
        )
        for number, arrival in zip(numbers, arrivals, strict=True)
    ]


@pytest.mark.process
@given(job_lists(), st.integers(0, 2**64 - 1), texts)
def test_written_traces_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[TraceJob], seed: int, name: str
) -> None:
    path = tmp_path_factory.mktemp("trace") / "x.lrtrace.jsonl"
    header = TraceHeader(name, seed, 0.01)
    assert write_trace(path, header, jobs) == len(jobs)
    trace = Trace(path)
    assert trace.header == header
    assert list(trace) == jobs
    assert list(trace.jobs_by_arrival()) == jobs


@given(st.binary(max_size=200))
def test_any_bytes_are_jobs_or_a_named_error(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.mktemp("noise") / "x.lrtrace.jsonl"
    path.write_bytes(HEADER.encode() + b"\n" + noise)
    try:
        list(Trace(path))
    except BadInput as error:
        assert error.where.startswith(f"{path}:")  # noqa: PT017
        assert error.message  # noqa: PT017


@pytest.mark.process
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from(sorted(JOB)), x),
    )
)
def test_any_json_is_a_job_or_a_named_error(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.mktemp("noise") / "x.lrtrace.jsonl"
    path.write_text(HEADER + "\n" + json.dumps(value))
    with pytest.raises(BadInput, match=r":2: "):
        list(Trace(path))


def test_jobs_travel_between_processes() -> None:
    job = TraceJob(0, 0.0, 1, (TraceSegment("x", 1),))
    assert pickle.loads(pickle.dumps(job)) == job  # noqa: S301


@pytest.mark.process
def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    """Peak memory of reading and writing 8,000 jobs stays far under the size of the file, and flat."""

    def jobs(count: int) -> Any:
        plan = (TraceSegment("mf(100);", 4, 2.5),) * 3
        for number in range(count):
            yield TraceJob(number, number * 0.1, 1300, plan, agent="drone-1", task="Find the scissors.")

    peaks = []
    path = tmp_path / "long.lrtrace.jsonl"
    for count in (1_000, 8_000):
        tracemalloc.start()
        write_trace(path, TraceHeader("long"), jobs(count))
        assert sum(1 for _ in Trace(path)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert path.stat().st_size > 2_500_000
    assert peaks[1] < peaks[0] + 50_000
    assert peaks[1] < 500_000
