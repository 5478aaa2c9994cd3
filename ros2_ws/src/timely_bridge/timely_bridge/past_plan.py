"""A plan of an earlier life of the bridge: what is known of it, and how it goes on without a segment sent twice."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from timely_interfaces.msg import ErrorCode

from timely.client import AsyncTimelyClient
from timely.client.problems import was_client_request_read
from timely.core.errors import TimelyError, UnknownName
from timely_bridge.driver_port import wait_in_bridge_polls
from timely_bridge.error_codes import BridgeTakeUpError, BridgeTaskError, bridge_fleet_stop_error
from timely_bridge.interfaces import BridgeDriver, BridgePlanStream, BridgeSegment, SegmentExecution

log = logging.getLogger(__name__)

RETRY_S = 0.5
"""Between two attempts to follow a plan at a server that is not there yet."""
INTERRUPTED_CODES = (ErrorCode.NOT_OWNER, ErrorCode.SEGMENT_CANCELLED)
"""Driver or server gave the plan up while the bridge was away; another plan goes on from what was executed."""


@dataclass(frozen=True, slots=True)
class PastBridgePlan:
    """A plan of an earlier life of the bridge.

    Attributes:
        token: the server's token of the task.
        began: its driver may have segments of it.
        session: of that driver.
        executions: executions that have ended, by segment.
        active: the bridge takes goals.
    """

    token: str
    began: bool
    session: int
    executions: Mapping[int, SegmentExecution]
    active: Callable[[], bool] = lambda: True

    async def follow(
        self,
        task_id: str,
        agent: str,
        client: AsyncTimelyClient,
        driver: BridgeDriver,
        driver_s: float,
        until_s: float,
    ) -> BridgePlanStream | None:
        """Follow the plan at the server again, from its first segment; None if the server never got it.

        Args:
            driver_s: longest wait for the driver, seconds.
            until_s: when the caller gives up, seconds on the loop's clock. The last refusal is raised before.

        Raises:
            BridgeTakeUpError: the bridge is not active, its driver does not answer, the robot was stopped, or the
                server has no such task.
            TimelyError: the server refuses the request, or did not take it in time.
        """
        if not await wait_in_bridge_polls(self.active, driver_s):
            raise BridgeTakeUpError("it was not activated")
        if self.began:
            if not await driver.ready(driver_s):
                raise BridgeTakeUpError(str(driver.refusal or "its driver does not answer"))
            if driver.stopped:
                raise BridgeTakeUpError("the robot was stopped")
        is_noted = False
        while True:
            try:
                stream: BridgePlanStream = await client.resume(task_id, token=self.token, agent=agent)
            except UnknownName:
                if self.began:
                    raise BridgeTakeUpError("the server no longer has the task") from None
                return None
            except TimelyError as error:
                is_last = asyncio.get_running_loop().time() + RETRY_S >= until_s
                if is_last or was_client_request_read(error):
                    raise
                if not is_noted:  # It is tried again twice a second.
                    log.warning("task %s goes on once the server can be asked for it: %s", task_id, error)
                is_noted = True
                await asyncio.sleep(RETRY_S)
            else:
                return stream

    def recall(self, sent_segment: BridgeSegment, driver: BridgeDriver) -> None:
        """Mark a segment that was executed before, or that its driver may have.

        Raises:
            BridgeTakeUpError: the driver was started again. It no longer knows how far it executed the plan.
        """
        execution = self.executions.get(sent_segment.segment.index)
        if execution is not None:
            sent_segment.started.set_result(execution.end_s - execution.elapsed_s)
            sent_segment.ended.set_result(execution)
        elif self.began:
            if driver.session != self.session:
                raise BridgeTakeUpError("its driver was started again")
            sent_segment.again = True


def check_bridge_plan_stop(result: Any) -> None:
    """Raise BridgeTaskError if a stop of the fleet ended the plan: its motions end as well.

    The order to stop has a connection of its own, which may be slower or cut.
    """
    if result.data.get("cause") == "fleet_stop":
        raise bridge_fleet_stop_error()


def check_bridge_plan_result(result: Any) -> None:
    """Raise BridgeTaskError if the server cancelled the plan: on request, or because this bridge was away for long."""
    if result.outcome == "complete":
        return
    if result.data.get("cause") == "no_reader":
        raise BridgeTaskError(
            ErrorCode.SEGMENT_CANCELLED, "the server ended the plan while the bridge was away"
        )
    raise BridgeTaskError(ErrorCode.CANCELLED, "the plan was cancelled at the server")
