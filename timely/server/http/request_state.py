"""What the application keeps for its routes, which are made once a process and serve every application."""

from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.types import Scope

from timely.principals import Principal, PrincipalRegistry
from timely.server.access.sessions import PrincipalSessions
from timely.server.tasks.service import TaskService

ANONYMOUS = Principal("anonymous", frozenset())
"""A client without a token, on the paths that need none."""


def _http_app_state(name: str) -> Any:
    """What the application keeps under that name, as a dependency of a route."""

    # A coroutine, because FastAPI calls other functions in a thread.
    async def read(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(read)


async def _http_request_principal(request: Request) -> Principal:
    return http_scope_principal(request.scope)


def http_scope_principal(scope: Scope) -> Principal:
    """The principal of a request that passed ``HttpAccessControl``."""
    principal: Principal | None = scope.get("state", {}).get("principal")
    return principal or ANONYMOUS


Service = Annotated[TaskService, _http_app_state("service")]
Registry = Annotated[PrincipalRegistry | None, _http_app_state("registry")]
SessionStore = Annotated[PrincipalSessions, _http_app_state("sessions")]
Caller = Annotated[Principal, Depends(_http_request_principal)]
