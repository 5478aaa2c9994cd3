"""The client for asyncio programs: what ``timely.client.sync_client`` does, with ``await`` and ``async for``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

import httpx

from timely.client.pool import CONNECTIONS
from timely.client.protocol import (
    Backoff,
    EventDecoder,
    PlanState,
    Segment,
    ServerEvent,
    TaskResult,
    Utility,
    bearer,
    error_from_response,
    path,
    replan_body,
    report_of,
    reports_body,
    task_body,
)
from timely.core.clock import Clock, SystemClock
from timely.core.errors import Conflict, EngineFailed
from timely.core.reports import ExecutionReport

Headers = Mapping[str, str]


class AsyncTimelyClient:
    """Talks to one server; may be shared by the tasks of one loop.

    Args:
        url: of the server, ``http://HOST:PORT``.
        agent: name of this robot, unless a task gives another.
        timeout_s: longest wait for an answer, seconds.
        silence_s: longest silence of an event stream before it is taken for lost, seconds; more than the server's
            keep-alive interval.
        reconnect_s: how long a lost connection is tried to be got back, seconds.
        transport: for tests.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        agent: str = "",
        timeout_s: float = 10.0,
        silence_s: float = 30.0,
        reconnect_s: float = 20.0,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.agent = agent
        self.url = url
        self._http = httpx.AsyncClient(
            base_url=url, timeout=timeout_s, transport=transport, limits=CONNECTIONS
        )
        self._stream_timeout = httpx.Timeout(timeout_s, read=silence_s)
        self._reconnect_s = reconnect_s
        self._clock: Clock = clock or SystemClock()
        self._sleep = sleep

    async def __aenter__(self) -> AsyncTimelyClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; plans in progress are given up by the server after a while."""
        await self._http.aclose()

    # ------------------------------------------------------------------ plans

    async def submit(
        self,
        task: str,
        *,
        skill_set: str,
        robot: str | None = None,
        scene: str = "",
        history: str = "",
        utility: Utility = "normal",
        agent: str | None = None,
        app: str | None = None,
        urgency: int | None = None,
        deadline_s: float | None = None,
        max_tokens: int | None = None,
        network_s: float | None = None,
        **options: Any,
    ) -> AsyncTaskStream:
        """Ask for a plan; returns as soon as the server has accepted the task.

        Args:
            task: what is to be done, in words; ``scene`` what the robot sees; ``history`` what a re-plan follows.
            skill_set, robot: names known to the server; the skill set may have a robot of its own.
            utility: how the value of the answer falls with time.
            agent: name of the robot; urgency: 0 (most) to 4; app: the LLM application it belongs to.
            deadline_s: give up after so long, seconds.
            network_s: one-way delay between server and robot, seconds.
            options: further fields of ``POST /v1/tasks`` (``priority``, ``temperature``, ``seed``).

        Raises:
            InvalidInput: unusable or unknown. TooLarge, Overloaded: refused. EngineFailed: no server, no engine.
        """
        body = task_body(
            task,
            skill_set=skill_set,
            robot=robot,
            scene=scene,
            history=history,
            utility=utility,
            agent=self.agent if agent is None else agent,
            app=app,
            urgency=urgency,
            options={"deadline_s": deadline_s, "max_tokens": max_tokens, "network_s": network_s, **options},
        )
        stream = AsyncTaskStream(
            self, str(body["id"]), str(body["agent"]), str(body["report_token"]), PlanState()
        )
        await stream._begin(body)
        return stream

    async def replan(
        self,
        task_id: str,
        reason: str = "",
        *,
        scene: str | None = None,
        task: str | None = None,
        executed: str | None = None,
        utility: Utility = "urgent",
        deadline_s: float | None = None,
        agent: str | None = None,
        token: str | None = None,
        id: str | None = None,
    ) -> AsyncTaskStream:
        """Give up what is left of a plan and get another that knows what was planned and done.

        Args:
            reason: why, in words; left out, what the robot reported when it failed.
            scene: what the robot sees now; task: what it is to do now; left out, they stay as they were.
            executed: what the robot did; left out, the segments it reported done.
            utility: how the value of the new plan falls with time.
            deadline_s: give up after so long, seconds.
            agent, token: whose task it is, as for reports; id: of the new task.

        Raises:
            UnknownName: no such task. NotAllowed: it is another's. Conflict: it was re-planned before, or ``id`` is in
            use. Others: as ``submit``.
        """
        who = self.agent if agent is None else agent
        body = replan_body(
            who,
            id=id,
            reason=reason,
            scene=scene,
            task=task,
            executed=executed,
            utility=utility,
            deadline_s=deadline_s,
        )
        stream = AsyncTaskStream(self, str(body["id"]), who, str(body["report_token"]), PlanState())
        await stream._begin(body, path("tasks", task_id, "replan"), bearer(token))
        return stream

    async def resume(
        self, task_id: str, *, token: str | None = None, agent: str | None = None, after: int = 0
    ) -> AsyncTaskStream:
        """Follow a task again, after a restart of this program, say: from event ``after`` (0: from the start).

        Raises:
            UnknownName: the server does not know it (any more).
        """
        state = PlanState(after=after, next_index=None if after else 0)
        stream = AsyncTaskStream(self, task_id, self.agent if agent is None else agent, token, state)
        await stream._begin(None)
        return stream

    async def report(
        self,
        task_id: str,
        reports: ExecutionReport | Iterable[ExecutionReport],
        *,
        agent: str | None = None,
        token: str | None = None,
    ) -> dict[str, Any]:
        """Tell what the robot did; repeats are harmless, and a lost connection is tried once more.

        Raises:
            NotAllowed: the task is another's. Conflict: no such segment was sent. UnknownName: no such task.
        """
        who = (self.agent if agent is None else agent) if token is None else None
        body = reports_body(reports, who)
        return await self._again("POST", path("tasks", task_id, "reports"), json=body, headers=bearer(token))

    async def cancel(self, task_id: str) -> dict[str, Any]:
        """Stop generating a plan; a second call changes nothing.

        Raises:
            UnknownName: no such task.
        """
        return await self._again("DELETE", path("tasks", task_id))

    async def task(self, task_id: str) -> dict[str, Any]:
        """State, segments with their times, and measures of a task.

        Raises:
            UnknownName: no such task.
        """
        return await self._again("GET", path("tasks", task_id))

    # ------------------------------------------------------------------ the server

    async def disciplines(self) -> dict[str, Any]:
        """``current``, and ``disciplines``: name, summary, source, needs ... of each."""
        return await self._again("GET", "/v1/disciplines")

    async def set_urgency(
        self, task_id: str, urgency: int, *, operator: str, reason: str = ""
    ) -> dict[str, Any]:
        """An operator's word on what is being generated: 0 (most urgent) to 4, signed, kept in the event log.

        Args:
            task_id: of a task, or the ``id`` of a chat answer.

        Raises:
            UnknownName: nothing of that name is being generated. Conflict: its plan is complete.
            InvalidInput: no such level, or nobody signs for it.
        """
        word = {"urgency": urgency, "operator": operator, "reason": reason}
        return await self._again("PUT", path("tasks", task_id, "urgency"), json=word)

    async def set_discipline(self, name: str) -> dict[str, Any]:
        """Switch the queue discipline while serving; returns what ``disciplines`` does.

        Raises:
            UnknownName: no such discipline.
        """
        return await self._again("PUT", "/v1/disciplines", json={"name": name})

    async def stats(self) -> dict[str, Any]:
        """What the live page shows: server, engine, robots, classes, recent tasks."""
        return await self._again("GET", "/v1/status")

    async def skill_sets(self) -> list[str]:
        """Names of the skill sets."""
        return list((await self._again("GET", "/v1/skill_sets"))["skill_sets"])

    async def skill_set(self, name: str) -> dict[str, Any]:
        """One skill set.

        Raises:
            UnknownName: no such skill set.
        """
        return await self._again("GET", path("skill_sets", name))

    async def robot_profiles(self) -> list[str]:
        """Names of the robot profiles."""
        return list((await self._again("GET", "/v1/robot_profiles"))["robot_profiles"])

    async def robot_profile(self, name: str) -> dict[str, Any]:
        """One robot profile.

        Raises:
            UnknownName: no such profile.
        """
        return await self._again("GET", path("robot_profiles", name))

    async def health(self) -> dict[str, Any]:
        """Whether tasks are taken.

        Raises:
            Overloaded: the server is shutting down. EngineFailed: no server, or its engine is gone.
        """
        return await self._again("GET", "/healthz")

    # ------------------------------------------------------------------ requests

    async def _again(
        self, method: str, url: str, *, json: Any = None, headers: Headers | None = None
    ) -> dict[str, Any]:
        """A request that may be repeated without harm: tried once more when the connection breaks."""
        try:
            return await self._request(method, url, json, headers)
        except httpx.TransportError:
            pass
        try:
            return await self._request(method, url, json, headers)
        except httpx.TransportError as error:
            raise EngineFailed(f"{type(error).__name__}: {error}", where=self.url) from error

    async def _request(self, method: str, url: str, json: Any, headers: Headers | None) -> dict[str, Any]:
        response = await self._http.request(method, url, json=json, headers=headers)
        if not response.is_success:
            raise error_from_response(response.status_code, response.content)
        data = response.json()
        return data if isinstance(data, dict) else {"data": data}

    async def _open(self, method: str, url: str, json: Any, headers: Headers) -> httpx.Response:
        """A streamed response; an error response is raised."""
        request = self._http.build_request(
            method, url, json=json, headers=headers, timeout=self._stream_timeout
        )
        response = await self._http.send(request, stream=True)
        if response.is_success:
            return response
        try:
            raise error_from_response(response.status_code, await response.aread())
        finally:
            await response.aclose()


class AsyncTaskStream:
    """A plan on its way: iterate for its segments. Reports may be made from any task of the loop.

    Attributes:
        task_id: how the server knows it.
        token: proves that reports on it are ours; None: the agent name has to do.
    """

    def __init__(
        self, client: AsyncTimelyClient, task_id: str, agent: str, token: str | None, state: PlanState
    ) -> None:
        self.task_id = task_id
        self.token = token
        self._client = client
        self._agent = agent
        self._state = state
        self._backoff = Backoff(client._reconnect_s)
        self._response: httpx.Response | None = None
        self._events: AsyncGenerator[ServerEvent, None] = _nothing()
        self._ended = False

    async def _begin(
        self, body: Mapping[str, Any] | None, url: str = "/v1/tasks", headers: Headers | None = None
    ) -> None:
        """Open the stream; a refusal is raised here."""
        if body is None:
            await self._connect("GET", path("tasks", self.task_id, "events"), None)
            return
        try:
            await self._connect("POST", url, body, headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise EngineFailed(f"cannot connect: {error}", where=self._client.url) from error
        except httpx.TransportError as error:
            await self._retry_submit(url, body, headers, error)

    async def _retry_submit(
        self, url: str, body: Mapping[str, Any], headers: Headers | None, error: Exception
    ) -> None:
        """The connection broke before the answer: ask again; the id says whether the server has the task."""
        while True:
            await self._pause(error)
            try:
                await self._connect("POST", url, body, headers)
            except Conflict:
                return  # it arrived the first time: the iteration follows it by its id
            except httpx.TransportError as again:
                error = again
            else:
                return

    async def _connect(
        self, method: str, url: str, body: Mapping[str, Any] | None, given: Headers | None = None
    ) -> None:
        headers = {"Accept": "text/event-stream", **(given or {})}
        if body is None and self._state.last_id:
            headers["Last-Event-ID"] = str(self._state.last_id)
        await self._drop()
        response = await self._client._open(method, url, body, headers)
        self._response = response
        self._events = _events(response)

    async def _pause(self, why: Exception) -> None:
        await self._client._sleep(self._backoff.delay_s(self._client._clock.now(), why, self._client.url))

    async def _drop(self) -> None:
        events, self._events = self._events, _nothing()
        response, self._response = self._response, None
        await events.aclose()
        if response is not None:
            await response.aclose()

    def __aiter__(self) -> AsyncTaskStream:
        return self

    async def __anext__(self) -> Segment:
        """The next segment, as soon as it is there; the connection is got back when it breaks.

        Raises:
            UnsafeSegment, EngineFailed, Overloaded, TimelyError: how the task ended, if not with a result.
        """
        while not self._ended:
            try:
                async for event in self._events:
                    self._backoff.reset()
                    segment = await self._take(event)
                    if segment is not None:
                        return segment
                    if self._ended:
                        raise StopAsyncIteration
                lost: Exception = EngineFailed("the stream ended without a result", where=self._client.url)
            except httpx.TransportError as error:
                lost = error
            await self._reconnect(lost)
        raise StopAsyncIteration

    async def _take(self, event: ServerEvent) -> Segment | None:
        try:
            segment = self._state.take(event)
        except BaseException:
            await self._finish()
            raise
        if self._state.result is not None:
            await self._finish()
        return segment

    async def _finish(self) -> None:
        self._ended = True
        await self._drop()

    async def _reconnect(self, why: Exception) -> None:
        await self._pause(why)
        try:
            await self._connect("GET", path("tasks", self.task_id, "events"), None)
        except httpx.TransportError:
            return  # the next turn sees an empty stream and waits longer
        except BaseException:
            await self._finish()
            raise

    @property
    def result(self) -> TaskResult:
        """How the plan ended.

        Raises:
            Conflict: it has not; iterate to the end first.
        """
        if self._state.result is None:
            raise Conflict("the plan has no result yet: iterate to its end", where=self.task_id)
        return self._state.result

    @property
    def ended(self) -> bool:
        """Nothing more will come."""
        return self._ended

    @property
    def last_event_id(self) -> int:
        """For ``AsyncTimelyClient.resume``."""
        return self._state.last_id

    async def replan(self, reason: str = "", **changes: Any) -> AsyncTaskStream:
        """Give up what is left of this plan and get another; see ``AsyncTimelyClient.replan``."""
        return await self._client.replan(self.task_id, reason, agent=self._agent, token=self.token, **changes)

    # ------------------------------------------------------------------ reports

    async def report(self, *reports: ExecutionReport) -> dict[str, Any]:
        """Any reports; see ``AsyncTimelyClient.report``."""
        return await self._client.report(self.task_id, reports, agent=self._agent, token=self.token)

    async def report_started(self, segment: Segment | int, *, age_s: float = 0.0) -> None:
        """The robot has begun (``age_s`` seconds ago)."""
        await self.report(report_of("started", segment, age_s=age_s))

    async def report_progress(
        self,
        segment: Segment | int,
        remaining_s: float,
        *,
        elapsed_s: float | None = None,
        age_s: float = 0.0,
    ) -> None:
        """The robot thinks it needs ``remaining_s`` more seconds."""
        await self.report(
            report_of("progress", segment, remaining_s=remaining_s, elapsed_s=elapsed_s, age_s=age_s)
        )

    async def report_done(
        self, segment: Segment | int, *, elapsed_s: float | None = None, age_s: float = 0.0
    ) -> None:
        """The robot is through; ``elapsed_s`` is the measured execution time, seconds."""
        await self.report(report_of("done", segment, elapsed_s=elapsed_s, age_s=age_s))

    async def report_failed(
        self, segment: Segment | int, reason: str, *, elapsed_s: float | None = None, age_s: float = 0.0
    ) -> None:
        """The segment could not be executed: the server stops writing this plan."""
        await self.report(report_of("failed", segment, reason=reason, elapsed_s=elapsed_s, age_s=age_s))

    async def report_value(
        self, segment: Segment | int, value: object, *, elapsed_s: float | None = None, age_s: float = 0.0
    ) -> None:
        """What a blocking segment returned; the plan goes on with it."""
        await self.report(report_of("value", segment, value=str(value), elapsed_s=elapsed_s, age_s=age_s))

    async def cancel(self) -> None:
        """Stop the generation; the iteration then ends with outcome ``cancelled``."""
        await self._client.cancel(self.task_id)

    async def close(self) -> None:
        """Stop reading without cancelling; the server gives an unread plan up after a few seconds."""
        await self._finish()

    async def __aenter__(self) -> AsyncTaskStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaving early cancels the plan."""
        if not self._ended:
            try:
                await self.cancel()
            finally:
                await self.close()


async def _events(response: httpx.Response) -> AsyncGenerator[ServerEvent, None]:
    decoder = EventDecoder()
    async for data in response.aiter_raw():
        for event in decoder.feed(data):
            yield event


async def _nothing() -> AsyncGenerator[ServerEvent, None]:
    for event in tuple[ServerEvent]():
        yield event
