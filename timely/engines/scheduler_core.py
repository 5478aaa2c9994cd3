"""The scheduling state machine both engines run: jobs, parking, due times, reports, and the discipline on top.

It depends on no engine. An engine calls it when something happened (an arrival, a token, a closed segment, an
eviction, an end) and asks it what to run next. So the simulator and the live vLLM scheduler take the same decisions
from the same code, and a test can compare them.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from timely.core.errors import Conflict
from timely.core.execution import ExecutionTrack
from timely.core.hints import RequestHints
from timely.core.job import NEVER, Job, JobId, JobSpec, JobTable, Segment
from timely.core.reports import ExecutionReport
from timely.core.utility import TimeUtility
from timely.disciplines.base import Discipline, Rows, StepLimits, StepPlan
from timely.disciplines.requirements import check_discipline_urgency
from timely.engines.active_discipline import ActiveEngineDiscipline
from timely.engines.base import PlanHistory, ResponsePrediction
from timely.engines.decision_log import GuardedEngineJournal, engine_scheduling_choice
from timely.engines.job_history import restore_engine_job
from timely.engines.promised_responses import PromisedStepInFlight
from timely.engines.robot_pace import EngineRobotPaces
from timely.engines.service_time import EngineServiceTime
from timely.engines.step_time.learned import FixedSpeed, LearnedSpeed, StepTimeLearner
from timely.routing.forecast import routing_backlog_s, routing_evictable_blocks
from timely.routing.reported_load import report_routing_load

Journal = Callable[[Mapping[str, Any]], None]
"""Receives every event and decision as plain data."""

JOURNAL_HINTS = ("urgency", "priority", "app", "expected_tokens")
"""Hints that the journal notes of an arrival."""

JOB_EVENTS = ("arrive", "finish")
"""Events of a job that a journal without details has, too: they tell how many jobs live at each step."""

STEPS_IN_FLIGHT = 16
"""Most composed steps kept until they are over; vLLM's pipeline holds fewer."""

UNMOVED_S = 1e-6
"""A report that moves the end of a robot's work by less repeats what was expected; the rest is rounding."""


class EngineController:
    """State of all live generations and the decisions about them.

    Args:
        discipline: decides each step; can be switched at any time.
        speed: step times; learned online unless given.
        journal: receives every event and decision; None to keep none.
        journal_details: as of ``GuardedEngineJournal``.
        files, fallback: as of ``ActiveEngineDiscipline``.
    """

    def __init__(
        self,
        discipline: Discipline,
        speed: LearnedSpeed | FixedSpeed | None = None,
        journal: Journal | None = None,
        *,
        journal_details: bool = True,
        files: Sequence[Path] = (),
        fallback: str = "",
    ) -> None:
        self.table = JobTable()
        self._active = ActiveEngineDiscipline(
            discipline, self.table, files, fallback, self._park, self._note_fallback
        )
        self.speed: LearnedSpeed | FixedSpeed = speed or LearnedSpeed()
        self._journal_details = journal_details
        self.journal = journal
        self.paces = EngineRobotPaces()
        """How much faster than its profile each robot has been."""
        self._service_time = EngineServiceTime()
        self.steps = 0
        self.busy_s = 0.0
        """Time of all steps."""
        self.tokens = 0
        self.segments = 0
        self.evictions = 0
        self.recomputed_tokens = 0
        self._learner = StepTimeLearner(self._observe)
        self._tracks: dict[JobId, ExecutionTrack] = {}
        """What each job's robot is doing."""
        self._limits: StepLimits | None = None
        self._steps: deque[list[JobId]] = deque(maxlen=STEPS_IN_FLIGHT)
        """Members of each step that is composed and not over; several steps with asynchronous scheduling."""
        self._in_flight: PromisedStepInFlight | None = None
        """The latest step, over or not, if a response was promised when it was composed."""

    # ------------------------------------------------------------------ what happened

    def arrive(self, spec: JobSpec, history: PlanHistory | None = None, now: float | None = None) -> Job:
        """A generation joins.

        Args:
            history: what happened to it before a restart. Its whole context is to be computed.
            now: the time, if it is not that of the arrival.

        Raises:
            Conflict: a live job has that id.
            InvalidInput: the discipline cannot take it; nothing has changed.
        """
        if spec.job_id in self.table:
            raise Conflict(f"job {spec.job_id!r} is already being served", where="job_id")
        now = spec.arrival_s if now is None else now
        self._active.check(spec, now)
        if history is None:
            # The response to a plan of before a restart says nothing of this engine.
            self._service_time.arrive(spec, self.table, self.speed, self._limits)
        job = self.table.add(spec)
        track = self._tracks[spec.job_id] = ExecutionTrack(spec.arrival_s, spec.hints.network_s)
        job.segments = track.segments
        if history is not None:
            restore_engine_job(job, track, history)
            self._set_due(job)
            if job.parked:
                self._park(job, now)
        self._active.inform("arrived", job, now)
        if job.parked:
            # How early it becomes runnable may follow from what the discipline has just noted.
            self._park(job, now)
            self._active.inform("due_changed", job, now)
        if self.journal:
            hints = {name: getattr(spec.hints, name) for name in JOURNAL_HINTS}
            entries = {name: value for name, value in hints.items() if value is not None}
            self._note("arrive", spec.arrival_s, spec.job_id, segmented=spec.segmented, **entries)
        return job

    def _note(self, event: str, now: float, job: JobId, **entries: Any) -> None:
        if self.journal and (self.journal.details or event in JOB_EVENTS):
            self.journal({"event": event, "t_s": now, "job": job, **entries})

    def progress(self, job: Job, tokens: int, now: float) -> None:
        """``tokens`` new output tokens exist (context, blocks and prefill are the engine's to set)."""
        table, row = job.table, job.row
        table.output_tokens[row] += tokens
        table.segment_tokens[row] += tokens
        if job.spec.plain:
            table.due_s[row] = now
        self.tokens += tokens
        self._active.inform("progressed", job, now, tokens)

    def progress_together(self, rows: Rows, tokens: Rows, now: float) -> list[int]:
        """``progress`` for different jobs of a step at once: ``tokens[i]`` new tokens of the job in ``rows[i]``.

        Returns:
            Places of those jobs whose first tokens these are.
        """
        table = self.table
        before = table.output_tokens[rows]
        table.output_tokens[rows] = before + tokens
        table.segment_tokens[rows] += tokens
        table.due_s[rows[table.plain[rows]]] = now
        self.tokens += int(tokens.sum())
        if self.discipline.follows_tokens:
            for job, count in zip([table.jobs[row] for row in rows], tokens.tolist(), strict=True):
                self._active.inform("progressed", job, now, count)
        first: list[int] = np.flatnonzero(before == 0).tolist()
        return first

    def accepted(self, job: Job, draft_tokens: int, right_tokens: int, now: float) -> None:
        """Speculative decoding verified ``draft_tokens`` of the job; call it before ``progress``."""
        self._active.inform("accepted", job, now, draft_tokens, right_tokens)

    def close_segment(
        self,
        job: Job,
        text: str,
        execution_s: float,
        now: float,
        *,
        blocking: bool = False,
        surplus_tokens: int = 0,
        last: bool = False,
    ) -> Segment:
        """A segment is complete: note its times and park the generation until the robot runs dry.

        Args:
            execution_s: execution time by the robot's profile, seconds; its pace makes the expected one of it.
            surplus_tokens: tokens of the same step that already belong to the next segment.
            last: nothing follows; the job is not parked, so that its end costs no wait.
        """
        table, row = job.table, job.row
        segment = Segment(
            index=len(job.segments),
            text=text,
            tokens=int(table.segment_tokens[row]) - surplus_tokens,
            ready_s=now,
            execution_s=execution_s,
            blocking=blocking,
            pace=self.paces.of(job.spec.hints.agent, text),
        )
        self._tracks[job.job_id].release(segment)
        self._service_time.close_segment(job, now)
        self.segments += 1
        table.segment[row] += 1
        table.segment_tokens[row] = surplus_tokens
        self._set_due(job)
        # A job that awaits a value already does not resume for a segment closed by the same token.
        if job.spec.segmented and not last and job.awaiting is None:
            if blocking:
                job.awaiting = segment.index
            self._park(job, now)
            self._active.inform("parked", job, now)
        pace_field = {} if segment.pace == 1.0 else {"pace": segment.pace}
        self._note(
            "segment", now, job.job_id, index=segment.index, tokens=segment.tokens, execution_s=execution_s,
            due_s=float(table.due_s[row]), resume_s=float(table.resume_s[row]), **pace_field,
        )  # fmt: skip
        return segment

    def report(self, job_id: JobId, report: ExecutionReport, now: float) -> Job | None:
        """A robot's report replaces the estimate; repeated and late ones change nothing.

        Returns the job, or None when it is not live (any more). A value report only checks and clears the
        wait; appending the value to the context is the engine's.

        Raises:
            Conflict: that segment does not exist yet, or no value is awaited from it.
        """
        job = self.table.get(job_id)
        if job is None:
            return None
        if report.segment >= len(job.segments):
            raise Conflict(
                f"segment {report.segment} has not been sent; {len(job.segments)} have", where="segment"
            )
        segment = job.segments[report.segment]
        began = segment.started
        if report.kind == "value":
            self._value(job, segment, report, now)
        elif self._tracks[job_id].report(report, now):
            if report.kind == "done":
                self._learn_pace(job, segment, report, began)
            self._postpone(job, now)
        self._note("report", now, job_id, **report.to_dict())
        return job

    def _learn_pace(self, job: Job, segment: Segment, report: ExecutionReport, began: bool) -> None:
        """A robot has ended a segment; a blocking one teaches nothing, since it waits for what it reads."""
        if segment.blocking:
            return
        measured_s = report.elapsed_s
        if measured_s is None and began:
            measured_s = segment.end_s - segment.start_s
        if measured_s is not None:
            self.paces.learn(job.spec.hints.agent, segment.text, segment.execution_s, measured_s)

    def _value(self, job: Job, segment: Segment, report: ExecutionReport, now: float) -> None:
        if job.awaiting != report.segment:
            if segment.blocking and (job.awaiting is None or report.segment < job.awaiting):
                return  # a repeat: the generation went past this segment, so its value has come
            reason = "no value is awaited" if job.awaiting is None else f"awaited is that of {job.awaiting}"
            raise Conflict(f"segment {report.segment} returns no value; {reason}", where="segment")
        # The value is there: so the skill is over, unless a report of its end came first.
        self._tracks[job.job_id].report(report, now)
        another = job.answer()
        self._set_due(job)
        if job.ready and not another:
            job.table.resume_s[job.row] = -math.inf
        self._active.inform("due_changed", job, now)

    def set_ready(self, job: Job, now: float, *, ready: bool) -> None:
        """The engine can run the job from now on, or cannot: its grammar compiles, its KV cache is loaded, and so on.

        A job that is not ready is not runnable, so that no discipline plans for it.
        """
        if ready == job.ready:
            return
        job.ready = ready
        if job.parked or not ready:
            self._park(job, now, parked=job.parked)
        else:
            job.table.resume_s[job.row] = now
        self._active.inform("due_changed", job, now)

    def set_urgency(self, job_id: JobId, urgency: int, now: float) -> Job | None:
        """An operator's urgency replaces that of a live job; None when it is not live.

        Raises:
            InvalidInput: no such level.
        """
        check_discipline_urgency(urgency)
        job = self.table.get(job_id)
        if job is None:
            return None
        self.table.urgency[job.row] = urgency
        self._active.inform("due_changed", job, now)
        self._note("urgency", now, job_id, urgency=urgency)
        return job

    def evict(self, job: Job, context_tokens: int, now: float) -> None:
        """The job lost its KV cache; ``context_tokens`` are to be computed again before it can go on."""
        table, row = job.table, job.row
        job.preemptions += 1
        self.evictions += 1
        table.resident[row] = False
        table.active[row] = False
        table.blocks[row] = 0
        table.context_tokens[row] = 0
        table.prefill_left[row] = context_tokens
        self._active.inform("evicted", job, now)
        if job.parked and job.awaiting is None:
            # Computing its context again takes time: it has to be runnable earlier.
            self._park(job, now)
            self._active.inform("due_changed", job, now)
        self._note("evict", now, job.job_id, context_tokens=context_tokens)

    def recomputed(self, job: Job, tokens: int) -> None:
        """``tokens`` were computed a second time."""
        job.recomputed_tokens += tokens
        self.recomputed_tokens += tokens

    def finish(self, job_id: JobId, outcome: str, now: float) -> Job | None:
        """End a job with any outcome and return it; None if it is not live."""
        jobs = self.finish_together({job_id: outcome}, now)
        return jobs[0] if jobs else None

    def finish_together(self, outcomes: Mapping[Any, str], now: float) -> list[Job]:
        """``finish`` for several jobs at once; returns those that were live."""
        jobs = [self.table[job_id] for job_id in outcomes if job_id in self.table]
        for job in jobs:
            job.outcome = outcomes[job.job_id]
        self._active.finish(jobs, now)
        self.table.remove_together([job.job_id for job in jobs])
        for job in jobs:
            del self._tracks[job.job_id]
            self._service_time.finish(job.job_id)
            self._note("finish", now, job.job_id, outcome=job.outcome)
        return jobs

    def create(self, name: str) -> Discipline:
        """A discipline for ``switch``, on any thread: some load a model, which takes seconds.

        Raises:
            UnknownName: no such discipline. InvalidInput: its predictor file is none.
        """
        return self._active.create(name)

    def switch(self, name: str, now: float, fresh: Discipline | None = None) -> None:
        """Hand all live jobs to another discipline; nothing is lost or repeated.

        Args:
            fresh: the discipline from ``create(name)``; None creates it here.

        Raises:
            UnknownName: no such discipline; the current one stays.
        """
        self._active.switch(name, now, fresh)
        if self.journal:
            self.journal({"event": "switch", "t_s": now, "discipline": name})

    def _note_fallback(self, failed_name: str, now: float) -> None:
        if self.journal:
            name = self.discipline.info.name
            self.journal({"event": "switch", "t_s": now, "discipline": name, "failed": failed_name})

    @property
    def discipline(self) -> Discipline:
        return self._active.current

    @property
    def journal(self) -> GuardedEngineJournal | None:
        return self._journal

    @journal.setter
    def journal(self, journal: Journal | None) -> None:
        self._journal = journal and GuardedEngineJournal(journal, details=self._journal_details)

    # ------------------------------------------------------------------ what to do

    def compose(self, limits: StepLimits) -> StepPlan:
        self._limits = limits
        if not self._steps or self._steps[-1]:
            self._steps.append([])
        plan = self._active.compose(limits)
        before = self._in_flight if len(self._steps) > 1 else None
        self._in_flight = None
        if self.table.promised.any():
            begin_s = limits.now if before is None else max(limits.now, before.end_s)
            self._in_flight = PromisedStepInFlight.of(plan, self.table, limits, begin_s)
        if self.journal and (plan.tokens or plan.evict):
            self.journal(lambda: self._step_event(plan, limits))
        return plan

    def _step_event(self, plan: StepPlan, limits: StepLimits) -> dict[str, Any]:
        if self.journal and not self.journal.details:
            return {"event": "step", "t_s": limits.now}
        event: dict[str, Any] = {
            "event": "step", "t_s": limits.now, "tokens": dict(plan.tokens), "evict": list(plan.evict),
        }  # fmt: skip
        if plan.limited_by:
            event["choice"] = engine_scheduling_choice(plan, self.table, limits.now)
        return event

    def started(self, job: Job) -> None:
        """The job takes part in the step just composed; from its first one it is in the pool until it parks."""
        if self._steps:
            self._steps[-1].append(job.job_id)
        if not job.table.active[job.row]:
            self._activate(np.array([job.row]))

    def started_together(self, job_ids: Sequence[JobId], rows: Rows) -> list[int]:
        """``started`` for all jobs of a step at once; ``rows`` are theirs.

        Returns:
            Places of those that were not in the pool.
        """
        if self._steps:
            self._steps[-1].extend(job_ids)
        is_fresh = ~self.table.active[rows]
        if not is_fresh.any():
            return []
        self._activate(rows[is_fresh])
        fresh: list[int] = is_fresh.nonzero()[0].tolist()
        return fresh

    def _activate(self, rows: Rows) -> None:
        table = self.table
        for row in rows.tolist():
            table.jobs[row].parked = False
        table.active[rows] = table.resident[rows] = True
        table.resume_s[rows] = -math.inf

    def ran(
        self,
        sequences: int,
        prefill_tokens: int,
        step_s: float,
        context_tokens: int = 0,
        *,
        prompts_follow: bool = False,
    ) -> None:
        """The oldest step is over: learn from its time, and charge it whole to each member.

        Args:
            context_tokens: sum over decoding members of the tokens they attend to.
            prompts_follow: the next step was composed while this one ran, and has prompts; see ``StepTimeLearner``.
        """
        self.steps += 1
        self.busy_s += step_s
        self._learner.ran(sequences, prefill_tokens, step_s, context_tokens, prompts_follow=prompts_follow)
        if self._steps:
            rows = self.table.rows(self._steps.popleft())
            self.table.attained_s[rows[rows >= 0]] += step_s

    def ran_again(self, job_ids: Sequence[JobId], step_s: float, context_tokens: int) -> None:
        """One more step like the last composed one is over, which is not the last since its plan is steady."""
        self.steps += 1
        self.busy_s += step_s
        if self._in_flight is not None:
            self._in_flight.end_s += step_s
        self._observe(len(job_ids), 0, step_s, context_tokens, 0.0, 0.0)
        for job_id in job_ids:
            job = self.table.get(job_id)
            if job is not None:
                self.table.attained_s[job.row] += step_s

    def _observe(self, *step: float) -> None:
        """Learn from a step; the arguments are those of ``LearnedSpeed.observe``."""
        if self._limits is not None:
            sequences, prefill_tokens, step_s, context_tokens = step[:4]
            predicted_s = self.speed.step_s(sequences, prefill_tokens, context_tokens)
            self._service_time.ran(self._limits.now, step_s, predicted_s)
        self.speed.observe(*step)

    def counters(self) -> dict[str, int]:
        """Counts since the start, by the names of ``EngineStats``."""
        names = ("steps", "tokens", "segments", "evictions", "recomputed_tokens")
        return {name: getattr(self, name) for name in names}

    def maintain(self) -> None:
        """While the accelerator computes: let the discipline do what need not wait for the next step."""
        if self._limits is not None:
            self._active.maintain(self._limits)

    def next_resume(self) -> float:
        """The earliest time at which some job is runnable; ``-inf`` if one is now, ``inf`` if none by itself."""
        column = self.table.resume_s
        return float(column.min()) if column.size else NEVER

    def load(self, now: float, kv_blocks: int) -> dict[str, Any]:
        """The fields of ``EngineStats`` by which routers of other servers choose an engine, and its busy time."""
        table = self.table
        return {
            "runnable": int(np.count_nonzero(table.resume_s <= now)),
            "evictable_kv": routing_evictable_blocks(table, now) / kv_blocks,
            "backlog_s": routing_backlog_s(table, self.speed, now),
            "busy_s": self.busy_s,
        }

    def reported_load(self) -> dict[str, Any]:
        """What a front-end reads that chooses one of several engines."""
        return report_routing_load(self.table, self.speed, self._limits)

    def predict_response(
        self, utility: TimeUtility, now: float, ahead: Sequence[RequestHints] = ()
    ) -> ResponsePrediction:
        """The time until a request that comes now has its first segment.

        Args:
            ahead: of requests that come before it and are not here yet.
        """
        in_flight = self._in_flight if any(self._steps) else None
        return self._service_time.predict(
            utility, self.table, self.speed, self._limits, now, in_flight, ahead
        )

    # ------------------------------------------------------------------ times

    def _park(self, job: Job, now: float, *, parked: bool = True) -> None:
        table, row = job.table, job.row
        able = job.ready and job.awaiting is None
        lead_s = self._active.lead_s(job, self.speed, now) if able else 0.0
        table.resume_s[row] = table.due_s[row] - lead_s if able else NEVER
        table.active[row] = False
        job.parked = parked

    def _postpone(self, job: Job, now: float) -> None:
        """A report moved the end of the robot's work: what is due moves with it, by as much.

        How early a parked generation becomes runnable stays as it was when it was parked, whether its robot reports
        or not.
        """
        table, row = job.table, job.row
        before = float(table.due_s[row])
        self._set_due(job)
        later_s = float(table.due_s[row]) - before
        if abs(later_s) < UNMOVED_S:
            return
        if job.parked and job.awaiting is None:
            table.resume_s[row] += later_s
        self._active.inform("due_changed", job, now)

    def _set_due(self, job: Job) -> None:
        """The robot needs the next segment when it has done those it has (TimelyLLM Fig. 3)."""
        job.table.due_s[job.row] = self._tracks[job.job_id].end_s
