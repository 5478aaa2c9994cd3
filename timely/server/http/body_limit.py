"""Reads each request body whole, within limits of size and time, before the application gets it."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from timely.core.errors import TooLarge
from timely.server.problems import Problem, from_error
from timely.server.settings import ServerSettings

DRAIN_BYTES = 64 * 1024 * 1024
"""Bytes of an over-long body that are read and discarded, so that its sender reads the response."""

OPENAI_PATHS = ("/v1/chat/", "/v1/completions", "/v1/models")


class BodyLimit:
    """ASGI middleware: 413 for bodies over their limit, 408 for bodies that take too long."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        settings = self._settings
        limit = (
            settings.max_openai_body_bytes
            if scope["path"].startswith(OPENAI_PATHS)
            else settings.max_body_bytes
        )
        try:
            async with asyncio.timeout(settings.body_timeout_s):
                body = await _read(receive, limit)
        except TimeoutError:
            detail = f"the body did not arrive within {settings.body_timeout_s:g} s"
            timeout = Problem("timeout", detail, "body", 408, "Request timeout")
            await timeout.response({"Connection": "close"})(scope, receive, send)
            return
        except TooLarge as error:
            await from_error(error).response({"Connection": "close"})(scope, receive, send)
            return
        if body is None:
            return  # the client has gone
        delivered = False

        async def replay() -> Message:
            nonlocal delivered
            if delivered:
                return await receive()
            delivered = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None when the client closed the connection.

    Raises:
        TooLarge: the body is longer than ``limit``.
    """
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
        if not message.get("more_body", False) or size > DRAIN_BYTES:
            break
    if size > limit:
        over = "more than " if size > DRAIN_BYTES else ""
        raise TooLarge(f"{over}{size} bytes; the limit is {limit}", where="body")
    return b"".join(chunks)
