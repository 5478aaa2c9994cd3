"""The bridge's lease on one robot: acquired from the driver, renewed every second, named in every segment."""

import time
from typing import Any

from rclpy.lifecycle import LifecycleNode
from timely_interfaces.msg import Lease, RobotState
from timely_interfaces.srv import AcquireLease

from timely_bridge.error_codes import BridgeTaskError

RETRY_S = 0.5
"""A request without an answer for so long is sent again, and so is one after a refusal."""


class BridgeRobotLease:
    """Two bridges cannot move one robot: its driver executes segments of the lease's owner only.

    ``check`` runs on the executor's thread, ``renew`` on any thread.

    Args:
        owner: unique for each bridge. One that takes goals of an earlier life up has that life's name.
    """

    def __init__(self, node: LifecycleNode, robot: str, driver_node: str, owner: str) -> None:
        self.owner = owner
        self.epoch = 0
        """The fencing token; 0 without a lease."""
        self.refusal: BridgeTaskError | None = None
        """Why the driver did not grant the lease; None if it did, or did not answer yet."""
        self._node = node
        self._session = 0
        self._requested_s = -1e9
        self._request: Any = None
        self._client = node.create_client(AcquireLease, f"{robot}/{driver_node}/acquire_lease")
        self._publisher = node.create_publisher(Lease, f"{robot}/lease", 10)
        self._closed = False

    @property
    def is_held(self) -> bool:
        """The driver has granted the lease, and no other client has it since."""
        return self.epoch > 0

    def observe(self, state: RobotState) -> None:
        """Take the driver's state: another owner, or another start of the driver, ends the lease."""
        is_restarted = state.session != self._session
        is_taken = state.lease_epoch > self.epoch
        if self.is_held and (is_restarted or is_taken):
            self.epoch = 0
        if is_restarted:
            # An answer of the earlier start may still be on its way here; its epoch is worth nothing now.
            self._session, self._request = state.session, None

    def check(self) -> None:
        now_s = time.monotonic()
        if self.is_held or self._closed or now_s - self._requested_s < RETRY_S:
            return
        if not self._client.service_is_ready():
            return
        if self._request is not None:
            self._client.remove_pending_request(self._request)
        self._requested_s = now_s
        self._request = self._client.call_async(AcquireLease.Request(owner=self.owner))
        self._request.add_done_callback(self._on_answer)

    def renew(self) -> None:
        if self.is_held and not self._closed:
            self._publish(released=False)

    def destroy(self) -> None:
        if self.is_held:
            self._publish(released=True)
        self._closed = True
        self._node.destroy_client(self._client)
        self._node.destroy_publisher(self._publisher)

    def _on_answer(self, request: Any) -> None:
        answer = request.result()
        if answer is None or self._closed or request is not self._request:
            return
        self.epoch = answer.epoch if answer.granted else 0
        self.refusal = None if answer.granted else BridgeTaskError(answer.error_code, answer.message)
        self.renew()

    def _publish(self, *, released: bool) -> None:
        message = Lease(owner=self.owner, epoch=self.epoch, released=released)
        message.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)
