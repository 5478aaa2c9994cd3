"""The service ``~/stop`` on a node, an executor and a thread of its own, so that nothing else can delay it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import rclpy
from rclpy.context import Context
from std_srvs.srv import Trigger

from timely_robots.ros.rclpy_utils import Spinner

ANSWER_S = 0.5
"""A stop that has not returned after so long is answered as unknown."""


class StopService:
    """Answers ``~/stop`` of the driver node ``name``.

    The answer is a success when ``stop`` has returned: the robot was commanded to halt, and the stop is latched. Each
    call runs on a fresh thread. So a vendor call that hangs in one stop delays neither its answer nor the next stop.

    Args:
        stop: halts the robot and latches the stop; raises an exception if it cannot.
    """

    def __init__(self, name: str, namespace: str, context: Context | None, stop: Callable[[], None]) -> None:
        self._stop = stop
        node = rclpy.create_node(
            f"{name}_stop", namespace=namespace, context=context, start_parameter_services=False
        )
        node.create_service(Trigger, f"{name}/stop", self._on_stop)
        self._context = node.context
        self._spinner = Spinner(
            node.context, [node], kind="single", name=f"{namespace} stop", owns_context=False
        )
        self._spinner.start()

    def close(self) -> None:
        """End the service."""
        self._spinner.close()

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        problems: list[str] = []

        def stop() -> None:
            try:
                self._stop()
            except Exception as error:  # every failure must reach the caller as one
                problems.append(str(error) or type(error).__name__)

        thread = threading.Thread(target=stop, name="stop", daemon=True)
        thread.start()
        thread.join(ANSWER_S)
        if thread.is_alive():
            problems.append(f"the robot's halt did not return within {ANSWER_S:g} s")
        response.success = not problems
        response.message = f"unknown: {problems[0]}" if problems else "halted; call ~/reset to go on"
        return response
