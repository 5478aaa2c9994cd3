"""What the application keeps for its routes, which are made once a process and serve every application."""

from starlette.requests import Request

from timely.server.access.principals import PrincipalRegistry
from timely.server.access.sessions import Sessions
from timely.server.tasks.service import TaskService


def http_request_service(request: Request) -> TaskService:
    service: TaskService = request.app.state.service
    return service


def http_request_registry(request: Request) -> PrincipalRegistry | None:
    registry: PrincipalRegistry | None = request.app.state.registry
    return registry


def http_request_sessions(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.sessions
    return sessions
