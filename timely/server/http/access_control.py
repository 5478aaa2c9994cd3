"""Identifies the principal of each request; refuses those without one, and those that another web page sends."""

import ipaddress
import re
import socket
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from timely.core.errors import InvalidInput, NotAllowed, RateLimited, TimelyError
from timely.core.json_log import LOG_FIELDS
from timely.principals import LOCAL, Principal, PrincipalRegistry
from timely.server.access.sessions import COOKIE, PrincipalSessions, session_cookie_name
from timely.server.access.usage import PrincipalUsage
from timely.server.problems import http_header_problem, problem_details, problem_from_error
from timely.server.tasks.recorder import TaskRecorder

OPEN_PATHS = frozenset({"/health", "/healthz", "/livez", "/readyz", "/", "/v1/session"})
"""Answered without a principal: health, the live page without data, and the start of its session."""

UNCOUNTED_PATHS = re.compile(r"^/v1/stop(/|$)|^/v1/tasks/[^/]+/reports$")
"""Paths that no shared limit of connections or bodies closes: stops and the reports of robots."""

COOKIE_VALUE = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""As ``PrincipalSessions`` makes them."""

SINGLE_HEADERS = (b"host", b"origin", b"authorization", b"timely-task-token")
"""Say who asks whom. A proxy may read another one of two than this server."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class HttpAccessControl:
    """ASGI middleware: 403 for a foreign host or origin, 401 without a principal, 431 for a long header.

    Args:
        registry: the principals; None makes every client the principal ``local``.
        recorder: keeps requests without a principal in the audit log.
        hosts: further names of this server, as in the header ``Host``.
        max_header_bytes: of the path, the query and the header fields of a request.
    """

    def __init__(
        self,
        app: ASGIApp,
        registry: PrincipalRegistry | None,
        sessions: PrincipalSessions,
        usage: PrincipalUsage,
        recorder: TaskRecorder,
        hosts: Iterable[str] = (),
        *,
        max_header_bytes: int,
    ) -> None:
        self._app = app
        self._registry = registry
        self._sessions = sessions
        self._usage = usage
        self._recorder = recorder
        self._max_header_bytes = max_header_bytes
        self._hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}
        # The names stay as they are, and reading an address takes 12 µs.
        self._is_own_host = lru_cache(maxsize=64)(self._reads_own_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A pipelined request, and what follows it, begin in the context of the request before.
        LOG_FIELDS.set({})
        if _http_header_bytes(scope) > self._max_header_bytes:
            refusal = http_header_problem(self._max_header_bytes)
            await refusal.response({"Connection": "close"})(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        cookie = _http_session_cookie(headers.get("cookie", ""), session_cookie_name(headers.get("host", "")))
        # Python's own parser, which FastAPI and Starlette use, takes ten seconds for a header of 32 kB
        # (CVE-2024-7592, before 3.11.10 and 3.12.6). So they get this cookie only.
        others = [field for field in scope["headers"] if field[0] != b"cookie"]
        scope["headers"] = [*others, (b"cookie", f"{COOKIE}={cookie}".encode())] if cookie else others
        try:
            _check_single_http_headers(scope)
            # HTTP/1.0, as of plain health checks, has no host. A browser always names it.
            if "host" in headers or scope["http_version"] != "1.0":
                self._check_host(headers.get("host", ""))
            _check_http_origin(headers, scope["path"])
            principal = self._principal(headers, cookie, scope["method"])
        except TimelyError as error:
            await problem_from_error(error).response({"Connection": "close"})(scope, receive, send)
            return
        if principal is None and scope["path"] not in OPEN_PATHS:
            self._recorder.audit_anonymous(scope["method"], scope["path"][:200])
            detail = "send Authorization: Bearer TOKEN with the token of a principal"
            refusal = problem_details("not_authenticated", detail, "Authorization")
            await refusal.response({"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = principal
        if principal is None or UNCOUNTED_PATHS.search(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            self._usage.begin_connection(principal)
        except RateLimited as error:
            self._recorder.record_limit(error)
            await problem_from_error(error).response()(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._usage.end_connection(principal)

    def _check_host(self, host: str) -> None:
        """Refuse a name that is not this server's: a page may rebind its own name to this address."""
        if not self._is_own_host(host):
            reason = f"{host[:80]!r} is no name of this server" if host else "the header is missing"
            raise NotAllowed(reason, where="Host")

    def _reads_own_host(self, host: str) -> bool:
        """Whether it is an address or a name of this server, with or without a port."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
            return name in self._hosts or bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def _principal(self, headers: dict[str, str], cookie: str, method: str) -> Principal | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if self._registry is not None and scheme.lower() == "bearer":
            return self._registry.find(token.strip())
        principal = self._sessions.find(cookie) if cookie else None
        if principal is not None:
            if method not in SAFE_METHODS and "origin" not in headers:
                raise NotAllowed("a session needs the header Origin", where="Origin")
            return principal
        return LOCAL if self._registry is None else None


def _http_header_bytes(scope: Scope) -> int:
    fields = sum(len(name) + len(value) for name, value in scope["headers"])
    return fields + len(scope.get("raw_path") or b"") + len(scope["query_string"])


def _check_single_http_headers(scope: Scope) -> None:
    """Refuse a request that says twice who asks, or whom."""
    names = [name for name, _ in scope["headers"]]
    for name in SINGLE_HEADERS:
        if names.count(name) > 1:
            raise InvalidInput("is given twice", where=name.decode().title())


def _check_http_origin(headers: dict[str, str], path: str) -> None:
    """Refuse a request of another site's page. A link to the live page is allowed, since it does nothing by itself."""
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower():
        raise NotAllowed(f"requests of pages from {origin[:80]!r} are refused", where="Origin")
    is_link = path == "/" and headers.get("sec-fetch-mode") == "navigate"
    # A page of a sibling domain is same-site, and the session's cookie comes with its requests.
    if headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_link:
        raise NotAllowed("requests of pages from other sites are refused", where="Sec-Fetch-Site")


def _http_session_cookie(header: str, session_name: str) -> str:
    """The session's cookie in a header ``Cookie``, or nothing."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == session_name and COOKIE_VALUE.fullmatch(value):
            return value
    return ""
