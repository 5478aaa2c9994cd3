"""The steps of the simulated engine: composed by the controller, timed by the profile, and what is there at their end.

With an asynchronous profile the next step is composed as soon as one begins, from the state at that time.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from timely.core.errors import InvalidInput
from timely.core.job import JobId
from timely.disciplines.base import Discipline, StepLimits, StepPlan
from timely.engines.decision_log import engine_scheduling_choice
from timely.engines.replay_journal import ReplayJournal
from timely.engines.replay_types import ReplayOptions
from timely.engines.scheduler_core import EngineController
from timely.engines.sim.drafting import SimDrafting
from timely.engines.sim.events import STEP_END, WAKE, SimAgenda
from timely.engines.sim.memory import SimMemory, SimTask
from timely.engines.sim.series import SimSeries
from timely.engines.sim.speculation import SimSpeculation
from timely.engines.step_time.profile import StepTime, StepTimeProfile

LONGEST_STEP_S = 1e9
"""A step that takes longer is an error of the profile, seconds."""


@dataclass(slots=True)
class SimStep:
    """A step that is composed: in flight, or the next.

    Attributes:
        members: (live job, its tokens, whether they are prompt tokens); one that decodes has one and its draft tokens.
        prefill_squares: sum over chunks of (end of chunk)^2 - (its begin)^2, tokens squared.
        context_tokens: sum over decoding members of the tokens they attend to.
        partial: members of a step composed ahead whose prompt goes on after this step.
        times: seconds; of a row of steps each one's, the last being in flight.
        begun_s: when the engine takes it to have begun: at the end of the one before.
        over_s: when it really was over, if the engine saw that only later.
        loop_s: the part of its time, and of each that is repeated, that the loop adds to the profile's step time.
    """

    members: list[tuple[SimTask, int, bool]]
    prefill_tokens: int
    prefill_squares: float
    context_tokens: int
    partial: frozenset[JobId]
    times: list[float] = field(default_factory=list)
    begun_s: float = 0.0
    over_s: float | None = None
    loop_s: float = 0.0


class SimSteps:
    """Runs one step after the other; the agenda has the end of the one in flight.

    Args:
        close_segment: a job has reached its boundary; returns whether that was its last one.
        finish: these jobs have closed their last segment. It is called once a step, as in vLLM, so they leave together
            and after all others have parked.

    Raises:
        InvalidInput: a nonsensical option.
    """

    def __init__(
        self,
        options: ReplayOptions,
        profile: StepTimeProfile,
        controller: EngineController,
        memory: SimMemory,
        agenda: SimAgenda,
        speculation: SimSpeculation,
        live: Mapping[JobId, SimTask],
        close_segment: Callable[[SimTask, float], bool],
        finish: Callable[[list[SimTask], float], None],
        *,
        repeat_steps: bool,
        next_arrival_s: Callable[[], float] | None = None,
        drift: Callable[[float], float] | None = None,
    ) -> None:
        limits = profile.limits
        self._max_batch = positive_simulator_option("max_batch", options.max_batch, limits.max_batch)
        self._token_budget = positive_simulator_option(
            "token_budget", options.token_budget, limits.token_budget
        )
        self._prefill_chunk = positive_simulator_option(
            "prefill_chunk", options.prefill_chunk, self._token_budget
        )
        self._max_resident = positive_simulator_option("max_resident", options.max_resident, 1 << 30)
        self._step_time = StepTime(profile.step_s)
        self._drift = drift
        self._noise = options.step_noise
        self._prompt_noise = options.step_noise if options.prompt_noise is None else options.prompt_noise
        for name, sigma in (("step_noise", self._noise), ("prompt_noise", self._prompt_noise)):
            if not 0.0 <= sigma < 1.0:
                raise InvalidInput(f"must be from 0 to less than 1, got {sigma}", where=name)
        self._noises = random.Random(f"{options.seed}/steps")
        self._profile, self._controller, self._memory, self._agenda = profile, controller, memory, agenda
        self._speculation, self._live = speculation, live
        self._close_segment, self._finish = close_segment, finish
        self.drafting = SimDrafting(options, speculation, controller, memory)
        self._until_s = math.inf if options.until_s is None else options.until_s
        self._next_arrival_s = next_arrival_s or (lambda: math.inf)
        self._ahead = limits.asynchronous and not speculation.drafts
        varies = self._noise > 0.0 or self._prompt_noise > 0.0 or drift is not None
        # A discipline that follows each token needs a call for each.
        by_token = type(controller.discipline).progressed is not Discipline.progressed
        self._repeats = (
            repeat_steps and not by_token and not speculation.drafts and not varies and not self._ahead
        )
        self.journal = ReplayJournal() if options.journal else None
        self.series = SimSeries()
        self.computed_tokens = 0
        self.prefill_tokens = 0
        self.busy_s = 0.0
        self._in_flight: SimStep | None = None
        self._next: SimStep | None = None
        """Composed while another runs."""
        self._may_compose = False
        """The step in flight has begun and the next one was not asked for."""
        self._launched_s = 0.0
        """When the step composed ahead is launched."""
        self._wake_s = math.inf

    def advance(self, now: float) -> None:
        """Nothing else happens at this time: compose a step, if the engine is free to."""
        may_compose, self._may_compose = self._may_compose, False
        if self._in_flight is None:
            # The step behind it is composed once this one is launched.
            self._begin(now)
        elif may_compose and self._next is None:
            self._begin(now)

    # ------------------------------------------------------------------ composing

    def _begin(self, now: float, retries: int = 0) -> None:
        """Compose a step and put its end on the agenda, if anything runs now.

        Blocks shared with others are not freed by an eviction, so a plan may come out short. What was evicted is gone
        all the same, and the next plan is made of what is left: ``retries`` counts them.
        """
        if not self._live:
            return
        memory = self._memory
        memory.note_reused()
        limits = StepLimits(
            now, self._token_budget, self._max_batch, self._max_resident, self._prefill_chunk,
            memory.pool.free, memory.block_tokens, self._controller.speed, memory.swap_s_per_token,
            ending_rows=self._ending_rows(), cache_blocks=memory.pool.capacity,
        )  # fmt: skip
        plan = self._controller.compose(limits)
        if self.journal is not None:
            for job_id in plan.evict:
                self.journal.evict(job_id)
            describe = partial(engine_scheduling_choice, plan, self._controller.table, now)
            self.journal.choose(plan.limited_by, tuple(plan.tokens), describe)
        if plan.evict:
            evicted = [self._live[job_id] for job_id in plan.evict]
            memory.evict(plan, evicted, now)
            if self._in_flight is not None:
                # As in vLLM, the token that it computes of them is kept, and they wait for it.
                members = {id(live) for live, _, _ in self._in_flight.members}
                for live in evicted:
                    if id(live) in members:
                        self._controller.set_ready(live.job, now, ready=False)
        step = self._fill(plan, now)
        moved_tokens = memory.take_moved_tokens()
        if not step.members:
            if plan.tokens and plan.evict and retries < len(self._live):
                self._begin(now, retries + 1)
            else:
                self._sleep(plan, now)
            return
        drafts = self.drafting.draft(step.members) if self._speculation.drafts else 0
        prefills = sum(prefill for _, _, prefill in step.members)
        decodes = len(step.members) - prefills
        waiting = len(self._live) - len(step.members)
        if not self._ahead:
            # Step times of an asynchronous engine do not hold what the loop takes for their members.
            hidden = len(step.members) if self._profile.limits.asynchronous else 0
            step.loop_s = self._profile.limits.loop_growth_s(hidden, waiting)
        step.times.append(self._time_s(now, step, decodes, prefills, drafts, moved_tokens) + step.loop_s)
        if plan.steady and self._repeats and not step.prefill_tokens:
            self._repeat(now, step)
        self.prefill_tokens += step.prefill_tokens
        self.computed_tokens += step.prefill_tokens + drafts + decodes * len(step.times)
        if self._ahead:
            self._launch(now, step)
        else:
            self._start(now, step)

    def _ending_rows(self) -> frozenset[int]:
        """Rows whose last token the step in flight computes: as in vLLM, they take no token of the next one."""
        if self._in_flight is None:
            return frozenset()
        resident = self._controller.table.resident
        members = (
            live for live, _, _ in self._in_flight.members if live.job.row >= 0 and _does_sim_job_end(live)
        )
        return frozenset(live.job.row for live in members if resident[live.job.row])

    def _fill(self, plan: StepPlan, now: float) -> SimStep:
        """The jobs of the plan with the blocks they need; those without room are left out."""
        controller, memory, ahead = self._controller, self._memory, self._ahead
        table, pool = controller.table, memory.pool
        members: list[tuple[SimTask, int, bool]] = []
        partial: list[JobId] = []
        prefill_tokens = context = 0
        squares = 0.0
        budget = self._token_budget
        # As in vLLM, newcomers come last: they find what the others are about to compute of their prefix.
        for job_id, share in sorted(plan.tokens.items(), key=self._is_newcomer):
            live = self._live[job_id]
            row = live.job.row
            if ahead and _does_sim_job_end(live):
                continue  # nothing is left to compute
            if budget <= 0:
                break
            # Members before it may have taken stored blocks that the plan counted on. A prompt planned whole stays
            # whole.
            cap = share if share < table.prefill_left[row] else self._prefill_chunk
            if not table.resident[row]:
                memory.admit(live, now)
            tokens_left = int(table.prefill_left[row])
            begin = int(table.context_tokens[row])
            tokens = min(cap, tokens_left, budget) if tokens_left else 1
            end = begin + tokens
            if not pool.grow(live.holding, end):
                # Held in the table's count, gone in the pool's: the job takes part once there is room.
                table.resident[row] = True
                table.blocks[row] = live.holding.blocks
                continue
            budget -= tokens if tokens_left else 1 + int(table.draft_tokens[row])
            controller.started(live.job)
            table.blocks[row] = live.holding.blocks
            if tokens_left:
                prefill_tokens += tokens
                squares += memory.prefill(live, begin, tokens)
                again = min(tokens, live.computed_tokens - begin)
                if again > 0:
                    controller.recomputed(live.job, again)
                live.computed_tokens = max(live.computed_tokens, end)
            else:
                context += end
                live.computed_tokens = end
            members.append((live, tokens, tokens_left > 0))
            if ahead:
                # The next composition takes it for computed.
                table.context_tokens[row] = end
                if tokens_left:
                    table.prefill_left[row] = tokens_left - tokens
                if tokens < tokens_left:
                    partial.append(job_id)
                else:
                    live.pending += 1
        return SimStep(members, prefill_tokens, squares, context, frozenset(partial))

    def _is_newcomer(self, share: tuple[JobId, int]) -> bool:
        return not self._controller.table.resident[self._live[share[0]].job.row]

    def _time_s(
        self, now: float, step: SimStep, decodes: int, prefills: int, drafts: int, moved_tokens: int
    ) -> float:
        """The time of the step, seconds; ``moved_tokens`` went to or from host memory."""
        time_s = self._step_time(
            decodes, prefills, step.prefill_tokens, step.prefill_squares, step.context_tokens, drafts
        )
        if self._drift is not None:
            time_s *= self._drift(now)
        sigma = self._prompt_noise if step.prefill_tokens else self._noise
        if sigma:
            time_s *= math.exp(self._noises.gauss(-0.5 * sigma**2, sigma))
        time_s += moved_tokens * self._profile.kv.swap_s_per_token + self._speculation.step_s(drafts)
        if not 0.0 < time_s <= LONGEST_STEP_S:
            raise InvalidInput(f"a step takes {time_s} s", where=f"profile {self._profile.name}: step_s")
        return time_s

    def _repeat(self, now: float, step: SimStep) -> None:
        """Append the steps that are bound to follow: all members decode on, and nothing happens in between.

        A steady plan holds until a segment closes, an event comes, a parked job becomes runnable or blocks run short.
        The last step counted here is the one in which one of these happens.
        """
        members, times, context = step.members, step.times, step.context_tokens
        most = min(live.boundary - live.output for live, _, _ in members)
        if most < 2:
            return
        block = self._memory.block_tokens
        new_blocks = 0
        table = self._controller.table
        for live, _, _ in members:
            reach = int(table.context_tokens[live.job.row]) + most
            new_blocks += max(0, -(-reach // block) - live.holding.blocks)
        if new_blocks > self._memory.pool.free:
            return
        later = table.resume_s[table.resume_s > now]
        resume_s = float(later.min()) if later.size else math.inf
        horizon_s = min(self._agenda.next_s(), self._next_arrival_s(), resume_s, self._until_s)
        now += times[0]
        while len(times) < most and now < horizon_s:
            context += len(members)
            times.append(self._step_time(len(members), 0, 0, 0.0, context) + step.loop_s)
            now += times[-1]

    def _sleep(self, plan: StepPlan, now: float) -> None:
        """Nothing runs: come back when the discipline wants to, unless something happens before."""
        if now < plan.wake_s < self._wake_s:
            self._wake_s = plan.wake_s
            self._agenda.at(plan.wake_s, WAKE, self._wake)

    def _wake(self, now: float, _: None) -> None:
        self._wake_s = math.inf

    # ------------------------------------------------------------------ running

    def _start(self, now: float, step: SimStep, seen_s: float | None = None) -> None:
        """A step that is composed begins; asynchronous: and the engine sees that at ``seen_s``."""
        self._in_flight = step
        if self.journal is not None:
            self.journal.steps(
                now, step.times, [(live.task.job, tokens, prefill) for live, tokens, prefill in step.members]
            )
        self.series.sample(now, self._controller.table, self._memory.pool, len(step.members))
        begin_s = now
        for time_s in step.times:
            self.busy_s += time_s
        if len(step.times) > 1:
            begin_s = self._pass_repeats(now, step)
        end_s = begin_s + step.times[-1]
        if seen_s is not None:
            step.begun_s = seen_s
            end_s = max(end_s, seen_s)
        self._agenda.at(end_s, STEP_END, self._end, step)

    def _launch(self, now: float, step: SimStep) -> None:
        """Asynchronous: a step is launched when it is composed, and begins when the one before is over."""
        terms = self._profile.limits
        members = len(step.members)
        self._launched_s = now + (terms.launch_prompts_s if step.prefill_tokens else terms.launch_s)
        self._launched_s += terms.loop_growth_s(members, len(self._live) - members)
        if self._in_flight is not None:
            self._next = step
        else:
            self._start(now, step, now)
            # The engine was idle: it composes the next step once this one is launched.
            self._agenda.at(self._launched_s, WAKE, self._allow_composing)

    def _allow_composing(self, now: float, _: None) -> None:
        self._may_compose = True

    def _pass_repeats(self, now: float, step: SimStep) -> float:
        """Be done with all steps of a row but the last; returns when that one begins."""
        controller, table, times = self._controller, self._controller.table, step.times
        job_ids = [live.task.job for live, _, _ in step.members]
        for again, time_s in enumerate(times[:-1]):
            controller.ran_again(
                job_ids, self._computed_s(step, time_s), step.context_tokens + again * len(job_ids)
            )
        for time_s in times[:-1]:
            now += time_s
        repeats = len(times) - 1
        for live, _, _ in step.members:
            row = live.job.row
            context = int(table.context_tokens[row]) + repeats
            table.context_tokens[row] = context
            # Room for the last of them too, as if it had just been composed.
            self._memory.pool.grow(live.holding, context + 1)
            table.blocks[row] = live.holding.blocks
            live.computed_tokens = context + 1
            live.output += repeats
            controller.progress(live.job, repeats, now)
        return now

    # ------------------------------------------------------------------ the end of a step

    def _end(self, now: float, step: SimStep) -> None:
        if now < self._launched_s:
            # The engine is busy launching (asynchronous only), and sees these tokens when it is done with that.
            step.over_s = now
            self._agenda.at(self._launched_s, STEP_END, self._end, step)
            return
        self._in_flight = None
        controller = self._controller
        ends = []
        for live, tokens, prefill in step.members:
            output_tokens = self._produce(step, live, tokens, prefill, now)
            if not output_tokens:
                continue
            if live.output == 0:
                live.record.first_token_s = now
            live.record.last_token_s = now
            live.output += output_tokens
            controller.progress(live.job, output_tokens, now)
            while live.output >= live.boundary:
                if self._close_segment(live, now):
                    ends.append(live)
                    break
            if self._speculation.drafts:
                self.drafting.expect(live)
        following, self._next = self._next, None
        self._learn(now, step, following)
        if ends:
            self._finish(ends, now)
        for live, _, _ in step.members:
            if not live.job.ready and live.job.row >= 0:
                controller.set_ready(live.job, now, ready=True)
                self._memory.count_left(live)
        if following is not None:
            self._start(now if step.over_s is None else step.over_s, following, now)
            self._may_compose = True

    def _learn(self, now: float, step: SimStep, following: SimStep | None) -> None:
        """Report the step's time; ``following`` was composed ahead and begins now."""
        members = len(step.members)
        prompts = following is not None and following.prefill_tokens > 0
        step_s = now - step.begun_s if self._ahead else self._computed_s(step, step.times[-1])
        context_tokens = step.context_tokens + (len(step.times) - 1) * members
        self._controller.ran(members, step.prefill_tokens, step_s, context_tokens, prompts_follow=prompts)

    def _computed_s(self, step: SimStep, time_s: float) -> float:
        """A step's time without what lies behind its last token, seconds."""
        limits = self._profile.limits
        members = 0 if limits.asynchronous else len(step.members)
        return max(0.0, time_s - limits.between_s - limits.loop_growth_s(members, 0) - step.loop_s)

    def _produce(self, step: SimStep, live: SimTask, tokens: int, prefill: bool, now: float) -> int:
        """Output tokens that the step gave a member; 0 while its prompt goes on, or if its token is void."""
        table, row = self._controller.table, live.job.row
        if self._ahead:
            if live.job.job_id in step.partial:
                return 0
            live.pending -= 1
            return 0 if self._void(live) else 1
        if prefill:
            table.context_tokens[row] += tokens
            tokens_left = table.prefill_left[row] - tokens
            table.prefill_left[row] = tokens_left
            return 0 if tokens_left > 0 else 1
        output_tokens = self.drafting.verify(live, tokens - 1, now) if tokens > 1 else 1
        table.context_tokens[row] += output_tokens
        return output_tokens

    def _void(self, live: SimTask) -> bool:
        """Whether a token that was computed ahead came to nothing."""
        table, row = self._controller.table, live.job.row
        if row < 0:
            return True  # the token before ended the answer, which the engine did not know
        if live.job.awaiting is not None:
            # It follows a blocking skill, whose value it has not seen.
            if table.resident[row]:
                table.context_tokens[row] -= 1
            return True
        return False


def _does_sim_job_end(live: SimTask) -> bool:
    """Whether the tokens in flight reach the limit that its request names."""
    return bool(live.pending) and live.output + live.pending >= live.limit


def positive_simulator_option(name: str, value: int | None, default: int) -> int:
    """The option, or its default; raises InvalidInput below 1."""
    if value is None:
        return default
    if value < 1:
        raise InvalidInput(f"must be at least 1, got {value}", where=name)
    return value
