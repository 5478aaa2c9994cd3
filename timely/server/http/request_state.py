"""What the application keeps for its routes, which are made once a process and serve every application."""

from typing import Annotated

from fastapi import Depends, Request
from starlette.types import Scope

from timely.server.access.principals import Principal, PrincipalRegistry
from timely.server.access.sessions import Sessions
from timely.server.tasks.service import TaskService

ANONYMOUS = Principal("anonymous", frozenset())
"""A client without a token, on the paths that need none."""


# Coroutines, because FastAPI calls other functions in a thread.
async def _service(request: Request) -> TaskService:
    service: TaskService = request.app.state.service
    return service


async def _registry(request: Request) -> PrincipalRegistry | None:
    registry: PrincipalRegistry | None = request.app.state.registry
    return registry


async def _sessions(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.sessions
    return sessions


async def _principal(request: Request) -> Principal:
    return http_scope_principal(request.scope)


def http_scope_principal(scope: Scope) -> Principal:
    """The principal of a request that passed ``AccessControl``."""
    principal: Principal | None = scope.get("state", {}).get("principal")
    return principal or ANONYMOUS


Service = Annotated[TaskService, Depends(_service)]
Registry = Annotated[PrincipalRegistry | None, Depends(_registry)]
SessionStore = Annotated[Sessions, Depends(_sessions)]
Caller = Annotated[Principal, Depends(_principal)]
