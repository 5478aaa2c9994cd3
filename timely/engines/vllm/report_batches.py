"""Reports on their way to vLLM's engine: those that come while an earlier call waits for its answer go in one call.

A call wakes two further threads of the engine's process, which takes several times as long as the report itself. It is
answered between two steps, so robots of a busy engine send several reports in that time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
        self._last_call: asyncio.Task[Answers] | None = None

    async def send(self, event: Mapping[str, Any], *, at_once: bool) -> Answers:
        """Send a report with those that wait; returns its answers.

        Args:
            at_once: it does not wait for the answer to an earlier call: a generation waits for its value.
        """
        batch = self._open
        if batch is None:
            batch = self._open = _VllmReportBatch()
            if self._last_call is None or self._last_call.done():
                batch.is_due.set()
            else:
                is_due = batch.is_due
                self._last_call.add_done_callback(lambda _: is_due.set())
            batch.call = self._last_call = asyncio.create_task(self._call(batch))
        assert batch.call is not None
        place = len(batch.events)
        batch.events.append(event)
        if at_once:
            batch.is_due.set()
        return [answer["answers"][place] for answer in await asyncio.shield(batch.call)]

    async def _call(self, batch: _VllmReportBatch) -> Answers:
        try:
            await batch.is_due.wait()
        finally:
            self._open = None
        return await self._control({"kind": "reports", "reports": batch.events})
