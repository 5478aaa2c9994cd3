"""A request queue for vLLM that keeps the plan's order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from vllm.v1.request import Request


class InOrder:
    """Stands in under ``--scheduling-policy priority``, whose own queue would re-sort.

    Args:
        order: request ids; those that it does not name come last, as they came.
    """

    def __init__(self, requests: Iterable[Request], order: Sequence[str]) -> None:
        rank = {request_id: position for position, request_id in enumerate(order)}
        self._queue: deque[Request] = deque(
            sorted(requests, key=lambda request: rank.get(request.request_id, len(rank)))
        )

    def add_request(self, request: Request) -> None:
        """Last."""
        self._queue.append(request)

    def pop_request(self) -> Request:
        """The first one, taken out."""
        return self._queue.popleft()

    def peek_request(self) -> Request:
        """The first one."""
        return self._queue[0]

    def prepend_request(self, request: Request) -> None:
        """First."""
        self._queue.appendleft(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Each first in its turn, as vLLM's queues do it."""
        self._queue.extendleft(requests)

    def remove_request(self, request: Request) -> None:
        """Raises ValueError: it is not here."""
        self._queue.remove(request)

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Those of them that are here."""
        gone = set(requests)
        self._queue = deque(request for request in self._queue if request not in gone)

    def __bool__(self) -> bool:
        return bool(self._queue)

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._queue)
