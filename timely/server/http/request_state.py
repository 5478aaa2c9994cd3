"""What the application keeps for its routes, which are made once a process and serve every application."""

from typing import Annotated

from fastapi import Depends, Request
from starlette.types import Scope

from timely.server.access.principals import Principal, PrincipalRegistry
from timely.server.access.sessions import PrincipalSessions
from timely.server.tasks.service import TaskService

ANONYMOUS = Principal("anonymous", frozenset())
"""A client without a token, on the paths that need none."""


# Coroutines, because FastAPI calls other functions in a thread.
async def _http_request_service(request: Request) -> TaskService:
    service: TaskService = request.app.state.service
    return service


async def _http_request_registry(request: Request) -> PrincipalRegistry | None:
    registry: PrincipalRegistry | None = request.app.state.registry
    return registry


async def _http_request_sessions(request: Request) -> PrincipalSessions:
    sessions: PrincipalSessions = request.app.state.sessions
    return sessions


async def _http_request_principal(request: Request) -> Principal:
    return http_scope_principal(request.scope)


def http_scope_principal(scope: Scope) -> Principal:
    """The principal of a request that passed ``HttpAccessControl``."""
    principal: Principal | None = scope.get("state", {}).get("principal")
    return principal or ANONYMOUS


Service = Annotated[TaskService, Depends(_http_request_service)]
Registry = Annotated[PrincipalRegistry | None, Depends(_http_request_registry)]
SessionStore = Annotated[PrincipalSessions, Depends(_http_request_sessions)]
Caller = Annotated[Principal, Depends(_http_request_principal)]
