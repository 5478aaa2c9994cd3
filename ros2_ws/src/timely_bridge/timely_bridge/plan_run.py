"""One plan from submission to the last execution: admits its segments to the driver, and reports to the server.

Server, driver and clock are interfaces, so that fakes can take their places. Segments are sent ahead and queue at the
driver, so that the robot never waits for the network. Only one goal at a time moves a robot (``robot_lock``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from timely_interfaces.msg import ErrorCode, SegmentReport

from timely.client import AsyncTimelyClient, Segment
from timely.core.clock import Clock
from timely.core.errors import Conflict, TimelyError, UnknownName
from timely.core.reports import MAX_REASON_CHARS
from timely.core.utility import URGENT
from timely_bridge.error_codes import (
    BridgeTaskError,
    bridge_error_code,
    bridge_error_owner,
    bridge_fleet_stop_error,
)
from timely_bridge.goal_trace import bridge_traceparent
from timely_bridge.goals import TaskGoal, bridge_scene_with_object
from timely_bridge.interfaces import BridgeDriver, BridgePlanStream, BridgeSegment
from timely_bridge.loop_rounds import bridge_further_loop_rounds_s
from timely_bridge.outcome import CANCEL_CODES, BridgeTimeline, Deadlines, TaskEnd
from timely_bridge.past_plan import PastBridgePlan, check_bridge_plan_result, check_bridge_plan_stop
from timely_bridge.plan_cancellation import cancel_bridge_plan
from timely_bridge.report_queue import BridgeReportQueue
from timely_bridge.robot_lock import BridgeRobotClaim, BridgeRobotLock
from timely_bridge.segment_run import BridgeSegmentRun

REPORTS_S = 0.5
"""A cancellation waits at most so long until the server has taken the reports before it."""

WAIT_SHARE = 0.8
"""Share of the time for the submission in which a refused task is submitted again."""

log = logging.getLogger(__name__)

MAX_EXECUTED_CHARS = 4_000
"""Limit of the server."""

_cancellations: set[asyncio.Task[None]] = set()
"""Of plans that have ended, kept from being collected."""


class BridgePlanObserver(Protocol):
    """Gets what happens to a plan, to publish it."""

    def plan_changed(self, run: BridgePlanRun, end: TaskEnd | None) -> None:
        """The plan begins, or has its last segment, or is over (``end``)."""

    def beginning(self, run: BridgePlanRun) -> None:
        """The first segment is about to be sent to the driver."""

    async def flush(self) -> None:
        """Return when another life of the bridge would know all of the above."""

    def segment_sent(self, segment: Segment) -> None: ...

    def reported(self, report: SegmentReport) -> None: ...


@dataclass(frozen=True, slots=True)
class RunContext:
    """What the plans of one robot share.

    Attributes:
        robot: its name, by which the server knows it: for its stop, its pace and its principals.
        server_problem: why the server's health could not be checked last; empty if it could.
    """

    robot: str
    client: AsyncTimelyClient
    driver: BridgeDriver
    lock: BridgeRobotLock
    deadlines: Deadlines
    clock: Clock
    server_url: str = ""
    fleet_stopped: Callable[[], bool] = lambda: False
    server_problem: Callable[[], str] = lambda: ""


@dataclass(frozen=True, slots=True)
class Replan:
    """A plan that replaces another: the task that it replaces, the reason, and the scene now.

    Attributes:
        failures: plans of the goal that followed a failure, this one included.
    """

    task_id: str
    reason: str
    scene: str | None = None
    token: str | None = None
    executed: str | None = None
    failures: int = 0


@dataclass(slots=True, eq=False)
class BridgePlanRun:
    """One plan. ``run`` is called once; ``cancel`` may be called at any time on the same loop.

    Attributes:
        task_id: the name of the task for server and driver.
        claim: the goal's claim on the robot, which outlives this plan.
        replaces: the plan before it; None for the first.
        past: what is known of the plan if an earlier life of the bridge began it; its segments are not sent twice.
    """

    task_id: str
    goal: TaskGoal
    context: RunContext
    observer: BridgePlanObserver
    claim: BridgeRobotClaim
    replaces: Replan | None = None
    timeline: BridgeTimeline = field(default_factory=BridgeTimeline)
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """The server's token of the task, chosen here."""
    past: PastBridgePlan | None = None
    submitted: bool = False
    """The server may have the task."""
    over: bool = False
    planned: bool = False
    """No more segments will come."""
    sent_segments: list[BridgeSegment] = field(default_factory=list)
    _segment_runs: list[BridgeSegmentRun] = field(default_factory=list)
    _stream: BridgePlanStream | None = None
    _cancellation: asyncio.Future[BridgeTaskError] | None = None
    _early: BridgeTaskError | None = None
    """Why the plan was cancelled before ``run``."""
    _reports: BridgeReportQueue = field(init=False)
    _failure: asyncio.Future[BaseException] = field(init=False)
    _busy: int = 0
    """Segments that are on their way to the driver, or there."""
    _idle_since_s: float = math.nan
    """When the robot last got or finished a segment; seconds on the loop's clock."""

    def __post_init__(self) -> None:
        if self.past is not None:
            self.token = self.past.token
        context = self.context
        self._reports = BridgeReportQueue(
            self.task_id, context.clock, context.deadlines, lambda: not self.executing
        )

    def cancel(self, code: int, message: str) -> None:
        """End the plan now: its motion and its generation. The first reason counts."""
        early_end = BridgeTaskError(code, message)
        if self._cancellation is None:
            self._early = self._early or early_end
        elif not self._cancellation.done():
            self._cancellation.set_result(early_end)

    @property
    def cancelled(self) -> bool:
        """It is to end early, or has ended so."""
        return self._early is not None or (self._cancellation is not None and self._cancellation.done())

    @property
    def failures(self) -> int:
        """Plans of the goal that followed a failure, up to this one."""
        return self.replaces.failures if self.replaces is not None else 0

    def replan(self, reason: str, scene: str | None = None, *, after_failure: bool = False) -> Replan:
        """The description of a plan that replaces this one; without a scene, with this plan's scene."""
        if scene is None and self.replaces is not None:
            scene = self.replaces.scene
        executed_text = "".join(self.timeline.executed)[-MAX_EXECUTED_CHARS:]
        return Replan(
            self.task_id,
            reason[:MAX_REASON_CHARS],
            scene,
            self.token,
            executed_text or None,
            self.failures + after_failure,
        )

    @property
    def executing(self) -> int:
        """Number of segments that the driver has not finished."""
        return sum(not sent_segment.ended.done() for sent_segment in self.sent_segments)

    @property
    def _began(self) -> bool:
        """The driver may have a segment of this plan."""
        return bool(self.sent_segments) or (self.past is not None and self.past.began)

    async def run(self) -> TaskEnd:
        """From submission to the last execution; raises only when its own coroutine is cancelled."""
        if math.isnan(self.timeline.arrival_s):
            self.timeline.arrival_s = self.context.clock.now()
        loop = asyncio.get_running_loop()
        self._cancellation = loop.create_future()
        self._failure = loop.create_future()
        self._idle_since_s = loop.time()
        if self._early is not None:
            self._cancellation.set_result(self._early)
        self.observer.plan_changed(self, None)
        self._reports.start()
        work = loop.create_task(self._follow(), name=f"plan {self.task_id}")
        try:
            limit_s = self.context.deadlines.task_s
            if self.past is not None:
                limit_s = max(0.0, limit_s + self.timeline.arrival_s - self.context.clock.now())
            await asyncio.wait(
                (work, self._cancellation), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            early_end = self._early_end(work)
            self.over = True
            if early_end is not None:
                await self._abandon(work, early_end)
            end = self.timeline.result(self.goal.utility, early_end, self._began)
            self.observer.plan_changed(self, end)
            return end
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            for segment_run in self._segment_runs:
                segment_run.close()
            self._reports.close()

    def _early_end(self, work: asyncio.Task[None]) -> BridgeTaskError | None:
        if work.done() and not work.cancelled() and work.exception() is None:
            return None  # a cancellation that comes now is too late
        if self._cancellation is not None and self._cancellation.done():
            return self._cancellation.result()
        if not work.done():
            return BridgeTaskError(
                ErrorCode.EXPIRED, f"not finished within {self.context.deadlines.task_s:g} s"
            )
        error = work.exception()
        if isinstance(error, BridgeTaskError):
            # Drivers may answer a stop of the fleet before the bridge ends its goals.
            is_fleet_stop = error.code == ErrorCode.DRIVER_STOPPED and self.context.fleet_stopped()
            return bridge_fleet_stop_error() if is_fleet_stop else error
        if isinstance(error, Conflict) and error.where == "stop":
            return bridge_fleet_stop_error()
        if isinstance(error, UnknownName) and self._stream is not None:
            return BridgeTaskError(
                ErrorCode.ENGINE_FAILED, "the server no longer has the task; was it restarted?"
            )
        if isinstance(error, TimelyError):
            return BridgeTaskError(bridge_error_code(error, server_url=self.context.server_url), str(error))
        if isinstance(error, TimeoutError):
            problem = self.context.server_problem()
            reason = f": {self.context.server_url}: {problem}" if problem else ""
            return BridgeTaskError(ErrorCode.SERVER_TIMEOUT, f"the server did not answer in time{reason}")
        log.error("task %s", self.task_id, exc_info=error)
        return BridgeTaskError(ErrorCode.BRIDGE_INTERNAL, f"{type(error).__name__}: {error}")

    # --- The plan ---

    async def _follow(self) -> None:
        """Read the plan, send its segments, wait for the last one."""
        if self.context.lock.policy == "reject":
            await self.context.lock.acquire(self.claim)
        await self.observer.flush()
        self.submitted = True
        deadlines = self.context.deadlines
        # A plan of an earlier life waits for a killed server as long as one of this life does.
        async with asyncio.timeout(deadlines.submit_s if self.past is None else deadlines.segment_s) as limit:
            until_s = limit.when() or math.inf
            stream = await (self._submit() if self.past is None else self._take_up(self.past, until_s))
        self._stream = self._reports.stream = stream
        self.token = stream.token or self.token
        executions: set[asyncio.Task[None]] = set()
        reading = asyncio.create_task(self._forward(stream, executions), name=f"segments {self.task_id}")
        try:
            failure = await self._wait_for_plan(stream, reading)
            if failure is None:
                check_bridge_plan_stop(stream.result)
            self.planned = True
            self.observer.plan_changed(self, None)
            # The driver's segments are executed to their end, also when the plan breaks off.
            while executions and not self._failure.done():
                pending: tuple[asyncio.Future[Any], ...] = (*executions, self._failure)
                await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failed()
            if failure is not None:
                raise failure
            check_bridge_plan_result(stream.result)
        finally:
            reading.cancel()
            for execution in executions:
                execution.cancel()
            await asyncio.gather(reading, *executions, return_exceptions=True)

    async def _forward(
        self, stream: BridgePlanStream, executions: set[asyncio.Task[None]]
    ) -> TimelyError | None:
        """Have the driver read the plan; the error that ended the plan early, or None."""
        try:
            await self.context.driver.forward(stream, partial(self._admit, executions))
        except TimelyError as error:
            return error
        return None

    async def _admit(self, executions: set[asyncio.Task[None]], segment: Segment) -> BridgeSegment:
        await self._wait_for_robot()
        on_sent = partial(self.observer.segment_sent, segment)
        sent_segment = BridgeSegment(segment, self.goal.skill_set, on_sent)
        if self.past is not None:
            self.past.recall(sent_segment, self.context.driver)
        self._follow_segment(executions, sent_segment)
        return sent_segment

    async def _take_up(self, past: PastBridgePlan, until_s: float) -> BridgePlanStream:
        """Follow the plan of an earlier life, or submit it if the server never got it."""
        context = self.context
        stream = await past.follow(
            self.task_id, context.robot, context.client, context.driver, context.deadlines.driver_s, until_s
        )
        return stream or await self._submit()

    def _scene(self) -> str:
        """The scene with what the robot holds, unless another goal will move the robot before this one."""
        old = self.replaces
        scene = self.goal.scene if old is None or old.scene is None else old.scene
        next_here = self.context.lock.next_for(self.claim)
        return bridge_scene_with_object(scene, self.context.driver.holding if next_here else "")

    async def _submit(self) -> BridgePlanStream:
        goal, old, client = self.goal, self.replaces, self.context.client
        stream: BridgePlanStream
        wait_s = WAIT_SHARE * self.context.deadlines.submit_s
        if old is not None:
            stream = await client.replan(
                old.task_id,
                old.reason,
                scene=self._scene(),
                executed=old.executed,
                token=old.token,
                utility=goal.utility if goal.utility.urgent else URGENT,
                deadline_s=self.context.deadlines.task_s,
                agent=self.context.robot,
                wait_s=wait_s,
                id=self.task_id,
                report_token=self.token,
            )
        else:
            stream = await client.submit(
                goal.task,
                skill_set=goal.skill_set,
                robot=goal.profile or None,
                scene=self._scene(),
                utility=goal.utility,
                agent=self.context.robot,
                app=goal.app,
                urgency=goal.urgency,
                deadline_s=self.context.deadlines.task_s,
                wait_s=wait_s,
                id=self.task_id,
                report_token=self.token,
                traceparent=bridge_traceparent(self.task_id),
            )
        return stream

    async def _wait_for_plan(
        self, stream: BridgePlanStream, reading: asyncio.Task[TimelyError | None]
    ) -> TimelyError | None:
        """The result of ``reading``; raises when an execution fails, or when an idle robot gets no segment in time."""
        loop = asyncio.get_running_loop()
        limit_s = self.context.deadlines.segment_s
        while True:
            # While the robot is busy the server may be silent; executions have deadlines of their own.
            wait_s = limit_s if self._busy else self._idle_since_s + limit_s - loop.time()
            await asyncio.wait(
                (reading, self._failure), timeout=max(0.0, wait_s), return_when=asyncio.FIRST_COMPLETED
            )
            self._raise_failed()
            if reading.done():
                return reading.result()
            if not self._busy and loop.time() - self._idle_since_s >= limit_s:
                reason = f": {stream.outage}" if stream.outage else ""
                raise BridgeTaskError(
                    ErrorCode.SERVER_TIMEOUT, f"no segment came within {limit_s:g} s{reason}"
                )

    async def _wait_for_robot(self) -> None:
        """Return when this plan may send the driver a segment; lock and driver have deadlines of their own."""
        context = self.context
        self._busy += 1  # until the segment has ended
        try:
            if not self.claim.granted.is_set():
                await context.lock.acquire(self.claim)
            driver_s = context.deadlines.driver_s
            if not context.driver.alive and not await context.driver.ready(driver_s):
                if refusal := context.driver.refusal:
                    raise BridgeTaskError(refusal.code, refusal.message)
                raise BridgeTaskError(
                    ErrorCode.DRIVER_UNAVAILABLE, f"no driver took the segment within {driver_s:g} s"
                )
            if not self._began:
                self.observer.beginning(self)
                await self.observer.flush()
            if self.over:
                # The plan is being abandoned: nothing would cancel a segment that is sent now.
                raise asyncio.CancelledError
            if self.claim.end is not None:
                raise self.claim.end
        except BaseException:
            self._segment_over()
            raise

    def _follow_segment(self, executions: set[asyncio.Task[None]], sent_segment: BridgeSegment) -> None:
        self._idle_since_s = asyncio.get_running_loop().time()
        self.timeline.plan.append(sent_segment.segment.text)
        previous = self.sent_segments[-1] if self.sent_segments else None
        self.sent_segments.append(sent_segment)
        context = self.context
        done_before = self.past is not None and sent_segment.segment.index in self.past.executions
        publish = self.observer.reported if not done_before else lambda report: None
        further_s = bridge_further_loop_rounds_s(each.segment for each in self.sent_segments)
        run = BridgeSegmentRun(
            sent_segment,
            context.deadlines,
            context.clock,
            self.timeline,
            self._reports,
            publish,
            further_s,
            partial(context.driver.awaits_operator, sent_segment.segment),
        )
        self._segment_runs.append(run)
        execution = asyncio.create_task(run.run(previous), name=f"segment {sent_segment.segment.index}")
        executions.add(execution)
        execution.add_done_callback(partial(self._execution_over, executions))

    def _execution_over(self, executions: set[asyncio.Task[None]], execution: asyncio.Task[None]) -> None:
        """The first execution that failed ends the plan."""
        executions.discard(execution)
        self._segment_over()
        if execution.cancelled():
            return
        if (error := execution.exception()) is not None and not self._failure.done():
            self._failure.set_result(error)

    def _segment_over(self) -> None:
        self._busy -= 1
        self._idle_since_s = asyncio.get_running_loop().time()

    def _raise_failed(self) -> None:
        if self._failure.done():
            raise self._failure.result()

    # --- The early end ---

    async def _abandon(self, work: asyncio.Task[None], early_end: BridgeTaskError) -> None:
        """Stop the robot first, then the generation; each with its deadline."""
        unfinished_segments = [
            sent_segment for sent_segment in self.sent_segments if not sent_segment.ended.done()
        ]
        for sent_segment in unfinished_segments:
            self.context.driver.cancel(sent_segment)
        if self.past is not None:
            self.context.driver.cancel_task(self.task_id)
        work.cancel()
        # The stream must have no reader when it is closed.
        await asyncio.wait((work,), timeout=self.context.deadlines.cancel_s)
        ending: list[Coroutine[Any, Any, None]] = [self._stop_generating(early_end)]
        if unfinished_segments:
            ending.append(self._wait_until_at_rest(unfinished_segments))
        await asyncio.gather(*ending)

    async def _wait_until_at_rest(self, unfinished_segments: list[BridgeSegment]) -> None:
        limit_s = self.context.deadlines.cancel_s
        _, moving = await asyncio.wait(
            [sent_segment.ended for sent_segment in unfinished_segments], timeout=limit_s
        )
        if moving:
            log.error(
                "task %s: the driver did not end %d motion(s) in %s s", self.task_id, len(moving), limit_s
            )

    async def _stop_generating(self, early_end: BridgeTaskError) -> None:
        stream, deadlines = self._stream, self.context.deadlines
        # The server may have the task although its answer never came: the id is the bridge's own.
        # One of an earlier life it had before it refused the bridge's token.
        refused = self.past is None and bridge_error_owner(early_end.code) == "goal"
        if stream is None and (not self.submitted or refused):
            return
        tried = asyncio.Event()
        work = asyncio.create_task(
            self._cancel_at_server(early_end, tried), name=f"cancellation {self.task_id}"
        )
        _cancellations.add(work)
        work.add_done_callback(_cancellations.discard)
        limit = asyncio.get_running_loop().call_later(deadlines.report_limit_s, work.cancel)
        work.add_done_callback(lambda _: limit.cancel())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadlines.cancel_s):
                    await tried.wait()
        finally:
            if stream is not None:
                await stream.close()

    async def _cancel_at_server(self, early_end: BridgeTaskError, tried: asyncio.Event) -> None:
        if self._stream is not None:
            await self._send_reports(early_end)
        await cancel_bridge_plan(self.context.client, self.task_id, self.token, tried)

    async def _send_reports(self, early_end: BridgeTaskError) -> None:
        """Send what waits, since the server takes no report of a task that was cancelled."""
        self._reports.close()
        if early_end.code not in CANCEL_CODES:
            # Else the server would take the failure for a cancellation.
            await self._reports.join()
        elif not self._reports.unheard:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORTS_S):
                    await self._reports.join()
