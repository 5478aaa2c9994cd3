"""Services whose responses also reach clients that are still being discovered.

A request may come before the middleware knows where its client takes responses. Then rmw_fastrtps waits for
``MATCH_S``, in which rclpy keeps Python's lock, and drops the response. rclpy only warns, and the client waits for
ever. A client that gets a response twice ignores the second one.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rclpy._rclpy_pybind11 import InvalidHandle, RCLError
from rclpy.node import Node
from rclpy.service import Service

MATCH_S = 0.1
"""A response that took less to send was sent."""
WAITS_S = (0.2, 0.4, 0.8, 1.6)
"""Before each repetition. They are few, since each may hold the whole process up for ``MATCH_S``."""


MAX_DROPPED = 8
"""Responses of a service that wait to be repeated; another one takes the place of the oldest."""


def create_ros_service(
    node: Node, kind: Any, name: str, answer: Callable[[Any, Any], Any], **options: Any
) -> Service:
    """A service of a node, which repeats responses that were dropped."""
    service = node.create_service(kind, name, answer, **options)
    service.send_response = _RosResponses(service.send_response, name).send
    return service


class _RosResponses:
    """Sends the responses of a service, and those that were dropped again, in turn, on a thread while there are any."""

    def __init__(self, send: Callable[[Any, Any], None], name: str) -> None:
        self._send = send
        self._name = name
        self._dropped: deque[tuple[Any, Any, int]] = deque(maxlen=MAX_DROPPED)
        """Response, header, and how often it was repeated."""
        self._lock = threading.Lock()
        self._is_repeating = False

    def send(self, response: Any, header: Any) -> None:
        if not self._was_dropped(response, header):
            return
        with self._lock:
            self._dropped.append((response, header, 0))
            if self._is_repeating:
                return
            self._is_repeating = True
        try:
            threading.Thread(target=self._repeat, name=f"{self._name} again", daemon=True).start()
        except RuntimeError:  # this process gets no more threads
            self._is_repeating = False

    def _was_dropped(self, response: Any, header: Any) -> bool:
        began_s = time.monotonic()
        self._send(response, header)
        return time.monotonic() - began_s >= MATCH_S

    def _repeat(self) -> None:
        while True:
            with self._lock:
                if not self._dropped:
                    self._is_repeating = False
                    return
                response, header, repeats = self._dropped.popleft()
            time.sleep(WAITS_S[repeats])
            try:
                is_dropped = self._was_dropped(response, header)
            except (InvalidHandle, RCLError):
                return  # the service was destroyed meanwhile
            if is_dropped and repeats + 1 < len(WAITS_S):
                with self._lock:
                    self._dropped.append((response, header, repeats + 1))
