"""The rivals' own workloads have the mix, the aims and the rates that they say; a missed aim counts as missed."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from timely.bench.capacity import rival_workloads as rival
from timely.bench.capacity.measure import (
    _with_priority,
    capacity_point,
    is_bench_task_in_time,
    measure_capacity_point,
)
from timely.bench.capacity.report import owner_ratio
from timely.bench.capacity.workloads import CAPACITY_WORKLOADS, capacity_tasks
from timely.disciplines.registry import create_discipline
from timely.engines.replay_types import JobRecord, PlannedTask

OWN = {name: workload for name, workload in CAPACITY_WORKLOADS.items() if workload.owner}


def test_each_rival_of_a_paper_has_its_own_workload() -> None:
    assert sorted(workload.owner for workload in OWN.values()) == [
        "inferential",
        "jitserve",
        "qoserve",
        "slos-serve",
    ]
    assert all(name == f"own-{workload.owner}" for name, workload in OWN.items())


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("own-qoserve", "f5a59f5bcc83708b"),
        ("own-jitserve", "7e55035427315c84"),
        ("own-slos-serve", "3f389607420d5fae"),
        ("own-inferential", "3116e134941f85f9"),
    ],
)
def test_the_requests_of_a_seed_are_always_the_same(name: str, digest: str) -> None:
    tasks = capacity_tasks(name, 2.0, 5, quick=True)
    facts = [
        (
            task.job, task.arrival_s, task.prompt_tokens, task.output_tokens, task.after, task.hints.utility.ert_s,
            task.hints.pace_s, task.hints.app, task.hints.urgency,
        )
        for task in tasks
    ]  # fmt: skip
    assert hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest() == digest
    assert tasks != capacity_tasks(name, 2.0, 6, quick=True)


def kinds(tasks: Sequence[PlannedTask]) -> Counter[str]:
    return Counter(str(task.job).split("-")[0] for task in tasks)


def thirds(counts: Counter[str], total: int) -> bool:
    return all(count == pytest.approx(total / 3.0, rel=0.15) for count in counts.values())


def test_qoserve_has_an_interactive_tier_and_two_of_batch() -> None:
    tasks = rival.qoserve_capacity_requests(4.0, 1, 300.0)
    tiers = Counter((task.plain, task.hints.utility.ert_s, task.hints.pace_s) for task in tasks)
    assert set(tiers) == {
        (True, 6.0, 0.05),
        (False, rival.BATCH_S[0], None),
        (False, rival.BATCH_S[1], None),
    }
    assert all(count == pytest.approx(len(tasks) / 3.0, rel=0.15) for count in tiers.values())


def test_jitserve_has_chats_whole_answers_and_applications() -> None:
    tasks = rival.jitserve_capacity_requests(4.0, 1, 300.0)
    apps: dict[str, list[PlannedTask]] = {}
    for task in tasks:
        if task.hints.app is not None:
            apps.setdefault(task.hints.app, []).append(task)
    counts = kinds([task for task in tasks if task.hints.app is None])
    counts["app"] = len(apps)
    assert thirds(counts, counts.total())
    assert {len(requests) for requests in apps.values()} == set(rival.STAGES)
    for requests in apps.values():
        assert {task.hints.app_requests for task in requests} == {len(requests)}
        assert [task.after for task in requests] == [(), *((task.job,) for task in requests[:-1])]


def test_slos_serve_has_prompts_due_by_their_length_and_paces() -> None:
    tasks = rival.slos_serve_capacity_requests(4.0, 1, 900.0)
    assert thirds(kinds(tasks), len(tasks))
    base_s, token_s = rival.EMPTY_MACHINE_S
    for task in tasks:
        kind = str(task.job).split("-")[0]
        slowdown = task.hints.utility.ert_s / (base_s + token_s * task.prompt_tokens)
        assert slowdown == pytest.approx(3.0 if kind == "summary" else 5.0, rel=1e-4)
        assert task.hints.pace_s == (0.05 if kind == "code" else 0.1)
    prompts = [task.prompt_tokens for task in tasks if str(task.job).startswith("chat")]
    logs = sorted(map(math.log, prompts))
    assert math.exp(logs[len(logs) // 2]) == pytest.approx(760.0, rel=0.2)


def test_a_robot_asks_its_policy_once_in_each_period() -> None:
    tasks = rival.inferential_capacity_requests(3.0, 1, 40.0)
    robots: dict[str, list[PlannedTask]] = {}
    for task in tasks:
        robots.setdefault(task.hints.agent, []).append(task)
    assert len(robots) == 3 * rival.POLICY_ROBOTS
    for turns in robots.values():
        period_s = turns[0].hints.utility.ert_s
        assert turns[0].hints.urgency == 2 * rival.PERIODS_S.index(period_s)
        gaps = [b.arrival_s - a.arrival_s for a, b in itertools.pairwise(turns)]
        assert gaps == pytest.approx([period_s] * len(gaps), abs=rival.PERIOD_JITTER * period_s + 1e-5)
        assert len(turns) == pytest.approx(40.0 / period_s, abs=1.1)


def record(task: PlannedTask, first_s: float, last_s: float) -> JobRecord:
    """A request that was answered so long after its arrival."""
    done = JobRecord(task, "complete", first_token_s=task.arrival_s + first_s)
    done.last_token_s = task.arrival_s + last_s
    if not task.plain:
        done.start_s, done.end_s = [done.last_token_s], [done.last_token_s]
    return done


def test_a_chat_misses_its_aim_by_a_late_first_token_or_a_missed_pace() -> None:
    chat = next(task for task in rival.qoserve_capacity_requests(1.0, 1, 60.0) if task.plain)
    later_s = rival.INTERACTIVE_PACE_S * (chat.output_tokens - 1)
    assert is_bench_task_in_time(record(chat, 6.0, 6.0 + later_s - 1e-6))
    assert not is_bench_task_in_time(record(chat, 6.01, 6.02))
    assert not is_bench_task_in_time(record(chat, 0.1, 6.0 + later_s + 0.01))
    cut = replace(record(chat, 0.1, 0.2), outcome="unfinished")
    assert not is_bench_task_in_time(cut)


def test_a_whole_answer_is_in_time_by_its_last_token() -> None:
    batch = next(task for task in rival.qoserve_capacity_requests(1.0, 1, 60.0) if not task.plain)
    assert batch.whole_answer
    ert_s = batch.hints.utility.ert_s
    assert is_bench_task_in_time(record(batch, 0.1, ert_s - 1e-6))
    assert not is_bench_task_in_time(record(batch, 0.1, ert_s + 0.01))


def test_an_application_has_one_aim_for_all_its_requests() -> None:
    tasks = [task for task in rival.jitserve_capacity_requests(1.0, 1, 60.0) if task.hints.app is not None]
    requests = [task for task in tasks if task.hints.app == tasks[0].hints.app]
    limit_s = rival.ANSWER_S * len(requests)
    # A late request is made up for by another; the last answer counts.
    late_then_fast = [record(task, 1.0, rival.ANSWER_S + 5.0) for task in requests[:-1]]
    assert capacity_point([*late_then_fast, record(requests[-1], 1.0, limit_s - 0.1)], 99.0)["all"] == 1.0
    assert capacity_point([*late_then_fast, record(requests[-1], 1.0, limit_s + 0.1)], 99.0)["all"] == 0.0
    alone = next(
        task
        for task in rival.jitserve_capacity_requests(1.0, 1, 60.0)
        if task.hints.app is None and not task.plain
    )
    both = [*late_then_fast, record(requests[-1], 1.0, limit_s + 0.1), record(alone, 1.0, 2.0)]
    assert capacity_point(both, 99.0)["all"] == 0.5


def test_priorities_are_deadlines_on_own_workloads() -> None:
    tasks = rival.qoserve_capacity_requests(1.0, 1, 60.0)
    priorities = {_with_priority(task, by_deadline=True).hints.priority for task in tasks}
    assert priorities == {6.0, *rival.BATCH_S}


@pytest.mark.process
@pytest.mark.parametrize("name", OWN)
def test_the_owner_and_timely_serve_all_of_a_low_load(name: str) -> None:
    for system in (OWN[name].owner, "timely"):
        point = measure_capacity_point(name, system, 256, 1, 0.25, "rtx4090-llama3-8b", 1, "")
        assert point["served"] == 1.0
        assert point["all"] >= 0.98
        assert point["urgent"] is None


@pytest.mark.parametrize("name", OWN)
def test_every_aim_reaches_the_discipline(name: str) -> None:
    """No request of an own workload is taken for one without a deadline."""
    from timely.disciplines.timely.requests import is_discipline_job_undated
    from timely.engines.replay_types import ReplayOptions
    from timely.engines.sim.simulator import Simulator

    simulator = Simulator(ReplayOptions(), discipline=create_discipline("timely"))
    for task in capacity_tasks(name, 1.0, 1, quick=True)[:40]:
        job = simulator.controller.arrive(simulator.spec(JobRecord(task), 0))
        table, row = job.table, job.row
        assert not is_discipline_job_undated(job)
        assert table.ert_s[row] == task.hints.utility.ert_s
        pace_s = table.pace_s[row]
        assert math.isnan(pace_s) if task.hints.pace_s is None else pace_s == task.hints.pace_s


def test_the_share_of_the_owner() -> None:
    rows = {"timely": {"load_99": 3.0}, "qoserve": {"load_99": 4.0}}
    assert owner_ratio("own-qoserve", rows) == (0.75, "qoserve")
    assert owner_ratio("own-jitserve", rows) is None
    assert owner_ratio("wid1", rows) is None
    assert owner_ratio("own-qoserve", {**rows, "qoserve": {"load_99": 0.0}}) is None
