"""Execution reports on their way to the server: in order, batched, and repeated until the server has taken them."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from weakref import WeakSet

from timely.client.problems import UNKNOWN_TOKEN, was_client_request_read
from timely.client.protocol import ClientBackoff
from timely.core.clock import Clock
from timely.core.errors import Overloaded, TimelyError, UnknownName
from timely.core.json_log import log_fields
from timely.core.reports import ExecutionReport
from timely_bridge.interfaces import BridgePlanStream
from timely_bridge.outcome import Deadlines

log = logging.getLogger(__name__)

GATHER_S = 0.02
"""Reports that the server does not need at once wait so long for others.

Each request costs this process a millisecond, at the time when segments of other robots come. A report carries its age.
"""
FIRST_RETRY_S, LONGEST_RETRY_S = 0.1, 2.0
"""Waits after a server that is there has not taken a report, seconds."""

_backoffs: WeakSet[ClientBackoff] = WeakSet()
"""Of the queues whose server is not there."""

_unheard_queues: set["BridgeReportQueue"] = set()
"""Queues of which the server has not taken the latest report; the log says it once for all of them."""

_senders: set[asyncio.Task[None]] = set()
"""Queues of ended plans that still have reports, kept from being collected."""


@dataclass(slots=True, eq=False)
class BridgeReportQueue:
    """The reports of one plan. A slow or absent server delays no motion.

    ``progress`` reports are dropped when the server does not take them, since a later one says more. All others are
    repeated: the server would otherwise wait for a value, or count on a robot whose skill has failed.

    Args:
        idle: true when the driver has no other segment, so that the server must know of an end at once.
    """

    task_id: str
    clock: Clock
    deadlines: Deadlines
    idle: Callable[[], bool]
    stream: BridgePlanStream | None = None
    """Set once the server has accepted the plan."""
    _queue: asyncio.Queue[tuple[ExecutionReport, float] | None] = field(default_factory=asyncio.Queue)
    _sender: asyncio.Task[None] | None = None
    _closed: bool = False

    def start(self) -> None:
        self._sender = asyncio.get_running_loop().create_task(
            self._send_all(), name=f"reports {self.task_id}"
        )

    def put(self, report: ExecutionReport, when_s: float) -> None:
        """Queue a report that was true at ``when_s``; after ``close`` it is dropped."""
        if not self._closed:
            self._queue.put_nowait((report, when_s))

    async def join(self) -> None:
        """Wait until the server has taken everything so far."""
        await self._queue.join()

    @property
    def unheard(self) -> bool:
        """The server has not taken the latest report, and it is repeated."""
        return self in _unheard_queues

    def close(self) -> None:
        """Take no more reports. What is left is sent at once, in the background, for at most ``report_limit_s``."""
        sender = self._sender
        if sender is None or sender.done() or self._closed:
            return
        self._closed = True
        self._queue.put_nowait(None)
        _senders.add(sender)
        sender.add_done_callback(_senders.discard)
        limit = asyncio.get_running_loop().call_later(self.deadlines.report_limit_s, sender.cancel)
        sender.add_done_callback(lambda _: limit.cancel())

    async def _send_all(self) -> None:
        closed = False
        try:
            while not closed:
                batch = await self._next_batch()
                closed = None in batch
                await self._send([item for item in batch if item is not None])
                for _ in batch:
                    self._queue.task_done()
        finally:
            _unheard_queues.discard(self)

    async def _next_batch(self) -> list[tuple[ExecutionReport, float] | None]:
        batch = [await self._queue.get()]
        if batch[0] is not None and self._may_wait(batch[0][0]):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHER_S):
                    batch.append(await self._queue.get())
        while not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    def _may_wait(self, report: ExecutionReport) -> bool:
        if report.kind == "done":
            return not self.idle()
        return report.kind in ("started", "progress")

    async def _send(self, batch: list[tuple[ExecutionReport, float]]) -> None:
        retry_s, backoff = FIRST_RETRY_S, ClientBackoff(math.inf, self.task_id, _backoffs)
        while batch and self.stream is not None:
            now_s = self.clock.now()
            reports = [replace(report, age_s=max(0.0, now_s - when_s)) for report, when_s in batch]
            try:
                async with asyncio.timeout(self.deadlines.report_s):
                    await self.stream.report(*reports)
            except Exception as error:  # also of the client's library
                if isinstance(error, TimelyError) and was_client_request_read(error):
                    await self._drop_refused(batch, error)
                    return
                self._note_failure(error)
                batch = [item for item in batch if item[0].kind != "progress"]
                is_there = isinstance(error, TimelyError) and error.code == UNKNOWN_TOKEN
                if is_there or isinstance(error, Overloaded | TimeoutError):
                    await asyncio.sleep(retry_s)
                    retry_s = min(2.0 * retry_s, LONGEST_RETRY_S)
                else:
                    await asyncio.sleep(backoff.delay_s(self.clock.now(), error, self.task_id))
            else:
                _unheard_queues.discard(self)
                return

    async def _drop_refused(self, batch: list[tuple[ExecutionReport, float]], error: TimelyError) -> None:
        """Send the reports of a refused batch alone, and drop one that is refused alone."""
        _unheard_queues.discard(self)  # a refusal is an answer
        if len(batch) == 1 or isinstance(error, UnknownName):
            # It knows the task no more, or refuses the report: sending it again changes nothing.
            with log_fields({"segment": batch[0][0].segment}):
                log.warning("task %s: the server refused a report: %s", self.task_id, error)
        else:
            # It may have refused one of them. A report that it took before changes nothing the second time.
            for item in batch:
                await self._send([item])

    def _note_failure(self, error: Exception) -> None:
        if not _unheard_queues:  # A server that is away for hours would fill the log.
            reason = str(error) or "too slow"
            log.warning("task %s: reports are repeated until the server takes them: %s", self.task_id, reason)
        _unheard_queues.add(self)
