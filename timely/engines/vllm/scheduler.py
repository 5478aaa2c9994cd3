"""The scheduler plugged into vLLM: ``--scheduler-cls timely.engines.vllm.scheduler.TimelyScheduler``.

It changes only the choice: before each step the discipline composes the step, and vLLM schedules just that. A
generation that does not take part stays in ``running`` with its KV blocks and its slot (parked). Resuming it costs
nothing and recomputes nothing. docs/vllm.md says how each part works, and why there.

It runs in vLLM's engine process, under our server and under stock ``vllm serve``, with synchronous and asynchronous
scheduling. It subclasses ``AsyncScheduler`` because vLLM turns asynchronous scheduling off for anything else.
"""

import math
import time
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, cast

from vllm.logger import init_logger
from vllm.platforms import current_platform
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import SchedulingPolicy, create_request_queue
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from timely.core.errors import TimelyError
from timely.core.job import NEVER
from timely.disciplines import registry
from timely.disciplines.base import StepPlan
from timely.disciplines.requirements import SPECULATION, check_queue_discipline_needs
from timely.engines.active_discipline import FALLBACK
from timely.engines.scheduler_core import EngineController
from timely.engines.vllm import compatibility
from timely.engines.vllm.block_manager import VllmBlockManager
from timely.engines.vllm.chunk_caps import VllmChunkCaps
from timely.engines.vllm.control import VllmControlEvents
from timely.engines.vllm.decode_slots import has_plain_vllm_blocks, skip_vllm_slots_inside_blocks
from timely.engines.vllm.forced_drafts import ForcedDrafts
from timely.engines.vllm.kept_prefixes import VllmKeptPrefixes
from timely.engines.vllm.load_gauges import VllmLoadReport
from timely.engines.vllm.name_constraint import VllmPromptNames
from timely.engines.vllm.params import KEY, ORDINARY, TimelyParams, parse_vllm_extra_args
from timely.engines.vllm.parent_watch import end_vllm_with_parent
from timely.engines.vllm.parking import VllmParking
from timely.engines.vllm.planned_queue import VllmPlannedQueue
from timely.engines.vllm.readiness import VllmReadiness
from timely.engines.vllm.request_intake import VllmRequestIntake
from timely.engines.vllm.request_state import VllmLiveRequests, VllmRequestState
from timely.engines.vllm.resumed_plan import advance_vllm_grammar, resume_vllm_state, vllm_resumed_tokens
from timely.engines.vllm.settings import SchedulerSettings, open_vllm_journal
from timely.engines.vllm.step_room import VllmStepRoom
from timely.engines.vllm.step_timing import VllmStepTiming, record_vllm_scheduled
from timely.engines.vllm.token_output import (
    AppendTokens,
    VllmTokenOutput,
    append_vllm_tokens,
    end_full_vllm_plan,
    refuse_vllm_plan,
)
from timely.engines.vllm.value_injection import VllmRobotValues

logger = init_logger("vllm.timely.scheduler")  # vLLM shows the messages of loggers below its own

STUCK_POLL_S = 0.05
"""How soon the discipline is asked again while requests are runnable and none has room, as beside idle sessions."""


class TimelyScheduler(VllmChunkCaps):
    """vLLM's scheduler; a Timely discipline chooses the requests of each step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        compatibility.check_vllm()
        compatibility.refuse_unsupported_vllm(self.vllm_config, recurrent=self.has_mamba_layers)
        end_vllm_with_parent()
        self.waiting = VllmPlannedQueue(create_request_queue(self.policy))
        lora_config: Any = self.vllm_config.lora_config
        self.max_adapters: int | None = lora_config.max_loras if lora_config else None
        """Most LoRA adapters in a step; None without LoRA."""
        if self.vllm_config.model_config.runner_type != "pooling":
            # The plan orders requests, so vLLM's last resort takes the end of ``running`` under either policy.
            self.policy: Any = SchedulingPolicy.FCFS
            self.kv_holding_waiting = create_request_queue(self.policy)
            # The plan keeps to it. Since 0.33 vLLM counts the adapters of parked requests, too.
            self.lora_config = None
        self.clock: Callable[[], float] = time.monotonic
        """Seconds; on Linux one axis for all processes of the host. A test may put a virtual one here."""
        self.settings = SchedulerSettings.from_vllm(self.vllm_config)
        offers = {SPECULATION} if self.num_spec_tokens > 0 else set()
        check_queue_discipline_needs(registry.load_discipline(self.settings.discipline).info, offers)
        self.controller = EngineController(
            registry.create_discipline(self.settings.discipline, self.settings.predictors),
            journal=open_vllm_journal(self.settings.journal),
            journal_details=self.settings.journal_details,
            files=self.settings.predictors,
            fallback=FALLBACK,
        )
        self.live = VllmLiveRequests()
        self._with_boundaries = self.live.with_boundaries
        self._ahead: bool = self.scheduler_config.async_scheduling
        """Whether a step is composed while another computes the tokens that it reads."""
        owner = AsyncScheduler if self._ahead else Scheduler
        self._append_tokens: AppendTokens = MethodType(owner._update_request_with_output, self)
        """vLLM's own way; in vLLM 0.32 that of its asynchronous scheduler counts placeholders down."""
        if has_plain_vllm_blocks(self):
            skip_vllm_slots_inside_blocks(self)
        self.blocks = VllmBlockManager(self, self.live)
        self._parking = VllmParking(self, self.live)
        self._readiness = VllmReadiness(self, self.live, self.blocks)
        self._intake = VllmRequestIntake(
            self.vllm_config.model_config,
            self.settings,
            heed_priority=self.scheduler_config.policy == "priority",
        )
        self._names = VllmPromptNames(self)
        self._drafts = ForcedDrafts(
            self, self.live, self._names, lambda: self._intake.tokenizer, on_cpu=current_platform.is_cpu()
        )
        self._prompts = VllmKeptPrefixes(self)
        self._outputs = VllmTokenOutput(lambda: self.controller, self.live, self._names)
        self._values = VllmRobotValues(
            self, self._readiness, self._names, self._intake, self._parking.resume, self._end_full
        )
        self._events = VllmControlEvents(
            lambda: self.controller, self.live, self.settings, offers, self._values.take, self._measures,
            int(self.vllm_config.parallel_config.data_parallel_index),
        )  # fmt: skip
        self._steps = VllmStepTiming(ahead=self._ahead)
        self._room = VllmStepRoom(self, self.settings, self.live, self.blocks, self._steps)
        self._plan = StepPlan()
        self._plan_tokens: dict[str, int] = {}
        """Request id -> tokens in the step that is being composed."""
        self._longest_chunk = 0
        """Most prompt tokens of a request in that step."""
        self._grammar_prefixes: dict[str, list[int]] = {}
        """Recorded tokens of resumed requests; their grammars are compiled when they run for the first time."""
        self._load = VllmLoadReport(self.kv_cache_manager.block_pool.num_gpu_blocks)
        self._decide_s = 0.0
        self._freed_requests: dict[str, str] | None = None
        """During an update: how requests ended."""
        self._ends: list[tuple[int, EngineCoreOutput]] = []
        """Client and last output of plans that ended outside a step, or were refused; they leave with the next step."""
        self._idle_until_s = -math.inf
        """Set when the discipline chose no runnable request: when it wants to be asked again."""
        logger.info("Timely schedules: discipline %s, mode %s", self.settings.discipline, self.settings.mode)

    # ------------------------------------------------------------------ requests come and go

    def add_request(self, request: Request) -> None:
        """Bad parameters fail that request alone."""
        session = self.requests.get(request.request_id)
        super().add_request(request)
        if session is not None:
            self._continue_session(request.request_id)
            return
        if request.sampling_params is None:
            return  # a pooling request: vLLM orders it
        try:
            params = parse_vllm_extra_args(request.sampling_params.extra_args)
            self._track(request, params or ORDINARY)
        except TimelyError as error:
            logger.warning("request %s refused: %s", request.request_id, error)
            self._refuse(request, error)

    def _refuse(self, request: Request, error: TimelyError) -> None:
        """End a request that cannot be served; a plan of our own server gets the error as data."""
        own_fields = (request.sampling_params.extra_args or {}).get(KEY)
        if isinstance(own_fields, Mapping) and own_fields.get("awaits_values", True):
            self._ends.append((request.client_index, refuse_vllm_plan(request, error)))
            self.finish_requests(request.request_id, RequestStatus.FINISHED_ERROR)
        else:
            compatibility.end_with_vllm_error(self, request.request_id, str(error))

    def _track(self, request: Request, params: TimelyParams) -> None:
        now = self.clock()
        cached_blocks = self.blocks.cached_blocks(request)
        spec, boundaries = self._intake.job_spec(
            request, params, now, cached_tokens=cached_blocks * self.block_size
        )
        job = self.controller.arrive(spec, params.history, now)
        self._idle_until_s = -math.inf
        task_id = params.task_id or request.request_id
        state = VllmRequestState(
            request,
            job,
            task_id,
            boundaries,
            cached_blocks=cached_blocks,
            has_account=boundaries is not None or params.awaits_values,
            is_whole=self.settings.mode == "whole",
        )
        self.live.add(state)
        self.blocks.count_held(state)
        self._names.begin(request.request_id, params)
        if params.keep_prompt:
            self._prompts.keep(request)
        if params.history is not None:
            resume_vllm_state(state, self._names, params.history)
            self._grammar_prefixes[request.request_id] = vllm_resumed_tokens(params.history)
            self.blocks.sync_context(state)
        self._readiness.check(state, now)

    def _continue_session(self, request_id: str) -> None:
        """A streaming session got further input, or ended a turn."""
        state = self.live.get(request_id)
        if state is not None and state.request.status != RequestStatus.RUNNING:
            self._idle_until_s = -math.inf
            now = self.clock()
            if state.job.spec.plain:
                # The wait for an answer begins with the input, not with that of the first turn.
                table, row = state.job.table, state.job.row
                table.arrival_s[row] = table.due_s[row] = now
            self.blocks.sync_context(state)
            self._readiness.check(state, now)
            self._readiness.refresh(now)

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> Any:
        """Every way out of vLLM passes here: finished, aborted, failed."""
        result = super()._free_request(request, delay_free_blocks)
        outcome = str(request.get_finished_reason())
        if self._freed_requests is not None:
            # During an update the last tokens have not been processed yet.
            self._freed_requests[request.request_id] = outcome
        else:
            self._forget({request.request_id: outcome})
        return result

    def _forget(self, outcomes: Mapping[str, str]) -> None:
        """These requests are over. vLLM steps once more, so the discipline is asked again."""
        self.controller.finish_together(outcomes, self.clock())
        for request_id in outcomes:
            self._names.forget(request_id)
            self._grammar_prefixes.pop(request_id, None)
            self._values.forget(request_id)
            self.live.remove(request_id)

    def _end_full(self, state: VllmRequestState) -> None:
        """End a plan whose context is full, as vLLM ends a request that reaches its longest context."""
        request = state.request
        self._ends.append((request.client_index, end_full_vllm_plan(state, self.clock())))
        # vLLM steps once more for a finished request, so the output leaves at once.
        self.finish_requests(request.request_id, RequestStatus.FINISHED_LENGTH_CAPPED)

    # ------------------------------------------------------------------ a step

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Let the discipline compose the step, then vLLM schedule just that."""
        now = self.clock()
        self._readiness.refresh(now)
        self._prompts.refresh(now)
        defers_prompts = throttle_prefills or self._is_within_prefill_interval()
        plan = self._plan = self._compose(now, defers_prompts)
        for request_id in plan.evict:
            self.blocks.evict(self.live[str(request_id)], now)
        self._plan_tokens = cast("dict[str, int]", plan.tokens)
        newcomers = self._parking.order_running(self._plan_tokens)
        with self.waiting.showing(newcomers):
            output = super().schedule(throttle_prefills)
        self._settle(output, now)
        for request in newcomers:
            if request.status != RequestStatus.RUNNING:
                self._readiness.check(self.live[request.request_id], now)
        scheduled_tokens = output.total_num_scheduled_tokens
        if defers_prompts and not (throttle_prefills or scheduled_tokens):
            # vLLM counts steps with tokens only: a parked request must not keep prompts waiting.
            self.last_prefill_step = -self.local_prefill_interval
        # Otherwise a step in flight may still free blocks, or vLLM defers prompts.
        final = not defers_prompts and (scheduled_tokens > 0 or not self._steps.in_flight)
        self.blocks.check_admissions(newcomers, self._plan_tokens, scheduled_tokens, now, final=final)
        if scheduled_tokens:
            self._steps.in_flight[-1].schedule_s = self.clock() - now
        return output

    def _is_within_prefill_interval(self) -> bool:
        """Whether vLLM will defer prompts by itself: ``--prefill-schedule-interval`` on one engine, since 0.33."""
        interval = getattr(self, "local_prefill_interval", 1)
        return interval > 1 and self.num_executed_steps + 1 - self.last_prefill_step < interval

    def _compose(self, now: float, throttle_prefills: bool) -> StepPlan:
        if self._pause_state == PauseState.PAUSED_ALL:
            return StepPlan()
        started_s = time.perf_counter()
        limits = self._room.limits(now, throttle_prefills=throttle_prefills)
        self._longest_chunk = limits.prefill_chunk
        self.blocks.look_up_prefixes(limits.free_blocks)
        plan = self.controller.compose(limits)
        # Prompts that vLLM defers may run in the next step.
        goes_on = plan.tokens or throttle_prefills
        wake_s = plan.wake_s if plan.wake_s != NEVER else now + STUCK_POLL_S
        self._idle_until_s = -math.inf if goes_on else wake_s
        self._decide_s += 0.1 * (time.perf_counter() - started_s - self._decide_s)
        return plan

    def _settle(self, output: SchedulerOutput, now: float) -> None:
        """Bring the table in line with what vLLM scheduled."""
        request_tokens = output.num_scheduled_tokens
        if request_tokens:
            self._steps.in_flight.append(
                record_vllm_scheduled(
                    self.controller,
                    self.live,
                    self._plan,
                    request_tokens,
                    self.running,
                    now,
                    self.blocks.block_tokens,
                )
            )
        journal = self.controller.journal
        if journal and journal.details and (self._plan.tokens or output.num_scheduled_tokens):
            # Follows the decision: what vLLM made of it.
            journal(
                {
                    "event": "ran", "t_s": now, "tokens": dict(output.num_scheduled_tokens),
                    "preempted": list(output.preempted_req_ids or ()),
                }
            )  # fmt: skip

    # ------------------------------------------------------------------ inside vLLM's own scheduling

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Asynchronous workers put drafts for vLLM's placeholders, in the step right behind the one that made them.

        Synchronous ones compute no token whose input is not there: no placeholder stands for it.
        """
        if not self._ahead:
            self._drafts.take_out(scheduler_output)
            Scheduler._update_after_schedule(self, scheduler_output)
            return
        super()._update_after_schedule(scheduler_output)
        if self.num_spec_tokens:
            request_tokens = scheduler_output.num_scheduled_tokens
            for request in self.running:
                if (
                    compatibility.PLACEHOLDER in request.spec_token_ids
                    and request.request_id not in request_tokens
                ):
                    request.spec_token_ids = []

    def _handle_blocked_waiting_request(self, request: Request) -> bool:
        """vLLM asks before it admits: only what the plan chose, also of the requests that hold KV blocks."""
        if request.request_id in self.live and request.request_id not in self._plan_tokens:
            return False
        return bool(super()._handle_blocked_waiting_request(request))

    def _chunk_cap(self, request_id: str) -> int | None:
        tokens, state = self._plan_tokens.get(request_id), self.live.get(request_id)
        if tokens is None or state is None:
            return None
        # Members before it may have taken cached blocks that the plan counted on. A prompt planned whole stays whole.
        is_cut = tokens < state.job.table.prefill_left[state.job.row]
        return tokens if is_cut else self._longest_chunk

    def promote_loaded(self, request: Request) -> None:
        """A request whose KV cache a connector has loaded can be planned by what was loaded."""
        super()._handle_blocked_waiting_request(request)

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:
        """Every loss of KV blocks passes here: evictions, vLLM's last resort, and a reset of the prefix cache."""
        state = self.live.get(request.request_id)
        if state is not None:
            state.evicted_context_tokens = max(state.evicted_context_tokens, request.num_computed_tokens)
            self._parking.resume(request, state)
        super()._preempt_request(request, timestamp, drop_stale_output)
        if state is not None:
            now = self.clock()
            self.blocks.record_eviction(state, now)
            self._readiness.check(state, now)

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> Any:
        """vLLM calls this while the accelerator computes: time for what need not wait for the next decision."""
        self.controller.maintain()
        for request_id in self._grammar_prefixes.keys() & scheduler_output.num_scheduled_tokens.keys():
            advance_vllm_grammar(self.requests[request_id], self._grammar_prefixes.pop(request_id))
        output = super().get_grammar_bitmask(scheduler_output)
        if output is not None:
            self._names.narrow(output, scheduler_output.scheduled_spec_decode_tokens)
        return output

    def _handle_invalid_blocks(
        self, invalid_block_ids: set[int], num_scheduled_tokens: dict[str, int]
    ) -> set[str]:
        """A connector could not load these blocks: all steps in flight that read them are void."""
        failed: set[str] = super()._handle_invalid_blocks(invalid_block_ids, num_scheduled_tokens)
        for state in self.live.select(failed):
            self.blocks.take_back_failed_load(state, invalid_block_ids)
        return failed

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """vLLM takes the blocks of running requests; those that wait with a value give theirs up here."""
        if reset_running_requests:
            self.blocks.evict_waiting(self.clock())
        is_reset = bool(super().reset_prefix_cache(reset_running_requests, reset_connector))
        if is_reset:
            self.blocks.forget_cached()
        return is_reset

    # ------------------------------------------------------------------ tokens

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """vLLM calls this behind each step of an engine that speculates and composes no step ahead."""
        super().update_draft_token_ids(draft_token_ids)
        self._drafts.propose(draft_token_ids.req_ids)

    def _update_request_with_output(
        self, request: Request, new_token_ids: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        if self._with_boundaries and (state := self._with_boundaries.get(request.request_id)) is not None:
            return append_vllm_tokens(state, new_token_ids, is_stale, self._append_tokens)
        return self._append_tokens(request, new_token_ids, is_stale)

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """vLLM appends the tokens; then segments are closed and generations parked."""
        begun_s = self.clock()
        self._freed_requests = {}
        try:
            outputs: dict[int, EngineCoreOutputs] = super().update_from_output(
                scheduler_output, model_runner_output
            )
        finally:
            freed_requests, self._freed_requests = self._freed_requests, None
        now = self.clock()
        request_outputs = [output for client in outputs.values() for output in client.outputs]
        if draft_ids := scheduler_output.scheduled_spec_decode_tokens:
            for output in request_outputs:
                state = self.live.get(output.request_id)
                if state is not None and output.request_id in draft_ids and output.new_token_ids:
                    right_tokens = len(output.new_token_ids) - 1
                    self.controller.accepted(state.job, len(draft_ids[output.request_id]), right_tokens, now)
        turns = self._outputs.process(request_outputs, freed_requests, now, has_drafts=bool(draft_ids))
        for request_id in turns:
            self._continue_session(request_id)
        if scheduler_output.num_scheduled_tokens:
            self._idle_until_s = -math.inf
            self._steps.end(self.controller, now, now - begun_s)
        if freed_requests:
            self._forget(freed_requests)
        self._values.append_held()
        for client_index, output in self._ends:
            outputs.setdefault(client_index, EngineCoreOutputs()).outputs.append(output)
        self._ends.clear()
        if self.settings.gauges:
            self._load.add(outputs.values(), self.controller, now)
        return outputs

    # ------------------------------------------------------------------ idle

    def has_requests(self) -> bool:
        """Whether vLLM should step: false also while all requests are parked, so that its loop sleeps."""
        if not self.holds_requests():
            return False
        if self.has_finished_requests() or self.grammar_compile_error_reqs or self._steps.in_flight:
            return True
        if len(self.live) < len(self.requests) or self._readiness.polls:
            return True
        if any(
            connector is not None and connector.has_pending_push_work()
            for connector in (self.connector, self.ec_connector)
        ):
            return True
        return self._next_run_s() <= self.clock()

    def holds_requests(self) -> bool:
        """Whether requests are unfinished, parked ones included: what a drain or a pause waits for."""
        return bool(super().has_requests())

    def set_pause_state(self, pause_state: PauseState) -> None:
        super().set_pause_state(pause_state)
        self._idle_until_s = -math.inf
        now = self.clock()
        for state in self.live:
            self._readiness.check(state, now)
        self._readiness.refresh(now)

    def _next_run_s(self) -> float:
        """The next time at which a request may run, as far as can be foreseen."""
        return max(self._idle_until_s, self.controller.next_resume())

    def seconds_to_resume(self) -> float | None:
        """How long the engine loop may sleep; None: until an event."""
        resume_s = self._next_run_s() if self.holds_requests() else NEVER
        return None if resume_s == NEVER else max(0.0, resume_s - self.clock())

    # ------------------------------------------------------------------ control events

    def control(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a control event from a front-end; see ``VllmControlEvents.answer``."""
        # The discipline may choose otherwise after any event.
        self._idle_until_s = -math.inf
        return self._events.answer(event, self.clock())

    def _measures(self) -> dict[str, Any]:
        return {
            **self.controller.load(self.clock(), self.kv_cache_manager.block_pool.num_gpu_blocks),
            "kv_usage": float(self.kv_cache_manager.usage),
            "step_s": self._steps.step_s,
            "decide_s": self._decide_s,
        }
