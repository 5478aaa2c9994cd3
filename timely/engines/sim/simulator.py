"""The simulated engine: steps on a virtual clock, decided by the controller that the live engine uses too.

One step at a time: ask the controller, take blocks, let the profile say how long it takes; at its end tokens
appear, segments close, robots hear of them. Everything between two steps (arrivals, reports) is an event.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from timely.core.errors import EngineFailed, InvalidInput
from timely.core.job import Job, JobId, JobSpec
from timely.core.reports import ExecutionReport
from timely.disciplines.base import StepLimits, StepPlan
from timely.disciplines.registry import create
from timely.disciplines.step_time import LearnedSpeed
from timely.engines.controller import Controller
from timely.engines.replaying import BackendRun, JobRecord, PlannedTask, Progress, ReplayOptions
from timely.engines.sim.events import ARRIVAL, REPORT, STEP_END, WAKE, Agenda
from timely.engines.sim.journal import Journal, Series
from timely.engines.sim.kv import BlockPool, Holding
from timely.engines.sim.profile import ProfileSpeed, StepTime, StepTimeProfile, load_profile
from timely.engines.sim.profile import DEFAULT as DEFAULT_PROFILE
from timely.engines.sim.robots import Robots

PROGRESS_STEPS = 2000
"""Steps between two calls of the progress function."""


class Live:
    """A task in the engine: what the job table does not hold."""

    __slots__ = (
        "boundary", "computed", "holding", "index", "job", "output", "record", "swapped", "target", "task",
    )  # fmt: skip

    def __init__(self, task: PlannedTask, job: Job, record: JobRecord, holding: Holding) -> None:
        self.task = task
        self.job = job
        self.record = record
        self.holding = holding
        self.index = 0
        """Segment in generation."""
        self.boundary = task.plan[0].tokens
        """Output tokens at which it closes."""
        self.output = 0
        self.target = task.output_tokens
        self.computed = 0
        """Most context tokens that were ever in the KV cache: what is computed below is computed again."""
        self.swapped = 0
        """Context tokens in host memory."""


class Member:
    """A job's share of the step in flight."""

    __slots__ = ("live", "prefill", "tokens")

    def __init__(self, live: Live, tokens: int, prefill: bool) -> None:
        self.live = live
        self.tokens = tokens
        self.prefill = prefill


class Simulator:
    """Runs tasks to their end on a virtual clock.

    Args:
        options: how; see ``ReplayOptions``.
        profile: step times and sizes; loaded by ``options.profile`` unless given.

    Raises:
        UnknownName: no such discipline or profile.
        InvalidInput: a broken profile or a nonsensical option.
    """

    def __init__(self, options: ReplayOptions, profile: StepTimeProfile | None = None) -> None:
        self.options = options
        self.profile = profile or load_profile(options.profile or DEFAULT_PROFILE)
        kv, limits = self.profile.kv, self.profile.limits
        self.max_batch = _positive("max_batch", options.max_batch, limits.max_batch)
        self.token_budget = _positive("token_budget", options.token_budget, limits.token_budget)
        self.prefill_chunk = _positive("prefill_chunk", options.prefill_chunk, self.token_budget)
        self.pool = BlockPool(_positive("kv_blocks", options.kv_blocks, kv.blocks), kv.block_tokens)
        self.max_resident = _positive("max_resident", options.max_resident, 1 << 30)
        self.step_time = StepTime(self.profile.step_s)
        speed = LearnedSpeed() if options.learned_speed else ProfileSpeed(self.profile.step_s)
        self.journal = Journal() if options.journal else None
        self.series = Series()
        self.controller = Controller(create(options.discipline), speed)
        self.agenda = Agenda()
        self.robots = Robots(options)
        self.now = 0.0
        self.live: dict[JobId, Live] = {}
        self.records: list[JobRecord] = []
        self.finished = 0
        self.computed_tokens = 0
        self.prefill_tokens = 0
        self.cached_tokens = 0
        self.swapped_tokens = 0
        self.busy_s = 0.0
        self._tasks: Iterator[PlannedTask] = iter(())
        self._stepping = False
        self._wake_s = math.inf
        self._over: set[JobId] = set()
        """Requests of applications that have ended: others may wait for their answers."""
        self._followers: dict[JobId, list[JobRecord]] = {}
        self._awaited: dict[JobId, int] = {}
        self._segmented = options.mode == "segmented"
        self._whole = options.mode == "whole"

    # ------------------------------------------------------------------ running

    def run(self, tasks: Iterable[PlannedTask], progress: Progress | None = None) -> BackendRun:
        """Run all tasks (in order of arrival) to their end; Ctrl-C gives what is done so far.

        Raises:
            EngineFailed: the discipline runs nothing although jobs are runnable, and nothing will change that.
        """
        self._tasks = iter(tasks)
        self._next_arrival()
        until = math.inf if self.options.until_s is None else self.options.until_s
        agenda = self.agenda
        partial = False
        reported = 0
        try:
            while True:
                upcoming = agenda.next_s()
                if not self._stepping and upcoming > self.now and self._begin_step():
                    if progress is not None and self.controller.steps >= reported + PROGRESS_STEPS:
                        reported = self.controller.steps
                        progress(self.now, len(self.records), self.finished)
                    continue
                upcoming = agenda.next_s()
                if upcoming == math.inf:
                    break
                if upcoming > until:
                    self.now = until
                    break
                self.now = upcoming
                agenda.run_next()
        except KeyboardInterrupt:
            partial = True
        if self.live and not partial and agenda.next_s() == math.inf:
            raise EngineFailed(
                f"discipline {self.options.discipline!r} runs nothing at {self.now:.6f} s although"
                f" {len(self.live)} jobs are left"
            )
        for live in self.live.values():
            self._note(live)
        return BackendRun(
            records=self.records,
            end_s=self._end_s(),
            profile=self.profile.name,
            partial=partial,
            counters=self._counters(),
            series=self.series.columns(),
            journal=self.journal.to_dict() if self.journal is not None else None,
        )

    def _end_s(self) -> float:
        ends = [record.end_s[-1] for record in self.records if record.end_s]
        return max([self.now, *ends])

    def _counters(self) -> dict[str, float | int]:
        controller = self.controller
        return {
            "steps": controller.steps,
            "tokens": controller.tokens,
            "computed_tokens": self.computed_tokens,
            "prefill_tokens": self.prefill_tokens,
            "cached_tokens": self.cached_tokens,
            "recomputed_tokens": controller.recomputed_tokens,
            "swapped_tokens": self.swapped_tokens,
            "segments": controller.segments,
            "evictions": controller.evictions,
            "busy_s": self.busy_s,
        }

    # ------------------------------------------------------------------ events

    def _next_arrival(self) -> None:
        task = next(self._tasks, None)
        if task is not None:
            self.agenda.at(task.arrival_s, ARRIVAL, self._arrive, task)

    def _arrive(self, now: float, task: PlannedTask) -> None:
        self._next_arrival()
        record = JobRecord(task)
        self.records.append(record)
        awaited = [job_id for job_id in task.after if job_id not in self._over]
        if awaited:
            self._awaited[task.job] = len(awaited)
            record.note = f"waits for {', '.join(map(str, awaited))}"
            for job_id in awaited:
                self._followers.setdefault(job_id, []).append(record)
        else:
            self._submit(now, record)

    def _submit(self, now: float, record: JobRecord) -> None:
        task = record.task
        record.note = ""
        # All that the job will ever hold must fit into an empty cache, or it would wait for ever.
        whole = task.prompt_tokens + task.output_tokens
        if -(-whole // self.pool.block_tokens) > self.pool.capacity:
            record.outcome = "refused"
            record.note = (
                f"needs {whole} tokens of KV cache, there are {self.pool.capacity * self.pool.block_tokens}"
            )
            self._ended(task, now)
            return
        holding = self.pool.holding(task.prefix, task.shared_prefix_tokens, task.prompt_tokens)
        spec = JobSpec(
            job_id=task.job,
            arrival_s=now,
            utility=task.utility,
            prompt_tokens=task.prompt_tokens,
            cached_tokens=self.pool.hit_blocks(holding) * self.pool.block_tokens,
            max_tokens=task.output_tokens if task.max_tokens is None else task.max_tokens,
            segment_tokens=task.segment_bound or self.options.segment_bound,
            segmented=self._segmented,
            network_s=task.network_s,
            agent=task.agent,
            priority=task.priority,
            urgency=task.urgency,
            app=task.app,
            app_requests=task.app_requests,
            expected_tokens=task.expected_tokens,
            acceptance=task.acceptance,
            text=task.task,
        )
        try:
            job = self.controller.arrive(spec)
        except InvalidInput as error:
            record.outcome, record.note = "refused", str(error)
            self._ended(task, now)
            return
        self.live[task.job] = live = Live(task, job, record, holding)
        self._share(live)

    def _report(self, now: float, payload: tuple[JobId, ExecutionReport]) -> None:
        self.controller.report(payload[0], payload[1], now)

    def _wake(self, now: float, _: None) -> None:
        self._wake_s = math.inf

    # ------------------------------------------------------------------ a step

    def _begin_step(self) -> bool:
        """Compose a step and put its end on the agenda; False when nothing runs now."""
        if not self.live:
            return False
        controller, pool, now = self.controller, self.pool, self.now
        limits = StepLimits(
            now, self.token_budget, self.max_batch, self.max_resident, self.prefill_chunk, pool.free,
            pool.block_tokens, controller.speed,
        )  # fmt: skip
        plan = controller.compose(limits)
        moved = self._evict(plan, now) if plan.evict else 0
        table = controller.table
        members: list[Member] = []
        decodes = prefill_tokens = context = 0
        squares = 0.0
        for job_id, share in plan.tokens.items():
            live = self.live[job_id]
            job = live.job
            row = job.row
            if not table.resident[row]:
                moved += self._admit(live, now)
            left = int(table.prefill_left[row])
            begin = int(table.context_tokens[row])
            tokens = min(share, left) if left else 1
            if not pool.grow(live.holding, begin + tokens):
                continue
            controller.started(job)
            table.blocks[row] = live.holding.blocks
            end = begin + tokens
            if left:
                prefill_tokens += tokens
                squares += end * end - begin * begin
                if end < live.computed:
                    again = tokens
                else:
                    again = max(0, live.computed - begin)
                    live.computed = end
                if again:
                    controller.recomputed(job, again)
                if pool.publish(live.holding, end):
                    self._prefix_grew(live)
            else:
                decodes += 1
                context += end
                live.computed = end
            members.append(Member(live, tokens, left > 0))
        if not members:
            self._sleep(plan, now)
            return False
        step_s = self.step_time(decodes, len(members) - decodes, prefill_tokens, squares, context)
        if moved:
            step_s += moved * self.profile.kv.swap_s_per_token
        if step_s <= 0.0:
            raise InvalidInput(f"a step takes {step_s} s", where=f"profile {self.profile.name}: step_s")
        self._stepping = True
        self.busy_s += step_s
        self.prefill_tokens += prefill_tokens
        self.computed_tokens += prefill_tokens + decodes
        if self.journal is not None:
            self.journal.step(now, step_s, members, plan.evict)
        self.series.step(now, table, pool, len(members))
        self.agenda.at(now + step_s, STEP_END, self._end_step, (members, prefill_tokens, step_s))
        return True

    def _sleep(self, plan: StepPlan, now: float) -> None:
        """Nothing runs: come back when the discipline wants to, unless something happens before."""
        wake = plan.wake_s
        if now < wake < self._wake_s:
            self._wake_s = wake
            self.agenda.at(wake, WAKE, self._wake)

    def _end_step(self, now: float, payload: tuple[list[Member], int, float]) -> None:
        members, prefill_tokens, step_s = payload
        self._stepping = False
        controller = self.controller
        table = controller.table
        for member in members:
            live = member.live
            job = live.job
            row = job.row
            table.context_tokens[row] += member.tokens
            if member.prefill:
                table.prefill_left[row] -= member.tokens
                if table.prefill_left[row] > 0:
                    continue
            record = live.record
            if live.output == 0:
                record.first_token_s = now
            record.last_token_s = now
            live.output += 1
            controller.progress(job, 1, now)
            if live.output == live.boundary:
                self._close(live, now)
        controller.ran(len(members), prefill_tokens, step_s)

    def _close(self, live: Live, now: float) -> None:
        task, index = live.task, live.index
        segment = task.plan[index]
        last = live.output == live.target
        if not self._whole:
            estimate = self.robots.estimate_s(task, index)
            self.controller.close_segment(
                live.job, segment.text, estimate, now, blocking=segment.blocking, last=last
            )
            for when, report in self.robots.receive(live.record, index, now, estimate):
                self.agenda.at(when, REPORT, self._report, (task.job, report))
        if last:
            self._finish(live, now)
            return
        live.index += 1
        live.boundary += task.plan[live.index].tokens

    def _finish(self, live: Live, now: float) -> None:
        task = live.task
        if self._whole:
            # The robot gets the complete plan at once.
            for index in range(len(task.plan)):
                self.robots.receive(live.record, index, now, task.plan[index].execution_s)
        live.record.outcome = "complete"
        self._note(live)
        self.controller.finish(task.job, "complete", now)
        self.pool.release(live.holding)
        del self.live[task.job]
        self._ended(task, now)
        self._prefix_shared(live)

    def _ended(self, task: PlannedTask, now: float) -> None:
        """Served or refused: those of its application that wait for it may go on."""
        self.finished += 1
        if task.app is None:
            return
        self._over.add(task.job)
        for record in self._followers.pop(task.job, ()):
            follower = record.task
            self._awaited[follower.job] -= 1
            if not self._awaited[follower.job]:
                del self._awaited[follower.job]
                when = max(now + follower.after_s, follower.arrival_s)
                self.agenda.at(when, ARRIVAL, self._submit, record)

    def _note(self, live: Live) -> None:
        record, job = live.record, live.job
        record.preemptions = job.preemptions
        record.recomputed_tokens = job.recomputed_tokens
        record.output_tokens = live.output

    # ------------------------------------------------------------------ KV cache

    def _admit(self, live: Live, now: float) -> int:
        """Give a job its slot and whatever of its context is still stored; returns tokens moved in from the host."""
        table, row, record = self.controller.table, live.job.row, live.record
        found = self.pool.admit(live.holding)
        if record.admitted_s != record.admitted_s:
            record.admitted_s = now
            record.cached_tokens = found
            self.cached_tokens += found
        self._prefix_shared(live)
        if live.swapped:
            context, live.swapped = live.swapped, 0
            if self.pool.grow(live.holding, context):
                moved = max(0, context - found)
                self.swapped_tokens += moved
                table.context_tokens[row] = context
                return moved
        # All known tokens have to be in the cache before the next one can be sampled.
        known = live.task.prompt_tokens + live.output
        found = min(found, known - 1)
        table.context_tokens[row] = found
        table.prefill_left[row] = known - found
        live.computed = max(live.computed, found)
        return 0

    def _evict(self, plan: StepPlan, now: float) -> int:
        """Take KV caches away; returns tokens moved out to the host."""
        moved = 0
        table = self.controller.table
        for job_id in plan.evict:
            live = self.live[job_id]
            row = live.job.row
            context, left = int(table.context_tokens[row]), int(table.prefill_left[row])
            known = live.task.prompt_tokens + live.output
            if self._swaps(context):
                self.pool.evict(live.holding, context)
                live.swapped = context
                self.swapped_tokens += context
                moved += context
                self.controller.evict(live.job, left, now)
            else:
                self.pool.evict(live.holding, context)
                hit = self.pool.hit_blocks(live.holding) * self.pool.block_tokens
                self.controller.evict(live.job, known - min(hit, known - 1), now)
            self._prefix_shared(live)
        return moved

    def _swaps(self, context: int) -> bool:
        """Moving out and in again, or computing again? (The semantic paper's Eq. 3, the right way round.)"""
        cost = self.profile.kv.swap_s_per_token
        if self.options.eviction == "auto":
            terms = self.profile.step_s
            again = terms.per_prefill_token * context + terms.per_prefill_token_sq * context * context
            return 0.0 < cost and 2.0 * cost * context < again
        return self.options.eviction == "swap"

    def _share(self, live: Live) -> None:
        """Tell the table which of the job's blocks cost nobody anything, because others hold them too."""

    def _prefix_shared(self, live: Live) -> None:
        """The prefix gained or lost a user."""

    def _prefix_grew(self, live: Live) -> None:
        """More of the prefix is stored: whoever waits for it has less to compute."""
        prefix = live.holding.prefix
        table = self.controller.table
        for other in self.live.values():
            if other.holding.prefix is prefix and not table.resident[other.job.row] and not other.swapped:
                known = other.task.prompt_tokens + other.output
                hit = self.pool.hit_blocks(other.holding) * self.pool.block_tokens
                table.prefill_left[other.job.row] = known - min(hit, known - 1)
        self._prefix_shared(live)


def _positive(name: str, given: int | None, default: int) -> int:
    if given is None:
        return default
    if given < 1:
        raise InvalidInput(f"must be at least 1, got {given}", where=name)
    return given


class SimBackend:
    """The simulator as a replay engine."""

    name = "sim"

    def replay(
        self, tasks: Iterable[PlannedTask], options: ReplayOptions, progress: Progress | None = None
    ) -> BackendRun:
        """See ``Backend.replay``."""
        return Simulator(options).run(tasks, progress)


def backend() -> SimBackend:
    """What ``timely.replay`` looks up."""
    return SimBackend()
