"""vLLM's own OpenAI-compatible app, with the time-utility function under ``timely`` in the body."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError

from timely.core.errors import InvalidInput
from timely.engines.vllm.params import (
    KEY,
    RESERVED_FIELDS,
    SERVER_PRIORITY,
    TimelyParams,
    flatten_vllm_xargs,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGE_BYTES = 32 * 1024
"""Larger bodies are translated in a thread, so that no robot waits for it."""


async def build_vllm_openai_app(llm: Any, args: Any) -> App:
    """vLLM's app for this engine: every field that vLLM takes, plus ``timely``.

    Args:
        llm: a running ``AsyncLLM``.
        args: vLLM's parsed command line.
    """
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.app import build_app

    tasks = await llm.get_supported_tasks()
    app = build_app(args, tasks, llm.model_config)
    await init_app_state(llm, app.state, args, tasks)
    # After an engine error vLLM's handler sets this flag of its own server. Timely's server goes on.
    app.state.server = SimpleNamespace(should_exit=False)
    return TimelyField(app)


class TimelyField:
    """Translates the body's ``timely`` object into the flat fields that vLLM passes to the scheduler.

    It raises InvalidInput for an object that cannot be used.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        chunks: list[bytes] = []
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            chunks.append(message.get("body", b""))
            more = message.get("more_body", False)
        # vLLM has no limit for bodies, which may hold images.
        content = b"".join(chunks)
        if len(content) > LARGE_BYTES:
            body, priority = await asyncio.to_thread(translate_vllm_openai_body, content)
        else:
            body, priority = translate_vllm_openai_body(content)
        SERVER_PRIORITY.set(priority)
        headers = [(k, v) for k, v in scope["headers"] if k != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        unread: bytes | None = body
        # An answer may take minutes, and a body may have megabytes.
        del chunks, message, content, body

        async def replay() -> MutableMapping[str, Any]:
            nonlocal unread
            if unread is None:
                return await receive()
            content, unread = unread, None
            return {"type": "http.request", "body": content, "more_body": False}

        await self._app({**scope, "headers": headers}, replay, send)


def translate_vllm_openai_body(body: bytes) -> tuple[bytes, float | None]:
    """The body with ``timely`` moved into ``vllm_xargs``, and its priority; bodies without it stay as they are.

    Among ``vllm_xargs`` the priority could be any client's of ``vllm serve``.

    Raises:
        InvalidInput: the ``timely`` object has an unknown field or one out of range.
    """
    if b'"timely"' not in body:
        return body, None
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return body, None  # vLLM's own answer to broken JSON
    if not isinstance(data, dict) or KEY not in data:
        return body, None
    fields = data.pop(KEY)
    if not isinstance(fields, dict):
        raise InvalidInput("must be an object", where=KEY)
    tuf = fields.pop("tuf", {})
    for name in ("ert_s", "alpha", "beta", "cutoff_s"):
        if name in fields:
            tuf = {**tuf, name: fields.pop(name)}
    if tuf:
        fields["tuf"] = tuf
    priority = fields.pop("priority", None)
    for name in RESERVED_FIELDS & fields.keys():
        raise InvalidInput("not for clients", where=f"{KEY}.{name}")
    try:
        _ = TimelyParams.model_validate(fields).utility
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([KEY, *(str(part) for part in first["loc"])])
        raise InvalidInput(first["msg"], where=where) from None
    data["vllm_xargs"] = {**(data.get("vllm_xargs") or {}), **flatten_vllm_xargs(fields)}
    return json.dumps(data).encode(), priority
