"""The scheduler plugged into vLLM: ``--scheduler-cls timely.engines.vllm.scheduler.TimelyScheduler``.

It adds nothing to vLLM's own scheduling but the choice: before each step the discipline composes who takes
part, and vLLM schedules just those. A generation that does not take part stays in ``running`` with its KV
blocks and its slot (parked); resuming it costs nothing and recomputes nothing. How each part is done, and why
there, is in docs/vllm.md.

Works in vLLM's engine process, under our server and under stock ``vllm serve``. Synchronous and asynchronous
scheduling; it subclasses ``AsyncScheduler`` because vLLM turns asynchronous scheduling off for anything else.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, get_args

from vllm.logger import init_logger
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import create_request_queue
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.engine.detokenizer import IncrementalDetokenizer
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from timely.core.errors import Conflict, InvalidInput, TimelyError, UnknownName
from timely.core.job import JobSpec
from timely.core.reports import ExecutionReport
from timely.disciplines import registry
from timely.disciplines.base import StepLimits, StepPlan
from timely.disciplines.requirements import SPECULATION, check_needs
from timely.engines.base import Mode
from timely.engines.scheduler_core import Controller
from timely.engines.vllm import compatibility
from timely.engines.vllm.boundaries import (
    BoundaryFinder,
    Closed,
    CountedBoundaries,
    SegmentBounds,
    TextBoundaries,
    profile_named,
    skill_set_named,
)
from timely.engines.vllm.name_constraint import PromptNames
from timely.engines.vllm.ordered_queue import InOrder
from timely.engines.vllm.params import TimelyParams, parse
from timely.engines.vllm.prefix_cache import PrefixView
from timely.engines.vllm.request_state import SHOWN_JOBS, Tracked, count_states
from timely.engines.vllm.settings import SchedulerSettings, open_journal
from timely.engines.vllm.value_injection import append_value
from timely.plans.robot_values import value_text

logger = init_logger(__name__)

SHORT = 0.25
"""Share of free blocks below which it matters who shares blocks with whom: evictions may be near."""

PREDICTED_TOKENS = 256
"""Of a prompt that came without words: its end, which predictors may read."""

LOOKS = 64
"""Most waiting requests whose prefix is looked up anew before a step, the oldest first; each was when it came."""

LONGEST_STEP_S = 300.0
"""No report waits longer for a step to end."""

PARKED_STEP = 1 << 62
"""``next_decode_eligible_step`` of a request that takes no part: a step that never comes."""


@dataclass(slots=True)
class _InFlight:
    """A step between ``schedule`` and ``update_from_output``; see ``TimedStep`` for what it counts."""

    started_s: float
    sequences: int
    prefill_tokens: int
    prefills: int
    prefill_squares: int
    context_tokens: int


class TimelyScheduler(AsyncScheduler):  # type: ignore[misc]
    """vLLM's scheduler with the choice of who runs taken over by a Timely discipline."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        compatibility.check()
        self.clock: Callable[[], float] = time.monotonic
        """Seconds; on Linux one axis for all processes of the host. A test may put a virtual one here."""
        self.settings = SchedulerSettings.from_vllm(self.vllm_config)
        check_needs(registry.load(self.settings.discipline).info, self._offers())
        self.controller = Controller(
            registry.create(self.settings.discipline, self.settings.predictors),
            journal=open_journal(self.settings.journal),
            files=self.settings.predictors,
        )
        self._tracked: dict[str, Tracked] = {}
        self._by_task: dict[str, list[str]] = {}
        self._plan = StepPlan()
        self._caps: dict[str, int] = {}
        self._in_flight: deque[_InFlight] = deque()
        self._last_update_s = -math.inf
        self._step_s = 0.0
        self._decide_s = 0.0
        self._failed: set[str] = set()
        self._freed: list[tuple[str, str]] | None = None
        self._stalled = 0
        self._idle_until = -math.inf
        """Set when the discipline chose nobody although somebody is runnable: when it wants to be asked again."""
        self._prefix = PrefixView(self)
        self._names = PromptNames(self)
        self._tokenizer: Any = None
        self._bounds: SegmentBounds | None = None
        logger.info("Timely schedules: discipline %s, mode %s", self.settings.discipline, self.settings.mode)

    def _offers(self) -> set[str]:
        """What a discipline may need and this engine has."""
        return {SPECULATION} if self.num_spec_tokens > 0 else set()

    # ------------------------------------------------------------------ requests come and go

    def add_request(self, request: Request) -> None:
        """A new request joins vLLM's queue and our table. Bad parameters fail that request alone."""
        known = request.request_id in self.requests
        super().add_request(request)
        if known or request.sampling_params is None:
            return  # the next chunk of a streaming session, or a pooling request: vLLM's own affair
        try:
            params = parse(request.sampling_params.extra_args) or TimelyParams.model_validate({})
            self._track(request, params)
        except TimelyError as error:
            logger.warning("request %s refused: %s", request.request_id, error)
            # vLLM ends requests listed there with an error at the next step.
            self.grammar_compile_error_reqs.add(request.request_id)
            self._failed.add(request.request_id)

    def _track(self, request: Request, params: TimelyParams) -> None:
        now = self.clock()
        finder, bound = self._boundaries(request, params)
        task_id = params.task_id or request.request_id
        found = self._prefix.found(request)
        spec = JobSpec(
            job_id=request.request_id,
            arrival_s=min(now, params.arrival_s) if params.arrival_s is not None else now,
            prompt_tokens=request.num_prompt_tokens,
            cached_tokens=found * self.block_size,
            max_tokens=request.max_tokens,
            segment_tokens=bound,
            segmented=finder is not None and self.settings.mode == "segmented",
            hints=params.hints(float(request.priority)),
            acceptance=params.acceptance,
            text=params.text or self._words(request),
        )
        job = self.controller.arrive(spec)
        self._idle_until = -math.inf
        self._tracked[request.request_id] = Tracked(request, job, task_id, finder, found_blocks=found)
        self._by_task.setdefault(task_id, []).append(request.request_id)
        self._names.begin(request.request_id, params)

    def _boundaries(self, request: Request, params: TimelyParams) -> tuple[BoundaryFinder | None, int]:
        if params.forced:
            longest = max(segment[1] for segment in params.forced)
            return CountedBoundaries(params.forced), params.segment_tokens or longest
        if not params.skill_set:
            return None, self.settings.plain_segment_tokens
        tokenizer = self._get_tokenizer()
        skill_set = skill_set_named(params.skill_set)
        profile = profile_named(params.robot) if params.robot else None
        detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)

        def detokenize(token_id: int) -> str:
            before = len(detokenizer.output_text)
            stop = request.sampling_params.all_stop_token_ids
            if token_id not in stop:
                detokenizer.update([token_id], False)
            return str(detokenizer.output_text[before:])

        if self._bounds is None:
            self._bounds = SegmentBounds(tokenizer)
        return TextBoundaries(skill_set, profile, detokenize), self._bounds.tokens(skill_set)

    def _words(self, request: Request) -> str:
        """The end of a prompt that came without words for the predictors, as under stock ``vllm serve``."""
        tail = request.prompt_token_ids[-PREDICTED_TOKENS:] if request.prompt_token_ids else []
        if not tail or self.vllm_config.model_config.skip_tokenizer_init:
            return ""
        return str(self._get_tokenizer().decode(tail, skip_special_tokens=True))

    def _get_tokenizer(self) -> Any:
        if self._tokenizer is None:
            self._tokenizer = cached_tokenizer_from_config(self.vllm_config.model_config)
            if self._tokenizer is None:
                raise InvalidInput(
                    "segmented plans need a tokenizer; the engine runs without one", where="skill_set"
                )
        return self._tokenizer

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> Any:
        """Every way out of vLLM passes here: finished, aborted, failed."""
        result = super()._free_request(request, delay_free_blocks)
        outcome = str(request.get_finished_reason())
        if self._freed is not None:
            # In the middle of an update: the last tokens have not been looked at yet.
            self._freed.append((request.request_id, outcome))
        else:
            self._forget(request.request_id, outcome)
        return result

    def _forget(self, request_id: str, outcome: str) -> None:
        self._failed.discard(request_id)
        self._idle_until = -math.inf
        self.controller.finish(request_id, outcome, self.clock())
        self._names.forget(request_id)
        tracked = self._tracked.pop(request_id, None)
        if tracked is not None:
            siblings = self._by_task[tracked.task_id]
            siblings.remove(request_id)
            if not siblings:
                del self._by_task[tracked.task_id]

    # ------------------------------------------------------------------ a step

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Let the discipline compose the step, then vLLM schedule just that."""
        now = self.clock()
        started = time.perf_counter()
        limits = self._limits(now)
        self._look_up_prefixes(limits.free_blocks)
        self._plan = plan = self.controller.compose(limits)
        self._idle_until = -math.inf if plan.tokens or plan.wake_s == math.inf else plan.wake_s
        self._decide_s += 0.1 * (time.perf_counter() - started - self._decide_s)
        for request_id in plan.evict:
            self._evict(str(request_id), now)
        self._caps = {str(job_id): tokens for job_id, tokens in plan.tokens.items()}
        self._order_running(plan)
        backlog: Any = self.waiting
        self.waiting: Any = self._chosen_waiting(plan)
        resident_before = self.controller.table.resident
        was_resident = {
            str(job_id): bool(resident_before[self._tracked[str(job_id)].job.row]) for job_id in plan.tokens
        }
        try:
            output = super().schedule(throttle_prefills)
        finally:
            admitted_or_left = self.waiting
            self.waiting = backlog
            self._merge_waiting(admitted_or_left)
        self._settle(output, was_resident, now)
        return output

    def _limits(self, now: float) -> StepLimits:
        settings = self.settings
        return StepLimits(
            now=now,
            token_budget=self.max_num_scheduled_tokens,
            max_batch=min(settings.max_batch or self.max_num_active_reqs, self.max_num_active_reqs),
            max_resident=self.max_num_active_reqs,
            prefill_chunk=settings.prefill_chunk or self.max_num_scheduled_tokens,
            free_blocks=self.kv_cache_manager.block_pool.get_num_free_blocks(),
            block_tokens=self.block_size,
            speed=self.controller.speed,
        )

    def _look_up_prefixes(self, free_blocks: int) -> None:
        """What those who wait would find cached by now; and while memory is short, who shares blocks with whom."""
        table = self.controller.table
        short = free_blocks < SHORT * self.kv_cache_manager.block_pool.num_gpu_blocks
        if not short and bool(table.resident.all()):
            return
        looks = LOOKS
        for tracked in self._tracked.values():
            row, request = tracked.job.row, tracked.request
            if table.resident[row]:
                if short:
                    table.shared_blocks[row] = self._prefix.shared(request)
            elif looks:
                looks -= 1
                found = self._prefix.found(request, tracked.found_blocks)
                if found != tracked.found_blocks:
                    tracked.found_blocks = found
                    table.prefill_left[row] = request.num_tokens - found * self.block_size
                table.shared_blocks[row] = self._prefix.held_by_others(request, found) if short else 0
            elif not short:
                return

    def _order_running(self, plan: StepPlan) -> None:
        """Chosen requests first, in plan order; the others skipped by vLLM's own eligibility check.

        The order also makes vLLM's last resort, preempting ``running[-1]``, hit one that was not chosen.
        """
        rank = {request_id: position for position, request_id in enumerate(plan.tokens)}
        last = len(rank)
        for request in self.running:
            if request.request_id in rank or request.request_id not in self._tracked:
                if request.next_decode_eligible_step == PARKED_STEP:
                    request.next_decode_eligible_step = 0
            else:
                request.next_decode_eligible_step = PARKED_STEP
        self.running.sort(key=lambda request: rank.get(request.request_id, last))

    def _chosen_waiting(self, plan: StepPlan) -> Any:
        """A queue of just the waiting requests that may be admitted now, in plan order."""
        chosen = create_request_queue(self.policy)
        strangers = [r for r in self.waiting if r.request_id not in self._tracked]
        if strangers:
            for request in strangers:
                chosen.add_request(request)
        for request_id in plan.tokens:
            request = self._tracked[str(request_id)].request
            if request.status != RequestStatus.RUNNING and request in self.waiting:
                chosen.add_request(request)
        if self.policy.value == "priority":
            return InOrder(chosen, [str(request_id) for request_id in plan.tokens])
        return chosen

    def _merge_waiting(self, chosen: Any) -> None:
        """Back to one queue: those admitted leave it, those preempted in this step join it."""
        left = set(chosen)
        gone = [r for r in self.waiting if r.status == RequestStatus.RUNNING]
        if gone:
            self.waiting.remove_requests(gone)
        present = set(self.waiting)
        for request in left:
            if request not in present:
                self.waiting.prepend_request(request)

    def _handle_blocked_waiting_request(self, request: Request) -> bool:
        """vLLM asks before it admits: only what the plan chose. (Holds for the KV-holding queue too.)"""
        if request.request_id in self._tracked and request.request_id not in self._caps:
            return False
        return bool(super()._handle_blocked_waiting_request(request))

    def _reserve_prefill_lookahead(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        """vLLM's last word on the size of a chunk: the plan's cap for prompts."""
        cap = self._caps.get(request.request_id)
        if cap is not None and cap < num_new_tokens and request.num_tokens - num_computed_tokens > 1:
            num_new_tokens = cap
        return int(super()._reserve_prefill_lookahead(request, num_computed_tokens, num_new_tokens))

    def _evict(self, request_id: str, now: float) -> None:
        tracked = self._tracked[request_id]
        request = tracked.request
        if request.status != RequestStatus.RUNNING:
            return
        self.running.remove(request)
        request.next_decode_eligible_step = 0
        tracked.evicted_context = max(tracked.evicted_context, request.num_computed_tokens)
        self._preempt_request(request, now)
        self._note_eviction(tracked, now)

    def _note_eviction(self, tracked: Tracked, now: float) -> None:
        request = tracked.request
        tracked.found_blocks = self._prefix.found(request)
        self.controller.evict(tracked.job, request.num_tokens - tracked.found_blocks * self.block_size, now)

    def _settle(self, output: SchedulerOutput, was_resident: Mapping[str, bool], now: float) -> None:
        """Bring the table in line with what vLLM really scheduled."""
        table = self.controller.table
        for request_id in output.preempted_req_ids or ():
            tracked = self._tracked.get(request_id)
            if tracked is not None and table.resident[tracked.job.row]:
                # vLLM's own last resort, not ours.
                tracked.evicted_context = max(
                    tracked.evicted_context, int(table.context_tokens[tracked.job.row])
                )
                self._note_eviction(tracked, now)
        prefill = prefills = squares = context = 0
        for request_id, count in output.num_scheduled_tokens.items():
            tracked = self._tracked.get(request_id)
            if tracked is None:
                continue
            request, row = tracked.request, tracked.job.row
            self.controller.started(tracked.job)
            computed = request.num_computed_tokens
            if tracked.evicted_context and not was_resident.get(request_id, True):
                self.controller.recomputed(tracked.job, max(0, tracked.evicted_context - (computed - count)))
                tracked.evicted_context = 0
            table.context_tokens[row] = computed
            table.blocks[row] = -(-computed // self.block_size)
            if request.is_prefill_chunk or int(table.prefill_left[row]) > 0:
                prefill += count
                prefills += 1
                squares += computed * computed - (computed - count) * (computed - count)
            else:
                context += computed
            table.prefill_left[row] = request.num_tokens - computed if request.is_prefill_chunk else 0
        scheduled = len(output.num_scheduled_tokens)
        if self.controller.journal and (self._plan.tokens or scheduled):
            # Beside the decision before it: what vLLM made of it.
            self.controller.journal(
                {
                    "event": "ran", "t_s": now, "tokens": dict(output.num_scheduled_tokens),
                    "preempted": list(output.preempted_req_ids or ()),
                }
            )  # fmt: skip
        if scheduled:
            self._in_flight.append(_InFlight(now, scheduled, prefill, prefills, squares, context))
            self._stalled = 0
        elif self._plan.tokens and not self._in_flight:
            self._unstall(now)

    def _unstall(self, now: float) -> None:
        """The plan chose somebody and vLLM could admit nobody: our count of free blocks was too kind.

        After a few such steps one more parked generation gives up its KV cache.
        """
        waiting_for_grammar = any(
            self._tracked[str(job_id)].request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
            for job_id in self._plan.tokens
        )
        if waiting_for_grammar:
            return
        self._stalled += 1
        if self._stalled < 3:
            return
        self._stalled = 0
        table = self.controller.table
        candidates = [
            tracked
            for request_id, tracked in self._tracked.items()
            if table.resident[tracked.job.row] and request_id not in self._caps
        ]
        if candidates:
            victim = max(candidates, key=lambda tracked: float(table.resume_s[tracked.job.row]))
            self._evict(victim.request.request_id, now)

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> Any:
        """vLLM calls this while the accelerator computes: time for what need not wait for the next decision."""
        self.controller.maintain()
        output = super().get_grammar_bitmask(scheduler_output)
        if output is not None:
            self._names.narrow(output, scheduler_output.scheduled_spec_decode_tokens)
        return output

    # ------------------------------------------------------------------ tokens

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """vLLM appends the tokens; then boundaries are found, segments closed and generations parked."""
        self._freed = []
        try:
            outputs: dict[int, EngineCoreOutputs] = super().update_from_output(
                scheduler_output, model_runner_output
            )
        finally:
            freed, self._freed = self._freed, None
        now = self.clock()
        finished = dict(freed)
        drafted = scheduler_output.scheduled_spec_decode_tokens
        for client in outputs.values():
            for output in client.outputs:
                tracked = self._tracked.get(output.request_id)
                if tracked is not None:
                    if output.request_id in drafted and output.new_token_ids:
                        self.controller.accepted(
                            tracked.job, len(drafted[output.request_id]), len(output.new_token_ids) - 1, now
                        )
                    self._tokens(tracked, output, finished.get(output.request_id), now)
        for request_id, outcome in freed:
            self._forget(request_id, outcome)
        if scheduler_output.num_scheduled_tokens and self._in_flight:
            step = self._in_flight.popleft()
            self._step_s = now - max(step.started_s, self._last_update_s)
            follows = bool(self._in_flight) and self._in_flight[0].prefills > 0
            self.controller.ran(step.sequences, step.prefill_tokens, self._step_s, prompts_follow=follows)
            if self.controller.journal:
                self.controller.journal(
                    {
                        "event": "timed", "t_s": step.started_s, "end_s": now,
                        "decodes": step.sequences - step.prefills, "prefills": step.prefills,
                        "prefill_tokens": step.prefill_tokens, "prefill_squares": step.prefill_squares,
                        "context_tokens": step.context_tokens,
                    }
                )  # fmt: skip
            self._last_update_s = now
        return outputs

    def _tokens(self, tracked: Tracked, output: EngineCoreOutput, outcome: str | None, now: float) -> None:
        job = tracked.job
        count = len(output.new_token_ids)
        if count and job.awaiting is not None:
            # Asynchronous scheduling ran one token past a blocking skill: sampled without its value, void.
            tracked.discard += count
            del output.new_token_ids[:]
            count = 0
        if count:
            if tracked.first_token_s is None:
                tracked.first_token_s = now
            self.controller.progress(job, count, now)
            self._names.wrote(output.request_id, output.new_token_ids)
        if tracked.finder is not None:
            if count:
                for closed in tracked.finder.feed(output.new_token_ids):
                    self._close(tracked, closed, now, last=outcome is not None)
            if outcome is not None:
                rest = tracked.finder.finish()
                if rest is not None:
                    self._close(tracked, rest, now, last=True)
        if tracked.segments or outcome is not None:
            # Later chunks overwrite this field where chunks are merged, so it always holds everything.
            output.kv_transfer_params = {
                **(output.kv_transfer_params or {}),
                "timely": tracked.account(now, finished=outcome is not None),
            }

    def _close(self, tracked: Tracked, closed: Closed, now: float, *, last: bool) -> None:
        segment = self.controller.close_segment(
            tracked.job,
            closed.text,
            closed.execution_s,
            now,
            blocking=closed.blocking,
            surplus_tokens=closed.surplus_tokens,
            last=last,
        )
        tracked.closed(segment, now, last=last)

    # ------------------------------------------------------------------ idle

    def has_requests(self) -> bool:
        """False also while everything is parked: vLLM's engine loop then sleeps instead of spinning."""
        if not super().has_requests():
            return False
        if self.connector is not None or self.ec_connector is not None:
            return True  # transfers go on without tokens
        if self.has_finished_requests() or self.grammar_compile_error_reqs or self._in_flight:
            return True
        if len(self._tracked) < len(self.requests):
            return True
        return self._next_run() <= self.clock()

    def _next_run(self) -> float:
        """When somebody may run, as far as it is known."""
        return max(self._idle_until, self.controller.next_resume())

    def seconds_to_resume(self) -> float | None:
        """How long the engine loop may sleep; None: until something happens."""
        resume = self._next_run()
        return None if resume == math.inf else max(0.0, resume - self.clock())

    # ------------------------------------------------------------------ control events

    def control(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """A control event from a front-end; harmless when its task is not here (several engines).

        ``{"kind": "report", "task_id", "report", "sent_s"}`` (``sent_s``, on this clock, may be left out: now),
        ``{"kind": "discipline", "name"}``, ``{"kind": "mode", "name"}``,
        ``{"kind": "stats"}``, ``{"kind": "urgency", "task_id", "urgency"}``,
        ``{"kind": "requests", "task_id"}`` (the request ids of a task, for a cancel).
        Errors come back as data: ``{"error": {"code", "message", "where"}}``.
        """
        now = self.clock()
        # Whatever it is, the discipline may choose otherwise now.
        self._idle_until = -math.inf
        try:
            kind = event.get("kind")
            if kind == "report":
                report = _aged(ExecutionReport(**event["report"]), now - event.get("sent_s", now))
                return {"known": self._report(str(event["task_id"]), report, now)}
            if kind == "discipline":
                name = str(event["name"])
                check_needs(registry.load(name).info, self._offers())
                self.controller.switch(name, now)
                return {"known": True}
            if kind == "urgency":
                requests = list(self._by_task.get(str(event["task_id"]), ()))
                for request_id in requests:
                    self.controller.set_urgency(request_id, event["urgency"], now)
                return {"known": bool(requests)}
            if kind == "mode":
                return self._set_mode(str(event["name"]))
            if kind == "stats":
                return self._stats(now)
            if kind == "requests":
                return {"requests": list(self._by_task.get(str(event["task_id"]), ()))}
            raise InvalidInput(f"unknown control event {kind!r}", where="kind")
        except TimelyError as error:
            return {
                "known": not isinstance(error, InvalidInput),
                "error": {"code": error.code, "message": error.message, "where": error.where},
            }

    def _set_mode(self, name: str) -> dict[str, Any]:
        """Another serving mode, for benchmarks that compare them on one warm engine; not while anything is served."""
        if name not in get_args(Mode):
            raise UnknownName("mode", name, get_args(Mode), where="mode")
        if self._tracked:
            raise Conflict(f"{len(self._tracked)} generations are being served in another mode", where="mode")
        self.settings.mode = name  # type: ignore[assignment]
        return {"known": True}

    def _report(self, task_id: str, report: ExecutionReport, now: float) -> bool:
        requests = self._by_task.get(task_id)
        if not requests:
            return False
        tracked = self._tracked[requests[0]]
        awaited = tracked.job.awaiting
        job = self.controller.report(tracked.job.job_id, report, now)
        if job is not None and report.kind == "value" and awaited is not None and report.value is not None:
            self._append_value(tracked, report.value)
        return job is not None

    def _append_value(self, tracked: Tracked, value: str) -> None:
        token_ids = list(self._get_tokenizer().encode(value_text(value), add_special_tokens=False))
        append_value(self, tracked.request, token_ids, tracked.discard)
        self._names.answered(tracked.request.request_id, value)
        tracked.discard = 0
        table, row = tracked.job.table, tracked.job.row
        table.prefill_left[row] = tracked.request.num_tokens - tracked.request.num_computed_tokens

    def _stats(self, now: float) -> dict[str, Any]:
        controller = self.controller
        everybody = self._tracked.values()
        return {
            "discipline": controller.discipline.info.name,
            "mode": self.settings.mode,
            "now_s": now,
            **count_states(everybody, now),
            "kv_usage": float(self.kv_cache_manager.usage),
            "steps": controller.steps,
            "tokens": controller.tokens,
            "segments": controller.segments,
            "evictions": controller.evictions,
            "recomputed_tokens": controller.recomputed_tokens,
            "step_s": self._step_s,
            "decide_s": self._decide_s,
            "jobs": [tracked.view(now) for tracked in islice(everybody, SHOWN_JOBS)],
            "paces": controller.paces.robots(),
        }


def _aged(report: ExecutionReport, waited_s: float) -> ExecutionReport:
    """The report, older by its wait in the queue; as it is where the sender's clock cannot be ours (another host)."""
    if not 0.0 < waited_s < LONGEST_STEP_S:
        return report
    return replace(report, age_s=report.age_s + waited_s)
