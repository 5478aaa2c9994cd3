"""The OpenAI endpoints: passed on to the engine's own ASGI application, if it has one.

A request is annotated like a task. It gets an id, which is the ``id`` of its answer, and the text for the predictors.
Where the discipline in use reads them and the request has none, it gets a predicted urgency level and length.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from timely.core.errors import InvalidInput, Unsupported
from timely.core.utility import NORMAL, TimeUtility
from timely.disciplines.predictors.request_annotator import Arrival
from timely.engines.base import Engine
from timely.server.prediction.prediction_queue import PredictionQueue
from timely.server.problems import from_error

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models")

PREFIXES = {"/v1/chat/completions": "chatcmpl", "/v1/completions": "cmpl"}
"""Of the ``id`` of an answer; what follows is the header ``X-Request-Id``."""

KEY = "timely"
"""Of what a request says to our scheduler, in its body."""

TEXT_CHARS = 2_000
"""Of a request's words, for predictors."""

LARGE = 256 * 1024
"""Bodies over this are parsed in a thread, bytes."""

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")


class OpenAIEndpoints:
    """ASGI middleware that delegates ``PATHS`` to ``engine.openai_app``; without one they are ``unsupported``."""

    def __init__(self, app: ASGIApp, engine: Engine, predictions: PredictionQueue) -> None:
        self._app = app
        self._engine = engine
        self._predictions = predictions

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
        if scope["method"] != "POST" or scope["path"] not in PREFIXES:
            await inner(scope, receive, send)
            return
        body = await _whole(receive)
        if body is None:
            return  # the client has gone
        own = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        name = own if REQUEST_ID.fullmatch(own) else secrets.token_hex(16)
        body = await self._annotated(body, f"{PREFIXES[scope['path']]}-{name}")
        headers = [(k, v) for k, v in scope["headers"] if k not in (b"content-length", b"x-request-id")]
        headers += [(b"content-length", str(len(body)).encode()), (b"x-request-id", name.encode())]
        await inner({**scope, "headers": headers}, _replayed(body, receive), send)

    async def _annotated(self, body: bytes, name: str) -> bytes:
        """The body with ``timely`` filled in; one that the engine will refuse stays as it is."""
        try:
            data = await _off_loop(json.loads, body, len(body))
        except (ValueError, RecursionError):
            return body
        fields = data.get(KEY, {}) if isinstance(data, dict) else None
        if not isinstance(fields, dict):
            return body
        flat = data.get("vllm_xargs") or {}
        urgency = fields.get("urgency", flat.get("timely_urgency") if isinstance(flat, dict) else None)
        words = fields.get("text") or text_of(data)
        expected = fields.get("expected_tokens")
        if not isinstance(words, str) or not (urgency is None or type(urgency) is int):
            return body
        try:
            annotation = await self._predictions.annotate(
                Arrival(name, words[:TEXT_CHARS], urgency, expected, hurry=_hurry(fields))
            )
        except InvalidInput:
            return body  # the engine's own check says what is wrong with it
        filled = {**fields, "task_id": name}
        if words:
            filled["text"] = words[:TEXT_CHARS]
        if annotation.urgency.level is not None:
            filled["urgency"] = annotation.urgency.level
        if annotation.expected_tokens is not None:
            filled["expected_tokens"] = annotation.expected_tokens
        text: str = await _off_loop(json.dumps, {**data, KEY: filled}, len(body))
        return text.encode()


async def _off_loop(function: Callable[[Any], Any], argument: object, size: int) -> Any:
    """A pictured prompt of megabytes must not hold up the robots."""
    return await asyncio.to_thread(function, argument) if size > LARGE else function(argument)


def text_of(data: dict[str, Any]) -> str:
    """What a request asks, in words: the last message of the user, or the prompt; empty where there are none."""
    messages = data.get("messages")
    if isinstance(messages, list):
        for message in reversed(messages):
            if isinstance(message, dict) and message.get("role") == "user":
                return _text(message.get("content"))
        return ""
    prompt = data.get("prompt")
    return _text(prompt[0] if isinstance(prompt, list) and prompt else prompt)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return " ".join(text for text in texts if isinstance(text, str))


def _hurry(fields: dict[str, Any]) -> bool:
    """Whether its time-utility is that of a robot in a hurry."""
    tuf = fields.get("tuf")
    ert_s = tuf.get("ert_s") if isinstance(tuf, dict) else fields.get("ert_s")
    if isinstance(ert_s, bool) or not isinstance(ert_s, int | float) or not 0.0 <= ert_s < 1e6:
        return False
    return TimeUtility(float(ert_s), NORMAL.alpha, NORMAL.beta).urgent


async def _whole(receive: Receive) -> bytes | None:
    """The body, which is bounded already; None when the client has left."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    fields = False

    async def replay() -> Message:
        nonlocal fields
        if fields:
            return await receive()
        fields = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
