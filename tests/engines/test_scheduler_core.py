"""The controller both engines share: parking, due times, reports in any order, values, evictions, switching."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hints import with_hints
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.core.errors import Conflict, InvalidInput, UnknownName
from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable
from timely.core.reports import ExecutionReport
from timely.disciplines.base import Discipline, DisciplineInfo, StepLimits, StepPlan
from timely.disciplines.registry import create_discipline
from timely.engines.scheduler_core import EngineController
from timely.engines.step_time.learned import FixedSpeed

SPEED = FixedSpeed(0.02, 0.0, 0.0003)
LEAD_S = 2 * 10 * 0.02 + 0.05
"""Of a segment of at most ten tokens at 20 ms, without network."""


class Recording(Discipline):
    """Notes every hook; runs whoever is runnable."""

    info = DisciplineInfo("recording", "for tests", "tests")

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        runnable = [job.job_id for job in table if table.resume_s[job.row] <= limits.now]
        return StepPlan(tokens=dict.fromkeys(runnable, 1))

    def check(self, spec: JobSpec) -> None:
        if spec.words == "refuse":
            raise InvalidInput("not this one", where="text")

    def arrived(self, job: Job, now: float) -> None:
        self.heard.append(("arrived", job.job_id, now))

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        self.heard.append(("progressed", job.job_id, tokens, now))

    def accepted(self, job: Job, drafted: int, accepted: int, now: float) -> None:
        self.heard.append(("accepted", job.job_id, drafted, accepted, now))

    def parked(self, job: Job, now: float) -> None:
        self.heard.append(("parked", job.job_id, float(job.table.resume_s[job.row])))

    def due_changed(self, job: Job, now: float) -> None:
        self.heard.append(("due", job.job_id, float(job.table.due_s[job.row])))

    def evicted(self, job: Job, now: float) -> None:
        self.heard.append(("evicted", job.job_id, now))

    def finished(self, job: Job, now: float) -> None:
        self.heard.append(("finished", job.job_id, job.outcome))

    def maintain(self, table: JobTable, limits: StepLimits) -> None:
        self.heard.append(("maintain", limits.now))


def limits(now: float) -> StepLimits:
    return StepLimits(now, 100, 8, 8, 100, 1000, 16, SPEED)


def fresh(**spec: Any) -> tuple[EngineController, Job]:
    controller = EngineController(Recording(), SPEED)
    job = controller.arrive(
        JobSpec(**with_hints({"job_id": "a", "arrival_s": 1.0, "segment_tokens": 10} | spec))
    )
    return controller, job


def generate(controller: EngineController, job: Job, tokens: int, now: float) -> None:
    """The job takes part in steps that end at ``now``."""
    controller.compose(limits(now - 0.02))
    controller.started(job)
    job.table.prefill_left[job.row] = 0
    controller.progress(job, tokens, now)
    controller.ran(1, 0, 0.02)


def close(controller: EngineController, job: Job, now: float, execution_s: float = 2.0, **kind: Any) -> None:
    generate(controller, job, 5, now)
    controller.close_segment(job, "go(1)", execution_s, now, **kind)


def column(job: Job, name: str) -> Any:
    return getattr(job.table, name)[job.row].item()


# ---------------------------------------------------------------- arrival, progress, end


def test_a_job_arrives_once() -> None:
    controller, _ = fresh()
    with pytest.raises(Conflict, match="already"):
        controller.arrive(JobSpec("a", 2.0))
    assert len(controller.table) == 1


def test_what_the_discipline_refuses_never_existed() -> None:
    controller, _ = fresh()
    with pytest.raises(InvalidInput, match="not this one"):
        controller.arrive(JobSpec("b", 2.0, text="refuse"))
    assert "b" not in controller.table
    assert controller.discipline.heard == [("arrived", "a", 1.0)]  # type: ignore[attr-defined]


def test_tokens_and_service_are_counted() -> None:
    controller, job = fresh()
    for now in (2.0, 2.5, 3.0):
        generate(controller, job, 2, now)
    assert (column(job, "output_tokens"), column(job, "segment_tokens")) == (6, 6)
    assert column(job, "attained_s") == pytest.approx(0.06)
    assert (controller.tokens, controller.steps) == (6, 3)
    assert column(job, "active")
    assert column(job, "resident")


def test_service_is_charged_to_those_of_that_step_with_steps_in_flight() -> None:
    """Asynchronous scheduling composes the next step before the last one is over."""
    controller, one = fresh()
    two = controller.arrive(JobSpec("b", 1.0))
    controller.compose(limits(2.0))
    controller.started(one)
    controller.compose(limits(2.1))
    controller.started(two)
    controller.ran(1, 0, 0.5)
    assert (column(one, "attained_s"), column(two, "attained_s")) == (0.5, 0.0)
    controller.finish("a", "complete", 2.6)
    controller.ran(1, 0, 0.25)
    assert column(two, "attained_s") == 0.25


def test_steps_whose_end_is_never_told_do_not_pile_up() -> None:
    controller, job = fresh()
    for index in range(1000):
        controller.compose(limits(float(index)))
        controller.started(job)
    controller.ran(1, 0, 0.02)
    assert column(job, "attained_s") == pytest.approx(0.02)


def test_a_finished_job_is_gone_and_says_how() -> None:
    controller, _ = fresh()
    assert controller.finish("a", "cancelled", 3.0) is not None
    assert controller.finish("a", "cancelled", 3.0) is None
    assert controller.discipline.heard[-1] == ("finished", "a", "cancelled")  # type: ignore[attr-defined]
    assert controller.report("a", ExecutionReport(0, "done"), 4.0) is None


def test_idle_time_and_acceptance_reach_the_discipline() -> None:
    controller, job = fresh()
    controller.maintain()
    controller.accepted(job, 3, 2, 1.5)
    controller.compose(limits(2.0))
    controller.maintain()
    heard = controller.discipline.heard[1:]  # type: ignore[attr-defined]
    assert heard == [("accepted", "a", 3, 2, 1.5), ("maintain", 2.0)]


# ---------------------------------------------------------------- parking and due times


def test_a_closed_segment_parks_until_the_robot_is_about_to_run_dry() -> None:
    controller, job = fresh(network_s=0.01)
    close(controller, job, 2.0, execution_s=3.0)
    assert column(job, "due_s") == pytest.approx(2.0 + 0.01 + 3.0)
    assert column(job, "resume_s") == pytest.approx(5.01 - LEAD_S - 0.01)
    assert (column(job, "active"), column(job, "resident"), job.parked) == (False, True, True)
    assert controller.next_resume() == column(job, "resume_s")
    assert ("parked", "a", column(job, "resume_s")) in controller.discipline.heard  # type: ignore[attr-defined]
    generate(controller, job, 1, 5.0)
    assert (column(job, "active"), job.parked, column(job, "resume_s")) == (True, False, -math.inf)


def test_segments_queue_up_behind_one_another_on_the_robot() -> None:
    controller, job = fresh(network_s=0.5)
    close(controller, job, 2.0, execution_s=3.0)
    close(controller, job, 3.0, execution_s=4.0)
    first, second = job.segments
    assert (first.start_s, first.end_s) == (2.5, 5.5)
    assert (second.start_s, second.end_s) == (5.5, 9.5), "its way there is hidden behind the first"
    assert column(job, "due_s") == 9.5
    close(controller, job, 12.0, execution_s=1.0)
    assert job.segments[2].start_s == 12.5, "the robot ran dry and waits for network too"


def test_the_last_segment_does_not_park() -> None:
    controller, job = fresh()
    close(controller, job, 2.0, last=True)
    assert (column(job, "active"), job.parked, column(job, "resume_s")) == (True, False, -math.inf)


def test_an_ordinary_request_never_parks() -> None:
    controller, job = fresh(segmented=False)
    close(controller, job, 2.0, blocking=True)
    assert (column(job, "active"), job.parked, job.awaiting) == (True, False, None)


def test_tokens_past_the_boundary_belong_to_the_next_segment() -> None:
    controller, job = fresh()
    generate(controller, job, 7, 2.0)
    controller.close_segment(job, "x", 1.0, 2.0, surplus_tokens=2)
    assert job.segments[0].tokens == 5
    assert (column(job, "segment_tokens"), column(job, "segment"), column(job, "output_tokens")) == (2, 1, 7)


def test_an_evicted_parked_generation_is_runnable_earlier() -> None:
    controller, job = fresh(prompt_tokens=1000)
    close(controller, job, 2.0, execution_s=5.0)
    before = column(job, "resume_s")
    controller.evict(job, 1005, 2.5)
    assert column(job, "resume_s") == pytest.approx(before - 1005 * 0.0003)
    assert column(job, "prefill_left") == 1005
    assert (column(job, "resident"), column(job, "blocks"), column(job, "context_tokens")) == (False, 0, 0)
    assert (job.preemptions, controller.evictions, job.parked) == (1, 1, True)
    controller.recomputed(job, 1000)
    assert (job.recomputed_tokens, controller.recomputed_tokens) == (1000, 1000)


def test_an_evicted_running_generation_stays_runnable() -> None:
    controller, job = fresh()
    close(controller, job, 2.0)
    generate(controller, job, 3, 4.0)
    controller.evict(job, 20, 4.1)
    assert (column(job, "resume_s"), job.parked, column(job, "active")) == (-math.inf, False, False)


# ---------------------------------------------------------------- reports


def report(controller: EngineController, now: float, segment: int, kind: Any, **more: Any) -> None:
    controller.report("a", ExecutionReport(segment, kind, **more), now)


def test_what_the_robot_did_replaces_the_estimate() -> None:
    controller, job = fresh()
    close(controller, job, 2.0, execution_s=3.0)
    assert column(job, "due_s") == 5.0
    report(controller, 2.4, 0, "started", age_s=0.1)
    assert column(job, "due_s") == pytest.approx(5.3)
    report(controller, 3.0, 0, "progress", remaining_s=1.0)
    assert column(job, "due_s") == pytest.approx(4.0)
    assert column(job, "resume_s") == pytest.approx(4.0 - LEAD_S)
    report(controller, 3.6, 0, "done", elapsed_s=1.2, age_s=0.1)
    assert column(job, "due_s") == pytest.approx(3.5)
    assert (job.segments[0].start_s, job.segments[0].end_s) == pytest.approx((2.3, 3.5))
    assert controller.next_resume() <= 3.6


def test_a_report_moves_a_parked_generation_both_ways() -> None:
    controller, job = fresh()
    close(controller, job, 2.0, execution_s=3.0)
    report(controller, 4.9, 0, "progress", remaining_s=10.0)
    assert column(job, "resume_s") == pytest.approx(14.9 - LEAD_S), "it was runnable and is not needed yet"


def test_a_report_moves_only_what_is_due_not_how_early_it_is_made() -> None:
    """Of a robot that reports, and on time, nothing is made earlier or later than of one that does not."""
    controller, job = fresh(network_s=0.1)
    close(controller, job, 2.0, execution_s=3.0)
    planned = column(job, "resume_s")
    assert planned == pytest.approx(2.0 + 0.1 + 3.0 - LEAD_S - 0.1)
    heard = controller.discipline.heard  # type: ignore[attr-defined]
    before = len(heard)
    controller.speed = FixedSpeed(0.5, 0.0, 0.0003)
    report(controller, 2.9, 0, "started", age_s=0.8)
    assert job.segments[0].started
    assert column(job, "resume_s") == pytest.approx(planned)
    assert len(heard) == before, "as expected: nothing for the discipline to think about"
    report(controller, 3.0, 0, "progress", remaining_s=3.0)
    assert column(job, "resume_s") == pytest.approx(planned + 0.9)
    assert heard[-1] == ("due", "a", pytest.approx(6.0))


def test_a_report_does_not_park_what_runs() -> None:
    controller, job = fresh()
    close(controller, job, 2.0, execution_s=3.0)
    generate(controller, job, 2, 4.8)
    report(controller, 4.9, 0, "progress", remaining_s=30.0)
    assert (column(job, "resume_s"), column(job, "active")) == (-math.inf, True)
    assert column(job, "due_s") == pytest.approx(34.9)


def test_a_failed_segment_is_over_too() -> None:
    controller, job = fresh()
    close(controller, job, 2.0, execution_s=9.0)
    report(controller, 3.0, 0, "failed", reason="blocked")
    assert column(job, "due_s") == pytest.approx(3.0)


def test_a_report_for_a_segment_not_sent_is_a_conflict() -> None:
    controller, job = fresh()
    close(controller, job, 2.0)
    with pytest.raises(Conflict, match="segment 1 has not been sent; 1 have"):
        report(controller, 3.0, 1, "started")


def test_a_clock_that_is_wrong_cannot_move_things_before_they_were() -> None:
    controller, job = fresh()
    close(controller, job, 2.0, execution_s=1.0)
    report(controller, 3.0, 0, "done", age_s=1e6, elapsed_s=1e7)
    assert job.segments[0].start_s == job.segments[0].end_s == column(job, "due_s") == 2.0


def times(job: Job) -> list[Any]:
    rows = [(s.start_s, s.end_s, s.started, s.done, s.execution_s) for s in job.segments]
    return [*rows, column(job, "due_s"), column(job, "resume_s"), job.awaiting, job.parked]


FINAL = [
    ExecutionReport(0, "started"),
    ExecutionReport(0, "done", elapsed_s=2.1),
    ExecutionReport(1, "started"),
    ExecutionReport(1, "failed", elapsed_s=0.5, reason="stuck"),
]


@settings(max_examples=examples(60))
@given(order=st.permutations(FINAL * 2), gap=st.floats(0.0, 0.5))
def test_reports_late_and_repeated_come_to_a_sound_end(order: list[ExecutionReport], gap: float) -> None:
    """In any order, each twice: nothing raises, times stay in order, and a repeat of the end changes nothing."""
    controller, job = fresh()
    close(controller, job, 2.0)
    close(controller, job, 3.0)
    now = 8.0
    for one in order:
        now += gap
        done = job.segments[one.segment].done
        before = times(job)
        controller.report("a", one, now)
        if done:
            assert times(job) == before, "a repeat or late-comer changed something"
    for segment in job.segments:
        assert segment.started
        assert segment.done
        assert segment.ready_s <= segment.start_s <= segment.end_s <= now
    assert column(job, "due_s") == job.segments[1].end_s


def test_started_twice_counts_once() -> None:
    controller, job = fresh()
    close(controller, job, 2.0, execution_s=3.0)
    report(controller, 2.1, 0, "started")
    before = times(job)
    report(controller, 2.9, 0, "started")
    assert times(job) == before


# ---------------------------------------------------------------- values


def test_a_blocking_skill_waits_for_its_value_however_long() -> None:
    controller, job = fresh()
    close(controller, job, 2.0, execution_s=1.0, blocking=True)
    assert (job.awaiting, column(job, "resume_s"), controller.next_resume()) == (0, math.inf, math.inf)
    report(controller, 3.0, 0, "started")
    report(controller, 3.5, 0, "done")
    assert (job.awaiting, column(job, "resume_s")) == (0, math.inf), (
        "over, but what it returned is not here yet"
    )
    report(controller, 4.0, 0, "value", value="True")
    assert (job.awaiting, column(job, "resume_s"), column(job, "due_s")) == (None, -math.inf, 3.5)


def test_a_value_ends_its_segment() -> None:
    controller, job = fresh()
    close(controller, job, 2.0, execution_s=10.0, blocking=True)
    report(controller, 4.0, 0, "value", value="x", age_s=0.5)
    assert (job.segments[0].done, job.segments[0].end_s, column(job, "due_s")) == (True, 3.5, 3.5)


def test_a_value_comes_once_and_repeats_change_nothing() -> None:
    controller, job = fresh()
    close(controller, job, 2.0, blocking=True)
    report(controller, 3.0, 0, "value", value="x")
    close(controller, job, 4.0)
    close(controller, job, 5.0, blocking=True)
    before = times(job)
    report(controller, 6.0, 0, "value", value="x")
    assert times(job) == before
    with pytest.raises(Conflict, match="segment 1 returns no value"):
        report(controller, 6.0, 1, "value", value="x")
    assert job.awaiting == 2


def test_an_evicted_generation_still_waits_for_its_value() -> None:
    controller, job = fresh()
    close(controller, job, 2.0, blocking=True)
    controller.evict(job, 30, 3.0)
    assert column(job, "resume_s") == math.inf
    report(controller, 4.0, 0, "value", value="x")
    assert column(job, "resume_s") == -math.inf


# ---------------------------------------------------------------- switching and the journal


def populated(name: str) -> EngineController:
    """One running, one parked for long, one waiting for a value, one that never ran."""
    controller = EngineController(create_discipline(name), SPEED)
    for index, (job_id, blocking) in enumerate((("running", None), ("parked", False), ("awaiting", True))):
        job = controller.arrive(
            JobSpec(
                job_id, 0.1 * index, segment_tokens=10, hints=RequestHints(urgency=1, app="a", app_requests=4)
            )
        )
        if blocking is None:
            generate(controller, job, 3, 1.0)
        else:
            close(controller, job, 1.0, execution_s=20.0, blocking=blocking)
    controller.arrive(JobSpec("new", 0.9, hints=RequestHints(urgency=1, app="a", app_requests=4)))
    return controller


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.permutations(["timely", "fcfs", "edf", "priority"], 2))
)
def test_switching_keeps_all_jobs_and_what_they_wait_for(before: str, after: str) -> None:
    controller, direct = populated(before), populated(after)
    controller.switch(after, 2.0)
    assert controller.discipline.info.name == after
    for job in controller.table:
        twin = direct.table[job.job_id]
        assert (job.parked, job.awaiting) == (twin.parked, twin.awaiting)
        for name in ("resume_s", "due_s", "output_tokens", "segment", "segment_tokens", "resident", "active"):
            assert column(job, name) == column(twin, name), (job.job_id, name)
    assert controller.compose(limits(2.0)) == direct.compose(limits(2.0))


def test_an_unknown_discipline_changes_nothing() -> None:
    controller = populated("timely")
    with pytest.raises(UnknownName, match="known: "):
        controller.switch("nope", 2.0)
    assert controller.discipline.info.name == "timely"
    assert len(controller.table) == 4


def test_the_next_discipline_hears_of_jobs_in_order_of_arrival_with_a_clean_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller, _ = fresh()
    for name in "bcd":
        controller.arrive(JobSpec(name, 2.0))
    controller.finish("a", "complete", 2.0)  # moves the last row to the front
    controller.table.rank[:] = 7.0
    seen: list[tuple[Any, float]] = []

    class Next(Recording):
        def arrived(self, job: Job, now: float) -> None:
            seen.append((job.job_id, column(job, "rank")))
            job.table.rank[job.row] = 1.0

    monkeypatch.setattr("timely.engines.active_discipline.create_discipline", lambda name, files: Next())
    controller.switch("next", 3.0)
    assert seen == [("b", 0.0), ("c", 0.0), ("d", 0.0)]
    assert controller.table.rank.tolist() == [1.0, 1.0, 1.0]


def journal_of_a_story(*, details: bool) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    controller = EngineController(
        create_discipline("fcfs"), SPEED, lambda event: events.append(dict(event)), journal_details=details
    )
    job = controller.arrive(JobSpec("a", 1.0))
    close(controller, job, 2.0)
    report(controller, 2.5, 0, "done")
    controller.evict(job, 6, 2.6)
    controller.switch("edf", 2.7)
    controller.finish("a", "complete", 3.0)
    return events


def test_the_journal_tells_the_whole_story_as_plain_data() -> None:
    events = journal_of_a_story(details=True)
    assert [event["event"] for event in events] == [
        "arrive", "step", "segment", "report", "evict", "switch", "finish",
    ]  # fmt: skip
    assert [event["t_s"] for event in events] == sorted(event["t_s"] for event in events)
    assert events[1]["tokens"] == {"a": 1}
    assert events[3] == {"event": "report", "t_s": 2.5, "job": "a", "segment": 0, "kind": "done"}


def test_a_journal_without_details_has_jobs_steps_and_switches_alone() -> None:
    events = journal_of_a_story(details=False)
    assert [event["event"] for event in events] == ["arrive", "step", "switch", "finish"]
    assert set(events[1]) == {"event", "t_s"}


def test_a_journal_that_fails_is_kept_no_further(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[str] = []

    def fragile(event: Mapping[str, Any]) -> None:
        written.append(event["event"])
        raise OSError(28, "No space left on device")

    controller = EngineController(create_discipline("fcfs"), SPEED, journal=fragile)
    job = controller.arrive(JobSpec("a", 1.0))
    close(controller, job, 2.0)
    assert written == ["arrive"]
    assert caplog.text.count("the journal failed") == 1

    def broken(*_: object) -> None:
        raise TypeError("no such key")

    monkeypatch.setattr("timely.engines.scheduler_core.EngineController._step_event", broken)
    events: list[str] = []
    controller = EngineController(
        create_discipline("fcfs"), SPEED, journal=lambda event: events.append(event["event"])
    )
    close(controller, controller.arrive(JobSpec("a", 1.0)), 2.0)
    assert events == ["arrive"]
    assert len(job.segments) == 1


def test_a_switch_to_and_fro_forgets_nothing_that_was_learned() -> None:
    controller = EngineController(create_discipline("sagesched"), FixedSpeed(0.01))
    history = controller.discipline.knowledge()
    for number in range(3):
        controller.arrive(JobSpec(number, 0.0, text="name one planet"))
        controller.progress(controller.table[number], 5, 1.0)
        controller.finish(number, "stop", 1.0)
    assert len(history) == 3  # type: ignore[arg-type]
    for name in ("fcfs", "ssjf"):
        controller.switch(name, 2.0)
    assert controller.discipline.knowledge() is history, "of the same kind: it knows it too"
    controller.switch("justitia", 2.0)
    assert controller.discipline.knowledge() is not history
    controller.switch("sagesched", 3.0)
    assert controller.discipline.knowledge() is history


def test_a_discipline_switched_to_itself_begins_anew() -> None:
    """So no warm-up teaches it, also where it knew something from before."""
    controller = EngineController(create_discipline("timely"), FixedSpeed(0.01))
    for name in ("timely", "fcfs"):
        controller.arrive(JobSpec("warm-up", 0.0, segmented=False, plain=True))
        controller.progress(controller.table["warm-up"], 1, 1.0)
        controller.finish("warm-up", "stop", 1.0)
        controller.switch(name, 2.0)
    controller.switch("timely", 3.0)
    assert len(controller.discipline.knowledge()) == 1  # type: ignore[arg-type]
    controller.switch("timely", 4.0)
    assert len(controller.discipline.knowledge()) == 0  # type: ignore[arg-type]
    for name in ("fcfs", "timely"):
        controller.switch(name, 5.0)
    assert len(controller.discipline.knowledge()) == 0  # type: ignore[arg-type]
