"""Problem documents of the server as errors."""

import json
from collections.abc import Mapping
from typing import Any

from timely.core import errors
from timely.core.errors import EngineFailed, InvalidInput, NotAllowed, Overloaded, TimelyError


def _client_errors_by_code(kind: type[TimelyError]) -> dict[str, type[TimelyError]]:
    classes: dict[str, type[TimelyError]] = {}
    for child in kind.__subclasses__():
        classes |= {
            code: cls
            for code, cls in _client_errors_by_code(child).items()
            if cls.__module__ == errors.__name__
        }
    # A code that a subclass shares stands for the class itself.
    return classes | {kind.code: kind}


CODES: Mapping[str, type[TimelyError]] = _client_errors_by_code(TimelyError)
"""Stable code -> class of ``timely.core.errors``."""

TOKEN_VARIABLE = "TIMELY_TOKEN"
"""Environment variable: the bearer token of a program whose client is given none."""

UNKNOWN_TOKEN = "not_authenticated"
"""Code of a refusal that says nothing of the request: a token that was withdrawn by mistake comes back."""

TASK_ENDINGS = ("expired", "execution_failed", "truncated")
"""Codes of tasks whose request and server were in order: raised as plain ``TimelyError``."""


def client_error_from_problem(data: Mapping[str, Any], status: int) -> TimelyError:
    code = str(data.get("code", "")) or f"http_{status}"
    kind = CODES.get(code) or _client_error_kind(code, status)
    detail, where = str(data.get("detail", "no reason given")), str(data.get("where", ""))
    if code == UNKNOWN_TOKEN:
        detail = f"no principal has this program's token: {TOKEN_VARIABLE} or the argument token of the client sets it"
    error = kind.__new__(kind)
    TimelyError.__init__(error, detail, where=where)
    error.code = code
    eta_s = data.get("eta_s")
    if isinstance(error, Overloaded) and isinstance(eta_s, int | float):
        error.eta_s = float(eta_s)
    return error


def _client_error_kind(code: str, status: int) -> type[TimelyError]:
    """The class for a code that no class of the tree has."""
    if code in TASK_ENDINGS:
        return TimelyError
    if code == UNKNOWN_TOKEN:
        return NotAllowed
    if code == "shutting_down" or status == 503:
        return Overloaded
    return InvalidInput if status < 500 else EngineFailed


def was_client_request_read(error: TimelyError) -> bool:
    """Whether the server refused the request itself, and would do so again.

    Otherwise it is away, has no time, or does not know the token of a program that it has served before.
    """
    return error.code != UNKNOWN_TOKEN and not isinstance(error, EngineFailed | Overloaded)


def client_error_from_response(status: int, body: bytes) -> TimelyError:
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        data = {"detail": f"HTTP {status}: {body[:200].decode(errors='replace')}"}
    return client_error_from_problem(data, status)
