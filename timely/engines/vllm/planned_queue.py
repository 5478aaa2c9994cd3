"""The queue of waiting requests that stands in for vLLM's: vLLM sees the requests of the plan, in the plan's order.

vLLM admits from the front of ``waiting`` until a request does not fit. While a step is composed this queue shows
only the requests that the plan chose, so that vLLM's own loop admits just those. Every operation on one request
takes constant time, however many wait.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import Request


class VllmPlannedQueue(RequestQueue):  # type: ignore[misc]
    """Waiting requests by arrival, with a view of those chosen for the step in composition.

    Args:
        other_queue: vLLM's own queue for requests that no discipline orders, such as pooling requests.
    """

    def __init__(self, other_queue: RequestQueue) -> None:
        self._other_queue = other_queue
        self._planned_requests: dict[Request, None] = {}
        self._view: deque[Request] | None = None

    @contextmanager
    def showing(self, newcomers: Iterable[Request]) -> Iterator[None]:
        """Inside this context the queue yields only unplanned requests and those of ``newcomers``, in that order.

        Its length stays that of all: vLLM asks for it to tell whether prompts are left over.
        """
        self._view = deque(self._other_queue)
        self._view.extend(request for request in newcomers if request in self._planned_requests)
        try:
            yield
        finally:
            self._view = None

    def first(self, count: int) -> list[Request]:
        return list(islice(self._planned_requests, count))

    def __contains__(self, request: object) -> bool:
        return request in self._planned_requests or (
            len(self._other_queue) > 0 and request in list(self._other_queue)
        )

    def add_request(self, request: Request) -> None:
        if request.sampling_params is None:
            self._other_queue.add_request(request)
        else:
            self._planned_requests[request] = None

    def pop_request(self) -> Request:
        request = self.peek_request()
        if self._view is not None:
            self._view.popleft()
        self._remove(request)
        return request

    def peek_request(self) -> Request:
        for request in self:
            return request
        raise IndexError("the queue is empty")

    def prepend_request(self, request: Request) -> None:
        """A preempted request is not shown again in the step that preempted it."""
        if request.sampling_params is None:
            self._other_queue.prepend_request(request)
        else:
            self._planned_requests[request] = None

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.prepend_request(request)

    def remove_request(self, request: Request) -> None:
        """Raises ValueError: the request does not wait here."""
        if request not in self:
            raise ValueError(f"request {request.request_id} does not wait")
        self._remove(request)

    def remove_requests(self, requests: Iterable[Request]) -> None:
        for request in set(requests):
            if request in self:
                self._remove(request)

    def _remove(self, request: Request) -> None:
        if request in self._planned_requests:
            del self._planned_requests[request]
        else:
            self._other_queue.remove_request(request)

    def __bool__(self) -> bool:
        return len(self) > 0 if self._view is None else len(self._view) > 0

    def __len__(self) -> int:
        return len(self._planned_requests) + len(self._other_queue)

    def __iter__(self) -> Iterator[Request]:
        if self._view is not None:
            return iter(self._view)
        return iter([*self._other_queue, *self._planned_requests])
