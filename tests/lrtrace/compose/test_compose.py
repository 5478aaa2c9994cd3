"""Composition: Table 3's workloads, one task a robot at a time, the same bytes for the same seed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from lrtrace.compose.composition import CompositionOptions, WorkloadComposition, compose_workload
from lrtrace.compose.events import parse_workload_events, parse_workload_trace_ids
from lrtrace.compose.workload import WORKLOADS
from lrtrace.errors import BadInput, UnknownName
from lrtrace.job import RESPONSE_S, TraceJob
from lrtrace.profiles import find_robot_profile
from lrtrace.random_draws import TraceRandomDraws
from lrtrace.trace import Trace, write_trace
from timely.plans.language.segmenter import Segmenter
from timely.plans.skill_library import find_skill_set

GOLDEN = {
    "wid1": "751e043b4c58e2c49b43fd908884ad2e6540f075ede61c4f0c050833ee9fd54c",
    "wid2": "65b4468657ecbd269511e0d4d36d5d00e84070848aed078df3f57f8942c65c22",
    "wid3": "63afbd290710b7840d19b87e2de55065842f40ff214d3c821179402e715af136",
    "chat": "1a6f8df89cfb67240bdd0cc10754106e635e031ed0cf0b1a42bf9fedbbc39404",
}
"""SHA-256 of the files for seed 7. They change only when a task, a shipped profile or the composer changes."""


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def jobs_of(composition: WorkloadComposition) -> list[TraceJob]:
    return list(composition.jobs)


@pytest.mark.process
@pytest.mark.parametrize("name", WORKLOADS)
def test_same_seed_same_bytes(tmp_path: Path, name: str) -> None:
    path = tmp_path / "trace.lrtrace.jsonl"
    composition = compose_workload(name, 7)
    write_trace(path, composition.header, composition.jobs)
    assert digest(path) == GOLDEN[name]
    write_trace(path, composition.header, composition.jobs)  # the jobs can be taken again
    assert digest(path) == GOLDEN[name]
    other = compose_workload(name, 8)
    write_trace(path, other.header, other.jobs)
    assert digest(path) != GOLDEN[name]


@pytest.mark.process
def test_same_bytes_from_another_process(tmp_path: Path) -> None:
    for hash_seed in ("0", "1"):
        path = tmp_path / "trace.lrtrace.jsonl"
        subprocess.run(
            [
                sys.executable,
                "-m",
                "lrtrace.cli",
                "compose",
                "--workload",
                "wid1",
                "--seed",
                "7",
                "-o",
                str(path),
            ],
            check=True,
            timeout=60,
            env={"PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin"},
        )
        assert digest(path) == GOLDEN["wid1"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "eps", "max_tpe", "ids", "agents", "duration_s"),
    [
        ("wid1", 0.25, 8, range(1, 9), 25, 260),
        ("wid2", 0.25, 16, range(1, 9), 42, 300),
        ("wid3", 0.1, 8, range(9, 12), 40, 900),
    ],
)
def test_table_3(name: str, eps: float, max_tpe: int, ids: range, agents: int, duration_s: float) -> None:
    events, sizes, seen = 0, Counter[int](), Counter[int]()
    for seed in range(8):
        composition = compose_workload(name, seed)
        jobs = jobs_of(composition)
        events += composition.tally.events
        sizes.update(Counter(job.extra["event"] for job in jobs).values())
        seen.update(job.extra["trace_id"] for job in jobs)
        assert len({job.agent for job in jobs}) <= agents
        assert {(job.prompt_tokens, job.shared_prefix_tokens) for job in jobs} == {(1300, 1200)}
    expected = 8 * eps * duration_s
    assert events == pytest.approx(expected, abs=4 * expected**0.5)  # Poisson: four standard deviations
    assert max(sizes) == max_tpe
    assert min(sizes) == 1
    assert sorted(seen) == list(ids)
    assert max(seen.values()) < 1.5 * min(seen.values())


@pytest.mark.process
def test_events_come_as_a_poisson_process() -> None:
    times = [
        job.arrival_s for job in compose_workload("wid1", 1, duration_s=12_000, agents=10_000, max_tpe=1).jobs
    ]
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(4.0, rel=0.07)
    assert gaps.std() == pytest.approx(4.0, rel=0.1)
    assert np.quantile(gaps, 0.5) == pytest.approx(4.0 * np.log(2), rel=0.1)


def one_at_a_time(jobs: list[TraceJob]) -> bool:
    free: dict[str, float] = {}
    for job in jobs:
        if job.arrival_s < free.get(job.agent, 0.0) - 1e-5:
            return False
        free[job.agent] = job.arrival_s + RESPONSE_S + job.execution_s
    return True


@settings(max_examples=examples(30))
@given(st.integers(0, 2**63), st.integers(1, 6), st.integers(1, 12), st.sampled_from(["wait", "drop"]))
def test_robots_do_one_task_at_a_time(seed: int, agents: int, max_tpe: int, policy: Any) -> None:
    free = compose_workload("wid1", seed, agents=10_000, max_tpe=max_tpe, duration_s=60)
    composition = compose_workload(
        "wid1",
        seed,
        agents=agents,
        max_tpe=max_tpe,
        duration_s=60,
        options=CompositionOptions(when_busy=policy),
    )
    jobs = jobs_of(composition)
    assert one_at_a_time(jobs)
    assert [job.arrival_s for job in jobs] == sorted(job.arrival_s for job in jobs)
    assert [job.job for job in jobs] == list(range(len(jobs)))
    waited = [job.extra["waited_s"] for job in jobs if "waited_s" in job.extra]
    tally = composition.tally
    assert tally.jobs == len(jobs)
    assert tally.waited == len(waited)
    assert tally.waited_s == max(waited, default=0.0)
    if policy == "wait":
        assert tally.dropped == 0
        per_event = Counter(job.extra["event"] for job in jobs)
        assert all(1 <= count <= max_tpe for count in per_event.values())
        assert len(per_event) == tally.events
    else:
        assert not waited
    assert jobs_of(free)  # sixty seconds without any event happen once in three million


def test_tasks_that_wait_arrive_when_a_robot_is_free() -> None:
    jobs = jobs_of(compose_workload("wid1", 0, events=[(1, 1, 1)], arrivals=[5.0], agents=1))
    assert [job.arrival_s for job in jobs] == pytest.approx(
        [5.0, 5.0 + 1 + jobs[0].execution_s, 5.0 + 2 + jobs[0].execution_s + jobs[1].execution_s], abs=1e-5
    )
    assert [job.agent for job in jobs] == ["drone-0"] * 3
    assert jobs[2].extra["waited_s"] == pytest.approx(jobs[2].arrival_s - 5.0)


def test_given_events_and_arrivals() -> None:
    composition = compose_workload(
        "wid1", 0, events=parse_workload_events("{(Trace1, Trace2), Trace8, trace_9}"), arrivals=[0, 1, 2.5]
    )
    jobs = jobs_of(composition)
    assert [(job.arrival_s, job.extra["trace_id"]) for job in jobs] == [(0, 1), (0, 2), (1, 8), (2.5, 9)]
    assert jobs[3].skill_set == "arm"
    assert jobs[3].agent.startswith("arm-")
    assert len({job.agent for job in jobs[:2]}) == 2
    random_times = [job.arrival_s for job in compose_workload("wid1", 0, events=[(1,)] * 50).jobs]
    assert len(random_times) == 50
    together = jobs_of(compose_workload("wid1", 0, events=[(1,), (2,)], arrivals=[3.0, 3.0]))
    assert [job.arrival_s for job in together] == [3.0, 3.0]
    random_tasks = jobs_of(compose_workload("wid1", 0, arrivals=[1.0, 2.0]))
    assert {job.arrival_s for job in random_tasks} == {1.0, 2.0}


def test_the_header_says_how_it_was_composed() -> None:
    header = compose_workload("wid1", 7, agents=9).header
    assert (header.name, header.seed, header.network_s) == ("wid1", 7, 0.008)
    assert header.extra["composed"]["agents"] == 9
    assert header.extra["composed"]["robots"] == {"drone": "tello"}
    assert compose_workload("wid1", 7, options=CompositionOptions(network_s=0.5)).header.network_s == 0.5
    far = find_robot_profile("indy7").model_copy(update={"network_s": 0.25})
    both = compose_workload("wid1", 7, events=[(1,), (9,)], options=CompositionOptions(profiles={"arm": far}))
    assert both.header.network_s == 0.25, "the longest delay of its robots"


def test_execution_times_follow_the_profile() -> None:
    sampled = {
        job.execution_s for job in compose_workload("wid1", 1, options=CompositionOptions(how="sample")).jobs
    }
    minimal = {
        job.execution_s for job in compose_workload("wid1", 1, options=CompositionOptions(how="minimum")).jobs
    }
    assert len(minimal) < len(sampled)
    drone = {"drone": find_robot_profile("sim-drone")}
    assert {
        job.robot for job in compose_workload("wid1", 1, options=CompositionOptions(profiles=drone)).jobs
    } == {"sim-drone"}


@pytest.mark.process
def test_memory_does_not_grow_with_the_duration(tmp_path: Path) -> None:
    import tracemalloc

    peaks = []
    for duration in (200.0, 1500.0):
        composition = compose_workload("wid1", 1, duration_s=duration)
        tracemalloc.start()
        jobs = write_trace(tmp_path / "x.lrtrace.jsonl", composition.header, composition.jobs)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert jobs > 1200
    assert peaks[1] < peaks[0] + 100_000


@pytest.mark.parametrize(("unit", "skill_set"), [("sentence", "chat"), ("paragraph", "story")])
def test_chats_are_cut_as_their_skill_set_cuts(unit: Any, skill_set: str) -> None:
    lengths = []
    for job in compose_workload("chat", 3, duration_s=60, options=CompositionOptions(unit=unit)).jobs:
        assert (job.skill_set, job.robot, job.agent[:7]) == (skill_set, "chat-reader", "reader-")
        segmenter = Segmenter(find_skill_set(skill_set))
        result = [*segmenter.feed("".join(segment.text for segment in job.plan)), *segmenter.close()]
        assert [boundary.text for boundary in result] == [segment.text for segment in job.plan]
        words = sum(len(segment.text.split()) for segment in job.plan)
        assert job.execution_s == pytest.approx(words / 5)  # 300 words a minute
        lengths.append(words)
    assert 150 < np.mean(lengths) < 450


def test_the_same_story_in_sentences_and_paragraphs() -> None:
    stories = [
        [
            "".join(segment.text for segment in job.plan)
            for job in compose_workload("chat", 3, duration_s=60, options=CompositionOptions(unit=unit)).jobs
        ]
        for unit in ("sentence", "paragraph")
    ]
    assert stories[0] == stories[1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"eps": 0}, "eps: must be positive"),
        ({"eps": float("nan")}, "eps: must be positive"),
        ({"eps": 1e300}, "eps: must be at most 1000000"),
        ({"max_tpe": 10**11}, "max_tpe: must be at most 1000000"),
        ({"duration_s": float("inf")}, "duration_s: must be positive"),
        ({"max_tpe": 0}, "max_tpe: must be 1 or more"),
        ({"agents": 0}, "agents: must be 1 or more"),
        ({"trace_ids": ()}, "trace_ids: must name"),
        ({"trace_ids": (12,)}, "unknown trace id 12"),
        ({"shared_prefix_tokens": 1301}, "shared_prefix_tokens: must be 0 to"),
        ({"arrivals": [2.0, 1.0]}, "arrival 2: must be"),
        ({"arrivals": [float("nan")]}, "arrival 1: must be"),
        ({"arrivals": []}, "no arrivals"),
        ({"events": []}, "no events"),
        ({"events": [()]}, "an event needs"),
        ({"events": [(1,)], "arrivals": [1.0, 2.0]}, "2 arrivals for 1 events"),
        ({"events": [(99,)]}, "unknown trace id 99"),
    ],
)
def test_bad_workloads_are_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        compose_workload("wid1", 0, **change)


def test_unknown_workload() -> None:
    with pytest.raises(UnknownName, match="unknown workload 'wid9'; known: chat, wid1, wid2, wid3"):
        compose_workload("wid9", 0)


@pytest.mark.parametrize("text", ["(1,2", "1,,2", "{(Trace1, x)}", "(())", "-1", "()"])
def test_events_that_cannot_be_read(text: str) -> None:
    with pytest.raises(BadInput):
        parse_workload_events(text)


def test_ids_as_table_3_writes_them() -> None:
    assert parse_workload_trace_ids("[1-8]") == tuple(range(1, 9))
    assert parse_workload_trace_ids("0, 2,9-11") == (0, 2, 9, 10, 11)
    with pytest.raises(BadInput, match="cannot read the trace ids 'x'"):
        parse_workload_trace_ids("1,x")
    with pytest.raises(BadInput, match="cannot read the trace ids '5-3'"):
        parse_workload_trace_ids("1,5-3")


def test_draws_are_plain_arithmetic_on_doubles() -> None:
    draw, rng = TraceRandomDraws(5), np.random.Generator(np.random.PCG64(5))
    assert draw.uniform() == rng.random()
    assert draw.exponential(2.0) == pytest.approx(-np.log1p(-rng.random()) / 2.0)
    assert draw.below(10) == int(rng.random() * 10)
    values = [TraceRandomDraws(seed).log_normal(12.0, 0.5) for seed in range(400)]
    assert np.median(values) == pytest.approx(12.0, rel=0.1)


@pytest.mark.process
def test_composed_traces_are_valid(tmp_path: Path) -> None:
    composition = compose_workload("wid3", 1)
    path = tmp_path / "x.lrtrace.jsonl"
    write_trace(path, composition.header, composition.jobs)
    assert list(Trace(path)) == jobs_of(composition)
