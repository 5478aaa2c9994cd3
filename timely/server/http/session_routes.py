"""The live page and its session."""

from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from timely.server.access.sessions import COOKIE, LIFETIME_S, session_cookie_name
from timely.server.http.bodies import http_body_schema, read_http_body
from timely.server.http.request_state import Registry, Service, SessionStore
from timely.server.problems import problem_details
from timely.server.tasks.request import SessionBody

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


LIVE_PAGE = files("timely.server.http").joinpath("live.html").read_text(encoding="utf-8")

router = APIRouter(tags=["session"])


@router.get("/", response_class=HTMLResponse, include_in_schema=False)
async def live(request: Request, registry: Registry, sessions: SessionStore) -> HTMLResponse:
    """The live page; on loopback without principals it starts a session at once."""
    response = HTMLResponse(LIVE_PAGE, headers=PAGE_HEADERS)
    if registry is None and sessions.find(request.cookies.get(COOKIE, "")) is None:
        _set_http_session_cookie(response, sessions.create(None), request)
    return response


@router.post("/v1/session", openapi_extra=http_body_schema(SessionBody))
async def begin(request: Request, service: Service, registry: Registry, sessions: SessionStore) -> Response:
    """Exchange a principal's token for a session cookie of the live page."""
    body = await read_http_body(request, SessionBody)
    principal = registry.find(body.token) if registry is not None else None
    if principal is None:
        service.recorder.audit_anonymous("session", "")
        refusal = problem_details("not_authenticated", "no principal has this token", "token")
        return refusal.response({"WWW-Authenticate": "Bearer"})
    service.recorder.audit(principal.name, "session", "")
    response = JSONResponse({"principal": principal.name, "roles": sorted(principal.roles)})
    _set_http_session_cookie(response, sessions.create(body.token), request)
    return response


@router.delete("/v1/session")
async def end(request: Request, sessions: SessionStore) -> JSONResponse:
    """End the session."""
    sessions.end(request.cookies.get(COOKIE, ""))
    response = JSONResponse({"ended": True})
    response.delete_cookie(_http_session_cookie_name(request))
    return response


def _set_http_session_cookie(response: HTMLResponse | JSONResponse, cookie: str, request: Request) -> None:
    response.set_cookie(
        _http_session_cookie_name(request),
        cookie,
        max_age=int(LIFETIME_S),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def _http_session_cookie_name(request: Request) -> str:
    return session_cookie_name(request.headers.get("host", ""))
