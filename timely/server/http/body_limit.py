"""Reads each request body whole, within limits of size and time, before the application gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from timely.core.errors import Overloaded, TimelyError, TooLarge
from timely.server.http.access_control import UNCOUNTED_PATHS
from timely.server.problems import Problem, problem_from_error
from timely.server.settings import ServerSettings

DRAIN_BYTES = 64 * 1024 * 1024
"""Bytes of an over-long body that are read and discarded, so that its sender reads the response."""

SMALL_BODY_BYTES = 64 * 1024
"""Limit of a stop's body and of reports. They are outside the shared limit, so other bodies cannot delay them."""

UNUSABLE_BODY = "timely.unusable_body"
"""Key of a stop's ASGI scope: what is wrong with its body, which stops the robots all the same."""

STOP_BODY_S = 1.0
"""Robots wait so long for the reason of a stop, seconds."""

CLOSE = {"Connection": "close"}
"""The rest of the body may still come."""

CHAT_SHARE = 0.875
"""Share of the memory for bodies that those of chats may take: the rest is for the small ones of robots."""

OPENAI_PATHS = ("/v1/chat/", "/v1/completions", "/v1/models")


class HttpBodyLimit:
    """ASGI middleware: 413 for bodies over their limit, 408 for slow ones, 415 for compressed ones.

    Others get 503 while all bodies are too much. A stop needs no body, so it goes on without one that cannot be used.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._buffered_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        settings = self._settings
        if UNCOUNTED_PATHS.search(scope["path"]):
            body = _HttpBody(None, min(SMALL_BODY_BYTES, settings.max_body_bytes))
        elif scope["path"].startswith(OPENAI_PATHS):
            body = _HttpBody(self, settings.max_openai_body_bytes, CHAT_SHARE)
        else:
            body = _HttpBody(self, settings.max_body_bytes)
        is_stop = scope["method"] == "POST" and scope["path"] == "/v1/stop"
        try:
            timeout_s = min(settings.body_timeout_s, STOP_BODY_S) if is_stop else settings.body_timeout_s
            problem, headers = await self._read(body, receive, scope, timeout_s)
            if is_stop and problem is not None:
                # Robots stop for the request alone: a network may fail in the middle of it.
                scope = {**scope, UNUSABLE_BODY: problem.detail}
                body.clear()
            elif problem is not None:
                await problem.response(headers)(scope, receive, send)
                return

            async def replay() -> Message:
                content = body.take()
                if content is None:
                    return await receive()
                return {"type": "http.request", "body": content, "more_body": False}

            async def send_and_release(message: Message) -> None:
                # The application may have had it in memory until now, and in several forms.
                body.release()
                await send(message)

            await self._app(scope, replay, send_and_release)
        finally:
            body.release()

    async def _read(
        self, body: _HttpBody, receive: Receive, scope: Scope, timeout_s: float
    ) -> tuple[Problem | None, Mapping[str, str]]:
        """Read the body; what is wrong with it, and the headers of a refusal."""
        try:
            async with asyncio.timeout(timeout_s):
                is_whole = await body.read(receive)
        except TimeoutError:
            if (too_large := body.too_large()) is not None:
                return problem_from_error(too_large), CLOSE
            detail = f"the body did not arrive within {timeout_s:g} s"
            return Problem("timeout", detail, "body", 408, "Request timeout"), CLOSE
        except TimelyError as error:
            return problem_from_error(error), CLOSE
        if not is_whole:
            detail = "the connection closed before the end of the body"
            return Problem("invalid_input", detail, "body", 400, "Half a request"), CLOSE
        if encoding := _http_content_encoding(scope):
            detail = f"send the body without Content-Encoding: {encoding}"
            problem = Problem("unsupported_media_type", detail, "Content-Encoding", 415, "Compressed body")
            return problem, {"Accept-Encoding": "identity"}
        return None, {}

    def reserve(self, size: int, share: float = 1.0) -> None:
        """Count bytes of a body in memory; a negative size returns them.

        Args:
            share: of the memory that all bodies may take with this one.

        Raises:
            Overloaded: all bodies together are over that.
        """
        if size > 0 and self._buffered_bytes + size > share * self._settings.max_buffered_bytes:
            raise Overloaded("too many request bodies at once", where="body")
        self._buffered_bytes += size


def _http_content_encoding(scope: Scope) -> str:
    """That of a compressed body, whose size nothing limits."""
    encoding: bytes = next((value for name, value in scope["headers"] if name == b"content-encoding"), b"")
    return "" if encoding.lower() in (b"", b"identity") else encoding[:40].decode("latin-1")


class _HttpBody:
    """One body: read once, handed over once.

    Args:
        limits: counts the bytes of all bodies; None leaves this one out.
        share: of the memory for bodies, as in ``HttpBodyLimit.reserve``.
    """

    def __init__(self, limits: HttpBodyLimit | None, limit: int, share: float = 1.0) -> None:
        self._limits = limits
        self._limit = limit
        self._share = share
        self._size = 0
        self._chunks: list[bytes] = []
        self._reserved_bytes = 0
        self._is_taken = False

    async def read(self, receive: Receive) -> bool:
        """Read all of it; False when the client closed the connection.

        Raises:
            TooLarge: it is over its limit. Overloaded: there are too many bodies.
        """
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            chunk: bytes = message.get("body", b"")
            self._size += len(chunk)
            if self._size <= self._limit:
                if self._limits is not None:
                    self._limits.reserve(len(chunk), self._share)
                    self._reserved_bytes += len(chunk)
                self._chunks.append(chunk)
            else:
                self.release()
            if not message.get("more_body", False) or self._size > DRAIN_BYTES:
                break
        if (too_large := self.too_large()) is not None:
            raise too_large
        return True

    def too_large(self) -> TooLarge | None:
        """The error of what has arrived; None within the limit."""
        if self._size <= self._limit:
            return None
        over = "more than " if self._size > DRAIN_BYTES else ""
        return TooLarge(f"{over}{self._size} bytes; the limit is {self._limit}", where="body")

    def take(self) -> bytes | None:
        if self._is_taken:
            return None
        self._is_taken = True
        content = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        return content

    def clear(self) -> None:
        """Hand over no bytes."""
        self._chunks.clear()

    def release(self) -> None:
        """Drop the copy of the body, and count it no more."""
        self.clear()
        if self._limits is not None:
            self._limits.reserve(-self._reserved_bytes)
        self._reserved_bytes = 0
