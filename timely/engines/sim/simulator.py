"""The simulated engine: steps on a virtual clock, decided by the controller that the live engine uses too.

One step at a time: the controller composes it, blocks are taken, and the profile gives its time (``steps``). At its end
tokens appear, segments close, and robots get them. Arrivals (``arrivals``) and reports between two steps are events.
"""

import math
from collections.abc import Callable, Iterable, Sequence

from timely.core.errors import EngineFailed, InvalidInput
from timely.core.job import JobId, JobSpec
from timely.core.reports import ExecutionReport
from timely.disciplines.base import Discipline
from timely.disciplines.registry import create_discipline
from timely.disciplines.requirements import SPECULATION, check_queue_discipline_needs
from timely.engines.base import engine_job_spec
from timely.engines.replay_estimates import ReplayEstimates
from timely.engines.replay_types import BackendRun, JobRecord, PlannedTask, Progress, ReplayOptions
from timely.engines.scheduler_core import EngineController
from timely.engines.sim.arrivals import SimArrivals
from timely.engines.sim.events import REPORT, SimAgenda
from timely.engines.sim.memory import SimMemory, SimTask
from timely.engines.sim.robots import SimRobots
from timely.engines.sim.speculation import SimSpeculation
from timely.engines.sim.steps import SimSteps, positive_simulator_option
from timely.engines.step_time.learned import LearnedSpeed
from timely.engines.step_time.profile import DEFAULT as DEFAULT_PROFILE
from timely.engines.step_time.profile import ProfileSpeed, StepTimeProfile, load_step_profile

PROGRESS_EVENTS = 256
"""Events between two calls of the progress function."""


class Simulator:
    """Runs tasks to their end on a virtual clock.

    Args:
        profile: step times and sizes; loaded by ``options.profile`` unless given.
        repeat_steps: take steps that decide nothing new without asking; off, every step is composed. The result
            is the same, sooner.
        discipline: one that is set up already (with a trained predictor, say); created by ``options.discipline``
            unless given. Whether it makes sense without speculation is then the caller's affair.
        speed: step times learned before, to learn on from; none by default. Not where
            ``options.learned_speed`` is false.
        next_arrival_s: time of the next task that a router may submit, seconds; None: all tasks come by ``run``.
        drift: what step times are multiplied by at a time, seconds: the machine's speed changes.

    Raises:
        UnknownName: no such discipline or profile.
        InvalidInput: a broken profile or a nonsensical option.
        Unsupported: the named discipline needs speculation, and there is none.
    """

    def __init__(
        self,
        options: ReplayOptions,
        profile: StepTimeProfile | None = None,
        *,
        repeat_steps: bool = True,
        discipline: Discipline | None = None,
        speed: LearnedSpeed | None = None,
        next_arrival_s: Callable[[], float] | None = None,
        drift: Callable[[float], float] | None = None,
    ) -> None:
        self.options = options
        self.profile = profile or load_step_profile(options.profile or DEFAULT_PROFILE)
        terms = self.profile.speculation
        drafts = options.draft_tokens
        if drafts is None:
            drafts = terms.draft_tokens if terms is not None else 0
        self.speculation = SimSpeculation(drafts, terms, options.seed)
        learned_speed: LearnedSpeed | ProfileSpeed = (
            speed or LearnedSpeed()
            if options.learned_speed
            else ProfileSpeed(self.profile.step_s, self.speculation.step_s(drafts))
        )
        if discipline is None:
            discipline = create_discipline(options.discipline)
            check_queue_discipline_needs(discipline.info, {SPECULATION} if drafts else ())
        self.controller = EngineController(discipline, learned_speed)
        capacity = positive_simulator_option("kv_blocks", options.kv_blocks, self.profile.kv.blocks)
        self.memory = SimMemory(capacity, self.profile, options, self.controller)
        self.agenda = SimAgenda()
        self.estimates = ReplayEstimates(options)
        self.robots = SimRobots(options)
        self.live: dict[JobId, SimTask] = {}
        self.steps = SimSteps(
            options, self.profile, self.controller, self.memory, self.agenda, self.speculation, self.live,
            self._close, self._finish, repeat_steps=repeat_steps, next_arrival_s=next_arrival_s, drift=drift,
        )  # fmt: skip
        self.arrivals = SimArrivals((), 0.0, self.agenda, self.submit)
        self.now = 0.0
        self.finished_tasks = 0
        self._whole = options.mode == "whole"

    # ------------------------------------------------------------------ running

    def run(
        self, tasks: Iterable[PlannedTask], progress: Progress | None = None, *, keep_partial: bool = False
    ) -> BackendRun:
        """Run all tasks (in order of arrival) to their end.

        Args:
            keep_partial: Ctrl-C gives what is done so far; the caller has to look at ``partial``.

        Raises:
            EngineFailed: the discipline runs nothing although jobs are runnable, and nothing will change that.
        """
        self.arrivals = SimArrivals(tasks, self.options.admission_s, self.agenda, self.submit)
        records = self.arrivals.records
        until_s = math.inf if self.options.until_s is None else self.options.until_s
        agenda = self.agenda
        partial = False
        try:
            while (when := agenda.next_s()) < math.inf:
                if when > until_s:
                    self.now = until_s
                    break
                self.now = when
                agenda.run_next()
                if agenda.next_s() > when:
                    self.steps.advance(when)
                if progress is not None and agenda.event_count % PROGRESS_EVENTS == 0:
                    progress(when, len(records), self.finished_tasks)
            else:
                self._check_all_done()
        except KeyboardInterrupt:
            if not keep_partial:
                raise
            partial = True
        for live in self.live.values():
            self._note(live)
        journal = self.steps.journal
        return BackendRun(
            records=records,
            end_s=sim_replay_end_s(self.now, records),
            profile=self.profile.name,
            partial=partial,
            counters=self.counters(),
            series=self.steps.series.columns(),
            journal=journal.to_dict() if journal is not None else None,
        )

    def _check_all_done(self) -> None:
        if self.live:
            raise EngineFailed(
                f"discipline {self.options.discipline!r} runs nothing at {self.now:.6f} s although"
                f" {len(self.live)} jobs are left, and nothing further will happen"
            )
        self.arrivals.check_all_submitted()

    def counters(self) -> dict[str, float | int]:
        controller = self.controller
        speculation = self.speculation
        rounds: dict[str, float | int] = (
            {"drafted_tokens": speculation.draft_tokens, "accepted_tokens": speculation.right_tokens}
            if speculation.drafts
            else {}
        )
        return {
            "steps": controller.steps,
            "tokens": controller.tokens,
            "computed_tokens": self.steps.computed_tokens,
            "prefill_tokens": self.steps.prefill_tokens,
            "cached_tokens": self.memory.cached_tokens,
            "recomputed_tokens": controller.recomputed_tokens,
            "swapped_tokens": self.memory.swapped_tokens,
            "segments": controller.segments,
            "evictions": controller.evictions,
            "busy_s": self.steps.busy_s,
            **rounds,
        }

    # ------------------------------------------------------------------ jobs

    def submit(self, now: float, record: JobRecord) -> None:
        """A task has reached the engine."""
        task = record.task
        record.note = ""
        # All that the job will ever hold must fit into an empty cache, or it would wait for ever.
        if not self.memory.fits(task.prompt_tokens + task.output_tokens):
            record.outcome = "refused"
            record.note = (
                f"needs {task.prompt_tokens + task.output_tokens} tokens of KV cache, there are"
                f" {self.memory.pool.capacity * self.memory.block_tokens}"
            )
            self._on_end(task, now)
            return
        holding, cached_tokens = self.memory.holding(task)
        try:
            job = self.controller.arrive(self.spec(record, cached_tokens), now=now)
        except InvalidInput as error:
            record.outcome, record.note = "refused", str(error)
            self._on_end(task, now)
            return
        self.live[task.job] = live = SimTask(task, job, record, holding)
        self.memory.arrive(live)
        if self.speculation.drafts:
            self.steps.drafting.expect(live)

    def spec(self, record: JobRecord, cached_tokens: int) -> JobSpec:
        """The job of a task; ``cached_tokens`` of its prompt are in the prefix cache."""
        task = record.task
        return engine_job_spec(
            task.job,
            record.arrived_s,
            task.hints,
            self.options.mode,
            plain=task.plain,
            whole_answer=task.whole_answer,
            prompt_tokens=task.prompt_tokens,
            cached_tokens=cached_tokens,
            max_tokens=task.limit_tokens,
            segment_tokens=self.estimates.segment_bound(task),
            acceptance=task.acceptance,
            text=task.task,
        )

    def _report(self, now: float, payload: tuple[JobId, ExecutionReport]) -> None:
        self.controller.report(payload[0], payload[1], now)

    def _close(self, live: SimTask, now: float) -> bool:
        """The segment in generation is complete; returns whether that was the last."""
        task, index = live.task, live.index
        last = live.boundary == live.target
        if not self._whole and not task.plain:
            segment = task.plan[index]
            estimate = self.estimates.estimate_s(task, index)
            closed_segment = self.controller.close_segment(
                live.job,
                segment.text,
                estimate,
                now,
                blocking=segment.blocking,
                surplus_tokens=live.output - live.boundary,
                last=last,
            )
            for when, report in self.robots.receive(live.record, index, now, closed_segment.expected_s):
                self.agenda.at(when, REPORT, self._report, (task.job, report))
        if last:
            return True
        live.index += 1
        live.boundary += task.plan[live.index].tokens
        return False

    def _finish(self, lives: list[SimTask], now: float) -> None:
        for live in lives:
            task = live.task
            if self._whole and not task.plain:
                # The plan is one segment, which its robot gets only now.
                self.controller.close_segment(
                    live.job,
                    "".join(segment.text for segment in task.plan),
                    sum(self.estimates.estimate_s(task, index) for index in range(len(task.plan))),
                    now,
                    last=True,
                )
            if self._whole or task.plain:
                # The complete answer leaves the engine at once.
                for index in range(len(task.plan)):
                    self.robots.receive(live.record, index, now, task.plan[index].execution_s)
            live.record.outcome = "complete"
            self._note(live)
            self.memory.release(live)
            self.speculation.forget(task.job)
            del self.live[task.job]
        self.controller.finish_together({live.task.job: "complete" for live in lives}, now)
        for live in lives:
            self._on_end(live.task, now)

    def _on_end(self, task: PlannedTask, now: float) -> None:
        self.finished_tasks += 1
        self.arrivals.end(task, now)

    def _note(self, live: SimTask) -> None:
        record, job = live.record, live.job
        record.preemptions = job.preemptions
        record.recomputed_tokens = job.recomputed_tokens
        record.output_tokens = live.output


def sim_replay_end_s(now: float, records: Sequence[JobRecord]) -> float:
    """When the last event was, and the last segment's execution ended, seconds."""
    return max([now, *(record.end_s[-1] for record in records if record.end_s)])


class SimBackend:
    """The simulator as a replay engine."""

    name = "sim"

    def replay(
        self, tasks: Iterable[PlannedTask], options: ReplayOptions, progress: Progress | None = None
    ) -> BackendRun:
        return Simulator(options).run(tasks, progress, keep_partial=True)


def replay_backend() -> SimBackend:
    """What ``timely.replay`` looks up."""
    return SimBackend()
