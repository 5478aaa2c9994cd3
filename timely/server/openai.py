"""The OpenAI endpoints: handed to the engine's own ASGI application, where it has one."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from timely.core.errors import Unsupported
from timely.engines.base import Engine
from timely.server.problems import from_error

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models")


class OpenAIDoor:
    """ASGI middleware that delegates ``PATHS`` to ``engine.openai_app``; without one they are ``unsupported``."""

    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self._app = app
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in PATHS:
            await self._app(scope, receive, send)
            return
        # Looked up each time: an engine may have its application only once it has started.
        inner: ASGIApp | None = getattr(self._engine, "openai_app", None)
        if inner is None:
            error = Unsupported(
                f"engine {self._engine.name!r} has no OpenAI endpoint; ask for plans at /v1/tasks",
                where=scope["path"],
            )
            await from_error(error).response()(scope, receive, send)
            return
        await inner(scope, receive, send)
