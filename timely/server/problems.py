"""Errors as HTTP responses: RFC 9457 problem details with a stable ``code``.

A body looks like ``{"type": "urn:timely:problem:unknown_name", "title": "...", "status": 422, "code":
"unknown_name", "detail": "unknown skill set 'x'; known: ...", "where": "skill_set"}``. Clients read ``code``.
Those of OpenAI read ``error``, which an HTTP response has beside these.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from timely.core.errors import InvalidInput, Overloaded, TimelyError, UnknownName

if TYPE_CHECKING:
    from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"

RETRY_AFTER_S = 1.0
"""``Retry-After`` of a refusal without ``eta_s``, seconds."""

PROBLEMS: Mapping[str, tuple[int, str]] = {
    "invalid_input": (422, "The request cannot be used"),
    "unknown_name": (422, "There is nothing of that name"),
    "too_large": (413, "Over a size limit"),
    "not_allowed": (403, "Not allowed"),
    "not_authenticated": (401, "No principal is known by this token"),
    "conflict": (409, "Contradicts the current state"),
    "unsafe_segment": (422, "The model wrote a segment that must not reach the robot"),
    "unsupported": (501, "This engine cannot do that"),
    "overloaded": (503, "No capacity at the moment"),
    "rate_limited": (429, "The principal is over a limit of its own"),
    "shutting_down": (503, "The server is shutting down"),
    "engine_failed": (502, "The engine failed"),
    "draining": (503, "The server finishes its plans and takes no more"),
    # Further outcomes of a task; only in an ``error`` event, where the status is informative.
    "expired": (504, "The task was not finished in time"),
    "execution_failed": (409, "The robot reported a failed segment"),
    "interrupted": (502, "The server was restarted and cannot go on with the plan"),
    "quarantined": (502, "The engine died more than once while it generated this plan"),
    "truncated": (422, "The plan was cut off at its token limit"),
}
"""code -> (HTTP status, title)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One error as data; ``eta_s``: when such a request would be served, seconds from now."""

    code: str
    detail: str
    where: str = ""
    status: int = 500
    title: str = ""
    eta_s: float | None = None

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "type": f"urn:timely:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "where": self.where,
        }
        # Rounded up: a client that waits so long must not come too early.
        return body if self.eta_s is None else {**body, "eta_s": math.ceil(1e3 * self.eta_s) / 1e3}

    def with_status(self, status: int) -> Problem:
        """The same problem under another HTTP status."""
        return replace(self, status=status)

    def headers(self) -> dict[str, str]:
        """``Retry-After`` of a refusal for want of capacity."""
        if self.status not in (429, 503):
            return {}
        return {"Retry-After": str(max(1, math.ceil(RETRY_AFTER_S if self.eta_s is None else self.eta_s)))}

    def content(self) -> str:
        """The JSON of an HTTP response."""
        error = {
            # OpenAI's clients show this text alone.
            "message": f"{self.where}: {self.detail}" if self.where else self.detail,
            "type": self.code,
            "param": self.where or None,
            "code": self.status,  # as vLLM has it
        }
        # ASCII: a text of the client may have half a character.
        return json.dumps({**self.body(), "error": error})

    def response(self, headers: Mapping[str, str] | None = None) -> Response:
        # Tasks are restored and their plans go on before an HTTP library is loaded.
        from starlette.responses import Response

        all_headers = {**self.headers(), **(headers or {})}
        return Response(self.content(), self.status, headers=all_headers, media_type=MEDIA_TYPE)


def problem_details(code: str, detail: str, where: str = "") -> Problem:
    status, title = PROBLEMS.get(code, (500, "Internal error"))
    return Problem(code, detail, where, status, title)


def http_header_problem(limit_bytes: int) -> Problem:
    """The problem of a request whose header is too long."""
    return Problem("too_large", f"the limit is {limit_bytes} bytes", "header", 431, "Over a size limit")


def problem_from_error(error: TimelyError) -> Problem:
    """The problem of an error; 404 for an unknown name in the URL, 400 for a body that is no JSON."""
    result = problem_details(error.code, error.message, error.where)
    if isinstance(error, Overloaded):
        result = replace(result, eta_s=error.eta_s)
    if isinstance(error, UnknownName) and error.where.startswith("path"):
        return result.with_status(404)
    if type(error) is InvalidInput and error.where == "body":
        return result.with_status(400)
    return result
