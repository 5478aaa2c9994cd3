"""The task service: what clients and operators may do, without HTTP."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from timely.core.clock import AsyncClock, SystemClock
from timely.core.errors import (
    Conflict,
    Draining,
    Overloaded,
    RateLimited,
    TimelyError,
    UnknownName,
    Unsupported,
)
from timely.core.json_log import LOG_FIELDS
from timely.disciplines.predictors.request_annotator import PredictorFiles, RequestAnnotator
from timely.disciplines.predictors.urgency import Assignment
from timely.engines.base import Engine
from timely.principals import Principal
from timely.server.access.usage import PrincipalUsage
from timely.server.catalogue import ServerCatalogue
from timely.server.prediction.prediction_queue import PredictionQueue
from timely.server.settings import ServerSettings
from timely.server.tasks.admission import TaskAdmission
from timely.server.tasks.engine_client import EngineClient
from timely.server.tasks.fleet_stop import ServerStopLatch
from timely.server.tasks.lifecycle import TaskLifecycle
from timely.server.tasks.permissions import (
    check_task_operator,
    check_task_owner,
    check_task_submitter,
    check_task_visible,
    task_within_claims,
)
from timely.server.tasks.recorder import TaskRecorder
from timely.server.tasks.recovery import TaskRecovery
from timely.server.tasks.replanning import replan_task_request, task_executed_segments
from timely.server.tasks.request import ReplanRequest, ReportBody, TaskRequest
from timely.server.tasks.stop_file import ServerStopFile
from timely.server.tasks.stop_service import ServerStopService
from timely.server.tasks.task import Task, TaskEnding
from timely.server.tasks.task_log import FOLDER, TaskLog
from timely.server.tasks.task_table import HeldPlace, TaskTable

SHUTTING_DOWN = TaskEnding("cancelled", "shutting_down", "the server is shutting down")


class TaskService:
    """All tasks of one server.

    Args:
        engine: generates; started and stopped with the service.
        settings: limits and times.
        clock: the engine's own axis of seconds; the machine's monotonic clock unless a test owns time.
        catalogue: skill sets and robot profiles; by default those in the folders.
        predictors: of urgency and length, for requests without them.
    """

    def __init__(
        self,
        engine: Engine,
        settings: ServerSettings | None = None,
        clock: AsyncClock | None = None,
        catalogue: ServerCatalogue | None = None,
        predictors: PredictorFiles | None = None,
    ) -> None:
        self.settings = settings = settings or ServerSettings()
        self.clock = clock = clock or SystemClock()
        self.catalogue = catalogue = catalogue or ServerCatalogue()
        self.engine = EngineClient(engine, settings, clock)
        self.recorder = TaskRecorder(clock)
        self._predictors = predictors or PredictorFiles()
        self.predictions = PredictionQueue(
            RequestAnnotator(self._predictors, self.recorder.record_prediction), settings, clock
        )
        self.tasks = TaskTable(settings)
        self.usage = PrincipalUsage(clock)
        folder = settings.state_dir / FOLDER if settings.state_dir is not None else None
        self.log = TaskLog(folder, clock, flush_segments=settings.flush_segments)
        self.lifecycle = TaskLifecycle(self.engine, self.tasks, self.recorder, self.log, settings, clock)
        self.fleet_stop = ServerStopService(
            ServerStopLatch(clock, ServerStopFile(settings.state_dir)),
            self.tasks,
            self.lifecycle,
            self.recorder,
            settings,
        )
        self._admission = TaskAdmission(self.engine, catalogue, self.predictions, settings)
        self._started = self._draining = self._stopping = False
        self._started_s = clock.now()
        self._lock = asyncio.Lock()

    # ------------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Start the engine and open the event log; a second call changes nothing.

        Raises:
            EngineFailed: the engine could not start. InvalidInput: the event log cannot be opened.
        """
        async with self._lock:
            if self._started:
                return
            settings = self.settings
            await asyncio.to_thread(self.recorder.open, settings)
            await self.fleet_stop.latch.load()
            try:
                records = await self.log.open()
                await self.engine.start()
                stats = await self.engine.stats()
                await self._predict_for(stats.discipline)
                self.recorder.record_start(stats)
                recovery = TaskRecovery(
                    self._admission, self.lifecycle, self.tasks, self.log, self.usage, self.settings
                )
                await recovery.restore(records, self.clock.now(), stopped=self.fleet_stop.latch.is_latched)
            except BaseException:
                # A signal may come during the half minute in which a model loads, or while tasks are restored. The log
                # is closed first, so that they go on with the next start.
                await self.log.close()
                await self.lifecycle.stop()
                await self.engine.stop()
                await asyncio.to_thread(self.recorder.close)
                raise
            self._started, self._started_s = True, self.clock.now()

    async def stop(self) -> None:
        """End every task with the error ``shutting_down``, then the engine; safe to call twice, always returns."""
        await self.drain()
        async with self._lock:
            if not self._started:
                return
            self._started = False
            await self.lifecycle.stop()
            await self.predictions.stop()
            await self.engine.stop()
            await self.fleet_stop.latch.close()
            await self.log.close()
            await asyncio.to_thread(self.recorder.close)

    async def finish(self) -> None:
        """Admit no more tasks, and return when no plan or answer is in generation, or after ``drain_s``."""
        self._draining = True
        await self.lifecycle.finish(self.clock.now() + self.settings.drain_s)

    async def drain(self) -> None:
        """Admit no more tasks and end those in generation, so that their event streams end with the reason.

        Answers of the engine's own application and the streams of the stop end too.
        """
        self._stopping = True
        await self.lifecycle.drain(SHUTTING_DOWN)
        self.engine.engine.end_answers()
        self.fleet_stop.latch.end_streams()

    @property
    def stopping(self) -> bool:
        return self._stopping

    def check_takes_tasks(self) -> None:
        """As ``check_ready``; also raises Overloaded while the disk refuses records of tasks."""
        self.check_ready()
        self._check_log()

    def _check_log(self) -> None:
        if self.log.problem:
            raise Overloaded(f"tasks cannot be kept: {self.log.problem}", where="state")

    def check_ready(self) -> None:
        """Check that the server takes requests.

        Raises:
            Draining: it finishes its plans. Overloaded: it starts, shuts down or starts its engine again.
        """
        if self._draining and not self._stopping:
            raise Draining("the server finishes its plans and takes no more", where="server")
        if not self._started or self._stopping:
            reason = "is shutting down" if self._stopping else "is not ready"
            raise Overloaded(f"the server {reason}")
        if not self.engine.supervisor.running:
            raise self.engine.supervisor.restarting()

    @property
    def uptime_s(self) -> float:
        """Since the start, seconds."""
        return self.clock.now() - self._started_s

    # ------------------------------------------------------------------ what clients do

    async def submit(
        self,
        request: TaskRequest,
        principal: Principal,
        *,
        old_task: Task | None = None,
        executed_text: str = "",
    ) -> Task:
        """Admit a task and start generating its plan; claims over the principal's limits are reduced.

        Args:
            old_task: the task whose plan this one replaces.
            executed_text: what was executed of the replaced plans.

        Raises:
            NotAllowed: the principal may not command that robot.
            InvalidInput: unknown names, a prompt that is too long, or another refusal by the engine.
            Conflict: the id is in use, or the fleet is stopped.
            RateLimited, TooLarge: the principal is over its limits.
            Overloaded: too many live tasks, no response in time, or shutting down.
        """
        with self.recorder.audit_outcome(principal, "submit", request.id or request.agent):
            app = request.app
            request = task_within_claims(request, principal)
            if old_task is not None:
                # It is the application's own already.
                request = request.model_copy(update={"app": app})
            return await self._submit(request, principal, old_task, executed_text)

    async def _submit(
        self, request: TaskRequest, principal: Principal, old_task: Task | None, executed_text: str
    ) -> Task:
        self.recorder.arrival()
        arrival_s = self.clock.now()
        try:
            check_task_submitter(principal, request.agent)
            # First: the repeat of a request whose answer was lost must not be refused for want of capacity.
            self.tasks.check_id(request.id, principal)
            self._check_open()
            self._count_request(principal)
            place = HeldPlace(principal.name, request=request)
            with self.tasks.reserve(request.id, place, principal, urgent=request.tuf.urgent) as task_id:
                robot = await self._admission.look_up_robot(request)
                place.network_s = robot.network_s
                eta_s = await self._check_response_time(task_id, request, robot.network_s, arrival_s)
                if eta_s is not None:
                    eta_s += self.clock.now() - arrival_s
                task, generation = await self._admission.prepare(
                    task_id, request, robot, principal, arrival_s
                )
                self._check_open()  # a stop may have come meanwhile
                self._check_kv(principal, task.kv_tokens)
                task.eta_s = eta_s
                task.executed_before = executed_text
                task.replans = old_task.name if old_task is not None else None
                self.log.task(task, self.usage.level(principal.name))
                self._check_log()
                self.tasks.add(task)
                self.engine.note_admission()
        except TimelyError as error:
            if isinstance(error, Overloaded) and error.where == "tasks":
                error.eta_s = await self._place_eta_s(request)
            self.recorder.record_refusal(request, error)
            raise
        self.recorder.record_admission(task)
        task.events.append("accepted", task.acceptance())
        await self.lifecycle.begin(task, generation)
        return task

    async def _check_response_time(
        self, task_id: str, request: TaskRequest, network_s: float, arrival_s: float
    ) -> float | None:
        """Check that a task would be served in time behind those that were admitted or are checked before it.

        Returns its predicted time of service, seconds, if it has a limit and that is known.

        Raises:
            Overloaded: it would not.
        """
        deadline_s, share = request.deadline_s, self.settings.refuse_below
        latest_s = math.inf if deadline_s is None else deadline_s - network_s
        useful_s = math.inf if share is None else request.tuf.latency_s(share) - network_s
        while True:
            ahead = self.tasks.ahead_of(task_id)
            try:
                return await self.engine.check_response_time(
                    request.tuf, ahead, arrival_s + latest_s, arrival_s + useful_s
                )
            except Overloaded:
                # A task that was checked at the same time may have been refused meanwhile: its room is free.
                if self.tasks.has_all(ahead):
                    raise

    def _count_request(self, principal: Principal, generations: int = 1) -> None:
        """Count a request for generations.

        Raises:
            RateLimited, TooLarge: the principal is over its limits.
        """
        tasks, name = self.tasks, principal.name
        self.usage.count_request(
            principal, partial(tasks.live_of, name), generations, partial(tasks.next_place_s, name)
        )
        places = self.settings.max_live_tasks
        fair = self.usage.fair_share(places)
        if fair < places and (surplus := tasks.surplus) and (live_plans := tasks.live_of(name)) >= fair:
            etas_s = tasks.next_place_s(name, live_plans - fair + 1), tasks.next_place_s(ends=surplus)
            raise RateLimited(
                f"{name} has {live_plans} plans in generation; its fair share is {fair}",
                where="fair_share",
                eta_s=min((eta_s for eta_s in etas_s if eta_s is not None), default=None),
            )

    def _check_kv(self, principal: Principal, tokens: int) -> None:
        """Check that the principal may hold so much more KV cache; raises as ``PrincipalUsage.check_kv``."""
        tasks, name = self.tasks, principal.name
        self.usage.check_kv(
            principal, partial(tasks.kv_tokens_of, name), tokens, partial(tasks.next_place_s, name)
        )

    async def _place_eta_s(self, request: TaskRequest) -> float | None:
        """When a task would be served that found no place, seconds; None: not known."""
        place_s = self.tasks.next_place_s()
        prediction = await self.engine.predict_response(request.tuf, self.tasks.ahead_of())
        return None if place_s is None or prediction is None else place_s + prediction.eta_s

    def _check_open(self) -> None:
        """Check that the server admits requests.

        Raises:
            Conflict: the fleet is stopped. Overloaded: see ``check_ready``.
        """
        if self.fleet_stop.latch.is_latched:
            raise Conflict("the fleet is stopped; an operator must reset the stop first", where="stop")
        self.check_ready()

    @contextmanager
    def admitted_request(
        self, name: str, generations: int, principal: Principal, agent: str, kv_tokens: int = 0
    ) -> Iterator[str]:
        """Admit a request for the engine's own application, and count it while it is served; yields its id.

        Args:
            kv_tokens: KV cache that it may hold, tokens; counted where the principal has a limit.

        Raises:
            NotAllowed: the principal may not command that robot.
            Conflict: the id is in use, or the fleet is stopped. Overloaded: too many generations, or shutting down.
            RateLimited, TooLarge: the principal is over its limits.
        """
        place = HeldPlace(principal.name, generations, kv_tokens)
        with ExitStack() as places:
            with self.recorder.audit_outcome(principal, "chat", name):
                check_task_submitter(principal, agent)
                self._check_open()
                try:
                    self._count_request(principal, generations)
                    self._check_kv(principal, kv_tokens)
                except RateLimited as error:
                    self.recorder.record_limit(error)
                    raise
                name = places.enter_context(self.tasks.reserve(name, place, principal))
            yield name

    async def replan(
        self, task_id: str, change: ReplanRequest, principal: Principal, token: str | None
    ) -> Task:
        """End the rest of a plan and start another whose prompt has the old plan and its execution.

        No more segments of the old plan are released; the robot drops those it has not begun.

        Raises:
            UnknownName: no such task. NotAllowed: the token is not its own. Conflict: it was re-planned before.
            Others: as ``submit``; the old plan has ended all the same.
        """
        old = self._find(task_id, principal)
        with self.recorder.audit_outcome(principal, "replan", task_id):
            check_task_owner(old, principal, token, [change.agent])
            check_task_submitter(principal, old.request.agent)
        if old.replanned_as is not None:
            raise Conflict(
                f"it was re-planned as {old.replanned_as!r}: re-plan that one", where="path.task_id"
            )
        old.replanned_as = new_id = self.tasks.free_id(change.id, principal)
        try:
            await self.lifecycle.discard(old, TaskEnding("cancelled", "", f"re-planned as {new_id}"))
            request = replan_task_request(old, change, new_id)
            return await self.submit(
                request, principal, old_task=old, executed_text=task_executed_segments(old, change)
            )
        except BaseException:
            old.replanned_as = None
            raise

    async def report(
        self, task_id: str, reports: Sequence[ReportBody], principal: Principal, token: str | None
    ) -> tuple[Task, int]:
        """Apply a robot's reports; returns the task and how many reports were news.

        Raises:
            UnknownName: no such task. NotAllowed: it belongs to another robot.
            Conflict: about a segment that was not released, or a value that is not awaited. Earlier reports of the
            same call stay applied; sending all of them again is harmless.
        """
        now = self.clock.now()
        task = self._find(task_id, principal)
        try:
            check_task_owner(task, principal, token, [report.agent for report in reports])
        except TimelyError as error:
            # The event log has the reports that were taken.
            self.recorder.audit(principal.name, "report", task_id, error.code, error.message)
            raise
        total = 0
        for report in reports:
            if task.state == "ended":
                break
            news = await self.lifecycle.report(task, report, now)
            self.recorder.report(report, news=news)
            total += news
        await self.log.durable()
        return task, total

    def _find(self, task_id: str, principal: Principal) -> Task:
        """The task that a principal means by an id; the log's further lines of this request have its ids."""
        task = self.tasks.get(task_id, principal)
        LOG_FIELDS.set(task.log_fields)
        return task

    def visible(self, task_id: str, principal: Principal) -> Task:
        """A task that the principal may see.

        Raises:
            UnknownName: no such task, or it belongs to another principal.
        """
        task = self._find(task_id, principal)
        check_task_visible(task, principal)
        return task

    async def cancel(
        self, task_id: str, principal: Principal, token: str | None, *, dropped: bool = False
    ) -> Task:
        """End a task's generation now; what was released stays released. A second call changes nothing.

        Args:
            dropped: the robot executes no more of it, so a task in execution ends, too.

        Raises:
            UnknownName: no such task. NotAllowed: it belongs to another robot.
        """
        task = self._find(task_id, principal)
        with self.recorder.audit_outcome(principal, "cancel", task_id, "dropped" if dropped else ""):
            check_task_owner(task, principal, token)
        end = self.lifecycle.discard if dropped else self.lifecycle.end
        await end(task, TaskEnding("cancelled"))
        await self.log.durable()
        return task

    # ------------------------------------------------------------------ what operators do

    async def set_urgency(
        self, name: str, urgency: int, principal: Principal, operator: str, reason: str
    ) -> dict[str, Any]:
        """Set the urgency of a generation: of a task, or of a request of the OpenAI endpoint by its id.

        Returns the level before and its source, as data.

        Raises:
            UnknownName: no such generation. NotAllowed: the principal is no operator of its robot.
            Conflict: the task's plan is complete. Unsupported: the engine cannot.
        """
        with self.recorder.audit_outcome(principal, "urgency", name):
            principal.require("operator", action="set the urgency of others")
            task = self.tasks.find(name)
            if task is not None:
                check_task_operator(task, principal)
            if principal.named:
                operator = f"{operator} ({principal.name})"
            return await self._set_urgency(name, task, urgency, operator, reason)

    async def _set_urgency(
        self, name: str, task: Task | None, urgency: int, operator: str, reason: str
    ) -> dict[str, Any]:
        if task is not None:
            LOG_FIELDS.set(task.log_fields)
        if task is not None and task.state != "generating":
            raise Conflict("its plan is complete: there is nothing left to hurry", where="path.task_id")
        if not await self.engine.set_urgency(name, urgency):
            error = UnknownName("task or request", name, (), where="path.task_id")
            error.message = f"nothing of the name {name[:140]!r} is being generated"
            raise error
        before = self.predictions.override(name, urgency, operator=operator, reason=reason)
        if task is not None and task.annotation is not None:
            task.annotation = replace(task.annotation, urgency=Assignment(urgency, "operator"))
            self.log.urgency(task, urgency)
            await self.log.durable()
        return {
            "id": name,
            "urgency": urgency,
            "operator": operator,
            "before": before.level if before is not None else None,
            "before_source": before.source if before is not None else "none",
        }

    async def set_discipline(self, name: str, principal: Principal) -> None:
        """Switch the queue discipline while serving.

        Raises:
            UnknownName: no such discipline. NotAllowed: the principal is no operator.
            Conflict: it needs what this engine was not started with; the message says how to start it.
        """
        with self.recorder.audit_outcome(principal, "discipline", name):
            principal.require("operator", action="switch the discipline")
            try:
                await self.engine.set_discipline(name)
            except Unsupported as error:
                raise Conflict(error.message, where="name") from error
        await self._predict_for(name)
        self.recorder.note("discipline", name=name)

    async def _predict_for(self, discipline: str) -> None:
        """Predict what the discipline reads from here on."""
        reads = await self.engine.reads(discipline)
        await asyncio.to_thread(self._predictors.load, reads)
        self.predictions.serve(reads)
