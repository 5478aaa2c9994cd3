"""The simulated engine: steps on a virtual clock, decided by the controller that the live engine uses too.

One step at a time: the controller composes it, blocks are taken, and the profile gives its time. At its end tokens
appear, segments close, and robots get them. Arrivals and reports between two steps are events. With an asynchronous
profile the next step is composed as soon as one begins, from the state at that time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from timely.core.errors import EngineFailed, InvalidInput
from timely.core.job import PLAIN_SEGMENT_TOKENS, JobId, JobSpec
from timely.core.reports import ExecutionReport
from timely.disciplines.base import Discipline, StepLimits, StepPlan
from timely.disciplines.registry import create_discipline
from timely.disciplines.requirements import SPECULATION, check_discipline_needs
from timely.engines.replay_types import BackendRun, JobRecord, PlannedTask, Progress, ReplayOptions
from timely.engines.scheduler_core import Controller
from timely.engines.sim.events import ARRIVAL, REPORT, STEP_END, WAKE, Agenda
from timely.engines.sim.journal import Journal, Series
from timely.engines.sim.memory import Live, Memory
from timely.engines.sim.robots import Robots
from timely.engines.sim.speculation import Speculation
from timely.engines.step_time.learned import LearnedSpeed
from timely.engines.step_time.profile import DEFAULT as DEFAULT_PROFILE
from timely.engines.step_time.profile import ProfileSpeed, StepTime, StepTimeProfile, load_step_profile

PLAIN_MAX_TOKENS = 4096
"""Most output tokens of a plain request that names no limit."""

PROGRESS_EVENTS = 256
"""Events between two calls of the progress function."""


@dataclass(slots=True)
class Step:
    """A step that is composed: in flight, or the next.

    Attributes:
        members: (live job, its tokens, whether they are prompt tokens); one that decodes has one and its draft tokens.
        times: seconds; of a row of steps each one's, the last being in flight.
        partial: of those computed ahead, whose prompt goes on after this step.
        begun_s: when the engine takes it to have begun: at the end of the one before.
        over_s: when it really was over, if the engine saw that only later.
    """

    members: list[tuple[Live, int, bool]]
    prefill_tokens: int
    times: list[float]
    partial: frozenset[JobId] = frozenset()
    begun_s: float = 0.0
    over_s: float | None = None


class Simulator:
    """Runs tasks to their end on a virtual clock.

    Args:
        options: how; see ``ReplayOptions``.
        profile: step times and sizes; loaded by ``options.profile`` unless given.
        repeat_steps: take steps that decide nothing new without asking; off, every step is composed. The result
            is the same, sooner.
        discipline: one that is set up already (with a trained predictor, say); created by ``options.discipline``
            unless given. Whether it makes sense without speculation is then the caller's affair.
        speed: step times learned before, to learn on from; none by default. Not where
            ``options.learned_speed`` is false.

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
    ) -> None:
        self.options = options
        self.profile = profile or load_step_profile(options.profile or DEFAULT_PROFILE)
        kv, limits = self.profile.kv, self.profile.limits
        self._max_batch = _positive("max_batch", options.max_batch, limits.max_batch)
        self._token_budget = _positive("token_budget", options.token_budget, limits.token_budget)
        self._prefill_chunk = _positive("prefill_chunk", options.prefill_chunk, self._token_budget)
        self._max_resident = _positive("max_resident", options.max_resident, 1 << 30)
        self._step_time = StepTime(self.profile.step_s)
        self._noise = options.step_noise
        self._prompt_noise = options.step_noise if options.prompt_noise is None else options.prompt_noise
        for name, sigma in (("step_noise", self._noise), ("prompt_noise", self._prompt_noise)):
            if not 0.0 <= sigma < 1.0:
                raise InvalidInput(f"must be from 0 to less than 1, got {sigma}", where=name)
        scatters = self._noise > 0.0 or self._prompt_noise > 0.0
        self._noises = random.Random(f"{options.seed}/steps")
        terms = self.profile.speculation
        drafts = options.draft_tokens
        if drafts is None:
            drafts = terms.draft_tokens if terms is not None else 0
        self.speculation = Speculation(drafts, terms, options.seed)
        learned: LearnedSpeed | ProfileSpeed = (
            speed or LearnedSpeed()
            if options.learned_speed
            else ProfileSpeed(self.profile.step_s, self.speculation.step_s(drafts))
        )
        if discipline is None:
            discipline = create_discipline(options.discipline)
            check_discipline_needs(discipline.info, {SPECULATION} if drafts else ())
        self.controller = Controller(discipline, learned)
        capacity = _positive("kv_blocks", options.kv_blocks, kv.blocks)
        self.memory = Memory(capacity, self.profile, options, self.controller)
        self.journal = Journal() if options.journal else None
        self.series = Series()
        self.agenda = Agenda()
        self.robots = Robots(options)
        self.now = 0.0
        self.live: dict[JobId, Live] = {}
        self.records: list[JobRecord] = []
        self.finished = 0
        self.computed_tokens = 0
        self.prefill_tokens = 0
        self.busy_s = 0.0
        self._tasks: Iterator[PlannedTask] = iter(())
        self._until_s = math.inf if options.until_s is None else options.until_s
        self._stepping = False
        self._ahead = limits.asynchronous and not drafts
        self._next: Step | None = None
        """Composed while another runs."""
        self._may_look = False
        """The step in flight has begun and the next one was not asked for."""
        self._launched_s = 0.0
        """When the step composed ahead is launched."""
        self._wake_s = math.inf
        self._door_s = -math.inf
        """When the last task was through the door."""
        self._bounds: dict[str, int] = {}
        """Longest segment met so far, by skill set."""
        self._over: set[JobId] = set()
        """Requests of applications that have ended: others may wait for their answers."""
        self._followers: dict[JobId, list[JobRecord]] = {}
        self._awaited: dict[JobId, int] = {}
        self._segmented = options.mode == "segmented"
        self._whole = options.mode == "whole"
        # A discipline that listens to every token must hear each by itself.
        hears = type(self.controller.discipline).progressed is not Discipline.progressed
        self._repeats = repeat_steps and not hears and not drafts and not scatters and not self._ahead

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
        self._tasks = iter(tasks)
        self._next_arrival()
        until = self._until_s
        agenda = self.agenda
        partial = False
        try:
            while (when := agenda.next_s()) < math.inf:
                if when > until:
                    self.now = until
                    break
                self.now = when
                agenda.run_next()
                if agenda.next_s() > when:
                    if not self._stepping:
                        self._begin_step(when)
                    if self._may_look:
                        self._may_look = False
                        if self._stepping and self._next is None:
                            self._begin_step(when)
                if progress is not None and agenda.handled % PROGRESS_EVENTS == 0:
                    progress(when, len(self.records), self.finished)
            else:
                self._check_all_done()
        except KeyboardInterrupt:
            if not keep_partial:
                raise
            partial = True
        for live in self.live.values():
            self._note(live)
        ends = [record.end_s[-1] for record in self.records if record.end_s]
        return BackendRun(
            records=self.records,
            end_s=max([self.now, *ends]),
            profile=self.profile.name,
            partial=partial,
            counters=self._counters(),
            series=self.series.columns(),
            journal=self.journal.to_dict() if self.journal is not None else None,
        )

    def _check_all_done(self) -> None:
        if self.live:
            raise EngineFailed(
                f"discipline {self.options.discipline!r} runs nothing at {self.now:.6f} s although"
                f" {len(self.live)} jobs are left, and nothing further will happen"
            )
        for job_id in self._awaited:
            names = ", ".join(str(j) for j, waiting in self._followers.items() if waiting)
            raise InvalidInput(f"waits for {names}, which never end", where=f"job {job_id}: after")

    def _counters(self) -> dict[str, float | int]:
        controller = self.controller
        speculation = self.speculation
        rounds: dict[str, float | int] = (
            {"drafted_tokens": speculation.drafted, "accepted_tokens": speculation.accepted}
            if speculation.drafts
            else {}
        )
        return {
            "steps": controller.steps,
            "tokens": controller.tokens,
            "computed_tokens": self.computed_tokens,
            "prefill_tokens": self.prefill_tokens,
            "cached_tokens": self.memory.cached_tokens,
            "recomputed_tokens": controller.recomputed_tokens,
            "swapped_tokens": self.memory.swapped_tokens,
            "segments": controller.segments,
            "evictions": controller.evictions,
            "busy_s": self.busy_s,
            **rounds,
        }

    # ------------------------------------------------------------------ events

    def _next_arrival(self) -> None:
        task = next(self._tasks, None)
        if task is not None:
            if task.door_s is None:
                self._door_s = max(task.arrival_s, self._door_s) + self.options.door_s
            else:
                self._door_s = max(task.arrival_s + task.door_s, self._door_s)
            self.agenda.at(self._door_s, ARRIVAL, self._arrive, task)

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

    def _follow(self, now: float, record: JobRecord) -> None:
        """What it waited for is over, so it arrives now."""
        record.arrived_s = now
        self._submit(now, record)

    def _submit(self, now: float, record: JobRecord) -> None:
        task = record.task
        record.note = ""
        # All that the job will ever hold must fit into an empty cache, or it would wait for ever.
        if not self.memory.fits(task.prompt_tokens + task.output_tokens):
            record.outcome = "refused"
            record.note = (
                f"needs {task.prompt_tokens + task.output_tokens} tokens of KV cache, there are"
                f" {self.memory.pool.capacity * self.memory.block_tokens}"
            )
            self._ended(task, now)
            return
        holding, cached = self.memory.holding(task)
        try:
            job = self.controller.arrive(self._spec(task, record.arrived_s, cached))
        except InvalidInput as error:
            record.outcome, record.note = "refused", str(error)
            self._ended(task, now)
            return
        self.live[task.job] = live = Live(task, job, record, holding)
        self.memory.arrive(live)

    def _spec(self, task: PlannedTask, arrived_s: float, cached: int) -> JobSpec:
        return JobSpec(
            job_id=task.job,
            arrival_s=arrived_s,
            prompt_tokens=task.prompt_tokens,
            cached_tokens=cached,
            max_tokens=self._max_tokens(task),
            segment_tokens=self._segment_bound(task),
            segmented=self._segmented and not task.plain,
            plain=task.plain,
            hints=task.hints,
            acceptance=task.acceptance,
            text=task.task,
        )

    def _max_tokens(self, task: PlannedTask) -> int:
        """The limit that the request names; the length of a plain answer is no discipline's to know."""
        if task.max_tokens is not None:
            return task.max_tokens
        return max(PLAIN_MAX_TOKENS, task.output_tokens) if task.plain else task.output_tokens

    def _segment_bound(self, task: PlannedTask) -> int:
        """The longest segment of the task's skill set: as the task names it, or the longest so far."""
        if task.segment_bound is not None:
            return task.segment_bound
        if task.plain:
            return PLAIN_SEGMENT_TOKENS
        longest = max(segment.tokens for segment in task.plan)
        bound = max(longest, self._bounds.get(task.skill_set, self.options.segment_bound))
        self._bounds[task.skill_set] = bound
        return bound

    def _report(self, now: float, payload: tuple[JobId, ExecutionReport]) -> None:
        self.controller.report(payload[0], payload[1], now)

    def _wake(self, now: float, _: None) -> None:
        self._wake_s = math.inf

    # ------------------------------------------------------------------ a step

    def _begin_step(self, now: float, again: int = 0) -> None:
        """Compose a step and put its end on the agenda, if anything runs now.

        Blocks shared with others are not freed by an eviction, so a plan may come out short. What was evicted is gone
        all the same, and the next plan is made of what is left: ``again`` counts them.
        """
        if not self.live:
            return
        controller, memory = self.controller, self.memory
        limits = StepLimits(
            now, self._token_budget, self._max_batch, self._max_resident, self._prefill_chunk, memory.pool.free,
            memory.block_tokens, controller.speed, memory.swap_s_per_token,
        )  # fmt: skip
        plan = controller.compose(limits)
        if self.journal is not None:
            self.journal.choice(plan, controller, limits)
        if plan.evict:
            memory.evict(plan, [self.live[job_id] for job_id in plan.evict], now)
        table, pool = controller.table, memory.pool
        ahead = self._ahead
        members: list[tuple[Live, int, bool]] = []
        partial: list[JobId] = []
        decodes = prefill_tokens = context = 0
        squares = 0.0
        for job_id, share in plan.tokens.items():
            live = self.live[job_id]
            job = live.job
            row = job.row
            if ahead and live.pending and live.output + live.pending >= live.target:
                continue  # its last token is in flight: nothing is left to compute
            if not table.resident[row]:
                memory.admit(live, now)
            left = int(table.prefill_left[row])
            begin = int(table.context_tokens[row])
            tokens = min(share, left) if left else 1
            end = begin + tokens
            if not pool.grow(live.holding, end):
                # Held in the table's count, gone in the pool's: the job takes part once there is room.
                table.resident[row] = True
                table.blocks[row] = live.holding.blocks
                continue
            controller.started(job)
            table.blocks[row] = live.holding.blocks
            if left:
                prefill_tokens += tokens
                squares += memory.prefill(live, begin, tokens)
                again = min(tokens, live.computed - begin)
                if again > 0:
                    controller.recomputed(job, again)
                live.computed = max(live.computed, end)
                members.append((live, tokens, True))
            else:
                decodes += 1
                context += end
                live.computed = end
                members.append((live, 1, False))
            if ahead:
                # The next composition takes it for computed.
                table.context_tokens[row] = end
                if left:
                    table.prefill_left[row] = left - tokens
                if tokens < left:
                    partial.append(job_id)
                else:
                    live.pending += 1
        moved = memory.moved()
        if not members:
            if plan.tokens and plan.evict and again < len(self.live):
                self._begin_step(now, again + 1)
            else:
                self._sleep(plan, now)
            return
        drafts = self._draft(members) if self.speculation.drafts else 0
        time_s = self._step_time(decodes, len(members) - decodes, prefill_tokens, squares, context, drafts)
        sigma = self._prompt_noise if prefill_tokens else self._noise
        if sigma:
            time_s *= math.exp(self._noises.gauss(-0.5 * sigma**2, sigma))
        time_s += moved * self.profile.kv.swap_s_per_token + self.speculation.step_s(drafts)
        if time_s <= 0.0:
            raise InvalidInput(f"a step takes {time_s} s", where=f"profile {self.profile.name}: step_s")
        times = [time_s]
        if plan.steady and self._repeats and not prefill_tokens:
            self._repeat(now, decodes, context, members, times)
        self.prefill_tokens += prefill_tokens
        self.computed_tokens += prefill_tokens + drafts + decodes * len(times)
        step = Step(members, prefill_tokens, times)
        if ahead:
            self._compose_ahead(now, step, frozenset(partial))
        else:
            self._begin(now, step)

    def _begin(self, now: float, step: Step, seen_s: float | None = None) -> None:
        """A step that is composed begins; asynchronous: and the engine sees that at ``seen_s``."""
        self._stepping = True
        members, times = step.members, step.times
        if self.journal is not None:
            self.journal.steps(now, times, members)
        self.series.sample(now, self.controller.table, self.memory.pool, len(members))
        begin_s = now
        for time_s in times:
            self.busy_s += time_s
        if len(times) > 1:
            begin_s = self._take(now, members, times)
        end_s = begin_s + times[-1]
        if seen_s is not None:
            step.begun_s = seen_s
            end_s = max(end_s, seen_s)
        self.agenda.at(end_s, STEP_END, self._end_step, step)

    def _compose_ahead(self, now: float, step: Step, partial: frozenset[JobId]) -> None:
        """Asynchronous: a step is launched when it is composed, and begins when the one before is over."""
        step.partial = partial
        terms = self.profile.limits
        self._launched_s = now + (terms.launch_prompts_s if step.prefill_tokens else terms.launch_s)
        if self._stepping:
            self._next = step
        else:
            self._begin(now, step, now)
            # The engine was idle: it composes the next step once this one is launched.
            self.agenda.at(self._launched_s, WAKE, self._look)

    def _look(self, now: float, _: None) -> None:
        self._may_look = True

    def _draft(self, members: list[tuple[Live, int, bool]]) -> int:
        """Give those that decode their draft tokens, as many as there is room for; returns how many in all.

        Only now, when everybody has what the plan gave: drafts take no block that somebody needs.
        """
        table, pool = self.controller.table, self.memory.pool
        drafts = 0
        for place, (live, tokens, prefill) in enumerate(members):
            if prefill or live.task.acceptance is None:
                continue
            row = live.job.row
            end = int(table.context_tokens[row]) + tokens
            most = self.speculation.drafts
            if not pool.grow(live.holding, end + most):
                most = min(most, live.holding.blocks * pool.block_tokens - end)
            table.blocks[row] = live.holding.blocks
            if most > 0:
                members[place] = (live, tokens + most, False)
                drafts += most
        return drafts

    def _repeat(
        self,
        now: float,
        decodes: int,
        context: int,
        members: list[tuple[Live, int, bool]],
        times: list[float],
    ) -> None:
        """Append the steps that are bound to follow: everybody decodes on, and nothing happens in between.

        A steady plan holds until a segment closes, an event comes, a parked job becomes runnable or blocks run short.
        The last step counted here is the one in which one of these happens.
        """
        most = min(live.boundary - live.output for live, _, _ in members)
        if most < 2:
            return
        block = self.memory.block_tokens
        needed = 0
        table = self.controller.table
        for live, _, _ in members:
            reach = int(table.context_tokens[live.job.row]) + most
            needed += max(0, -(-reach // block) - live.holding.blocks)
        if needed > self.memory.pool.free:
            return
        column = table.resume_s
        later = column[column > now]
        resume = float(later.min()) if later.size else math.inf
        horizon = min(self.agenda.next_s(), resume, self._until_s)
        now += times[0]
        while len(times) < most and now < horizon:
            context += decodes
            times.append(self._step_time(decodes, 0, 0, 0.0, context))
            now += times[-1]

    def _take(self, now: float, members: list[tuple[Live, int, bool]], times: list[float]) -> float:
        """Be done with all steps of a row but the last; returns when that one begins."""
        controller, table = self.controller, self.controller.table
        controller.ran(len(members), 0, times[0])
        job_ids = [live.task.job for live, _, _ in members]
        for time_s in times[1:-1]:
            controller.ran_again(job_ids, time_s)
        for time_s in times[:-1]:
            now += time_s
        taken = len(times) - 1
        for live, _, _ in members:
            row = live.job.row
            context = int(table.context_tokens[row]) + taken
            table.context_tokens[row] = context
            # Room for the last of them too, as if it had just been composed.
            self.memory.pool.grow(live.holding, context + 1)
            table.blocks[row] = live.holding.blocks
            live.computed = context + 1
            live.output += taken
            controller.progress(live.job, taken, now)
        return now

    def _sleep(self, plan: StepPlan, now: float) -> None:
        """Nothing runs: come back when the discipline wants to, unless something happens before."""
        wake = plan.wake_s
        if now < wake < self._wake_s:
            self._wake_s = wake
            self.agenda.at(wake, WAKE, self._wake)

    def _end_step(self, now: float, step: Step) -> None:
        if now < self._launched_s:
            # The engine is busy launching (asynchronous only), and sees these tokens when it is done with that.
            step.over_s = now
            self.agenda.at(self._launched_s, STEP_END, self._end_step, step)
            return
        self._stepping = False
        controller, ahead = self.controller, self._ahead
        table = controller.table
        for live, tokens, prefill in step.members:
            job = live.job
            row = job.row
            produced = 1
            if ahead:
                if job.job_id in step.partial:
                    continue
                live.pending -= 1
                if self._void(live):
                    continue
            elif prefill:
                table.context_tokens[row] += tokens
                left = table.prefill_left[row] - tokens
                table.prefill_left[row] = left
                if left > 0:
                    continue
            else:
                if tokens > 1:
                    produced = self._round(live, tokens - 1, now)
                table.context_tokens[row] += produced
            record = live.record
            if live.output == 0:
                record.first_token_s = now
            record.last_token_s = now
            live.output += produced
            controller.progress(job, produced, now)
            while live.output >= live.boundary and not self._close(live, now):
                pass
        if len(step.times) > 1:
            controller.ran_again([live.task.job for live, _, _ in step.members], step.times[-1])
        elif ahead:
            self._ended_ahead(now, step)
        else:
            controller.ran(len(step.members), step.prefill_tokens, step.times[0])

    def _ended_ahead(self, now: float, step: Step) -> None:
        """With a step composed ahead: it begins, and the one after it may be composed."""
        following, self._next = self._next, None
        prompts = following is not None and following.prefill_tokens > 0
        step_s = now - step.begun_s
        self.controller.ran(len(step.members), step.prefill_tokens, step_s, prompts_follow=prompts)
        if following is not None:
            self._begin(now if step.over_s is None else step.over_s, following, now)
            self._may_look = True

    def _void(self, live: Live) -> bool:
        """Whether a token that was computed ahead came to nothing."""
        table, row = self.controller.table, live.job.row
        if not table.resident[row]:
            return True  # evicted meanwhile: it will be computed again
        if live.job.awaiting is not None:
            # It follows a blocking skill, whose value it has not seen.
            table.context_tokens[row] -= 1
            return True
        return False

    def _round(self, live: Live, drafted: int, now: float) -> int:
        """A round of speculative decoding is verified: how many tokens it gave.

        Nothing follows the last token, and nothing follows a blocking skill before its value is there. Draft tokens
        beyond are void, as on the live engine.
        """
        task = live.task
        right = self.speculation.round(task.job, task.acceptance or 0.0, drafted)
        most = live.target - live.output
        if self._segmented and right >= live.boundary - live.output:
            at = live.boundary - live.output
            for segment, following in zip(task.plan[live.index :], task.plan[live.index + 1 :], strict=False):
                if segment.blocking:
                    most = at
                    break
                at += following.tokens
        right = min(right, most - 1)
        live.computed = max(
            live.computed, int(self.controller.table.context_tokens[live.job.row]) + right + 1
        )
        self.speculation.note(drafted, right)
        self.controller.accepted(live.job, drafted, right, now)
        return right + 1

    def _close(self, live: Live, now: float) -> bool:
        """The segment in generation is complete; returns whether that was the last."""
        task, index = live.task, live.index
        last = live.boundary == live.target
        if not self._whole and not task.plain:
            segment = task.plan[index]
            estimate = self.robots.estimate_s(task, index)
            closed = self.controller.close_segment(
                live.job,
                segment.text,
                estimate,
                now,
                blocking=segment.blocking,
                surplus_tokens=live.output - live.boundary,
                last=last,
            )
            for when, report in self.robots.receive(live.record, index, now, closed.expected_s):
                self.agenda.at(when, REPORT, self._report, (task.job, report))
        if last:
            self._finish(live, now)
            return True
        live.index += 1
        live.boundary += task.plan[live.index].tokens
        return False

    def _finish(self, live: Live, now: float) -> None:
        task = live.task
        if self._whole or task.plain:
            # The complete answer leaves the engine at once.
            for index in range(len(task.plan)):
                self.robots.receive(live.record, index, now, task.plan[index].execution_s)
        live.record.outcome = "complete"
        self._note(live)
        self.memory.release(live)
        self.speculation.forget(task.job)
        self.controller.finish(task.job, "complete", now)
        del self.live[task.job]
        self._ended(task, now)

    def _ended(self, task: PlannedTask, now: float) -> None:
        """Served or refused: those of its application that wait for it may go on."""
        self.finished += 1
        if task.hints.app is None:
            return
        self._over.add(task.job)
        for record in self._followers.pop(task.job, ()):
            follower = record.task
            self._awaited[follower.job] -= 1
            if not self._awaited[follower.job]:
                del self._awaited[follower.job]
                when = max(now + follower.after_s, follower.arrival_s)
                self.agenda.at(when, ARRIVAL, self._follow, record)

    def _note(self, live: Live) -> None:
        record, job = live.record, live.job
        record.preemptions = job.preemptions
        record.recomputed_tokens = job.recomputed_tokens
        record.output_tokens = live.output


def _positive(name: str, value: int | None, default: int) -> int:
    if value is None:
        return default
    if value < 1:
        raise InvalidInput(f"must be at least 1, got {value}", where=name)
    return value


class SimBackend:
    """The simulator as a replay engine."""

    name = "sim"

    def replay(
        self, tasks: Iterable[PlannedTask], options: ReplayOptions, progress: Progress | None = None
    ) -> BackendRun:
        return Simulator(options).run(tasks, progress, keep_partial=True)


def backend() -> SimBackend:
    """What ``timely.replay`` looks up."""
    return SimBackend()
