"""The handlers that answer every error of the HTTP application with a problem."""

import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Route

from timely.core.errors import InvalidInput, TimelyError
from timely.server.problems import Problem, problem_from_error
from timely.server.tasks.request import LABEL_CHARS, LABEL_PATTERN

log = logging.getLogger(__name__)

_HTTP_CODES: Mapping[int, str] = {
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    415: "unsupported_media_type",
}


def http_problem_from_validation(
    error: ValidationError | RequestValidationError, *, skip: tuple[str, ...] = ()
) -> InvalidInput:
    """The first error of a validation, with the name of the field."""
    errors = error.errors()
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"] if part not in skip)
    message = str(first["msg"]).removeprefix("Value error, ")
    if first.get("ctx", {}).get("pattern") == LABEL_PATTERN:
        message = f"must have at most {LABEL_CHARS} characters, all visible"
    # A pattern may name characters that no reader sees.
    message = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in message)
    if len(errors) > 1:
        message += f" (and {len(errors) - 1} more)"
    return InvalidInput(message, where=where or "body")


def http_method_problem(method: str, path: str, allowed: Iterable[str]) -> Response:
    """The response to a method that the path does not have."""
    allow, status = ", ".join(allowed), HTTPStatus.METHOD_NOT_ALLOWED
    problem = Problem(_HTTP_CODES[status], f"{method} is not one of: {allow}", path, status, status.phrase)
    return problem.response({"Allow": allow})


def _allowed_http_methods(app: FastAPI, request: Request) -> list[str]:
    """The methods of every route of the path; starlette names those of one route only."""
    methods: set[str] = set()
    for route in app.routes:
        if isinstance(route, Route) and route.path_regex.match(request.url.path):
            methods |= route.methods or set()
    if "GET" in methods and not request.url.path.endswith("/events"):
        methods.add("HEAD")
    return sorted(methods)


def install_http_problem_handlers(app: FastAPI) -> None:
    @app.exception_handler(TimelyError)
    async def timely_error(request: Request, error: TimelyError) -> Response:
        return problem_from_error(error).response()

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> Response:
        return problem_from_error(http_problem_from_validation(error, skip=("query", "header"))).response()

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        code = _HTTP_CODES.get(error.status_code, f"http_{error.status_code}")
        title = HTTPStatus(error.status_code).phrase
        detail, headers = str(error.detail), dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            return http_method_problem(request.method, request.url.path, _allowed_http_methods(app, request))
        if error.status_code == HTTPStatus.NOT_FOUND:
            detail = "there is nothing at this path; /openapi.json lists the paths"
        return Problem(code, detail, request.url.path, error.status_code, title).response(headers)

    @app.exception_handler(Exception)
    async def handle_unexpected(request: Request, error: Exception) -> Response:
        log.error("%s %s", request.method, request.url.path, exc_info=error)
        detail = f"{type(error).__name__}; see the server's log"
        return Problem("internal_error", detail, "", 500, "Internal error").response()
