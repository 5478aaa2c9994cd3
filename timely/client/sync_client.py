"""The client of one server for programs without an event loop."""

from __future__ import annotations

import functools
import inspect
import ssl
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Concatenate, Self

import httpx

from timely.client.async_client import AsyncTimelyClient
from timely.client.async_stop import AsyncStopStream
from timely.client.async_stream import AsyncTaskStream
from timely.client.blocking import (
    Arguments,
    Blocking,
    BlockingTransport,
    Client,
    blocking,
    next_of_client_stream,
    run_client_coroutine,
)
from timely.client.events import Segment, StopOrder, TaskResult
from timely.client.pool import CONNECTIONS
from timely.client.tls import client_tls
from timely.core.clock import Clock


def _opening(
    method: Callable[Concatenate[Client, Arguments], Coroutine[Any, Any, AsyncTaskStream]],
) -> Callable[Concatenate[Blocking[Client], Arguments], TaskStream]:
    """A method of the client of asyncio that opens a stream."""

    @functools.wraps(method)
    def call(self: Blocking[Client], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> TaskStream:
        return TaskStream(run_client_coroutine(method(self._client, *args, **kwargs)))

    signature = inspect.signature(method).replace(return_annotation="TaskStream")
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


class TaskStream(Blocking[AsyncTaskStream]):
    """A plan: iterate for its segments. Reports may be made from any thread.

    The methods and errors are those of ``AsyncTaskStream``, without ``await``.
    """

    @property
    def task_id(self) -> str:
        """The id of the task on the server."""
        return self._client.task_id

    @property
    def token(self) -> str | None:
        """The task's token. It proves that reports come from the program that submitted the task."""
        return self._client.token

    @property
    def result(self) -> TaskResult:
        """How the plan ended; raises Conflict before that."""
        return self._client.result

    @property
    def ended(self) -> bool:
        return self._client.ended

    @property
    def last_event_id(self) -> int:
        """For ``TimelyClient.resume``."""
        return self._client.last_event_id

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Segment:
        return next_of_client_stream(self._client)

    replan = _opening(AsyncTaskStream.replan)
    report = blocking(AsyncTaskStream.report)
    report_started = blocking(AsyncTaskStream.report_started)
    report_progress = blocking(AsyncTaskStream.report_progress)
    report_done = blocking(AsyncTaskStream.report_done)
    report_failed = blocking(AsyncTaskStream.report_failed)
    report_value = blocking(AsyncTaskStream.report_value)
    cancel = blocking(AsyncTaskStream.cancel)
    close = blocking(AsyncTaskStream.close)
    __exit__ = blocking(AsyncTaskStream.__aexit__)


class StopStream(Blocking[AsyncStopStream]):
    """Iterate for ``StopOrder``; it ends only with ``close``."""

    @property
    def connected(self) -> bool:
        """The event stream is open. A bridge may show that the server cannot reach it."""
        return self._client.connected

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StopOrder:
        return next_of_client_stream(self._client)

    close = blocking(AsyncStopStream.close)


class TimelyClient(Blocking[AsyncTimelyClient]):
    """Talks to one server; may be shared by threads.

    The methods, arguments and errors are those of ``AsyncTimelyClient``, without ``await``.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        agent: str = "",
        timeout_s: float = 10.0,
        silence_s: float = 30.0,
        reconnect_s: float = 20.0,
        token: str | None = None,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        async def blocking_sleep(seconds: float) -> None:
            sleep(seconds)

        http = httpx.Client(transport=transport, limits=CONNECTIONS, verify=client_tls(verify))
        super().__init__(
            AsyncTimelyClient(
                url,
                agent=agent,
                timeout_s=timeout_s,
                silence_s=silence_s,
                reconnect_s=reconnect_s,
                token=token,
                transport=BlockingTransport(http),
                clock=clock,
                sleep=blocking_sleep,
            )
        )

    @property
    def agent(self) -> str:
        return self._client.agent

    @property
    def url(self) -> str:
        return self._client.url

    def stop_orders(self, agents: Iterable[str]) -> StopStream:
        """Follow the stop as the bridge of these robots; iterate for ``StopOrder``, the present state first.

        The stream opens a lost connection again until it is closed, and then repeats the present state.
        """
        return StopStream(self._client.stop_orders(agents))

    submit = _opening(AsyncTimelyClient.submit)
    replan = _opening(AsyncTimelyClient.replan)
    resume = _opening(AsyncTimelyClient.resume)
    report = blocking(AsyncTimelyClient.report)
    cancel = blocking(AsyncTimelyClient.cancel)
    task = blocking(AsyncTimelyClient.task)
    disciplines = blocking(AsyncTimelyClient.disciplines)
    set_urgency = blocking(AsyncTimelyClient.set_urgency)
    set_discipline = blocking(AsyncTimelyClient.set_discipline)
    stop_fleet = blocking(AsyncTimelyClient.stop_fleet)
    stop_state = blocking(AsyncTimelyClient.stop_state)
    reset_stop = blocking(AsyncTimelyClient.reset_stop)
    remove_stop_robots = blocking(AsyncTimelyClient.remove_stop_robots)
    acknowledge_stop = blocking(AsyncTimelyClient.acknowledge_stop)
    stats = blocking(AsyncTimelyClient.stats)
    skill_sets = blocking(AsyncTimelyClient.skill_sets)
    skill_set = blocking(AsyncTimelyClient.skill_set)
    robot_profiles = blocking(AsyncTimelyClient.robot_profiles)
    robot_profile = blocking(AsyncTimelyClient.robot_profile)
    health = blocking(AsyncTimelyClient.health)
    close = blocking(AsyncTimelyClient.close)
    __exit__ = blocking(AsyncTimelyClient.__aexit__)
