"""Requests for plans of robots that do not exist, more than a server can serve."""

import http.client
import json
import threading
import time
from urllib.parse import urlsplit

from timely_ros_bench.faults.motions import STALL_TOKENS

THREADS = 2
PAUSE_S = 0.01
"""Between two requests of a thread, seconds."""
ANSWER_S = 5.0
TASK = {"task": f"mf(20);@{STALL_TOKENS}", "skill_set": "drone", "robot": "tello"}


class FaultOverload:
    """Requests plans until ``end``. No program reads them, so the server cancels each after its grace."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._request_plans, args=(number,), name="overload", daemon=True)
            for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Request no more. Safe to call twice."""
        self._ended.set()
        for thread in self._threads:
            thread.join(2.0 * ANSWER_S)

    def _request_plans(self, number: int) -> None:
        count = 0
        while not self._ended.is_set():
            count += 1
            self._request_plan(f"load-{number}-{count}")
            time.sleep(PAUSE_S)

    def _request_plan(self, agent: str) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=ANSWER_S)
        try:
            body = json.dumps({**TASK, "agent": agent})
            connection.request("POST", "/v1/tasks", body, {"Content-Type": "application/json"})
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return  # the server is away, hangs or refuses connections
        finally:
            connection.close()
