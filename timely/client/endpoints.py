"""What the clients for asyncio and for threads have in common: the methods that are one request each.

These give ``Result``: the server's JSON object, or the coroutine of one. Those that open the stream of a plan give
``Stream``: the stream, or the coroutine of one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, Self, TypeVar, Unpack
from weakref import WeakSet

import httpx

from timely.client.events import (
    ClientPlanState,
    Segment,
    ServerEvent,
    StopOrder,
    TaskResult,
    client_stop_order,
)
from timely.client.problems import client_error_from_response
from timely.client.protocol import (
    ClientBackoff,
    ClientTaskTokens,
    Headers,
    Json,
    ReplanFields,
    Utility,
    client_report_body,
    client_reports_body,
    client_task_body,
    client_v1_url_path,
    was_client_request_sent,
)
from timely.core.clock import Clock
from timely.core.errors import Conflict, EngineFailed
from timely.core.reports import ExecutionReport

Answer = dict[str, Any]
AsyncAnswer = Coroutine[Any, Any, Answer]
Result = TypeVar("Result")
Stream = TypeVar("Stream")


class ClientRequests(Generic[Result]):
    """Sends requests to one server over a pool of connections.

    Args:
        http: the pool, with the server's URL and the deadline of a response.
        silence_s: longest silence of an event stream, seconds.
        reconnect_s: how long a stream tries to reconnect, and a report is repeated, seconds.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        url: str,
        http: Any,
        silence_s: float,
        reconnect_s: float,
        clock: Clock,
        sleep: Callable[[float], Any],
    ) -> None:
        self.url, self.http = url, http
        self.task_tokens = ClientTaskTokens()
        self.stop_tokens: dict[str, str] = {}
        """Token of the stop's event stream by robot; it goes with every acknowledgement."""
        self.reconnect_s = reconnect_s
        self.backoffs: WeakSet[ClientBackoff] = WeakSet()
        """Event streams and reports that have no connection."""
        self.clock, self.sleep = clock, sleep
        self._stream_timeout = httpx.Timeout(http.timeout.connect, read=silence_s)

    def request(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        headers: Headers | None = None,
        may_repeat: bool = True,
    ) -> Result:
        """Send a request; after a broken connection once more.

        Args:
            may_repeat: it does no harm twice. Otherwise it is repeated only if the first one was not sent.

        Raises:
            TimelyError: the server refused the request. EngineFailed: there is no server, or its answer was lost.
        """
        raise NotImplementedError

    def deliver(self, url: str, report: ExecutionReport, headers: Headers) -> Result:
        """Send a report, for ``reconnect_s`` again and again while the server is away or takes none.

        An answer 500 to 599 or without JSON counts as such: a proxy may give it while the server starts again.
        So does one that the token is unknown, which the server knew when it took the task.

        Raises:
            TimelyError: the server refused the report. EngineFailed: there was no server for so long.
        """
        raise NotImplementedError

    def _answer(self, response: httpx.Response) -> Answer:
        if not response.is_success:
            raise client_error_from_response(response.status_code, response.content)
        try:
            data = response.json()
        except ValueError as error:
            raise EngineFailed(
                "the answer is no JSON; does another program listen there?", where=self.url
            ) from error
        return data if isinstance(data, dict) else {"data": data}

    def _stream_request(self, method: str, url: str, json: Any, headers: Headers) -> httpx.Request:
        # The events are read as they come, so no proxy may compress them.
        headers = {"Accept-Encoding": "identity", **headers}
        request: httpx.Request = self.http.build_request(
            method, url, json=json, headers=headers, timeout=self._stream_timeout
        )
        return request


class TimelyClientMethods(Generic[Result, Stream]):
    """The endpoints of a server, for ``AsyncTimelyClient`` and ``TimelyClient``."""

    agent: str
    _connection: ClientRequests[Result]
    _stream: type[ClientPlanStream[Result, Stream]]

    # ------------------------------------------------------------------ plans

    def submit(
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
        wait_s: float = 0.0,
        **options: Any,
    ) -> Stream:
        """Request a plan; returns as soon as the server has accepted the task.

        Args:
            task: what the robot is to do, in words; ``scene``: what it sees; ``history``: what a re-plan follows.
            skill_set, robot: names on the server; the skill set may have a robot of its own.
            utility: how the value of the answer falls with time.
            agent: name of the robot; urgency: 0 (most) to 4; app: the LLM application of the request.
            deadline_s: the server gives up after so long, seconds.
            network_s: one-way delay between server and robot, seconds.
            wait_s: longest wait for capacity, seconds. A refused request is repeated at the time that the refusal
                names, or not at all.
            options: further fields of ``POST /v1/tasks`` (``priority``, ``temperature``, ``seed``).

        Raises:
            InvalidInput: unusable or unknown. TooLarge: refused. EngineFailed: no server, no engine.
            Overloaded: refused for want of capacity; ``eta_s`` says when the task would be served.
        """
        body = client_task_body(
            self.agent if agent is None else agent, utility=utility, robot=robot, scene=scene, history=history,
            app=app, urgency=urgency,
        )  # fmt: skip
        # An empty text is the server's to refuse here: another id or no task would hide the mistake.
        options |= {"deadline_s": deadline_s, "max_tokens": max_tokens, "network_s": network_s}
        options |= {"task": task, "skill_set": skill_set}
        body |= {name: value for name, value in options.items() if value is not None}
        return self._stream.of_body(self._connection, body).submit(body, wait_s=wait_s)

    def replan(
        self,
        task_id: str,
        reason: str = "",
        *,
        agent: str | None = None,
        token: str | None = None,
        wait_s: float = 0.0,
        **changes: Unpack[ReplanFields],
    ) -> Stream:
        """Give up the rest of a plan and request another whose prompt has the old plan and its execution.

        Args:
            reason: why, in words; by default what the robot reported when it failed.
            agent: name of the robot; token: the task's, as for ``report``.
            wait_s: longest wait for capacity, seconds, as for ``submit``.
            changes: what the new plan's request has of its own.

        Raises:
            UnknownName: no such task. NotAllowed: it belongs to another program.
            Conflict: it was re-planned before, or ``id`` is in use. Others: as ``submit``.
        """
        stream = self._stream(self._connection, task_id, self.agent if agent is None else agent, token)
        return stream.replan(reason, wait_s=wait_s, **changes)

    def resume(
        self, task_id: str, *, token: str | None = None, agent: str | None = None, after: int = 0
    ) -> Stream:
        """Follow a task again, for example after a restart of this program.

        Args:
            after: id of the last event that was read; 0 starts from the beginning.

        Raises:
            UnknownName: the server has no such task (any more). EngineFailed: no server.
        """
        state = ClientPlanState(after=after, next_index=None if after else 0)
        stream = self._stream(self._connection, task_id, self.agent if agent is None else agent, token, state)
        return stream.resume()

    def report(
        self,
        task_id: str,
        reports: ExecutionReport | Iterable[ExecutionReport],
        *,
        agent: str | None = None,
        token: str | None = None,
    ) -> Result:
        """Report the execution; repeats are harmless, and a lost connection is retried once.

        Args:
            agent: name of the robot, for the server to compare with the task's.
            token: the task's; by default that of the task as this client submitted it.

        Raises:
            NotAllowed: the task belongs to another program. Conflict: no such segment was sent.
            UnknownName: no such task.
        """
        url = client_v1_url_path("tasks", task_id, "reports")
        headers = self._connection.task_tokens.header(task_id, token)
        return self._connection.request(
            "POST", url, json=client_reports_body(reports, agent), headers=headers
        )

    def cancel(self, task_id: str, *, token: str | None = None, dropped: bool = False) -> Result:
        """Stop generating a plan; a second call changes nothing.

        Args:
            token: the task's, as for ``report``; an operator needs none.
            dropped: the robot executes no more of it, so a task in execution is cancelled, too.

        Raises:
            UnknownName: no such task. NotAllowed: it belongs to another program.
        """
        headers = self._connection.task_tokens.header(task_id, token)
        return self._connection.request("DELETE", _client_cancel_url(task_id, dropped), headers=headers)

    def task(self, task_id: str) -> Result:
        """State, segments with their times, and measures of a task.

        Raises:
            UnknownName: no such task.
        """
        return self._connection.request("GET", client_v1_url_path("tasks", task_id))

    # ------------------------------------------------------------------ the server

    def disciplines(self) -> Result:
        """``current``, and ``disciplines``: name, summary, source, needs ... of each."""
        return self._connection.request("GET", "/v1/disciplines")

    def set_urgency(self, task_id: str, urgency: int, *, operator: str, reason: str = "") -> Result:
        """An operator sets the urgency of a generation: 0 (most urgent) to 4, signed, kept in the event log.

        Args:
            task_id: of a task, or the ``id`` of a chat answer.

        Raises:
            UnknownName: no such generation. Conflict: its plan is complete.
            InvalidInput: no such level, or no operator's name.
        """
        body = {"urgency": urgency, "operator": operator, "reason": reason}
        return self._connection.request("PUT", client_v1_url_path("tasks", task_id, "urgency"), json=body)

    def set_discipline(self, name: str) -> Result:
        """Switch the queue discipline while serving; returns what ``disciplines`` does.

        Raises:
            UnknownName: no such discipline.
        """
        return self._connection.request("PUT", "/v1/disciplines", json={"name": name})

    def stats(self) -> Result:
        """What the live page shows: server, engine, robots, classes, recent tasks."""
        return self._connection.request("GET", "/v1/status")

    def skill_set(self, name: str) -> Result:
        """One skill set.

        Raises:
            UnknownName: no such skill set.
        """
        return self._connection.request("GET", client_v1_url_path("skill_sets", name))

    def robot_profile(self, name: str) -> Result:
        """One robot profile.

        Raises:
            UnknownName: no such profile.
        """
        return self._connection.request("GET", client_v1_url_path("robot_profiles", name))

    def health(self) -> Result:
        """Whether tasks are admitted.

        Raises:
            Overloaded: the server is shutting down. EngineFailed: no server, or its engine is gone.
        """
        return self._connection.request("GET", "/healthz")

    def live(self) -> Result:
        """That the server answers, with an engine or without, and how often its engine died (``engine_deaths``).

        Raises:
            EngineFailed: no server.
        """
        return self._connection.request("GET", "/livez")

    # ------------------------------------------------------------------ the stop of all robots

    def stop_fleet(self, reason: str = "", *, deadline_s: float = 2.0) -> Result:
        """Stop every robot and wait for the bridges' acknowledgements.

        Returns ``success``, the ``stop_id`` of this stop for ``reset_stop`` and, under ``robots``, each robot's
        ``state``: ``halted``, ``at_rest`` or ``unknown``.

        Raises:
            NotAllowed: the principal has no role for that.
        """
        body = {"reason": reason, "deadline_s": deadline_s}
        return self._connection.request("POST", "/v1/stop", json=body)

    def stop_state(self) -> Result:
        """The latched stop with every robot's state."""
        return self._connection.request("GET", "/v1/stop")

    def reset_stop(self, stop_id: str | None = None) -> Result:
        """Release the latched stop. A lost answer is not asked for again: another stop may have come meanwhile.

        Args:
            stop_id: of the stop to release, as ``stop_fleet`` or ``stop_state`` gave it. None releases any, also one
                that came while the request was on its way.

        Raises:
            NotAllowed: the principal is no operator. Conflict: another stop, or none, is latched.
            EngineFailed: no server, or its answer was lost; ``stop_state`` tells which.
        """
        body = None if stop_id is None else {"stop_id": stop_id}
        return self._connection.request("POST", "/v1/stop/reset", json=body, may_repeat=False)

    def acknowledge_stop(
        self,
        stop_id: str,
        agent: str,
        state: Literal["halted", "at_rest", "unknown"],
        detail: str = "",
        *,
        bridge: str | None = None,
    ) -> Result:
        """Say what is known of a stopped robot; may be repeated, and a later state replaces an earlier one.

        Args:
            state: ``halted``: its driver latched the stop and gave the halt command. ``at_rest``: it was seen at
                rest. ``unknown``: it may be moving.
            bridge: whose robot an operator means, where several bridges have a robot of the name.

        Raises:
            NotAllowed: the robot is not on the principal's list, or this client does not follow its stop.
            Conflict: that stop is not latched (any more), or an operator must say whose robot it is.
        """
        body = {"stop_id": stop_id, "agent": agent, "state": state, "detail": detail}
        body["stream_token"] = self._connection.stop_tokens.get(agent, "")
        if bridge is not None:
            body["bridge"] = bridge
        # Of two that pass each other on their way the later counts.
        headers = {"Timely-Sequence": str(time.monotonic_ns())}
        return self._connection.request("POST", "/v1/stop/acknowledgements", json=body, headers=headers)

    def report_robot_problems(self, problems: Mapping[str, str]) -> Result:
        """Say what keeps robots from their tasks, as their bridge, in place of what was said before.

        Args:
            problems: robot -> words for people; robots without a problem are left out.

        Raises:
            NotAllowed: this client does not follow the stop of these robots.
            UnknownName: the server is of an earlier release.
        """
        tokens = self._connection.stop_tokens
        token = next(
            (tokens[agent] for agent in problems if agent in tokens), next(iter(tokens.values()), "")
        )
        body = {"stream_token": token, "problems": dict(problems)}
        return self._connection.request("POST", "/v1/stop/problems", json=body)


class ClientStopOrders:
    """The stop of all robots, as a bridge follows it.

    Attributes:
        outage: why the event stream could not be opened, or was lost; empty while nothing is known to be wrong. A
            bridge may show that the server cannot reach it.
    """

    def __init__(self, connection: ClientRequests[Any], agents: Sequence[str], bridge: str = "") -> None:
        self.outage, self._closed = "", False
        self._connection = connection
        self._agents = agents
        params = {"agent": list(agents)} | ({"bridge": [bridge]} if bridge else {})
        self._url = str(httpx.URL("/v1/stop/events", params=params))
        self._backoff = ClientBackoff(math.inf, " ".join(agents), connection.backoffs)

    def _read_order(self, event: ServerEvent) -> StopOrder | None:
        """Note that the stream is up, and its token; the order in the event, if there is one."""
        self.outage = ""
        self._backoff.reset()
        if "stream_token" in event.data:
            tokens = dict.fromkeys(self._agents, str(event.data["stream_token"]))
            self._connection.stop_tokens.update(tokens)
        return client_stop_order(event)


class ClientPlanStream(Generic[Result, Stream]):
    """The reports on a plan, and its result, for ``AsyncTaskStream`` and ``TaskStream``.

    ``report_started``, ``report_done``, ``report_failed`` and ``report_value`` repeat a report while the server is
    away, for the client's ``reconnect_s``; the server gets its age. ``report`` and ``report_progress`` do not wait.

    Attributes:
        task_id: the id of the task on the server.
        token: the task's token. It proves that reports come from the program that submitted the task.
    """

    _connection: ClientRequests[Result]

    def __init__(
        self,
        connection: ClientRequests[Result],
        task_id: str,
        agent: str,
        token: str | None,
        state: ClientPlanState | None = None,
    ) -> None:
        self.task_id = task_id
        self.token = token
        self._connection = connection
        self._agent = agent
        self._state = state or ClientPlanState()
        self._backoff = ClientBackoff(connection.reconnect_s, task_id, connection.backoffs)
        self._outage: Exception | None = None
        self._ended = self._unanswered = False
        if token is not None:
            connection.task_tokens.add(task_id, token)

    @classmethod
    def of_body(cls, connection: ClientRequests[Result], body: Json) -> Self:
        """The stream of the task that ``body`` requests."""
        return cls(connection, str(body["id"]), str(body["agent"]), str(body["report_token"]))

    def submit(
        self, body: Json, url: str = "/v1/tasks", headers: Headers | None = None, *, wait_s: float = 0.0
    ) -> Stream:
        """Send the request for the plan and open its stream; a refusal is raised here.

        Args:
            wait_s: longest wait for capacity, seconds; a refused request is repeated when the refusal says.
        """
        raise NotImplementedError

    def resume(self) -> Stream:
        """Open the stream of a task that was submitted before; raises EngineFailed without a server."""
        raise NotImplementedError

    def replan(self, reason: str = "", *, wait_s: float = 0.0, **changes: Unpack[ReplanFields]) -> Stream:
        """Give up the rest of this plan and request another; see ``AsyncTimelyClient.replan``."""
        body = client_task_body(self._agent, reason=reason, **changes)
        url = client_v1_url_path("tasks", self.task_id, "replan")
        return self.of_body(self._connection, body).submit(body, url, self._proof, wait_s=wait_s)

    @property
    def result(self) -> TaskResult:
        """How the plan ended.

        Raises:
            Conflict: it has not ended; iterate to the end first.
        """
        if self._state.result is None:
            raise Conflict("the plan has no result yet: iterate to its end", where=self.task_id)
        return self._state.result

    @property
    def eta_s(self) -> float | None:
        """When the server predicted the first segment for, seconds after the admission.

        None before the first event is read, and where neither the request nor the server has a limit.
        """
        return self._state.eta_s

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def outage(self) -> str:
        """Why the stream could not be opened again, which is tried anew; empty while nothing is known to be wrong."""
        return "" if self._outage is None else str(self._outage)

    @property
    def last_event_id(self) -> int:
        """For ``AsyncTimelyClient.resume``."""
        return self._state.last_id

    def report(self, *reports: ExecutionReport) -> Result:
        """Send reports of any kind; after a broken connection once more. See ``AsyncTimelyClient.report``."""
        return self._connection.request(
            "POST", self._url, json=client_reports_body(reports), headers=self._proof
        )

    def report_started(self, segment: Segment | int, *, age_s: float = 0.0) -> Result:
        """The robot began the segment ``age_s`` seconds ago."""
        return self._deliver(client_report_body("started", segment, age_s=age_s))

    def report_progress(
        self,
        segment: Segment | int,
        remaining_s: float,
        *,
        elapsed_s: float | None = None,
        age_s: float = 0.0,
    ) -> Result:
        """The robot expects to need ``remaining_s`` more seconds."""
        return self.report(
            client_report_body("progress", segment, remaining_s=remaining_s, elapsed_s=elapsed_s, age_s=age_s)
        )

    def report_done(
        self, segment: Segment | int, *, elapsed_s: float | None = None, age_s: float = 0.0
    ) -> Result:
        """The robot executed the segment; ``elapsed_s`` is the measured execution time, seconds."""
        return self._deliver(client_report_body("done", segment, elapsed_s=elapsed_s, age_s=age_s))

    def report_failed(
        self, segment: Segment | int, reason: str, *, elapsed_s: float | None = None, age_s: float = 0.0
    ) -> Result:
        """The segment could not be executed; the server stops generating this plan."""
        return self._deliver(
            client_report_body("failed", segment, reason=reason, elapsed_s=elapsed_s, age_s=age_s)
        )

    def report_value(
        self, segment: Segment | int, value: object, *, elapsed_s: float | None = None, age_s: float = 0.0
    ) -> Result:
        """The value that a blocking segment returned; the generation continues with it."""
        return self._deliver(
            client_report_body("value", segment, value=str(value), elapsed_s=elapsed_s, age_s=age_s)
        )

    def cancel(self, *, dropped: bool = False) -> Result:
        """Stop the generation; the iteration then ends with outcome ``cancelled``. Returns the server's answer.

        Args:
            dropped: the robot executes no more of the plan, so a task in execution is cancelled, too.
        """
        return self._connection.request(
            "DELETE", _client_cancel_url(self.task_id, dropped), headers=self._proof
        )

    def _deliver(self, report: ExecutionReport) -> Result:
        return self._connection.deliver(self._url, report, self._proof)

    def _note_unanswered(self, error: httpx.RequestError) -> None:
        """Remember that the answer to the request for the plan was lost; EngineFailed if no server got it."""
        if not (self._unanswered or was_client_request_sent(error)):
            raise EngineFailed(f"cannot connect: {error}", where=self._connection.url) from error
        self._unanswered = True

    def _follow_headers(self) -> dict[str, str]:
        """Those that open the event stream of a task again, behind the last event."""
        last_id = self._state.last_id
        return {**self._proof, **({"Last-Event-ID": str(last_id)} if last_id else {})}

    @property
    def _url(self) -> str:
        return client_v1_url_path("tasks", self.task_id, "reports")

    @property
    def _proof(self) -> dict[str, str]:
        return self._connection.task_tokens.header(self.task_id, self.token)


def _client_cancel_url(task_id: str, dropped: bool) -> str:
    return client_v1_url_path("tasks", task_id) + ("?dropped=true" if dropped else "")
