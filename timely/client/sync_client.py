# Written by scripts/generate_sync_client.py: change the module of the asyncio client instead.
"""The client of one server."""

import ssl
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, Unpack

import httpx

from timely.client.endpoints import Answer, ClientEndpoints
from timely.client.events import ClientPlanState
from timely.client.pool import client_pool_options
from timely.client.protocol import ReplanFields, Utility, client_task_body
from timely.client.sync_connection import ClientConnection
from timely.client.sync_stop import ClientStopStream
from timely.client.sync_stream import TaskStream
from timely.core.clock import Clock, SystemClock


class TimelyClient(ClientEndpoints[Answer]):
    """Talks to one server; may be shared by threads.

    Args:
        url: of the server, ``http://HOST:PORT``.
        agent: name of this robot, unless a task names another.
        timeout_s: longest wait for a response, seconds; for the first event of a stream it is ``silence_s``.
        silence_s: longest silence of an event stream before the connection counts as lost, seconds; more than the
            server's keep-alive interval.
        reconnect_s: how long a stream tries to reconnect, and a report that the robot needs is repeated, seconds.
            It is longer than the server needs to start again. The last attempt takes up to ``timeout_s`` more.
            With 0 there is one attempt.
        token: bearer token of this program's principal; by default the environment variable ``TIMELY_TOKEN``.
        verify: certificates for TLS, as for httpx; by default with those of the environment, as ``client_tls`` says.
        transport: replaces the network in tests.

    Raises:
        InvalidInput: no server can be at the URL, or no header can carry the token.
    """

    _connection: ClientConnection

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        agent: str = "",
        timeout_s: float = 10.0,
        silence_s: float = 30.0,
        reconnect_s: float = 60.0,
        token: str | None = None,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.agent = agent
        self.url = url
        http = httpx.Client(transport=transport, **client_pool_options(url, timeout_s, verify, token))
        self._connection = ClientConnection(url, http, silence_s, reconnect_s, clock or SystemClock(), sleep)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the server cancels unread plans after a few seconds."""
        self._connection.close()

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
    ) -> TaskStream:
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
        stream = TaskStream.of_body(self._connection, body)
        return stream.submit(body, wait_s=wait_s)

    def replan(
        self,
        task_id: str,
        reason: str = "",
        *,
        agent: str | None = None,
        token: str | None = None,
        wait_s: float = 0.0,
        **changes: Unpack[ReplanFields],
    ) -> TaskStream:
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
        stream = TaskStream(self._connection, task_id, self.agent if agent is None else agent, token)
        return stream.replan(reason, wait_s=wait_s, **changes)

    def resume(
        self, task_id: str, *, token: str | None = None, agent: str | None = None, after: int = 0
    ) -> TaskStream:
        """Follow a task again, for example after a restart of this program.

        Args:
            after: id of the last event that was read; 0 starts from the beginning.

        Raises:
            UnknownName: the server has no such task (any more). EngineFailed: no server.
        """
        state = ClientPlanState(after=after, next_index=None if after else 0)
        stream = TaskStream(self._connection, task_id, self.agent if agent is None else agent, token, state)
        return stream.resume()

    # ------------------------------------------------------------------ the server

    def remove_stop_robots(self, agents: Iterable[str]) -> list[str]:
        """Stops no longer expect these robots, which are out of service; returns those that were expected.

        Raises:
            NotAllowed: the principal is no operator. Conflict: a bridge follows one of them.
        """
        url = httpx.URL("/v1/stop/robots", params={"agent": list(agents)})
        answer = self._connection.request("DELETE", str(url))
        return list(answer["removed"])

    def stop_orders(self, agents: Iterable[str], bridge: str = "") -> ClientStopStream:
        """Follow the stop as the bridge of these robots; iterate for ``StopOrder``, the present state first.

        The stream opens a lost connection again until it is closed, and then repeats the present state.

        Args:
            bridge: its identity, the same after its restart and of no other bridge. Its acknowledgements then count
                for its own robots, also where another bridge has robots of the same names.
        """
        return ClientStopStream(self._connection, list(agents), bridge)

    def skill_sets(self) -> list[str]:
        """Names of the skill sets."""
        return list((self._connection.request("GET", "/v1/skill_sets"))["skill_sets"])

    def robot_profiles(self) -> list[str]:
        """Names of the robot profiles."""
        return list((self._connection.request("GET", "/v1/robot_profiles"))["robot_profiles"])
