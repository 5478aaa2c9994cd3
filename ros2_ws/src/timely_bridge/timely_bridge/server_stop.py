"""Follows the server's ``/v1/stop``: stops the fleet when the server says so, and acknowledges each robot."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from timely.core.errors import Conflict, EngineFailed, TimelyError
from timely.core.json_log import LOG_FIELDS, log_fields
from timely_bridge.fleet_stop import UNKNOWN, BridgeFleetStop

log = logging.getLogger(__name__)

ANSWER_S = 1.0
"""Deadline of the drivers' answers, for the first acknowledgement of each robot."""
FOLLOW_S = 0.25
"""How often changed states are acknowledged again while the stop is latched."""
PROBLEMS_S = 1.0
"""How often changed problems of robots are reported."""
RETRY_S = 5.0
"""Pause after the server has refused the stream."""


class BridgeServerStop:
    """One follower. A ``reset`` of the server ends the stops that it names, and no other.

    A stream that is opened again begins with the last reset, and the fleet may have been stopped otherwise since. A
    server without a stop (``clear``) changes nothing.

    Args:
        identity: of the bridge, so that no other bridge acknowledges its robots; empty if it has none.

    Attributes:
        refusal: what keeps the stream of the server's stop away, or why the server refuses that or an
            acknowledgement; else empty. Read anywhere.
        problems: robot -> what keeps it from its tasks, for those who watch the server. Written anywhere.
    """

    def __init__(
        self, client: Any, fleet: BridgeFleetStop, robots: Sequence[str], identity: str = ""
    ) -> None:
        self._client, self._fleet, self._robots = client, fleet, list(robots)
        self._identity = identity
        self.problems: Mapping[str, str] = {}
        self._reported_problems: Mapping[str, str] = {}
        """Those that the server has of the open stream."""
        self._orders = 0
        self._stream: Any = None
        self._stream_refusal = self._acknowledgement_refusal = ""

    @property
    def refusal(self) -> str:
        outage = self._stream.outage if self._stream is not None else ""
        reason = self._stream_refusal or outage
        return f"its stop does not reach the robots: {reason}" if reason else self._acknowledgement_refusal

    async def run(self) -> None:
        following: asyncio.Task[None] | None = None
        reporting = asyncio.create_task(self._report_problems(), name="robot problems")
        try:
            while True:
                try:
                    self._stream = self._client.stop_orders(self._robots, self._identity)
                    async for order in self._stream:
                        self._stream_refusal = self._acknowledgement_refusal = ""
                        # It may be the first of another stream, of which the server has no problems.
                        self._orders, self._reported_problems = self._orders + 1, {}
                        if following is not None:
                            following.cancel()
                        if order.kind == "stop":
                            self._fleet.server_stop = order.stop_id
                            following = asyncio.create_task(self._stop(order.stop_id), name="server stop")
                        elif order.kind == "reset" and self._fleet.server_stop in order.stop_ids:
                            if self._fleet.latch.own:
                                log.warning(
                                    "the fleet stays stopped: it was also stopped here; call %s",
                                    self._fleet.reset_service,
                                )
                                self._fleet.server_stop = ""
                                continue
                            # A stop that came together with its reset was not carried out.
                            last = self._fleet.stop_id
                            stop_id = last if last in order.stop_ids else self._fleet.server_stop
                            # A driver that does not answer must not delay the next stop.
                            following = asyncio.create_task(self._reset(stop_id), name="server reset")
                except TimelyError as error:
                    # It is tried again every few seconds, perhaps for days.
                    if str(error) != self._stream_refusal:
                        log.warning("the server does not let the bridge follow its stop: %s", error)
                    self._stream_refusal = str(error)
                except Exception:
                    log.exception("the bridge lost the server's stop, and follows it again")
                await asyncio.sleep(RETRY_S)
        finally:
            reporting.cancel()
            if following is not None:
                following.cancel()

    async def _report_problems(self) -> None:
        """Send each change, at most every ``PROBLEMS_S``; again where the server did not take it."""
        last_error = ""
        while True:
            await asyncio.sleep(PROBLEMS_S)
            orders, problems = self._orders, dict(self.problems)
            if not orders or problems == self._reported_problems:
                continue
            try:
                await self._client.report_robot_problems(problems)
            except Exception as error:  # also of the client's library
                if str(error) != last_error:  # It is tried again every few seconds, perhaps for days.
                    log.warning("the server did not take what keeps robots from their tasks: %s", error)
                last_error = str(error)
                await asyncio.sleep(RETRY_S)
            else:
                last_error = ""
                if orders == self._orders:
                    self._reported_problems = problems

    async def _call(self, function: Callable[..., dict[str, str]], **options: Any) -> dict[str, str]:
        """Call what waits for drivers on a thread of its own: a program may stop the fleet again and again."""
        answer: Future[dict[str, str]] = Future()

        def work() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(function(**options))
                except Exception as error:  # handed to the caller
                    answer.set_exception(error)

        try:
            threading.Thread(target=work, name="server stop call", daemon=True).start()
        except RuntimeError:  # the system gives this process no more threads
            work()  # it holds up this loop, but no stop at all is worse
        return await asyncio.wrap_future(answer)

    async def _reset(self, stop_id: str) -> None:
        """Release that stop: a later one may overtake this call. It runs as an asyncio task of its own."""
        LOG_FIELDS.set({"stop_id": stop_id})
        if complaints := await self._call(self._fleet.reset, stop_id=stop_id, by_server=True):
            log.warning("drivers that were not reset, call %s: %s", self._fleet.reset_service, complaints)

    async def _stop(self, stop_id: str) -> None:
        """Stop the fleet; acknowledge every robot, and each later change, until the stop is no longer latched.

        It runs as an asyncio task of its own.
        """
        LOG_FIELDS.set({"stop_id": stop_id})
        try:
            outcomes = await self._call(
                self._fleet.stop, deadline_s=ANSWER_S, stop_id=stop_id, by_server=True
            )
        except Exception:
            log.exception("the stop of the fleet is not known to have reached every driver, and is repeated")
            outcomes = self._fleet.outcomes()
        last_outcomes: dict[str, str] = {}
        unheard_robots: dict[str, str] = {}
        """With what the server refused; empty where it did not answer."""
        while True:
            for robot in list(outcomes):
                outcome = outcomes.get(robot, UNKNOWN)
                if last_outcomes.get(robot) == outcome:
                    continue
                try:
                    await self._client.acknowledge_stop(stop_id, robot, outcome)
                    last_outcomes[robot] = outcome
                    unheard_robots.pop(robot, None)
                except Conflict:
                    self._acknowledgement_refusal = ""
                    return
                except Exception as error:  # also of the client's library
                    if robot not in unheard_robots:  # It is tried again several times a second.
                        with log_fields({"robot": robot}):
                            log.warning("the server did not take the acknowledgement of %s: %s", robot, error)
                    refused = isinstance(error, TimelyError) and not isinstance(error, EngineFailed)
                    words = f"it refuses the acknowledgement of {robot}: {error}"
                    unheard_robots[robot] = words if refused else ""
                outcomes = self._fleet.outcomes()  # the server may have been slow
            self._acknowledgement_refusal = next(filter(None, unheard_robots.values()), "")
            await asyncio.sleep(FOLLOW_S)
            outcomes = self._fleet.outcomes()
