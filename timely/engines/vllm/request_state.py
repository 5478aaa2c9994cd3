"""What the scheduler keeps of a request beside vLLM's own state, and the account that goes out with its tokens."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from vllm.v1.request import Request

from timely.core.job import Job, Segment
from timely.engines.base import JobState, SegmentReady
from timely.engines.vllm.boundaries import ClosedText, VllmBoundaryFinder

_SENT_FIELDS = tuple(entry.name for entry in fields(SegmentReady) if entry.name != "task_id")
"""Of a segment in the account; ``asdict`` would copy each and take several times as long."""


@dataclass(slots=True, eq=False)
class VllmRequestState:
    """A request, its job in the table, and the segments closed so far."""

    request: Request
    job: Job
    task_id: str
    boundaries: VllmBoundaryFinder | None
    segments: list[dict[str, Any]] = field(default_factory=list)
    sent_segments: int = 0
    """Segments that have gone out with an earlier output."""
    has_account: bool = True
    """False for an ordinary request of an HTTP client, who would see the account in the answer."""
    suspensions: int = 0
    cached_blocks: int = 0
    """While the request waits: leading blocks of its context that the prefix cache holds."""
    missing_block: bytes | None = None
    """Key of the first block that the prefix cache did not hold, if there is one."""
    shared_blocks: int = 0
    """While the request holds blocks: how many leading ones other requests held when last counted."""
    evicted_context_tokens: int = 0
    """Length of its KV cache at the last eviction; tokens computed again below it are recomputation."""
    first_token_s: float | None = None
    segment_first_token_s: float | None = None
    """When the first token of the open segment came."""
    segment_steps: int = 0
    """Steps that gave tokens of the open segment."""
    eligible_step: int | None = None
    """While parked: vLLM's own ``next_decode_eligible_step``, to be restored."""
    awaits_value: bool = False
    """A blocking segment was closed and its value is not in the context yet; tokens sampled now are void."""
    values: list[str] = field(default_factory=list)
    """Values that came while a step of this request was in flight."""
    token_ids: list[int] = field(default_factory=list)
    """Generated since the last boundary."""
    new_boundaries: list[tuple[ClosedText, int, Sequence[int]]] = field(default_factory=list)
    """Boundaries in the tokens of this step, each with its position among them and the tokens of its segment."""
    is_whole: bool = False
    """Mode ``whole``: the plan is one segment, which closes when the generation ends."""
    parts: list[tuple[ClosedText, int]] = field(default_factory=list)
    """Mode ``whole``: the segments so far, and how many of ``token_ids`` there were at the end of each."""

    def note_boundary(self, closed_text: ClosedText, position: int) -> None:
        """A boundary behind the newest of ``token_ids``; ``position`` is its place in the tokens of this step."""
        if self.is_whole:
            self.parts.append((closed_text, len(self.token_ids)))
            return
        self.new_boundaries.append((closed_text, position, self.token_ids))
        self.token_ids = []

    def take_boundaries(
        self, step_tokens: int, *, finished: bool, truncated: bool
    ) -> list[tuple[ClosedText, int, Sequence[int]]]:
        """The segments to close after a step of so many tokens.

        Args:
            finished: the generation ends with it.
            truncated: it does so before the plan does.
        """
        if finished and self.boundaries is not None:
            rest = self.boundaries.finish(truncated=truncated)
            if rest is not None:
                self.note_boundary(rest, step_tokens)
        boundaries, self.new_boundaries = self.new_boundaries, []
        if finished and self.parts:
            texts, count = [part for part, _ in self.parts], self.parts[-1][1]
            plan = ClosedText(
                "".join(part.text for part in texts), sum(part.execution_s for part in texts), False
            )
            boundaries.append((plan, step_tokens - len(self.token_ids) + count, self.token_ids[:count]))
        return boundaries

    def note_tokens(self, now: float) -> None:
        """A step gave tokens of the open segment."""
        self.segment_steps += 1
        if self.segment_first_token_s is None:
            self.segment_first_token_s = now

    def record(
        self, segment: Segment, token_ids: Sequence[int], *, surplus_tokens: int, ends: bool, last: bool
    ) -> None:
        """A segment was closed.

        Args:
            token_ids: its tokens; a restarted engine goes on behind them.
            surplus_tokens: tokens of the same step that already belong to the next segment.
            ends: the generation ends with the same step.
            last: no other segment follows.
        """
        if self.job.spec.segmented and not ends:
            self.suspensions += 1
        ready = SegmentReady.of(
            self.task_id,
            segment,
            blocking=segment.blocking and not ends,
            token_ids=token_ids,
            last=last,
            steps=self.segment_steps,
            first_token_s=self.segment_first_token_s,
        )
        self.segment_steps, self.segment_first_token_s = 0, None
        if surplus_tokens:
            self.note_tokens(segment.ready_s)
        self.segments.append({name: getattr(ready, name) for name in _SENT_FIELDS})

    def account(self, now: float, *, finished: bool) -> dict[str, Any]:
        """All segments so far, and at the end what the generation took."""
        self.sent_segments = len(self.segments)
        account: dict[str, Any] = {"segments": self.segments}
        if finished:
            job = self.job
            account |= {
                "tail": self.boundaries.tail if self.boundaries is not None else "",
                "tokens": int(job.table.output_tokens[job.row]),
                "prompt_tokens": job.spec.prompt_tokens,
                "recomputed_tokens": job.recomputed_tokens,
                "preemptions": job.preemptions,
                "suspensions": self.suspensions,
                "first_token_s": self.first_token_s,
                "last_token_s": now,
            }
        return account

    def state(self, now: float) -> JobState:
        """``waiting``, ``running``, ``parked``, ``blocked`` (awaits a value of its robot) or ``evicted``."""
        job, table = self.job, self.job.table
        if job.awaiting is not None:
            return "blocked"
        if not table.resident[job.row]:
            return "evicted" if job.preemptions else "waiting"
        return "parked" if float(table.resume_s[job.row]) > now else "running"


class VllmLiveRequests:
    """States of the live requests, by request id and by task."""

    def __init__(self) -> None:
        self._states: dict[str, VllmRequestState] = {}
        self.get: Callable[[str], VllmRequestState | None] = self._states.get
        """The state of a live request, or None."""
        self.with_boundaries: dict[str, VllmRequestState] = {}
        """Those whose tokens are searched for segment boundaries, by request id."""
        self._by_task: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[VllmRequestState]:
        """By arrival."""
        return iter(self._states.values())

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._states

    def __getitem__(self, request_id: str) -> VllmRequestState:
        return self._states[request_id]

    def select(self, request_ids: Iterable[str]) -> list[VllmRequestState]:
        return [state for state in map(self._states.get, request_ids) if state is not None]

    def requests(self, request_ids: Iterable[str]) -> list[Request]:
        """vLLM's own state of live requests, in this order."""
        return [self._states[request_id].request for request_id in request_ids]

    def of_task(self, task_id: str) -> list[str]:
        """Request ids of a task, the first to arrive first; an ordinary request with ``n`` > 1 has several."""
        return list(self._by_task.get(task_id, ()))

    def add(self, state: VllmRequestState) -> None:
        request_id = state.request.request_id
        self._states[request_id] = state
        if state.boundaries is not None:
            self.with_boundaries[request_id] = state
        self._by_task.setdefault(state.task_id, []).append(request_id)

    def remove(self, request_id: str) -> None:
        """A request is over; one that was never added is ignored."""
        state = self._states.pop(request_id, None)
        self.with_boundaries.pop(request_id, None)
        if state is not None:
            siblings = self._by_task[state.task_id]
            siblings.remove(request_id)
            if not siblings:
                del self._by_task[state.task_id]
