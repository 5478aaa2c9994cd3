"""One task from goal to result: plan segments to the driver the moment they come, what was done back to the server.

Knows neither ROS nor HTTP. Segments are sent ahead and wait at the driver, so that a robot goes from one to the next
without asking; only one task at a time drives a robot (``turnstile``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from timely_interfaces.msg import ErrorCode, SegmentReport

from timely.core.clock import Clock
from timely.core.errors import TimelyError, UnknownName
from timely.core.reports import MAX_VALUE_CHARS, ExecutionReport, ReportKind
from timely.core.utility import URGENT
from timely_bridge.error_codes import TaskEnded, code_of, owner_of
from timely_bridge.goals import TaskGoal, scene_with
from timely_bridge.interfaces import Driver, Execution, Order, PlanClient, PlanStream, Sent
from timely_bridge.robot_lock import Turn, Turnstile

log = logging.getLogger(__name__)

CUT_CODES = (ErrorCode.CANCELLED, ErrorCode.PREEMPTED, ErrorCode.FLEET_STOPPED, ErrorCode.BRIDGE_INACTIVE)
"""Somebody ended the task; nothing failed."""

KINDS: Mapping[ReportKind, int] = {
    "started": SegmentReport.STARTED,
    "progress": SegmentReport.PROGRESS,
    "done": SegmentReport.DONE,
    "failed": SegmentReport.FAILED,
    "value": SegmentReport.VALUE,
}

MAX_EXECUTED_CHARS, MAX_REASON_CHARS = 4_000, 2_000
"""What the server takes."""

GATHER_S = 0.02
"""What the server need not know at once waits so long for company: each request costs this process a millisecond, just
when segments of other robots come, and a report says how old it is."""

Announce = Callable[[Order], Callable[[], None]]
Note = Callable[[SegmentReport], None]
Tell = Callable[["TaskRun", "TaskEnd | None"], None]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long each wait may take, seconds.

    Attributes:
        submit_s: until the server has accepted the task.
        segment_s: until the next segment, from when the robot has nothing left to do.
        task_s: for the whole task; the server is told, too.
        driver_s: until a driver that is not there yet appears, and until it takes a segment.
        cancel_s: until a driver says that a cancelled motion has ended.
        report_s: of one report to the server.
        execution_factor, execution_margin_s: a segment may take its expected time times the factor plus the margin.
        progress_every_s: progress reports to the server at most so often.
    """

    submit_s: float = 15.0
    segment_s: float = 60.0
    task_s: float = 900.0
    driver_s: float = 5.0
    cancel_s: float = 2.0
    report_s: float = 10.0
    execution_factor: float = 4.0
    execution_margin_s: float = 30.0
    progress_every_s: float = 1.0


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """The result of a task: fields as in ``ExecuteTask``; times in seconds, NaN if there is nothing to measure."""

    outcome: str
    code: int = 0
    message: str = ""
    plan: str = ""
    response: float = math.nan
    waiting: float = math.nan
    utility: float = math.nan
    began: bool = False
    """A segment of this plan went to the driver."""


@dataclass(slots=True)
class Timeline:
    """What was planned and executed for a goal, in one plan or several; seconds on the bridge's clock."""

    arrival_s: float = math.nan
    first_start_s: float = math.nan
    last_end_s: float = math.nan
    executed_s: float = 0.0
    plan: list[str] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    """Texts of the segments that were carried out."""


@dataclass(frozen=True, slots=True)
class Replan:
    """A plan that is to take the place of another: of which task, why, and what the robot sees now."""

    task_id: str
    reason: str
    scene: str | None = None
    token: str | None = None
    executed: str | None = None


@dataclass(slots=True, eq=False)
class TaskRun:
    """One task. ``run`` is called once; ``cut`` may be called at any time on the same loop.

    Attributes:
        task_id: the name of the task for server and driver.
        announce: makes the function that publishes a segment as feedback, for the thread that sends it.
        note: is given each report, to be published.
        tell: is called when the task begins, when its plan has come to the end, and with its result.
    """

    task_id: str
    goal: TaskGoal
    client: PlanClient
    driver: Driver
    turnstile: Turnstile
    deadlines: Deadlines
    clock: Clock
    announce: Announce
    note: Note
    server_url: str = ""
    replaces: Replan | None = None
    """The plan before it; None for the first."""
    turn: Turn | None = None
    """The goal's claim on the robot, where it outlives this plan."""
    timeline: Timeline = field(default_factory=Timeline)
    submitted: bool = False
    """The server may know of it."""
    over: bool = False
    planned: bool = False
    """No more segments will come."""
    tell: Tell = lambda run, end: None
    sent: list[Sent] = field(default_factory=list)
    _stream: PlanStream | None = None
    _cut: asyncio.Future[TaskEnded] | None = None
    _reports: asyncio.Queue[tuple[ExecutionReport, float] | None] = field(default_factory=asyncio.Queue)
    _turn: Turn | None = None
    _early: TaskEnded | None = None
    _failed: asyncio.Future[BaseException] = field(init=False)
    _busy: int = 0
    """Segments that are on their way to the driver, or there."""
    _idle_since_s: float = math.nan
    """When the robot was last given something, or finished it; seconds on the loop's clock."""

    def cut(self, code: int, message: str) -> None:
        """End the task now: the motion is cancelled, the plan no longer generated. The first reason counts."""
        ended = TaskEnded(code, message)
        if self._cut is None:
            self._early = self._early or ended
        elif not self._cut.done():
            self._cut.set_result(ended)

    def replan(self, reason: str, scene: str | None = None) -> Replan:
        """What another plan in its place has to know; without a scene, the one that this plan was told."""
        if scene is None and self.replaces is not None:
            scene = self.replaces.scene
        executed = "".join(self.timeline.executed)[-MAX_EXECUTED_CHARS:]
        token = self._stream.token if self._stream is not None else None
        return Replan(self.task_id, reason[:MAX_REASON_CHARS], scene, token, executed or None)

    @property
    def executing(self) -> int:
        """Segments that the driver has and has not finished."""
        return sum(not sent.ended.done() for sent in self.sent)

    async def run(self) -> TaskEnd:
        """From submission to the last execution; never raises but for cancellation of the coroutine itself."""
        if math.isnan(self.timeline.arrival_s):
            self.timeline.arrival_s = self.clock.now()
        loop = asyncio.get_running_loop()
        self._cut = loop.create_future()
        self._failed = loop.create_future()
        self._idle_since_s = loop.time()
        if self._early is not None:
            self._cut.set_result(self._early)
        self._turn = self.turn or Turn(self.goal.utility.urgent, self.cut)
        self.tell(self, None)
        reporter = loop.create_task(self._send_reports(), name=f"reports {self.task_id}")
        work = loop.create_task(self._follow(), name=f"plan {self.task_id}")
        try:
            await asyncio.wait(
                (work, self._cut), timeout=self.deadlines.task_s, return_when=asyncio.FIRST_COMPLETED
            )
            ended = self._verdict(work)
            self.over = True
            if ended is not None:
                await self._abandon(work, ended)
            end = self._result(ended)
            self.tell(self, end)
            return end
        finally:
            work.cancel()
            self._reports.put_nowait(None)
            await asyncio.wait((reporter,), timeout=self.deadlines.report_s)
            reporter.cancel()
            await asyncio.gather(work, reporter, return_exceptions=True)
            if self.turn is None:
                self.turnstile.leave(self._turn)

    def _verdict(self, work: asyncio.Task[None]) -> TaskEnded | None:
        """Why the task ended; None when it is complete."""
        if self._cut is not None and self._cut.done():
            return self._cut.result()
        if not work.done():
            return TaskEnded(ErrorCode.EXPIRED, f"not finished within {self.deadlines.task_s:g} s")
        error = work.exception()
        if error is None:
            return None
        if isinstance(error, TaskEnded):
            return error
        if isinstance(error, UnknownName) and self._stream is not None:
            return TaskEnded(
                ErrorCode.ENGINE_FAILED, "the server no longer knows the task; was it restarted?"
            )
        if isinstance(error, TimelyError):
            return TaskEnded(code_of(error, server_url=self.server_url), str(error))
        if isinstance(error, TimeoutError):
            return TaskEnded(ErrorCode.SERVER_TIMEOUT, "the server did not answer in time")
        log.error("task %s", self.task_id, exc_info=error)
        return TaskEnded(ErrorCode.BRIDGE_INTERNAL, f"{type(error).__name__}: {error}")

    def _result(self, ended: TaskEnded | None) -> TaskEnd:
        done = self.timeline
        response = done.first_start_s - done.arrival_s
        waiting = (done.last_end_s - done.arrival_s) - done.executed_s
        utility = self.goal.utility.value(response) if math.isfinite(response) else math.nan
        outcome = "complete"
        if ended is not None:
            outcome = "failed"
            if ended.code in CUT_CODES:
                outcome = "cancelled"
            elif owner_of(ended.code) == "goal" and not self.sent:
                outcome = "refused"
        return TaskEnd(
            outcome,
            ended.code if ended else 0,
            ended.message if ended else "",
            "".join(done.plan),
            response,
            waiting,
            utility,
            bool(self.sent),
        )

    # --- The plan ---

    async def _follow(self) -> None:
        """Read the plan, dispatch its segments, wait for the last one."""
        if self._turn is None:
            raise TaskEnded(ErrorCode.BRIDGE_INTERNAL, "not running")
        if self.turnstile.policy == "reject":
            await self.turnstile.enter(self._turn)
        self.submitted = True
        async with asyncio.timeout(self.deadlines.submit_s):
            stream = await self._ask()
        self._stream = stream
        watchers: set[asyncio.Task[None]] = set()
        # One task reads and dispatches: of segments that come together, the first is with its driver before the second
        # is looked at.
        reading = asyncio.create_task(self._read(stream, watchers), name=f"segments {self.task_id}")
        try:
            failure = await self._attend(reading)
            self.planned = True
            self.tell(self, None)
            # What the robot has is executed to its end, also when the plan breaks off.
            while watchers and not self._failed.done():
                await asyncio.wait((*watchers, self._failed), return_when=asyncio.FIRST_COMPLETED)
            self._raise_failed()
            if failure is not None:
                raise failure
        finally:
            reading.cancel()
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(reading, *watchers, return_exceptions=True)

    def _scene(self) -> str:
        """What the robot sees and holds; what it will hold when another task is through with it, nobody knows."""
        old = self.replaces
        seen = self.goal.scene if old is None or old.scene is None else old.scene
        mine = self._turn is not None and self.turnstile.next(self._turn)
        return scene_with(seen, self.driver.holding if mine else "")

    async def _ask(self) -> PlanStream:
        goal, old = self.goal, self.replaces
        if old is not None:
            return await self.client.replan(
                old.task_id,
                old.reason,
                scene=self._scene(),
                executed=old.executed,
                token=old.token,
                utility=goal.utility if goal.utility.urgent else URGENT,
                deadline_s=self.deadlines.task_s,
                agent=goal.agent,
                id=self.task_id,
            )
        return await self.client.submit(
            goal.task,
            skill_set=goal.skill_set,
            robot=goal.profile or None,
            scene=self._scene(),
            utility=goal.utility,
            agent=goal.agent,
            app=goal.app,
            urgency=goal.urgency,
            deadline_s=self.deadlines.task_s,
            id=self.task_id,
        )

    async def _attend(self, reading: asyncio.Task[TimelyError | None]) -> TimelyError | None:
        """What ``reading`` returns; raises when an execution fails before, or nothing comes and nothing is to do."""
        loop = asyncio.get_running_loop()
        limit_s = self.deadlines.segment_s
        while True:
            # With work at the robot the server may well be silent; the executions have deadlines of their own.
            patience_s = limit_s if self._busy else self._idle_since_s + limit_s - loop.time()
            await asyncio.wait(
                (reading, self._failed), timeout=max(0.0, patience_s), return_when=asyncio.FIRST_COMPLETED
            )
            self._raise_failed()
            if reading.done():
                return reading.result()
            if not self._busy and loop.time() - self._idle_since_s >= limit_s:
                raise TaskEnded(ErrorCode.SERVER_TIMEOUT, f"no segment came within {limit_s:g} s")

    async def _read(self, stream: PlanStream, watchers: set[asyncio.Task[None]]) -> TimelyError | None:
        """Dispatch every segment as it comes; the error that ended the plan early, or None."""
        segments = stream.__aiter__()
        while True:
            try:
                segment = await anext(segments, None)
            except TimelyError as error:
                return error
            if segment is None:
                return None
            # It may have to wait for its turn or its driver, which have deadlines of their own.
            self._busy += 1
            try:
                await self._dispatch(segment, watchers)
            finally:
                self._rested()

    def _watched(self, watcher: asyncio.Task[None], watchers: set[asyncio.Task[None]]) -> None:
        """An execution is over: the first that failed ends the plan."""
        watchers.discard(watcher)
        self._rested()
        if not watcher.cancelled() and (error := watcher.exception()) is not None and not self._failed.done():
            self._failed.set_result(error)

    def _rested(self) -> None:
        self._busy -= 1
        self._idle_since_s = asyncio.get_running_loop().time()

    def _raise_failed(self) -> None:
        if self._failed.done():
            raise self._failed.result()

    async def _dispatch(self, segment: Any, watchers: set[asyncio.Task[None]]) -> None:
        if self._turn is not None and not self._turn.granted.is_set():
            await self.turnstile.enter(self._turn)
        if not self.driver.alive and not await self.driver.ready(self.deadlines.driver_s):
            raise TaskEnded(
                ErrorCode.DRIVER_UNAVAILABLE,
                f"no driver took the segment within {self.deadlines.driver_s:g} s",
            )
        order = Order(
            self.task_id,
            segment.index,
            segment.text,
            self.goal.skill_set,
            segment.tokens,
            segment.execution_s,
            segment.blocking,
        )
        sent = self.driver.send(order, self.announce(order))
        self.timeline.plan.append(segment.text)
        self.sent.append(sent)
        previous = self.sent[-2] if len(self.sent) > 1 else None
        watcher = asyncio.create_task(self._watch(sent, previous), name=f"segment {segment.index}")
        self._busy += 1
        watchers.add(watcher)
        watcher.add_done_callback(lambda ended: self._watched(ended, watchers))

    # --- Executions ---

    async def _watch(self, sent: Sent, previous: Sent | None) -> None:
        """Follow one segment at the driver and report; raises TaskEnded when it does not succeed."""
        order = sent.order
        if previous is not None:
            await asyncio.wait((previous.ended,))
        # Its turn has come: from here on the driver owes a sign of life.
        waiting: tuple[asyncio.Future[Any], ...] = (sent.started, sent.ended)
        await asyncio.wait(waiting, timeout=self.deadlines.driver_s, return_when=asyncio.FIRST_COMPLETED)
        if not sent.started.done() and not sent.ended.done():
            raise TaskEnded(
                ErrorCode.DRIVER_UNAVAILABLE,
                f"segment {order.index} was not begun within {self.deadlines.driver_s:g} s",
            )
        if sent.started.done():
            began_s = sent.started.result()
            if math.isnan(self.timeline.first_start_s):
                self.timeline.first_start_s = began_s
            self._report("started", order.index, began_s)
            sent.progress = self._progress(order)
        limit_s = order.execution_s * self.deadlines.execution_factor + self.deadlines.execution_margin_s
        await asyncio.wait((sent.ended,), timeout=limit_s)
        if not sent.ended.done():
            raise TaskEnded(
                ErrorCode.SEGMENT_TIMEOUT, f"segment {order.index} took more than {limit_s:.1f} s"
            )
        self._settle(order, sent.ended.result())

    def _settle(self, order: Order, execution: Execution) -> None:
        """Book and report the end of a segment; raises TaskEnded if it did not succeed."""
        if execution.elapsed_s > 0.0 or execution.outcome == "done":
            self.timeline.executed_s += execution.elapsed_s
            self.timeline.last_end_s = execution.end_s
            if math.isnan(self.timeline.first_start_s):
                self.timeline.first_start_s = execution.end_s - execution.elapsed_s
        if execution.outcome != "done":
            self._report(
                "failed",
                order.index,
                execution.end_s,
                elapsed_s=execution.elapsed_s,
                reason=execution.message,
                error_code=execution.code,
            )
            raise TaskEnded(execution.code, f"segment {order.index}: {execution.message}")
        self.timeline.executed.append(order.text)
        value = (execution.value or "") if order.blocking else None
        kind: ReportKind = "done" if value is None else "value"
        self._report(kind, order.index, execution.end_s, elapsed_s=execution.elapsed_s, value=value)

    def _progress(self, order: Order) -> Callable[[float, float], None]:
        last_s = self.clock.now()

        def tell(elapsed_s: float, remaining_s: float) -> None:
            nonlocal last_s
            now = self.clock.now()
            if now - last_s >= self.deadlines.progress_every_s:
                last_s = now
                self._report("progress", order.index, now, elapsed_s=elapsed_s, remaining_s=remaining_s)

        return tell

    # --- Reports ---

    def _report(
        self,
        kind: ReportKind,
        segment: int,
        when_s: float,
        *,
        elapsed_s: float | None = None,
        remaining_s: float | None = None,
        value: str | None = None,
        reason: str = "",
        error_code: int = 0,
    ) -> None:
        """Queue a report that was true at ``when_s``, and publish it."""
        self.note(
            SegmentReport(
                task_id=self.task_id,
                segment=segment,
                kind=KINDS[kind],
                elapsed_s=elapsed_s or 0.0,
                remaining_s=remaining_s or 0.0,
                value=value or "",
                reason=reason,
                error_code=error_code,
            )
        )
        report = ExecutionReport(
            segment,
            kind,
            elapsed_s=elapsed_s,
            remaining_s=remaining_s,
            value=None if value is None else value[:MAX_VALUE_CHARS],
            reason=reason,
        )
        self._reports.put_nowait((report, when_s))

    async def _send_reports(self) -> None:
        """In order, those that come together at once, and apart from all else: a slow server delays no motion."""
        ended = False
        while not ended:
            batch = [await self._reports.get()]
            if batch[0] is not None and self._can_wait(batch[0][0]):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(GATHER_S):
                        batch.append(await self._reports.get())
            while not self._reports.empty():
                batch.append(self._reports.get_nowait())
            ended = None in batch
            await self._send_batch([item for item in batch if item is not None])
            for _ in batch:
                self._reports.task_done()

    def _can_wait(self, report: ExecutionReport) -> bool:
        if report.kind == "done":
            # The robot has another segment and is about to begin it; without one the server may be waiting.
            return self.executing > 0
        return report.kind in ("started", "progress")

    async def _send_batch(self, batch: list[tuple[ExecutionReport, float]]) -> None:
        if not batch or self._stream is None:
            return
        now = self.clock.now()
        aged = [replace(report, age_s=max(0.0, now - when_s)) for report, when_s in batch]
        try:
            async with asyncio.timeout(self.deadlines.report_s):
                await self._stream.report(*aged)
        except (TimelyError, TimeoutError) as error:
            # The server goes on with its estimate; whether it is gone altogether, the plan's stream will tell.
            log.warning("a report on task %s was not taken: %s", self.task_id, error or "too slow")

    # --- The early end ---

    async def _abandon(self, work: asyncio.Task[None], ended: TaskEnded) -> None:
        """Stop the robot first, then the generation; each with its deadline."""
        unfinished = [sent for sent in self.sent if not sent.ended.done()]
        for sent in unfinished:
            self.driver.cancel(sent)
        work.cancel()
        # Nobody may be reading the plan when its stream is closed.
        await asyncio.wait((work,), timeout=self.deadlines.cancel_s)
        ending: list[Coroutine[Any, Any, None]] = [self._stop_generating(ended)]
        if unfinished:
            ending.append(self._until_at_rest(unfinished))
        await asyncio.gather(*ending)
        for sent in unfinished:
            if sent.ended.done():
                execution = sent.ended.result()
                if execution.elapsed_s > 0.0:
                    self.timeline.executed_s += execution.elapsed_s
                    self.timeline.last_end_s = execution.end_s

    async def _until_at_rest(self, unfinished: list[Sent]) -> None:
        waiting = [sent.ended for sent in unfinished]
        _, still = await asyncio.wait(waiting, timeout=self.deadlines.cancel_s)
        if still:
            log.error(
                "task %s: the driver did not end %d motion(s) in %s s",
                self.task_id,
                len(still),
                self.deadlines.cancel_s,
            )

    async def _stop_generating(self, ended: TaskEnded) -> None:
        stream = self._stream
        try:
            async with asyncio.timeout(self.deadlines.cancel_s):
                if stream is None:
                    # It may have been accepted although the answer never came: the id is ours.
                    if self.submitted and owner_of(ended.code) != "goal":
                        await self.client.cancel(self.task_id)
                    return
                try:
                    if ended.code not in CUT_CODES:
                        # The server should hear what failed before it hears that nobody wants the rest.
                        await self._reports.join()
                    await stream.cancel()
                finally:
                    await stream.close()
        except UnknownName:
            return
        except (TimelyError, TimeoutError) as error:
            log.warning("task %s could not be cancelled at the server: %s", self.task_id, error or "too slow")
