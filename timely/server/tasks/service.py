"""The task service: admits tasks, has their plans generated, checks every segment, keeps what happened.

It knows no HTTP. A task lives through ``generating`` (the engine writes), ``executing`` (the plan is complete, the
robot is still at it) and ``ended``; its events are kept for a while after that. One coroutine owns each task, so
nothing a client does or fails to do holds up another.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import secrets
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from timely.core.clock import AsyncClock, at_most, wait_until
from timely.core.errors import (
    Conflict,
    EngineFailed,
    InvalidInput,
    NotAllowed,
    Overloaded,
    TimelyError,
    UnknownName,
    Unsupported,
)
from timely.core.hints import RequestHints
from timely.core.job import Segment
from timely.core.reports import ExecutionReport
from timely.disciplines.predictors.request_annotator import Arrival, Door, Predictors
from timely.disciplines.predictors.urgency import Assignment
from timely.engines.base import (
    Engine,
    GenerationDone,
    GenerationRequest,
    SegmentReady,
)
from timely.plans.prompt import build_prompt
from timely.server.catalogue import Catalogue, named
from timely.server.prediction.prediction_queue import PredictionQueue
from timely.server.settings import ServerSettings
from timely.server.tasks.engine_client import EngineDoor
from timely.server.tasks.replanning import ReplanRequest, follow_up
from timely.server.tasks.task import Ending, Task, TaskRequest, call_data, tuf
from timely.server.tasks.task_events import EventLog
from timely.server.telemetry.event_log import Journal
from timely.server.telemetry.metrics import ServerMetrics
from timely.server.telemetry.totals import Totals

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

EXTRA_EVENTS = 8
"""Events of a task beside its segments."""

RECENT = 300
"""Settled tasks kept for the status, beyond what clients may still read."""


class TaskService:
    """All tasks of one server.

    Args:
        engine: generates; started and stopped with the service.
        settings: limits and times.
        clock: the engine's own axis; also what grace, retention and expiry are measured on.
        catalogue: skill sets and robot profiles by name.
        predictors: of urgency and length, for requests that bring none.
    """

    def __init__(
        self,
        engine: Engine,
        settings: ServerSettings,
        clock: AsyncClock,
        catalogue: Catalogue,
        predictors: Predictors | None = None,
    ) -> None:
        self.engine = EngineDoor(engine, settings, clock)
        self.settings = settings
        self.clock = clock
        self.catalogue = catalogue
        self.predictions = PredictionQueue(Door(predictors, self._predicted), settings, clock)
        self.metrics = ServerMetrics()
        self.recent: deque[Task] = deque(maxlen=RECENT)
        self.arrived = 0
        self.totals: dict[str, Totals] = {"urgent": Totals(), "normal": Totals()}
        self._tasks: dict[str, Task] = {}
        self._open: dict[str, Task] = {}
        self._reserved: set[str] = set()
        self._journal: Journal | None = None
        self._started = self._stopping = False
        self._started_s = clock.now()
        self._lock = asyncio.Lock()
        self._releasing = asyncio.Lock()

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Start the engine and open the event log; a second call changes nothing.

        Raises:
            EngineFailed: the engine could not start. InvalidInput: the event log cannot be opened.
        """
        async with self._lock:
            if self._started:
                return
            journal = await asyncio.to_thread(Journal, self.settings.event_log, self.clock)
            try:
                await self.engine.start()
                stats = await self.engine.stats()
                self.predictions.serve(await self.engine.reads(stats.discipline))
            except BaseException:
                # Also when a signal comes during the half minute in which a model loads.
                await self.engine.stop()
                await asyncio.to_thread(journal.close)
                raise
            journal.opened(stats.engine, stats.discipline, stats.mode)
            self._journal, self._started, self._started_s = journal, True, self.clock.now()

    async def stop(self) -> None:
        """End every task with the error ``shutting_down``, then the engine; safe to call twice, always returns."""
        await self.drain()
        async with self._lock:
            if not self._started:
                return
            self._started = False
            for task in list(self._open.values()):
                self._settled(task)
            runners = [task.runner for task in self._tasks.values() if task.runner is not None]
            for runner in runners:
                runner.cancel()
            await asyncio.gather(*runners, return_exceptions=True)
            await self.predictions.stop()
            await self.engine.stop()
            if self._journal is not None:
                await asyncio.to_thread(self._journal.close)

    async def drain(self) -> None:
        """Take no more tasks and end those in generation, so that their readers are told why."""
        self._stopping = True
        ending = Ending("cancelled", "shutting_down", "the server is shutting down")
        await asyncio.gather(*(self._end(task, ending) for task in self.generating()))

    @property
    def stopping(self) -> bool:
        """No more tasks are taken."""
        return self._stopping

    @property
    def uptime_s(self) -> float:
        """Since the start, seconds."""
        return self.clock.now() - self._started_s

    # ------------------------------------------------------------------ what clients do

    async def submit(self, request: TaskRequest) -> Task:
        """Admit a task and start generating its plan.

        Raises:
            InvalidInput: unknown names, prompt too long, or whatever else the engine refuses at once.
            Conflict: the id is in use. Overloaded: too many live tasks, or shutting down.
        """
        self.arrived += 1
        self.metrics.arrived.inc()
        try:
            task = await self._submit(request)
        except TimelyError as error:
            kind = "urgent" if request.utility.urgent else "normal"
            self._count("refused", kind)
            self._note("refused", agent=request.agent, code=error.code, detail=error.message)
            raise
        if task.refusal is not None:
            self._settled(task)
            self._forget(task)
            raise task.refusal
        return task

    async def replan(self, task_id: str, wanted: ReplanRequest, token: str | None) -> Task:
        """End what is left of a plan and start another that knows what was done of it, urgent unless said otherwise.

        Nothing more of the old plan is released; the robot is to drop what it has not begun.

        Raises:
            UnknownName: no such task. NotAllowed: it is a stranger's. Conflict: it was re-planned before.
            Others: as ``submit``; the old plan has ended all the same.
        """
        old = self.get(task_id)
        self._check_reporter(old, (wanted.agent,), token)
        if old.replanned_as is not None:
            raise Conflict(
                f"it was re-planned as {old.replanned_as!r}: re-plan that one", where="path.task_id"
            )
        new_id = self._free_id(wanted.task_id)
        old.replanned_as = new_id
        try:
            await self._replace(old, Ending("cancelled", "", f"re-planned as {new_id}"))
            request = follow_up(old, replace(wanted, task_id=new_id), self.settings.max_history_chars)
            return await self.submit(request)
        except TimelyError:
            old.replanned_as = None
            raise

    async def _replace(self, old: Task, ending: Ending) -> None:
        """Nothing more of the old plan counts, whether it is still being written or carried out."""
        await self._end(old, ending)
        if old.state == "executing":
            if old.outcome == "complete":
                old.ending = ending
            self._settled(old)

    async def _submit(self, request: TaskRequest) -> Task:
        if self._stopping or not self._started:
            raise Overloaded("the server is shutting down" if self._stopping else "the server is not ready")
        task_id = self._free_id(request.task_id)
        if len(self.generating()) + len(self._reserved) >= self.settings.max_live_tasks:
            raise Overloaded(f"{self.settings.max_live_tasks} tasks are being served", where="tasks")
        self._reserved.add(task_id)
        try:
            task, generation = await self._prepare(task_id, request)
            if self._stopping:
                raise Overloaded("the server is shutting down")
            self._tasks[task_id] = self._open[task_id] = task
        finally:
            self._reserved.discard(task_id)
        self._admit(task, generation)
        async with at_most(self.settings.admission_wait_s):
            await task.heard.wait()
        return task

    def _free_id(self, wanted: str | None) -> str:
        """The id that was asked for, or a new one; Conflict if it is in use."""
        task_id = wanted or secrets.token_hex(16)
        if task_id in self._tasks or task_id in self._reserved:
            raise Conflict(f"task id {task_id!r} is in use", where="id")
        return task_id

    async def _prepare(self, task_id: str, request: TaskRequest) -> tuple[Task, GenerationRequest]:
        skill_set = await named(self.catalogue.skill_set(request.skill_set), "skill_set")
        robot = request.robot or skill_set.profile
        if not robot:
            raise InvalidInput(f"skill set {skill_set.name} has no robot of its own: name one", where="robot")
        profile = await named(self.catalogue.profile(robot), "robot")
        if skill_set.skills and not any(profile.allows(skill.name) for skill in skill_set.skills):
            raise InvalidInput(f"{robot} can do nothing of the skill set {skill_set.name}", where="robot")
        prompt = build_prompt(
            skill_set,
            request.task,
            request.scene,
            examples=self.settings.prompt_examples and skill_set.name not in self.engine.planner_skill_sets,
            history=request.history,
        )
        await self.engine.check_length(prompt.system + prompt.user)
        max_tokens = min(request.max_tokens or skill_set.max_tokens, self.settings.max_tokens)
        network_s = request.network_s
        if network_s is None:
            network_s = profile.network_s or skill_set.network_s
        arrival_s = self.clock.now()
        annotation = await self.predictions.annotate(
            Arrival(
                task_id, request.task, request.urgency, request.expected_tokens, hurry=request.utility.urgent
            )
        )
        task = Task(
            task_id=task_id,
            token=request.report_token or secrets.token_urlsafe(24),
            request=request,
            skill_set=skill_set,
            profile=profile,
            arrival_s=arrival_s,
            annotation=annotation,
            network_s=network_s,
            events=EventLog(max_tokens + EXTRA_EVENTS),
        )
        generation = GenerationRequest(
            task_id=task_id,
            prompt=prompt.user,
            system=prompt.system,
            skill_set=skill_set.name,
            robot=profile.name,
            max_tokens=max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            hints=RequestHints(
                utility=request.utility,
                urgency=annotation.urgency.level,
                app=request.app,
                app_requests=request.app_requests,
                expected_tokens=annotation.expected_tokens,
                priority=request.priority,
                network_s=network_s,
                agent=request.agent,
            ),
            task=request.task,
        )
        return task, generation

    def _admit(self, task: Task, generation: GenerationRequest) -> None:
        request = task.request
        self._note(
            "task", task_id=task.task_id, agent=request.agent, app=request.app, robot=task.profile.name,
            skill_set=task.skill_set.name, task=request.task, scene=request.scene, history=request.history,
            replans=request.replans,
            tuf=tuf(request.utility), urgency=request.urgency, priority=request.priority, network_s=task.network_s,
        )  # fmt: skip
        task.events.append("accepted", self.accepted(task, with_token=False))
        task.pump = asyncio.create_task(self._generate(task, generation), name=f"generate {task.task_id}")
        task.runner = asyncio.create_task(self._run(task), name=f"task {task.task_id}")
        # Whoever asked is not reading yet, and may never.
        task.grace = asyncio.create_task(self._expect_reader(task))
        self.metrics.live.set(len(self.generating()))

    def accepted(self, task: Task, *, with_token: bool) -> dict[str, Any]:
        """The first event of a task; the token goes to the one who asked for the task only."""
        data = {
            "task_id": task.task_id,
            "agent": task.request.agent,
            "skill_set": task.skill_set.name,
            "robot": task.profile.name,
            "tuf": tuf(task.request.utility),
            "network_s": task.network_s,
            "replans": task.request.replans,
        }
        return {**data, "report_token": task.token} if with_token else data

    def get(self, task_id: str) -> Task:
        """The task of that id.

        Raises:
            UnknownName: there is none, or it ended too long ago.
        """
        task = self._tasks.get(task_id)
        if task is None:
            error = UnknownName("task", task_id, (), where="path.task_id")
            error.message = (
                f"no task {task_id[:140]!r} here; an ended one is kept for {self.settings.retention_s:g} s"
            )
            raise error
        return task

    async def report(
        self,
        task_id: str,
        reports: Sequence[ExecutionReport],
        agents: Sequence[str | None],
        token: str | None,
    ) -> int:
        """Take what a robot says of its task; returns how many of the reports were news.

        Raises:
            UnknownName: no such task. NotAllowed: it is a stranger's.
            Conflict: about a segment that was not released, or a value nobody waits for. Earlier reports of the
            same call stay taken; sending all of them again is harmless.
        """
        now = self.clock.now()
        task = self.get(task_id)
        self._check_reporter(task, agents, token)
        news = 0
        for report in reports:
            if task.state == "ended":
                break
            changed = await self._report(task, report, now)
            self.metrics.reports.labels(report.kind, "yes" if changed else "no").inc()
            news += changed
        return news

    def _check_reporter(self, task: Task, agents: Sequence[str | None], token: str | None) -> None:
        if token is not None:
            if not hmac.compare_digest(token.encode(), task.token.encode()):
                raise NotAllowed("the report token is not that of this task", where="report_token")
            return
        if self.settings.require_report_token:
            raise NotAllowed("reports need the report_token of the task's first event", where="report_token")
        for agent in agents:
            if (agent or "") != task.request.agent:
                raise NotAllowed(
                    "the task is another robot's: report with its agent name or its report_token",
                    where="agent",
                )

    async def _report(self, task: Task, report: ExecutionReport, now: float) -> bool:
        task.track.check(report)
        if report.kind == "value" and report.segment in task.track.values:
            return False
        if task.state == "generating" and task.ending is None:
            await self.engine.report(task.task_id, report)
        if not task.track.report(report, now):
            return False
        self._note("report", task_id=task.task_id, **report.to_dict())
        if report.kind == "failed":
            reason = report.reason or "no reason given"
            ending = Ending("failed", "execution_failed", f"segment {report.segment}: {reason}", "segment")
            if task.state == "executing":
                task.ending = ending
            await self._end(task, ending)
        task.reported.set()
        return True

    async def cancel(self, task_id: str) -> Task:
        """End a task's generation now; what was released stays released. A second call changes nothing.

        Raises:
            UnknownName: no such task.
        """
        task = self.get(task_id)
        await self._end(task, Ending("cancelled"))
        return task

    @asynccontextmanager
    async def reading(self, task: Task) -> AsyncIterator[EventLog]:
        """Hold a task's events open: as long as somebody does, its generation is not given up for lost."""
        task.readers += 1
        self.metrics.readers.inc()
        if task.grace is not None:
            task.grace.cancel()
            task.grace = None
        try:
            yield task.events
        finally:
            task.readers -= 1
            self.metrics.readers.dec()
            if task.readers == 0 and task.state == "generating" and not self._stopping:
                task.grace = asyncio.create_task(self._expect_reader(task))

    async def set_urgency(self, name: str, urgency: int, operator: str, reason: str) -> dict[str, Any]:
        """An operator's word on what is being generated: a task, or a request of the OpenAI endpoint by its id.

        Returns what it was before and who said so, as data.

        Raises:
            UnknownName: nothing of that name is being generated.
            Conflict: the task's plan is complete. Unsupported: the engine cannot.
        """
        task = self._tasks.get(name)
        if task is not None and task.state != "generating":
            raise Conflict("its plan is complete: there is nothing left to hurry", where="path.task_id")
        if not await self.engine.set_urgency(name, urgency):
            error = UnknownName("task or request", name, (), where="path.task_id")
            error.message = f"nothing of the name {name[:140]!r} is being generated"
            raise error
        before = self.predictions.override(name, urgency, operator=operator, reason=reason)
        if task is not None and task.annotation is not None:
            task.annotation = replace(task.annotation, urgency=Assignment(urgency, "operator"))
        return {
            "id": name,
            "urgency": urgency,
            "operator": operator,
            "before": before.level if before is not None else None,
            "before_source": before.source if before is not None else "none",
        }

    def _predicted(self, record: Mapping[str, Any]) -> None:
        """A level or length at the door, or an operator's word: into the event log; that word also into the other."""
        fields = {"task_id": record["job"]}
        fields |= {key: value for key, value in record.items() if key not in ("event", "t_s", "job")}
        if record["event"] == "urgency_override":
            log.warning("urgency of %(task_id)s: %(from)s -> %(to)s, says %(operator)s: %(reason)s", fields)
        self._note(str(record["event"]), **fields)

    async def set_discipline(self, name: str) -> None:
        """Switch the queue discipline while serving.

        Raises:
            UnknownName: no such discipline.
            Conflict: it is pointless without something that this engine was not started with; says what to do.
        """
        try:
            await self.engine.set_discipline(name)
        except Unsupported as error:
            raise Conflict(error.message, where="name") from error
        self.predictions.serve(await self.engine.reads(name))
        self._note("discipline", name=name)

    # ------------------------------------------------------------------ a task's own coroutines

    async def _run(self, task: Task) -> None:
        """Own a task from admission until it is forgotten."""
        limit_s = min(task.request.deadline_s or self.settings.max_task_s, self.settings.max_task_s)
        if not await wait_until(task.over, self.clock, task.arrival_s + limit_s):
            await self._end(task, Ending("expired", "expired", f"no complete plan within {limit_s:g} s"))
            await task.over.wait()
        self._generated(task)
        while task.outcome == "complete" and not task.track.all_done:
            task.reported.clear()
            # A robot that reports will report the end too, however late it is.
            patience_s = self.settings.settle_reporting_s if task.track.measured else self.settings.settle_s
            if not await wait_until(task.reported, self.clock, task.track.end_s + patience_s):
                break
        self._settled(task)
        await self.clock.sleep(self.settings.retention_s)
        self._forget(task)

    async def _generate(self, task: Task, generation: GenerationRequest) -> None:
        """Read the engine's events; whatever goes wrong ends this task and no other."""
        try:
            async with self.engine.generating(generation) as events:
                async for event in events:
                    task.heard.set()
                    if isinstance(event, GenerationDone):
                        task.done = event
                        return
                    if task.ending is None:
                        # Segments that one step of the engine closed leave one after the other: the first is on its
                        # way before the second is checked, and does not wait for all the others.
                        async with self._releasing:
                            segment = self._release(task, event)
                            try:
                                await asyncio.sleep(0)
                            finally:
                                if segment is not None:
                                    self._released(task, segment)
                    if task.outcome == "unsafe_segment":
                        return
            raise EngineFailed("the generation stopped without an end", where="engine")
        except TimelyError as error:
            if not task.heard.is_set():
                task.refusal = error
            if not task.track.segments and isinstance(error, (InvalidInput, Overloaded, NotAllowed)):
                ending = Ending("refused", error.code, error.message, error.where)
            else:
                ending = Ending("engine_failed", "engine_failed", error.message, error.where)
            task.ending = task.ending or ending
        except Exception as error:
            log.exception("task %s", task.task_id)
            detail = f"{type(error).__name__}; see the server's log"
            task.ending = task.ending or Ending("engine_failed", "engine_failed", detail, "engine")
        finally:
            task.heard.set()
            task.over.set()

    def _release(self, task: Task, event: SegmentReady) -> Segment | None:
        """Check a segment and let it go to the robot; one that fails the check ends the task, and None comes back.

        Raises:
            EngineFailed: its times are no times. Conflict: it is not the next one.
        """
        now = self.clock.now()
        if not (math.isfinite(event.ready_s) and math.isfinite(event.execution_s) and event.execution_s >= 0):
            raise EngineFailed(f"segment {event.index} takes {event.execution_s} s", where="engine")
        try:
            calls = [call_data(call) for call in task.check(event.text)]
        except Exception as error:
            if not isinstance(error, TimelyError):
                log.exception("task %s: the check itself failed", task.task_id)
            detail = error.message if isinstance(error, TimelyError) else "it could not be checked"
            task.ending = Ending("unsafe_segment", "unsafe_segment", detail, f"segment {event.index}")
            return None
        segment = task.track.release(
            Segment(
                index=event.index,
                text=event.text,
                tokens=event.tokens,
                ready_s=min(max(event.ready_s, task.arrival_s), now),
                execution_s=event.execution_s,
                blocking=event.blocking,
                pace=event.pace,
            )
        )
        task.calls.append(calls)
        task.events.append("segment", task.segment(segment))
        return segment

    def _released(self, task: Task, segment: Segment) -> None:
        """Count and record a segment once it is on its way."""
        self.metrics.segments.inc()
        self._note(
            "segment", task_id=task.task_id, index=segment.index, text=segment.text, tokens=segment.tokens,
            ready_s=self._since(segment.ready_s), execution_s=segment.execution_s, blocking=segment.blocking,
        )  # fmt: skip

    def _generated(self, task: Task) -> None:
        """The generation is over: say how it went and close the events."""
        if task.state != "generating":
            return
        task.generated_s = self.clock.now()
        if task.ending is None:
            task.ending = _ending_of(task.done)
        task.state = "executing"
        if task.grace is not None:
            task.grace.cancel()
            task.grace = None
        result = task.result(task.generated_s)
        if task.ending.is_error:
            task.events.append("error", {**task.ending.problem(), **result}, last=True)
        else:
            task.events.append("result", result, last=True)
        self.metrics.live.set(len(self.generating()))
        done = task.done
        self._note(
            "generated", task_id=task.task_id, outcome=task.outcome,
            prompt_tokens=done.prompt_tokens if done else None, cached_tokens=done.cached_tokens if done else None,
            tokens=done.tokens if done else None, recomputed_tokens=done.recomputed_tokens if done else None,
            preemptions=done.preemptions if done else None, suspensions=done.suspensions if done else None,
            first_token_s=self._since(done.first_token_s) if done else None,
            last_token_s=self._since(done.last_token_s) if done else None,
        )  # fmt: skip

    def _settled(self, task: Task) -> None:
        """Nothing more is expected of a task: count it and keep it for late readers."""
        if task.state == "ended":
            return
        self._generated(task)
        task.state = "ended"
        task.settled_s = now = self.clock.now()
        self._open.pop(task.task_id, None)
        self.recent.append(task)
        track, utility, ending = task.track, task.utility(now), task.ending
        outcome = ending.outcome if ending else "cancelled"
        self._count(
            outcome,
            task.kind,
            response_s=track.response_time_s,
            waiting_s=track.waiting_time_s,
            utility=utility,
            utility_max=task.request.utility.beta,
        )
        numbers = task.numbers(now)
        self._note(
            "settled", task_id=task.task_id, outcome=outcome,
            code=ending.code if ending else "", detail=ending.detail if ending else "",
            **{name: numbers[name] for name in (
                "response_time_s", "waiting_time_s", "completion_time_s", "utility", "measured")},
            segments=[
                {"index": segment.index, "start_s": self._since(segment.start_s), "end_s": self._since(segment.end_s),
                 "reported": segment.started}
                for segment in track.segments
            ],
        )  # fmt: skip
        ended = len(self._tasks) - len(self._open)
        if ended > self.settings.max_retained_tasks:
            oldest = next(kept for kept in self._tasks.values() if kept.state == "ended")
            self._forget(oldest)

    def _count(self, outcome: str, kind: str, **measures: float) -> None:
        self.metrics.settled(outcome, kind, **measures)
        self.totals[kind].add(outcome, **measures)

    def _forget(self, task: Task) -> None:
        if self._tasks.get(task.task_id) is task:
            del self._tasks[task.task_id]
        runner = task.runner
        if runner is not None and runner is not asyncio.current_task() and task.state == "ended":
            runner.cancel()

    async def _expect_reader(self, task: Task) -> None:
        """Give a generation that nobody reads a while, then give it up."""
        await self.clock.sleep(self.settings.grace_s)
        task.grace = None
        if task.readers == 0:
            detail = f"nobody has read its events for {self.settings.grace_s:g} s"
            await self._end(task, Ending("cancelled", "", detail))

    async def _end(self, task: Task, ending: Ending) -> None:
        """End a generation early; returns when it is over, which no engine can prevent."""
        if task.state != "generating" or task.over.is_set():
            return
        if task.stopping:
            async with at_most(2 * self.settings.engine_timeout_s):
                await task.over.wait()
            return
        task.stopping = True
        task.ending = task.ending or ending
        try:
            known = await self.engine.cancel(task.task_id)
        except EngineFailed as error:
            log.warning("task %s: %s", task.task_id, error)
            known = False
        if known:
            async with at_most(self.settings.engine_timeout_s):
                await task.over.wait()
        if not task.over.is_set() and task.pump is not None:
            task.pump.cancel()
            await asyncio.gather(task.pump, return_exceptions=True)
            # A pump that was cancelled before its first step has run none of its own clean-up.
            task.heard.set()
            task.over.set()
        self._generated(task)

    # ------------------------------------------------------------------ small things

    def generating(self) -> list[Task]:
        """Tasks whose plan is being generated."""
        return [task for task in self._open.values() if task.state == "generating"]

    def open_tasks(self) -> list[Task]:
        """Tasks in generation or still executing, by arrival."""
        return list(self._open.values())

    def _note(self, event: str, **fields: Any) -> None:
        if self._journal is not None:
            self._journal.write(event, **fields)

    def _since(self, when_s: float | None) -> float | None:
        return self._journal.since_s(when_s) if self._journal is not None else None


def _ending_of(done: GenerationDone | None) -> Ending:
    """What the engine's last event means for the task."""
    if done is None:
        return Ending("engine_failed", "engine_failed", "the generation stopped without an end", "engine")
    if done.reason == "complete":
        return Ending("complete")
    if done.reason == "length":
        return Ending("failed", "truncated", f"stopped after {done.tokens} tokens", "max_tokens")
    if done.reason == "cancelled":
        return Ending("cancelled")
    return Ending("engine_failed", "engine_failed", done.error or "the engine gave no reason", "engine")
