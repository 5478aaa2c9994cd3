"""Services whose responses also reach clients that are still being discovered.

A request may come before the middleware knows where its client takes responses. Then rmw_fastrtps waits for
``MATCH_S``, in which rclpy keeps Python's lock, and drops the response. rclpy only warns, and the client waits for
ever. A client that gets a response twice ignores the second one.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from rclpy._rclpy_pybind11 import InvalidHandle, RCLError
from rclpy.node import Node
from rclpy.service import Service

MATCH_S = 0.1
"""A response that took less to send was sent."""
WAITS_S = (0.2, 0.4, 0.8, 1.6)
"""Before each repetition. They are few, since each may hold the whole process up for ``MATCH_S``."""


def create_ros_service(
    node: Node, kind: Any, name: str, answer: Callable[[Any, Any], Any], **options: Any
) -> Service:
    """A service of a node, which repeats a response that was dropped; one response of the service at a time."""
    service = node.create_service(kind, name, answer, **options)
    send, repeating = service.send_response, threading.Lock()

    def is_dropped(response: Any, header: Any) -> bool:
        began_s = time.monotonic()
        send(response, header)
        return time.monotonic() - began_s >= MATCH_S

    def repeat(response: Any, header: Any) -> None:
        try:
            for wait_s in WAITS_S:
                time.sleep(wait_s)
                if not is_dropped(response, header):
                    return
        except (InvalidHandle, RCLError):
            return  # the service was destroyed meanwhile
        finally:
            repeating.release()

    def send_or_repeat(response: Any, header: Any) -> None:
        if is_dropped(response, header) and repeating.acquire(blocking=False):
            try:
                threading.Thread(
                    target=repeat, args=(response, header), name=f"{name} again", daemon=True
                ).start()
            except RuntimeError:  # this process gets no more threads
                repeating.release()

    service.send_response = send_or_repeat
    return service
