"""Answers HEAD as GET, as load balancers and monitors ask for the health of a server."""

from starlette.types import ASGIApp, Receive, Scope, Send


class HeadLikeGet:
    """ASGI middleware. Uvicorn leaves the body out. An event stream has no HEAD: its answer would last as long."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD" and not scope["path"].endswith("/events"):
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
