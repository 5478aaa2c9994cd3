"""What the scheduler keeps of a request beside vLLM's own state, and how it tells others of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.request import Request

from timely.core.job import Job, Segment
from timely.engines.vllm.boundaries import BoundaryFinder

SHOWN_JOBS = 200
"""Most jobs that statistics list one by one."""


@dataclass(slots=True, eq=False)
class Tracked:
    """A request, its job in the table, and the segments closed so far."""

    request: Request
    job: Job
    task_id: str
    finder: BoundaryFinder | None
    segments: list[dict[str, Any]] = field(default_factory=list)
    suspensions: int = 0
    found_blocks: int = 0
    """While it waits: blocks of its context that the prefix cache holds."""
    evicted_context: int = 0
    """Tokens its KV cache held when it was last evicted: what is computed again below that is recomputation."""
    first_token_s: float | None = None
    discard: int = 0
    """Overshoot tokens of asynchronous scheduling to drop: they were sampled without the awaited value."""

    def closed(self, segment: Segment, now: float, *, last: bool) -> None:
        """A segment was closed; ``last``: with it the generation ends."""
        if self.job.spec.segmented and not last:
            self.suspensions += 1
        self.segments.append(
            {
                "index": segment.index,
                "text": segment.text,
                "tokens": segment.tokens,
                "ready_s": now,
                "execution_s": segment.execution_s,
                "due_s": segment.end_s,
                "blocking": segment.blocking and not last,
                "pace": segment.pace,
            }
        )

    def account(self, now: float, *, finished: bool) -> dict[str, Any]:
        """What goes out with its tokens: every segment, and at the end what the generation took."""
        account: dict[str, Any] = {"segments": self.segments}
        if finished:
            job = self.job
            account |= {
                "tail": self.finder.tail if self.finder is not None else "",
                "tokens": int(job.table.output_tokens[job.row]),
                "prompt_tokens": job.spec.prompt_tokens,
                "recomputed_tokens": job.recomputed_tokens,
                "preemptions": job.preemptions,
                "suspensions": self.suspensions,
                "first_token_s": self.first_token_s,
                "last_token_s": now,
            }
        return account

    def state(self, now: float) -> str:
        """``waiting``, ``running``, ``parked``, ``blocked`` (a value of its robot is awaited) or ``evicted``."""
        job, table = self.job, self.job.table
        if job.awaiting is not None:
            return "blocked"
        if not table.resident[job.row]:
            return "evicted" if job.preemptions else "waiting"
        return "parked" if float(table.resume_s[job.row]) > now else "running"

    def view(self, now: float) -> dict[str, Any]:
        """Its line in the statistics."""
        spec, row, table = self.job.spec, self.job.row, self.job.table
        grace = spec.hints.utility.ert_s if int(table.segment[row]) == 0 else 0.0
        return {
            "task_id": self.task_id,
            "agent": spec.hints.agent,
            "state": self.state(now),
            "segment": int(table.segment[row]),
            "slack_s": float(table.due_s[row]) + grace - now,
            "output_tokens": int(table.output_tokens[row]),
            "urgent": spec.hints.utility.urgent,
        }


def count_states(requests: Iterable[Tracked], now: float) -> dict[str, int]:
    """How many are in each state; those evicted wait, too."""
    counts = {"waiting": 0, "running": 0, "parked": 0, "blocked": 0, "evicted": 0}
    for tracked in requests:
        counts[tracked.state(now)] += 1
    counts["waiting"] += counts.pop("evicted")
    return counts
