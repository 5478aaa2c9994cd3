"""Request bodies, headers and waits, without any input or output."""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict
from urllib.parse import quote
from weakref import WeakSet

import httpx

from timely.client.events import Segment
from timely.client.problems import TOKEN_VARIABLE
from timely.core.errors import EngineFailed, InvalidInput
from timely.core.reports import ExecutionReport, ReportKind
from timely.core.utility import NORMAL, URGENT, TimeUtility

Headers = Mapping[str, str]
Json = Mapping[str, Any]
Utility = TimeUtility | Literal["normal", "urgent"]
FIRST_RECONNECT_S, LONGEST_RECONNECT_S = 0.05, 0.5
"""Waits between two attempts to reach a server that was lost a moment ago, and that is away for long, seconds."""

OUTAGE_SHARE = 0.1
"""In between a wait is this share of the time since the loss: by so much a server that is back is found late."""

ATTEMPT_SPACING_S = 0.0025
"""Mean time between the attempts of all streams of a program: one that fails takes about a millisecond, seconds."""


class ClientBackoff:
    """The waits between attempts to open a lost connection again.

    They are short at first, since a killed server is back within a second. Waits of different names differ by a factor
    of up to 2, so that robots that lost a server together do not come back together.

    Args:
        limit_s: after so long without a connection the attempts end, seconds.
        name: of the stream.
        backoffs: the streams of the program that have no connection; this one adds and removes itself.
        since_s: when the connection was lost; by default at the first ``delay_s``.
    """

    def __init__(
        self, limit_s: float, name: str, backoffs: WeakSet[ClientBackoff], since_s: float | None = None
    ) -> None:
        self._limit_s, self._backoffs, self._since_s = limit_s, backoffs, since_s
        self._factor = 0.5 + 0.5 * zlib.crc32(name.encode()) / 2**32

    def delay_s(self, now: float, cause: object, where: str) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            EngineFailed: ``limit_s`` has passed since the connection was lost.
        """
        if self._since_s is None:
            self._since_s = now
        away_s = now - self._since_s
        if away_s >= self._limit_s:
            self._backoffs.discard(self)
            raise EngineFailed(
                f"connection lost for {self._limit_s:g} s: {type(cause).__name__}: {cause}", where=where
            )
        self._backoffs.add(self)
        alone_s = min(max(FIRST_RECONNECT_S, OUTAGE_SHARE * away_s), LONGEST_RECONNECT_S)
        # The mean factor is 0.75.
        return self._factor * max(alone_s, ATTEMPT_SPACING_S * len(self._backoffs) / 0.75)

    def reset(self) -> None:
        """The connection works again, or is not wanted any more."""
        self._since_s = None
        self._backoffs.discard(self)


class ReplanFields(TypedDict, total=False):
    """Fields of a re-plan.

    Attributes:
        scene: what the robot sees now; task: what it is to do now; both stay as they were by default.
        executed: what the robot did; by default the segments it reported done.
        utility: how the value of the new plan falls with time; urgent by default.
        deadline_s: the server gives up after so long, seconds.
        id, report_token: of the new task; chosen here by default.
    """

    scene: str | None
    task: str | None
    executed: str | None
    utility: Utility
    deadline_s: float | None
    id: str | None
    report_token: str | None


def was_client_request_sent(error: httpx.RequestError) -> bool:
    """Whether a server may have got the request that failed so."""
    return not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)


def client_v1_url_path(*parts: str) -> str:
    """The URL path ``/v1/...`` with every part quoted."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def client_task_body(agent: str, *, utility: Utility = "urgent", **fields: Any) -> dict[str, Any]:
    """The body of ``POST /v1/tasks`` and of ``POST /v1/tasks/{id}/replan``, without fields that have no value.

    The id and the report token are chosen here, so a repeated request is harmless.
    """
    body: dict[str, Any] = {"tuf": _client_tuf(utility), "agent": agent}
    body |= {"id": f"task-{secrets.token_hex(12)}", "report_token": secrets.token_urlsafe(24)}
    return body | {name: value for name, value in fields.items() if value not in (None, "")}


def _client_tuf(utility: Utility) -> object:
    if isinstance(utility, TimeUtility):
        if utility in (NORMAL, URGENT):
            return "normal" if utility == NORMAL else "urgent"
        return {"ert_s": utility.ert_s, "alpha": utility.alpha, "beta": utility.beta}
    return utility


def client_report_body(kind: ReportKind, segment: Segment | int, **fields: Any) -> ExecutionReport:
    """A report of that kind.

    Raises:
        InvalidInput: a field is unusable.
    """
    index = segment.index if isinstance(segment, Segment) else segment
    return ExecutionReport(segment=index, kind=kind, **fields)


def client_reports_body(
    reports: ExecutionReport | Iterable[ExecutionReport], agent: str | None = None
) -> list[dict[str, Any]]:
    """The body of ``POST /v1/tasks/{id}/reports``."""
    items: Sequence[ExecutionReport] = [reports] if isinstance(reports, ExecutionReport) else list(reports)
    sender = {} if agent is None else {"agent": agent}
    return [{**report.to_dict(), **sender} for report in items]


def client_bearer_header(token: str | None) -> dict[str, str]:
    """The header that identifies the principal. A line feed at the end, as of a file, is left out.

    Raises:
        InvalidInput: no header can carry it; the message does not show it.
    """
    token = (token or "").strip()
    if not re.fullmatch(r"[!-~]*", token):
        raise InvalidInput("has spaces or no ASCII", where=f"token, {TOKEN_VARIABLE}")
    return {"Authorization": f"Bearer {token}"} if token else {}


class ClientTaskTokens:
    """The tokens of the tasks that a program submitted, so that it may name a task by its id alone."""

    LIMIT = 10_000

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}

    def add(self, task_id: str, token: str) -> None:
        """Keep a token; the oldest is removed at ``LIMIT``."""
        self._tokens.pop(task_id, None)
        if len(self._tokens) >= self.LIMIT:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[task_id] = token

    def header(self, task_id: str, token: str | None = None) -> dict[str, str]:
        """The header that proves the ownership of a task, with ``token`` or with the one that was kept."""
        token = self._tokens.get(task_id) if token is None else token
        return {} if token is None else {"Timely-Task-Token": token}
