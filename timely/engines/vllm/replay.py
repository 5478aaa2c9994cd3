"""Replaying a trace through the real engine in real time: real steps, recorded plans, robots that report.

Every task's plan is forced token by token. Its prompt has the recorded length and shares the recorded prefix.
A simulated robot executes each segment for its recorded time and reports its start and end. A plain request closes no
segment, and the engine does not know its length before a stop token ends it.
"""

import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from timely.core.errors import EngineFailed, InvalidInput
from timely.core.garbage import short_gc_pauses
from timely.core.reports import ExecutionReport
from timely.engines.base import ForcedPlan, GenerationDone, GenerationRequest, SegmentReady
from timely.engines.replay_estimates import ReplayEstimates
from timely.engines.replay_journal import live_replay_journal
from timely.engines.replay_types import (
    BLOCK_ID_TOKENS,
    Backend,
    BackendRun,
    JobRecord,
    PlannedSegment,
    PlannedTask,
    Progress,
    ReplayOptions,
)
from timely.engines.step_time.journal import read_step_journal
from timely.engines.vllm.arguments import VllmOptions
from timely.engines.vllm.engine import VllmEngine
from timely.engines.vllm.forced_decoding import vllm_engine_arguments

ALPHABET = range(1000, 9000)
"""Token ids for made-up prompts and plans: ordinary words in any vocabulary this size or larger."""
STOP_TOKEN_ID = ALPHABET.stop
"""It ends an answer; the limit that its request names may be higher."""
SAMPLE_S = 0.25
"""How often queue and KV are sampled, seconds."""
START_S = 0.2
"""From the end of the warm-up to the trace's origin."""
DRAIN_S = 600.0
"""Longest wait after the last arrival."""


class VllmBackend:
    """Replays on vLLM; ``options.profile`` is a model folder or name, None the packaged small model.

    Args:
        engine: a running engine to use (and leave running); started and stopped by itself otherwise.
    """

    name = "vllm"

    def __init__(self, engine: VllmEngine | None = None) -> None:
        self._engine = engine

    def replay(
        self, tasks: Iterable[PlannedTask], options: ReplayOptions, progress: Progress | None = None
    ) -> BackendRun:
        """See ``Backend.replay``; takes as long as the trace does."""
        # Imports vLLM, so it comes before the event loop: in there Ctrl-C would wait for the import.
        vllm_engine_arguments()
        return asyncio.run(self.run(list(tasks), options, progress))

    async def run(
        self, tasks: list[PlannedTask], options: ReplayOptions, progress: Progress | None = None
    ) -> BackendRun:
        """The same inside a running event loop."""
        if options.eviction == "swap":
            raise InvalidInput("the live engine recomputes; use eviction=recompute", where="eviction")
        if options.draft_tokens is not None:
            # Forced plans need a logits processor, and vLLM takes none together with speculative decoding.
            raise InvalidInput("the live engine replays recorded plans without drafts", where="draft_tokens")
        if options.admission_s:
            raise InvalidInput("the live engine has a door of its own", where="admission_s")
        if options.step_noise or options.prompt_noise:
            raise InvalidInput("the live engine has noise of its own", where="step_noise")
        if options.keep_prefixes:
            raise InvalidInput("the live engine keeps those of its own prompts", where="keep_prefixes")
        if not options.learned_speed:
            raise InvalidInput("the live engine learns its step times", where="learned_speed")
        if self._engine is not None:
            return await _VllmReplayRun(self._engine, tasks, options, progress).go()
        with tempfile.TemporaryDirectory() as folder:
            journal = Path(folder) / "journal-{pid}.jsonl"
            vllm_options = vllm_replay_options(options)
            engine = VllmEngine(
                replace(vllm_options, journal=str(journal)) if options.journal else vllm_options
            )
            await engine.start()
            going = _VllmReplayRun(engine, tasks, options, progress)
            try:
                run = await going.go()
            finally:
                await engine.stop()
            files = sorted(journal.parent.iterdir())
            if len(files) == 1:
                # (Several engines would have a journal each, and steps of their own.)
                run.journal = live_replay_journal(read_step_journal(files[0]), going.origin, going.requests)
            return run


def vllm_replay_options(options: ReplayOptions, arguments: tuple[str, ...] = ()) -> VllmOptions:
    """How to start an engine that can replay with these options."""
    extra = list(vllm_engine_arguments())
    if options.token_budget is not None:
        extra += ["--max-num-batched-tokens", str(options.token_budget)]
    if options.kv_blocks is not None:
        extra += ["--num-gpu-blocks-override", str(options.kv_blocks)]
    if options.max_resident is not None:
        extra += ["--max-num-seqs", str(options.max_resident)]
    return VllmOptions(
        model=options.profile,
        discipline=options.discipline,
        mode=options.mode,
        max_batch=options.max_batch,
        prefill_chunk=options.prefill_chunk,
        arguments=(*extra, *arguments),
        warm_up=(),
    )


def replay_backend() -> Backend:
    return VllmBackend()


class _VllmReplayRun:
    """One replay in progress. Times inside are on the monotonic clock, in the records from the origin."""

    def __init__(
        self, engine: VllmEngine, tasks: list[PlannedTask], options: ReplayOptions, progress: Progress | None
    ) -> None:
        self.engine = engine
        self.tasks = tasks
        self.options = options
        self.progress = progress
        self.estimates = ReplayEstimates(options)
        self.records = [JobRecord(task) for task in tasks]
        self.origin = 0.0
        self.requests: dict[str, int | str] = {}
        """Request id -> the trace's job."""
        self.finished_tasks = 0
        self.end_events = {task.job: asyncio.Event() for task in check_vllm_replay_dependencies(tasks)}
        """The tasks of applications, whose answers others may wait for."""
        self.ends_s: dict[int | str, float] = {}
        """When they ended."""
        self.series: dict[str, list[float]] = {
            key: [] for key in ("t_s", "waiting", "running", "parked", "kv_used")
        }

    async def go(self) -> BackendRun:
        # Else a garbage collection over all that vLLM's import made stops every task for half a second.
        with short_gc_pauses():
            return await self._replay()

    async def _replay(self) -> BackendRun:
        await self._warm_up()
        # A new one, which has not learned from the warm-up how long segments are.
        await self.engine.set_discipline(self.options.discipline)
        before = await self.engine.stats()
        self.origin = time.monotonic() + START_S
        turns = [asyncio.Event() for _ in self.records]
        robots = [
            asyncio.create_task(self._serve(record, turn))
            for record, turn in zip(self.records, turns, strict=True)
        ]
        door = asyncio.create_task(self._let_in(turns))
        sampler = asyncio.create_task(self._sample())
        partial = interrupted = False
        last = self.tasks[-1].arrival_s if self.tasks else 0.0
        deadline = self.options.until_s if self.options.until_s is not None else last + DRAIN_S
        try:
            if robots:
                _, pending = await asyncio.wait(
                    robots,
                    timeout=self.origin + deadline - time.monotonic(),
                    return_when=asyncio.FIRST_EXCEPTION,
                )
                partial = bool(pending) and self.options.until_s is None
        except asyncio.CancelledError:
            partial = interrupted = True
        finally:
            for waiting in (*robots, door, sampler):
                waiting.cancel()
            outcomes = await asyncio.gather(*robots, door, sampler, return_exceptions=True)
        after = before
        try:
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
            after = await self.engine.stats()
        except EngineFailed:
            # Ctrl-C reaches the engine's process too, and it may be gone already: what is done is kept all the same.
            if not interrupted:
                raise
        now = time.monotonic() - self.origin
        # A task of the time after an early end has not arrived: it is neither served nor missed.
        records = [
            record for record in self.records if record.outcome == "complete" or record.arrived_s <= now
        ]
        ends = [end for record in records for end in record.end_s]
        return BackendRun(
            records=records,
            end_s=max([now, *ends]),
            profile=Path(self.options.profile).name if self.options.profile else "smollm2-135m-instruct",
            partial=partial,
            counters={
                key: getattr(after, key) - getattr(before, key)
                for key in ("steps", "tokens", "segments", "evictions", "recomputed_tokens")
            },
            series=self.series,
        )

    async def _warm_up(self) -> None:
        """First steps of an engine are slow, and shared prefixes are in the cache of any server that runs."""
        prefixes = {
            None if task.block_ids else (task.prefix, task.shared_prefix_tokens): task for task in self.tasks
        }
        for number, task in enumerate(prefixes.values()):
            # One token: a whole plan would wait for values that no robot returns.
            short = replace(task, job=f"warm-up-{number}", plan=(PlannedSegment("", 1, 0.0),))
            request = self._request(short, f"{short.job}-{self.origin}")
            with suppress(InvalidInput):  # its turn comes, and its outcome says so
                async for _ in self.engine.generate(request):
                    pass

    def _request(self, task: PlannedTask, task_id: str, arrival_s: float | None = None) -> GenerationRequest:
        plan = [
            (segment.text, segment.tokens, self.estimates.estimate_s(task, index), segment.blocking)
            for index, segment in enumerate(task.plan)
        ]
        return GenerationRequest(
            task_id=task_id,
            prompt=task.task,
            max_tokens=task.limit_tokens,
            hints=task.hints,
            forced=ForcedPlan(
                segments=() if task.plain else tuple(plan),
                prompt_token_ids=_vllm_replay_prompt(task, self.origin),
                output_token_ids=_vllm_replay_output(task),
                stop_token_id=STOP_TOKEN_ID,
                segment_tokens=self.estimates.segment_bound(task),
                whole_answer=task.whole_answer,
            ),
            arrival_s=arrival_s,
        )

    async def _let_in(self, turns: Sequence[asyncio.Event]) -> None:
        """Tasks that arrive together come in the trace's order; timers of one time would ring in any."""
        for record, turn in zip(self.records, turns, strict=True):
            await _sleep_vllm_replay_until(self.origin + record.task.arrival_s)
            turn.set()

    async def _serve(self, record: JobRecord, turn: asyncio.Event) -> None:
        task = record.task
        await turn.wait()
        if task.after:
            for job in task.after:
                await self.end_events[job].wait()
            last_s = max(self.ends_s[job] for job in task.after)
            record.arrived_s = max(last_s + task.after_s, task.arrival_s)
            await _sleep_vllm_replay_until(self.origin + record.arrived_s)
        arrival = self.origin + record.arrived_s
        task_id = f"{task.job}-{self.origin:.3f}"
        self.requests[task_id] = task.job
        segments: asyncio.Queue[SegmentReady | None] = asyncio.Queue()
        try:
            # A report that fails ends the task: the generation might wait for it for ever.
            async with asyncio.TaskGroup() as group:
                robot = group.create_task(self._robot(record, task_id, segments, group))
                async for event in self.engine.generate(self._request(task, task_id, arrival)):
                    if isinstance(event, SegmentReady):
                        record.ready_s += [event.ready_s - self.origin] * len(self._pieces(task, event))
                        segments.put_nowait(event)
                    elif isinstance(event, GenerationDone):
                        self._note(record, event)
                segments.put_nowait(None)
                await robot
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]
            if not isinstance(first, InvalidInput):
                raise first from None
            record.outcome, record.note = "refused", str(first)
        finally:
            self.finished_tasks += 1
            if task.job in self.end_events:
                self.ends_s[task.job] = time.monotonic() - self.origin
                self.end_events[task.job].set()
            if self.progress:
                arrivals = sum(other.arrival_s <= time.monotonic() - self.origin for other in self.tasks)
                self.progress(time.monotonic() - self.origin, arrivals, self.finished_tasks)

    def _note(self, record: JobRecord, end: GenerationDone) -> None:
        record.outcome = "complete" if end.reason == "complete" else "failed"
        record.note = end.error
        record.preemptions = end.preemptions
        record.recomputed_tokens = end.recomputed_tokens
        record.cached_tokens = end.cached_tokens
        record.output_tokens = end.tokens
        if end.first_token_s is not None:
            record.first_token_s = end.first_token_s - self.origin
        if end.last_token_s is not None:
            record.last_token_s = end.last_token_s - self.origin
            if record.task.plain and record.outcome == "complete":
                # The complete answer leaves the engine at once.
                start_s = record.last_token_s + record.task.hints.network_s
                record.ready_s.append(record.last_token_s)
                record.start_s.append(start_s)
                record.end_s.append(start_s + record.task.plan[0].execution_s)

    async def _robot(
        self,
        record: JobRecord,
        task_id: str,
        segments: asyncio.Queue[SegmentReady | None],
        group: asyncio.TaskGroup,
    ) -> None:
        """Executes segment after segment and reports; a segment is at the robot ``network_s`` after it is ready."""
        task = record.task
        free = self.origin + record.arrived_s
        pending: list[asyncio.Task[None]] = []
        try:
            while (event := await segments.get()) is not None:
                first = time.monotonic() if not record.start_s else 0.0
                begin = start = max(free, event.ready_s + task.hints.network_s, first)
                for piece in self._pieces(task, event):
                    free = start + piece.execution_s
                    record.start_s.append(start - self.origin)
                    record.end_s.append(free - self.origin)
                    start = free
                for report, when in self._reports(event, free - begin, begin, task.hints.network_s):
                    pending.append(
                        group.create_task(self._report(task_id, report, when + task.hints.network_s))
                    )
        finally:
            # The plan is complete, or the run over: what this robot would still report changes nothing.
            for reporting in pending:
                reporting.cancel()

    def _pieces(self, task: PlannedTask, event: SegmentReady) -> Sequence[PlannedSegment]:
        """What the robot executes one after the other when it gets this: a segment, or the whole plan."""
        return task.plan if self.options.mode == "whole" else task.plan[event.index : event.index + 1]

    def _reports(
        self, event: SegmentReady, actual_s: float, start_s: float, network_s: float
    ) -> list[tuple[ExecutionReport, float]]:
        """What the robot tells of a segment and when, as in the simulator: a value even where it tells nothing else."""
        if self.options.mode != "segmented":
            return []
        end_s = start_s + actual_s
        if event.blocking:
            value = ExecutionReport(event.index, "value", elapsed_s=actual_s, age_s=network_s, value="")
            return [(value, end_s)]
        if not self.options.closed_loop:
            return []
        return [
            (ExecutionReport(event.index, "started", age_s=network_s), start_s),
            (ExecutionReport(event.index, "done", elapsed_s=actual_s, age_s=network_s), end_s),
        ]

    async def _report(self, task_id: str, report: ExecutionReport, when: float) -> None:
        await _sleep_vllm_replay_until(when)
        await self.engine.report(task_id, report)

    async def _sample(self) -> None:
        while True:
            stats = await self.engine.stats()
            row = (time.monotonic() - self.origin, stats.waiting, stats.running, stats.parked, stats.kv_usage)
            for key, value in zip(self.series, row, strict=True):
                self.series[key].append(float(value))
            await asyncio.sleep(SAMPLE_S)


def check_vllm_replay_dependencies(tasks: Sequence[PlannedTask]) -> list[PlannedTask]:
    """The tasks of applications, whose answers others may wait for (``PlannedTask.after``).

    Raises:
        InvalidInput: a task waits for one that never ends, or for itself by way of others.
    """
    awaitable = {task.job: task for task in tasks if task.hints.app is not None}
    for task in tasks:
        for job in task.after:
            if job not in awaitable:
                raise InvalidInput(f"waits for {job}, which never ends", where=f"job {task.job}: after")
    try:
        TopologicalSorter({task.job: task.after for task in tasks}).prepare()
    except CycleError as error:
        cycle = " and ".join(str(job) for job in error.args[1][:-1])
        raise InvalidInput(f"{cycle} wait for each other", where="after") from None
    return list(awaitable.values())


async def _sleep_vllm_replay_until(when: float) -> None:
    delay = when - time.monotonic()
    if delay > 0:
        await asyncio.sleep(delay)


def _vllm_replay_prompt(task: PlannedTask, run: float) -> list[int]:
    """A prompt of the recorded length that shares exactly the recorded prefix.

    The rest is another in every ``run``, as are the blocks of an imported trace. An engine that replays a trace twice
    must not find the first run's prompts in its prefix cache.
    """
    parts = [(f"block/{name}/{run}", BLOCK_ID_TOKENS) for name in task.block_ids]
    parts = parts or [(f"prefix/{task.prefix}", task.shared_prefix_tokens)]
    shared = itertools.chain.from_iterable(vllm_dummy_token_ids(name, tokens) for name, tokens in parts)
    prompt = list(itertools.islice(shared, task.prompt_tokens))
    return prompt + vllm_dummy_token_ids(f"prompt/{task.job}/{run}", task.prompt_tokens - len(prompt))


def _vllm_replay_output(task: PlannedTask) -> list[int]:
    """The tokens of the whole plan, the stop token at their end."""
    return [*vllm_dummy_token_ids(f"plan/{task.job}", task.output_tokens - 1), STOP_TOKEN_ID]


def vllm_dummy_token_ids(name: str, count: int) -> list[int]:
    """``count`` token ids that depend on the name alone."""
    return random.Random(name).choices(ALPHABET, k=count)
