"""An engine without a model: plans come from a script, everything else (steps, parking, KV, reports) behaves.

It ships with the engine interface. The server, the ROS 2 bridge and the client are tested against it, and ``timely
serve --engine scripted`` is a dry run of a fleet. The scheduling is the real one (``EngineController`` and a
discipline). Only tokens are made up, and each step takes the time of a simple cost formula, on a clock that a test may
own. It has no grammar and reads no model.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from timely.core.clock import AsyncClock, SystemClock, wait_on_clock
from timely.core.errors import Conflict, EngineDied, EngineFailed, TimelyError, TooLarge
from timely.core.hints import RequestHints
from timely.core.job import Job
from timely.core.reports import ExecutionReport
from timely.core.utility import TimeUtility
from timely.disciplines import registry
from timely.disciplines.base import Discipline, DisciplineInfo, StepLimits, StepPlan
from timely.disciplines.requirements import check_queue_discipline_needs, discipline_lacks
from timely.engines.active_discipline import FALLBACK
from timely.engines.base import (
    NOTHING_AHEAD,
    Engine,
    EngineEvent,
    EngineStats,
    FinishReason,
    GenerationDone,
    GenerationRequest,
    JobState,
    JobView,
    Mode,
    PlanHistory,
    ResponsePrediction,
    SegmentReady,
    engine_job_spec,
)
from timely.engines.scheduler_core import EngineController
from timely.engines.scripts import (
    Planner,
    Script,
    ScriptedSegment,
    count_engine_script_tokens,
    engine_script_segments,
    joined_engine_script,
    nearest_engine_script,
)
from timely.engines.step_time.learned import FixedSpeed, LearnedSpeed

log = logging.getLogger(__name__)

TURNS = 4
"""Of the event loop for each segment that a step closed, and after each step."""


@dataclass(eq=False, slots=True)
class _Live:
    """A generation in progress: what the job table does not hold."""

    request: GenerationRequest
    script: list[ScriptedSegment]
    prompt_tokens: int
    cached_tokens: int
    events: asyncio.Queue[EngineEvent | TimelyError] = field(default_factory=asyncio.Queue)
    closed_segments: int = 0
    replaced_text: str = ""
    """Of an earlier plan that this one goes on with."""
    suspensions: int = 0
    recompute_left: int = 0
    first_token_s: float | None = None
    segment_first_token_s: float | None = None
    """Of the open segment."""
    last_token_s: float | None = None


class ScriptedEngine(Engine):
    """Plays scripts through the real scheduling.

    Args:
        plans: task text -> its segments. A task that is not listed goes to ``planner``.
        planner: request -> its segments; None: the example of the skill set that is nearest to the task.
        token_s: time of a decoding step with one sequence, seconds.
        sequence_s: what one more sequence adds to a step, seconds.
        prefill_token_s: what one prompt token adds to a step, seconds.
        max_batch, max_resident: sequences in a step, and with KV at once.
        token_budget, prefill_chunk: most tokens of a step, and most of one prompt in it.

    Raises:
        UnknownName: no such discipline.
        Unsupported: the discipline needs speculation; nothing is drafted here.
    """

    name = "scripted"

    def __init__(
        self,
        plans: Mapping[str, Script] | None = None,
        *,
        planner: Planner | None = None,
        clock: AsyncClock | None = None,
        discipline: str = registry.DEFAULT,
        mode: Mode = "segmented",
        token_s: float = 0.02,
        sequence_s: float = 0.0005,
        prefill_token_s: float = 0.0003,
        max_batch: int = 32,
        max_resident: int = 256,
        kv_blocks: int = 4096,
        block_tokens: int = 16,
        token_budget: int = 2048,
        prefill_chunk: int = 256,
        max_prompt_tokens: int = 8192,
        predictors: Sequence[Path] = (),
    ) -> None:
        check_queue_discipline_needs(registry.load_discipline(discipline).info, ())
        self._plans = dict(plans or {})
        self._planner: Planner = planner or nearest_engine_script
        self.clock: AsyncClock = clock or SystemClock()
        self._cost = FixedSpeed(token_s, sequence_s, prefill_token_s)
        self._prior = (token_s, sequence_s, prefill_token_s)
        self._discipline, self._predictors = discipline, predictors
        self._controller = self._new_controller()
        self._mode: Mode = mode
        self._max_batch, self._max_resident = max_batch, max_resident
        self._kv_blocks, self._block_tokens = kv_blocks, block_tokens
        self._token_budget, self._prefill_chunk = token_budget, prefill_chunk
        self._max_prompt_tokens = max_prompt_tokens
        self._live: dict[str, _Live] = {}
        self._prefixes: set[str] = set()
        self._wake = asyncio.Event()
        self._switching = asyncio.Lock()
        self._loop_task: asyncio.Task[None] | None = None
        self._failure: EngineDied | None = None
        self._died = asyncio.Event()
        self._working = asyncio.Event()
        self._working.set()
        self._step_s = self._decide_s = 0.0
        self._closed_segments = 0

    def _new_controller(self) -> EngineController:
        return EngineController(
            registry.create_discipline(self._discipline, self._predictors),
            LearnedSpeed(self._prior),
            files=self._predictors,
            fallback=FALLBACK,
        )

    # ------------------------------------------------------------------ the interface

    async def start(self) -> None:
        """After a crash nothing of the engine before is left."""
        if self._failure is not None:
            self._failure = None
            self._died.clear()
            self._prefixes.clear()
            self._controller = self._new_controller()
        if self._loop_task is None:
            self._loop_task = asyncio.create_task(self._live_on(), name="scripted-engine")

    async def stop(self) -> None:
        for task_id in list(self._live):
            self._finish(task_id, "cancelled")
        task, self._loop_task = self._loop_task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def wait_dead(self) -> EngineFailed:
        await self._died.wait()
        return self._failure or EngineFailed("it was started again", where="engine")

    @property
    def dead(self) -> bool:
        return self._failure is not None

    async def kill(self) -> None:
        self.crash("it was killed")

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineEvent, None]:
        live = self._admit(request)
        try:
            while True:
                event = await live.events.get()
                if isinstance(event, TimelyError):
                    raise event
                yield event
                if isinstance(event, GenerationDone):
                    return
        finally:
            if self._live.get(request.task_id) is live:
                del self._live[request.task_id]
                self._controller.finish(request.task_id, "closed", self.clock.now())
                self._wake.set()

    async def report(self, task_id: str, report: ExecutionReport) -> None:
        await self._reach()
        self._controller.report(task_id, report, self.clock.now())
        self._wake.set()

    async def cancel(self, task_id: str) -> bool:
        await self._reach()
        if task_id not in self._live:
            return False
        self._finish(task_id, "cancelled")
        return True

    async def set_urgency(self, task_id: str, urgency: int) -> bool:
        live = self._controller.set_urgency(task_id, urgency, self.clock.now()) is not None
        self._wake.set()
        return live

    async def set_discipline(self, name: str) -> None:
        """See ``Engine.set_discipline``.

        Raises:
            Unsupported: it needs speculation; the current one stays.
        """
        async with self._switching:  # a slow load must not overtake a later switch
            fresh = await asyncio.to_thread(self._create_discipline, name)
            self._controller.switch(name, self.clock.now(), fresh)
        self._wake.set()

    def _create_discipline(self, name: str) -> Discipline:
        check_queue_discipline_needs(registry.load_discipline(name).info, ())
        return self._controller.create(name)

    def disciplines(self) -> tuple[DisciplineInfo, ...]:
        """See ``Engine.disciplines``: without those that need speculation."""
        return tuple(info for info in super().disciplines() if not discipline_lacks(info, ()))

    async def stats(self) -> EngineStats:
        await self._reach()
        now = self.clock.now()
        controller = self._controller
        views = tuple(
            JobView.of(str(job.job_id), job, self._state(job, now), now) for job in controller.table
        )
        states = [view.state for view in views]
        return EngineStats(
            engine=self.name,
            discipline=controller.discipline.info.name,
            mode=self._mode,
            now_s=now,
            waiting=states.count("waiting") + states.count("evicted"),
            running=states.count("running"),
            parked=states.count("parked"),
            blocked=states.count("blocked"),
            kv_usage=1.0 - self._free_blocks() / self._kv_blocks,
            **(controller.load(now, self._kv_blocks) | controller.counters()),
            step_s=self._step_s,
            decide_s=self._decide_s,
            jobs=views,
            paces=controller.paces.robots(),
        )

    async def predict_response(
        self, utility: TimeUtility, ahead: Mapping[str, RequestHints] = NOTHING_AHEAD
    ) -> ResponsePrediction | None:
        coming = [hints for task_id, hints in ahead.items() if task_id not in self._live]
        return self._controller.predict_response(utility, self.clock.now(), coming)

    @property
    def max_prompt_tokens(self) -> int:
        return self._max_prompt_tokens

    async def _reach(self) -> None:
        """Return when a call reaches the engine: never while it hangs.

        Raises:
            EngineDied: it has died.
        """
        await self._working.wait()
        if self._failure is not None:
            raise self._failure

    def hang(self) -> None:
        """Stop as a process under SIGSTOP does: no further step and no answer until ``kill``."""
        self._working.clear()

    def crash(self, reason: str) -> None:
        """Die as an engine process would: every generation and every later call raises ``EngineDied``."""
        self._failure = EngineDied(reason, where="engine")
        for task_id, live in list(self._live.items()):
            self._controller.finish(task_id, "failed", self.clock.now())
            live.events.put_nowait(self._failure)
        self._live.clear()
        self._working.set()
        self._died.set()

    # ------------------------------------------------------------------ joining and leaving

    def _admit(self, request: GenerationRequest) -> _Live:
        if self._failure is not None:
            raise self._failure
        if self._loop_task is None:
            raise EngineFailed("it has not been started", where="engine")
        if request.task_id in self._live:
            raise Conflict(f"task {request.task_id!r} is already being served", where="task_id")
        system, prompt = (
            count_engine_script_tokens(request.system),
            count_engine_script_tokens(request.prompt),
        )
        if system + prompt > self._max_prompt_tokens:
            raise TooLarge(
                f"the prompt has about {system + prompt} tokens; the limit is {self._max_prompt_tokens}",
                where="prompt",
            )
        script = engine_script_segments(request, self._plans, self._planner)
        longest = max(segment.length for segment in script)
        whole = system + prompt + sum(segment.length for segment in script) + 1
        if math.ceil(whole / self._block_tokens) > self._kv_blocks:
            raise TooLarge(f"{whole} tokens do not fit into the KV cache", where="prompt")
        cached_tokens = system if request.system in self._prefixes else 0
        now = self.clock.now()
        history = request.history or PlanHistory(now if request.arrival_s is None else request.arrival_s)
        sent_segments = history.own_segments
        replaced_text = history.text[
            : len(history.text) - sum(len(segment.text) for segment in sent_segments)
        ]
        live = _Live(request, script, system + prompt, cached_tokens, replaced_text=replaced_text)
        if [part.text for part in script[: len(sent_segments)]] != [
            segment.text for segment in sent_segments
        ]:
            raise Conflict("the script of this task is another one now", where="history")
        self._controller.arrive(
            engine_job_spec(
                request.task_id,
                min(now, history.arrival_s),
                request.hints,
                self._mode,
                prompt_tokens=live.prompt_tokens,
                cached_tokens=live.cached_tokens,
                max_tokens=request.max_tokens,
                segment_tokens=longest,
                text=request.words,
            ),
            request.history,
            now,
        )
        self._live[request.task_id] = live
        live.closed_segments = live.suspensions = len(sent_segments)
        if self._mode == "whole" and (rest := script[len(sent_segments) :]):
            # Before a restart in this mode, segments may have left in another.
            script[len(sent_segments) :] = [joined_engine_script(rest)]
        if live.closed_segments == len(script):
            self._finish(request.task_id, "complete")
        self._wake.set()
        return live

    def _finish(self, task_id: str, reason: FinishReason) -> None:
        live = self._live.pop(task_id)
        job = self._controller.finish(task_id, reason, self.clock.now())
        if job is None:
            raise EngineFailed(f"task {task_id!r} is not in the job table", where="engine")
        live.events.put_nowait(
            GenerationDone(
                task_id=task_id,
                reason=reason,
                text=live.replaced_text
                + "".join(segment.text for segment in live.script[: live.closed_segments]),
                tokens=sum(segment.length for segment in live.script[: live.closed_segments]),
                prompt_tokens=live.prompt_tokens,
                cached_tokens=live.cached_tokens,
                recomputed_tokens=job.recomputed_tokens,
                preemptions=job.preemptions,
                suspensions=live.suspensions,
                first_token_s=live.first_token_s,
                last_token_s=live.last_token_s,
            )
        )
        self._wake.set()

    # ------------------------------------------------------------------ stepping

    async def _live_on(self) -> None:
        try:
            await self._run()
        except Exception as error:
            log.exception("the scripted engine died")
            self.crash(f"{type(error).__name__}: {error}")

    async def _run(self) -> None:
        end_s = math.inf
        while True:
            await self._working.wait()
            self._wake.clear()
            now = self.clock.now()
            before = time.perf_counter()
            plan = self._controller.compose(self._limits(now))
            self._decide_s = time.perf_counter() - before
            for job_id in plan.evict:
                self._evict(self._controller.table[job_id], now)
            if plan.tokens:
                before_step = self._closed_segments
                end_s = await self._step(plan, min(end_s, now))
                # Closed segments leave first, from one task of this loop to the next and out of the socket; then
                # the next step is composed.
                for _ in range(TURNS * max(1, self._closed_segments - before_step)):
                    await asyncio.sleep(0)
            else:
                end_s = math.inf
                await wait_on_clock(self._wake, self.clock, plan.wake_s)

    def _limits(self, now: float) -> StepLimits:
        return StepLimits(
            now=now,
            token_budget=self._token_budget,
            max_batch=self._max_batch,
            max_resident=self._max_resident,
            prefill_chunk=self._prefill_chunk,
            free_blocks=self._free_blocks(),
            block_tokens=self._block_tokens,
            speed=self._controller.speed,
            cache_blocks=self._kv_blocks,
        )

    def _free_blocks(self) -> int:
        return self._kv_blocks - int(self._controller.table.blocks.sum())

    async def _step(self, plan: StepPlan, begin_s: float) -> float:
        """Compute a step and return when it is over.

        Args:
            begin_s: end of the step before it, if there was no pause; what the server did since then counts.
        """
        table = self._controller.table
        prefill = 0
        for job_id, share in plan.tokens.items():
            job = table[job_id]
            row = job.row
            if table.prefill_left[row] > 0:
                prefill += share
            if table.resident[row]:
                reach = int(table.context_tokens[row]) + share
            else:
                reach = int(table.prompt_tokens[row]) + int(table.output_tokens[row]) + 1
            table.blocks[row] = max(int(table.blocks[row]), math.ceil(reach / self._block_tokens))
            self._controller.started(job)
        await self.clock.sleep(self._cost.step_s(len(plan.tokens), prefill))
        now = self.clock.now()
        self._step_s = now - begin_s
        self._controller.ran(len(plan.tokens), prefill, self._step_s)
        for job_id, share in plan.tokens.items():
            live_job = table.get(job_id)
            if live_job is not None:  # it may have been cancelled during the step
                self._compute(live_job, share, now)
        return now

    def _compute(self, job: Job, share: int, now: float) -> None:
        table, row, live = job.table, job.row, self._live[str(job.job_id)]
        table.attained_s[row] += self._step_s
        if table.prefill_left[row] > 0:
            table.prefill_left[row] -= share
            again = min(share, live.recompute_left)
            live.recompute_left -= again
            self._controller.recomputed(job, again)
            if table.prefill_left[row] > 0:
                table.context_tokens[row] += share
                return
            self._prefixes.add(live.request.system)
        table.context_tokens[row] = table.prompt_tokens[row] + table.output_tokens[row]
        self._controller.progress(job, 1, now)
        live.last_token_s = now
        if live.first_token_s is None:
            live.first_token_s = now
        if live.segment_first_token_s is None:
            live.segment_first_token_s = now
        if table.segment_tokens[row] >= live.script[live.closed_segments].length:
            self._close(job, live, now)

    def _close(self, job: Job, live: _Live, now: float) -> None:
        part = live.script[live.closed_segments]
        live.closed_segments += 1
        self._closed_segments += 1
        last = live.closed_segments == len(live.script)
        segment = self._controller.close_segment(
            job, part.text, part.execution_s, now, blocking=part.blocking, last=last
        )
        if self._mode == "segmented" and not last:
            live.suspensions += 1
        live.events.put_nowait(
            SegmentReady.of(
                live.request.task_id,
                segment,
                blocking=job.awaiting == segment.index,
                steps=segment.tokens,
                first_token_s=live.segment_first_token_s,
            )
        )
        live.segment_first_token_s = None
        if last:
            self._finish(live.request.task_id, "complete")

    def _evict(self, job: Job, now: float) -> None:
        live = self._live[str(job.job_id)]
        live.recompute_left = int(job.table.context_tokens[job.row])
        whole = int(job.table.prompt_tokens[job.row]) + int(job.table.output_tokens[job.row])
        self._controller.evict(job, whole, now)

    def _state(self, job: Job, now: float) -> JobState:
        table, row = job.table, job.row
        if job.awaiting is not None:
            return "blocked"
        if table.resume_s[row] > now:
            return "parked"
        if table.resident[row]:
            return "running" if table.active[row] else "waiting"
        return "evicted" if job.preemptions else "waiting"
