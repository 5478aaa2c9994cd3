"""Reports on their way to vLLM's engine: those that come while an earlier call waits for its answer go in one call.

A call wakes two further threads of the engine's process, which takes several times as long as the report itself. It is
answered between two steps, so robots of a busy engine send several reports in that time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

from timely.core.errors import EngineDied

MAX_WAIT_S = 0.25
"""Longest wait for the answer to an earlier call, seconds: an engine that has died answers none."""

Answers = list[dict[str, Any]]
"""One of each engine."""


@dataclass(slots=True, eq=False)
class _VllmReportBatch:
    """Reports that leave together, once ``is_due`` is set."""

    is_due: asyncio.Event = field(default_factory=asyncio.Event)
    events: list[Mapping[str, Any]] = field(default_factory=list)
    call: asyncio.Task[Answers] | None = None


class VllmReportBatches:
    """Sends reports in the order in which they come.

    Args:
        control: sends a control event and returns the answers of all engines.
    """

    def __init__(self, control: Callable[[Mapping[str, Any]], Awaitable[Answers]]) -> None:
        self._control = control
        self._open: _VllmReportBatch | None = None
        """Takes further reports."""
        self._calls: set[asyncio.Task[Answers]] = set()

    async def send(self, event: Mapping[str, Any], *, at_once: bool) -> Answers:
        """Send a report with those that wait; returns its answers.

        Args:
            at_once: it does not wait for the answer to an earlier call: a generation waits for its value.

        Raises:
            EngineDied: the engine ended meanwhile.
        """
        batch = self._open
        if batch is None:
            batch = self._open = _VllmReportBatch()
            if not self._calls:
                batch.is_due.set()
            else:
                asyncio.get_running_loop().call_later(MAX_WAIT_S, batch.is_due.set)
            # The call is of several tasks, so its log lines name none of them.
            batch.call = asyncio.create_task(self._call(batch), context=Context())
            self._calls.add(batch.call)
            batch.call.add_done_callback(self._end)
        assert batch.call is not None
        place = len(batch.events)
        batch.events.append(event)
        if at_once:
            batch.is_due.set()
        try:
            answers = await asyncio.shield(batch.call)
        except asyncio.CancelledError:
            if batch.call.cancelled():
                raise EngineDied("it ends", where="engine") from None
            raise
        return [answer["answers"][place] for answer in answers]

    async def _call(self, batch: _VllmReportBatch) -> Answers:
        await batch.is_due.wait()
        if self._open is batch:
            self._open = None
        return await self._control({"kind": "reports", "reports": batch.events})

    def _end(self, call: asyncio.Task[Answers]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # those that sent its reports may all have given up
        if self._open is not None:
            self._open.is_due.set()

    def close(self) -> None:
        """Cancel the calls: the engine ends."""
        self._open = None
        for call in self._calls:
            call.cancel()
