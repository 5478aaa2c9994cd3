"""Sessions of browsers: a random cookie stands for a principal until it expires."""

import re
import secrets
from dataclasses import dataclass

from timely.core.clock import Clock
from timely.principals import LOCAL_PAGE, Principal, PrincipalRegistry, principal_token_digest

COOKIE = "timely_session"
"""The cookie's name within the server, and where the client names no port."""
LIFETIME_S = 12 * 3600.0
MAX_SESSIONS = 200
MAX_TOKEN_SESSIONS = 20
"""Of one token; a further one ends the oldest of them, so no principal ends the sessions of others."""

_PORT = re.compile(r":([0-9]{1,5})$")


def session_cookie_name(host: str) -> str:
    """The cookie's name for a server that is reached as ``host``, with its port.

    A browser sends a cookie to all ports of a host, so servers on two ports would end each other's sessions.
    """
    port = _PORT.search(host)
    return f"{COOKIE}_{port[1]}" if port else COOKIE


@dataclass(frozen=True, slots=True)
class _PrincipalSession:
    token_digest: str | None
    ends_s: float


class PrincipalSessions:
    """The sessions of one server.

    Args:
        registry: the principals; None where every client is local.
    """

    def __init__(self, registry: PrincipalRegistry | None, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._sessions: dict[str, _PrincipalSession] = {}

    def create(self, token: str | None) -> str:
        """A new session's cookie. ``token`` identifies its principal; None is the local live page."""
        now = self._clock.now()
        self._sessions = {key: session for key, session in self._sessions.items() if session.ends_s > now}
        digest = None if token is None else principal_token_digest(token)
        own = [key for key, session in self._sessions.items() if session.token_digest == digest]
        if digest is not None and len(own) >= MAX_TOKEN_SESSIONS:
            del self._sessions[own[0]]
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        cookie = secrets.token_urlsafe(32)
        self._sessions[principal_token_digest(cookie)] = _PrincipalSession(digest, now + LIFETIME_S)
        return cookie

    def find(self, cookie: str) -> Principal | None:
        """The principal of a cookie; None when the session has ended or its token was withdrawn."""
        session = self._sessions.get(principal_token_digest(cookie))
        if session is None or session.ends_s <= self._clock.now():
            return None
        if session.token_digest is None:
            return LOCAL_PAGE if self._registry is None else None
        return None if self._registry is None else self._registry.find_digest(session.token_digest)

    def end(self, cookie: str) -> None:
        self._sessions.pop(principal_token_digest(cookie), None)
