"""A server and a driver for tests, without HTTP, ROS or a model.

``FakeServer`` takes the place of ``timely.client.AsyncTimelyClient``. It sends the segments of a script, each after the
report on the one before, or all at once. It waits for the values of blocking segments and keeps every report.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from timely_bridge.error_codes import BridgeTaskError
from timely_bridge.interfaces import Admit, BridgeSegment, SegmentExecution
from timely_interfaces.msg import ErrorCode

from timely.client import Segment
from timely.client.problems import UNKNOWN_TOKEN, client_error_from_problem
from timely.core.errors import Conflict, EngineFailed, NotAllowed, TimelyError, UnknownName
from timely.core.reports import ExecutionReport

Script = Sequence["FakeSegment | TimelyError | str"]


@dataclass(frozen=True, slots=True)
class FakeSegment:
    """A segment of a script; an error in its place is raised there."""

    text: str
    execution_s: float = 1.0
    blocking: bool = False
    tokens: int = 4


@dataclass(frozen=True, slots=True)
class Report:
    """A report as the server got it."""

    task_id: str
    kind: str
    segment: int
    fields: Mapping[str, Any] = field(default_factory=dict)


class FakeServer:
    """Plays scripts.

    Args:
        scripts: task text -> segments, and errors where a plan breaks off.
        ahead: how many segments may be sent that no report has called done; None sends all at once.
        skill_sets: known names; others are refused.
    """

    def __init__(
        self,
        scripts: Mapping[str, Script] | None = None,
        *,
        ahead: int | None = None,
        skill_sets: Sequence[str] = ("drone", "arm", "chat"),
    ) -> None:
        self.scripts = dict(scripts or {})
        self.ahead = ahead
        self.skill_sets = skill_sets
        self.streams: dict[str, FakeStream] = {}
        self.submitted: list[dict[str, Any]] = []
        self.replans: list[dict[str, Any]] = []
        self.reports: list[Report] = []
        self.cancelled: list[str] = []
        self.dropped: list[str] = []
        """Those of which the robot executes no more."""
        self.closed = False
        self.down = False
        """Nothing answers."""
        self.hangs = False
        """Connections are made and nothing ever comes."""
        self.knows_token = True
        """Of the bridge; a server that does not know it looks at no request."""

    def __call__(self, url: str) -> FakeServer:
        """So that a server can be its own client factory."""
        self.url = url
        return self

    async def submit(self, task: str, **fields: Any) -> FakeStream:
        self._reach()
        self.submitted.append({"task": task, **fields})
        if self.hangs:
            await asyncio.Event().wait()
        if fields["skill_set"] not in self.skill_sets:
            raise UnknownName("skill set", fields["skill_set"], self.skill_sets, where="skill_set")
        task_id = fields["id"]
        if task_id in self.streams:
            raise Conflict(f"task {task_id!r} is there already", where="id")
        script = self.scripts.get(task, self.scripts.get("", ()))
        self.streams[task_id] = FakeStream(self, task_id, script, fields["report_token"])
        return self.streams[task_id]

    async def replan(self, task_id: str, reason: str = "", **fields: Any) -> FakeStream:
        """See ``AsyncTimelyClient.replan``: plays the script of ``reason``, else the one of ``replan``."""
        self._reach()
        self.replans.append({"task_id": task_id, "reason": reason, **fields})
        if task_id not in self.streams:
            raise UnknownName("task", task_id, self.streams)
        await self.streams[task_id].cancel()
        script = self.scripts.get(reason, self.scripts.get("replan"))
        if script is None:
            raise EngineFailed("no script for another plan", where="engine")
        self.streams[fields["id"]] = FakeStream(self, fields["id"], script, fields["report_token"])
        return self.streams[fields["id"]]

    async def resume(self, task_id: str, *, token: str | None = None, agent: str | None = None) -> FakeStream:
        """See ``AsyncTimelyClient.resume``: all segments again."""
        before = self._find(task_id, token)
        self.streams[task_id] = again = FakeStream(self, task_id, before._script, before.token)
        again._settled, again.ended, again.cause = before._settled, before.ended, before.cause
        return again

    async def cancel(self, task_id: str, *, token: str | None = None, dropped: bool = False) -> None:
        await self._find(task_id, token).cancel(dropped=dropped)

    def _find(self, task_id: str, token: str | None) -> FakeStream:
        """As the server, which tells nothing of a task to those without its token."""
        self._reach()
        if task_id not in self.streams:
            raise UnknownName("task", task_id, self.streams)
        if token != self.streams[task_id].token:
            raise NotAllowed(f"task {task_id!r} has another token", where="Timely-Task-Token")
        return self.streams[task_id]

    async def health(self) -> dict[str, Any]:
        self._reach()
        return {"status": "ok"}

    async def close(self) -> None:
        self.closed = True

    def kinds(self, task_id: str) -> list[tuple[str, int]]:
        """The reports on one task: kind and segment, in order, without progress."""
        return [
            (report.kind, report.segment)
            for report in self.reports
            if report.task_id == task_id and report.kind != "progress"
        ]

    def _reach(self) -> None:
        if self.down:
            raise EngineFailed("cannot connect", where=getattr(self, "url", ""))
        if not self.knows_token:
            raise client_error_from_problem({"code": UNKNOWN_TOKEN}, 401)


class FakeStream:
    """A plan on its way; see ``AsyncTaskStream``."""

    def __init__(self, server: FakeServer, task_id: str, script: Script, token: str) -> None:
        self.task_id = task_id
        self.token = token
        self.released = 0
        self._server = server
        self._script = list(script)
        self._settled: set[int] = set()
        self._changed = asyncio.Event()
        self._over = False
        self.ended = "complete"
        """The outcome of its result."""
        self.outage = ""
        self.cause = ""
        """Why the server ended it without a request for it."""

    @property
    def result(self) -> Any:
        return SimpleNamespace(outcome=self.ended, data={"cause": self.cause} if self.cause else {})

    async def _segments(self) -> AsyncIterator[Segment]:
        for index, part in enumerate(self._script):
            if isinstance(part, TimelyError):
                raise part
            await self._until_allowed(index)
            if self._over:
                return
            self.released = index + 1
            segment = FakeSegment(part) if isinstance(part, str) else part
            yield Segment(
                task_id=self.task_id,
                index=index,
                text=segment.text,
                calls=(),
                tokens=segment.tokens,
                ready_s=0.0,
                execution_s=segment.execution_s,
                due_s=0.0,
                blocking=segment.blocking,
            )

    async def _until_allowed(self, index: int) -> None:
        def allowed() -> bool:
            before = self._script[index - 1] if index else None
            blocked = isinstance(before, FakeSegment) and before.blocking and index - 1 not in self._settled
            ahead = self._server.ahead
            outstanding = sum(earlier not in self._settled for earlier in range(index))
            return self._over or not (blocked or (ahead is not None and outstanding > ahead))

        while not allowed():
            self._changed.clear()
            await self._changed.wait()

    def __aiter__(self) -> AsyncIterator[Segment]:
        return self._segments()

    async def report(self, *reports: ExecutionReport) -> None:
        self._server._reach()
        if self.task_id in self._server.dropped:
            return  # it is over: a report changes nothing
        for report in reports:
            if report.segment >= self.released:
                raise Conflict(f"segment {report.segment} was not sent", where="segment")
            fields = {key: value for key, value in report.to_dict().items() if key not in ("segment", "kind")}
            self._server.reports.append(Report(self.task_id, report.kind, report.segment, fields))
            if report.kind in ("done", "value"):
                self._settled.add(report.segment)
            self._over = self._over or report.kind == "failed"
        self._changed.set()

    async def cancel(self, *, dropped: bool = False) -> None:
        self._server._reach()
        self._server.cancelled.append(self.task_id)
        if dropped:
            self._server.dropped.append(self.task_id)
        self._over = True
        self._changed.set()

    async def close(self) -> None:
        self._over = True
        self._changed.set()


class FakeDriver:
    """A driver on the loop: executes segments one after the other, ``execution_s`` times ``scale`` seconds each.

    Args:
        clock, sleep: time, virtual in tests.
        fails: texts that fail; failure: what the driver says then.
        values: text -> what it returns.
    """

    def __init__(
        self,
        now: Callable[[], float],
        sleep: Callable[[float], Any],
        *,
        scale: float = 1.0,
        fails: Sequence[str] = (),
        failure: str = "stuck",
        values: Mapping[str, str] | None = None,
    ) -> None:
        self.alive = True
        self.refusal: BridgeTaskError | None = None
        """Why it takes no segments."""
        self.holding = ""
        """What its gripper holds."""
        self.appears_s = math.nan
        """When a driver that is not there will be."""
        self.mute = False
        """Takes segments and never begins them."""
        self.stubborn = False
        """Does not end a motion that was cancelled."""
        self.session = 7
        self.stopped = False
        self.cancelled_tasks: list[str] = []
        self.log: list[tuple[str, int, str]] = []
        """(task, segment, event) in order; the event is started, done, failed or cancelled."""
        self._now, self._sleep = now, sleep
        self._scale, self._fails, self._values = scale, fails, dict(values or {})
        self._failure = failure
        self._queue: asyncio.Queue[BridgeSegment] = asyncio.Queue()
        self._dead: set[str] = set()
        self._had: dict[tuple[str, int], BridgeSegment] = {}
        self._current: tuple[BridgeSegment, asyncio.Task[None]] | None = None
        self._worker: asyncio.Task[None] | None = None

    async def ready(self, timeout_s: float) -> bool:
        if self.alive:
            return True
        if math.isnan(self.appears_s) or self.appears_s - self._now() > timeout_s:
            await self._sleep(timeout_s)
            return False
        await self._sleep(self.appears_s - self._now())
        self.alive = True
        return True

    async def forward(self, segments: AsyncIterable[Segment], admit: Admit) -> None:
        async for segment in segments:
            sent = await admit(segment)
            if not sent.ended.done():
                self._take(sent)

    def _take(self, sent: BridgeSegment) -> None:
        key = (sent.segment.task_id, sent.segment.index)
        if sent.again and key in self._had:
            had = self._had[key]
            had.started.add_done_callback(lambda future: sent.started.set_result(future.result()))
            had.ended.add_done_callback(lambda future: self._settle(sent, future.result()))
            return
        assert key not in self._had, f"{key} was sent twice"
        self._had[key] = sent
        self._queue.put_nowait(sent)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        sent.on_sent()

    def awaits_operator(self, segment: Segment) -> bool:
        return False

    def cancel(self, sent: BridgeSegment) -> None:
        if self.stubborn:
            return
        self._dead.add(sent.segment.task_id)
        if self._current is not None and self._current[0].segment == sent.segment:
            self._current[1].cancel()

    def cancel_task(self, task_id: str) -> None:
        self.cancelled_tasks.append(task_id)
        if self._current is not None and self._current[0].segment.task_id == task_id:
            self.cancel(self._current[0])

    def lose(self) -> None:
        """Vanish: what it has ends as lost."""
        self.alive = False
        while not self._queue.empty():
            self._settle(self._queue.get_nowait(), SegmentExecution("failed", ErrorCode.DRIVER_LOST, "gone"))
        if self._current is not None:
            sent, task = self._current
            self._settle(sent, SegmentExecution("failed", ErrorCode.DRIVER_LOST, "gone", end_s=self._now()))
            task.cancel()

    async def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            sent = await self._queue.get()
            if self.mute:
                continue
            if sent.segment.task_id in self._dead:
                self._settle(
                    sent,
                    SegmentExecution(
                        "cancelled", ErrorCode.SEGMENT_CANCELLED, "cancelled", end_s=self._now()
                    ),
                )
                continue
            task = asyncio.create_task(self._execute(sent))
            self._current = (sent, task)
            await asyncio.gather(task, return_exceptions=True)
            self._current = None

    async def _execute(self, sent: BridgeSegment) -> None:
        segment, begin = sent.segment, self._now()
        sent.started.set_result(begin)
        self._note(segment, "started")
        try:
            half = 0.5 * segment.execution_s * self._scale
            await self._sleep(half)
            if sent.progress is not None:
                sent.progress(half, half)
            await self._sleep(half)
        except asyncio.CancelledError:
            self._note(segment, "cancelled")
            elapsed = self._now() - begin
            self._settle(
                sent, SegmentExecution("cancelled", ErrorCode.SEGMENT_CANCELLED, "cut", elapsed, self._now())
            )
            raise
        elapsed = self._now() - begin
        if segment.text in self._fails:
            self._note(segment, "failed")
            self._dead.add(segment.task_id)
            self._settle(
                sent, SegmentExecution("failed", ErrorCode.MOTION_FAILED, self._failure, elapsed, self._now())
            )
            return
        self._note(segment, "done")
        self._settle(
            sent, SegmentExecution("done", 0, "", elapsed, self._now(), self._values.get(segment.text))
        )

    def _note(self, segment: Segment, what: str) -> None:
        self.log.append((segment.task_id, segment.index, what))

    def _settle(self, sent: BridgeSegment, execution: SegmentExecution) -> None:
        if not sent.ended.done():
            sent.ended.set_result(execution)
