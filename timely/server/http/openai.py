"""The OpenAI endpoints: passed on to the engine's own ASGI application, if it has one.

A request is admitted and annotated like a task. It gets an id, which is the ``id`` of its answer, and the text for the
predictors. Where the discipline in use reads them and the request has none, it gets a predicted urgency level and
length. The body that the engine reads is written anew, so it is the one that was checked.
"""

import asyncio
import json
import logging
import re
import secrets
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from timely.core.errors import InvalidInput, TimelyError, Unsupported
from timely.disciplines.predictors.request_annotator import PredictorArrival
from timely.principals import Principal
from timely.server.http.bodies import decode_http_body
from timely.server.http.foreign_hints import foreign_http_hints
from timely.server.http.openai_answer import OpenAIAnswer
from timely.server.http.openai_request import (
    KEY,
    MAX_TEXT_CHARS,
    check_openai_http_fields,
    check_openai_http_parts,
    openai_http_hints,
    openai_http_text,
)
from timely.server.http.plain_text import http_plain_text
from timely.server.http.problem_handlers import http_method_problem
from timely.server.http.request_state import http_scope_principal
from timely.server.problems import problem_from_error
from timely.server.tasks.permissions import task_urgency_within_claims
from timely.server.tasks.request import MAX_PRIORITY, server_task_utility_from_wire
from timely.server.tasks.service import TaskService

log = logging.getLogger(__name__)

READ_PATHS = ("/v1/models", "/version")

TOKEN_PATHS = ("/tokenize", "/detokenize")

PREFIXES = {"/v1/chat/completions": "chatcmpl", "/v1/completions": "cmpl"}
"""Of the ``id`` of an answer; the header ``X-Request-Id`` follows."""

PATHS = (*READ_PATHS, *TOKEN_PATHS, *PREFIXES)

SECRET_HEADERS = (b"authorization", b"cookie")
"""They identify the client to this server; the engine's application does not get them."""

PRIORITY_HEADER = "x-vllm-priority"
"""In vLLM it stands above the field ``priority`` of the body; here it becomes that field, which is checked."""

REWRITTEN_HEADERS = (b"content-length", b"x-request-id", PRIORITY_HEADER.encode())

LARGE_BYTES = 32 * 1024
"""Larger bodies are parsed in a thread."""

COUNTED_BYTES = 256 * 1024
"""Larger bodies have images or too many tokens, and counting these would keep robots' prompts waiting."""

INTEGER = re.compile(r"[+-]?[0-9]{1,20}")

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")

_strict_json = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


class OpenAIEndpoints:
    """ASGI middleware that delegates ``PATHS`` to ``engine.openai_app``; without one they are ``unsupported``."""

    def __init__(self, app: ASGIApp, service: TaskService) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in PATHS:
            await self._app(scope, receive, send)
            return
        allowed = ("GET", "HEAD") if scope["path"] in READ_PATHS else ("POST",)
        if scope["method"] not in allowed:
            await http_method_problem(scope["method"], scope["path"], allowed)(scope, receive, send)
            return
        try:
            inner = self._engine_app(scope["path"])
            scope = {**scope, "headers": [one for one in scope["headers"] if one[0] not in SECRET_HEADERS]}
            if scope["path"] in READ_PATHS:
                await inner(scope, receive, send)
                return
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body: bytes = message.get("body", b"")  # Whole: ``HttpBodyLimit`` has read it.
            size = len(body)
            if scope["path"] in TOKEN_PATHS:
                await _call_off_http_loop(_decode_bounded_http_body, body, size)
                await inner(scope, http_body_again(body, receive), send)
                return
            special_texts = self._service.engine.engine.special_texts
            data = await _call_off_http_loop(
                lambda content: _decode_openai_http_body(content, special_texts), body, size
            )
            del body, message
            principal = http_scope_principal(scope)
            names = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
            choices = self._check(data, names.get(PRIORITY_HEADER, ""), principal)
            self._add_foreign_hints(data, names)
            header = names.get("x-request-id", "")
            request_id = header if REQUEST_ID.fullmatch(header) else secrets.token_hex(16)
            prefix = f"{PREFIXES[scope['path']]}-"
            hints = openai_http_hints(data, principal)
            kv_tokens = await self._kv_tokens(data, choices, principal, size)
            agent = hints.get("agent", "")
            name = prefix + request_id
            with self._service.admitted_request(name, choices, principal, agent, kv_tokens) as name:
                hints = await self._annotate(data, hints, name, principal)
                data.pop(KEY, None)
                data |= self._service.engine.engine.openai_fields(hints, data)
                text: str = await _call_off_http_loop(json.dumps, data, size)
                headers = [one for one in scope["headers"] if one[0] not in REWRITTEN_HEADERS]
                headers += [
                    (b"content-length", str(len(text)).encode()),  # ASCII
                    (b"x-request-id", name.removeprefix(prefix).encode()),
                ]
                again = http_body_again(text.encode(), receive)
                # An answer may take minutes, and a body may have megabytes.
                del data, text
                await self._pass_on(inner, {**scope, "headers": headers}, again, send)
        except TimelyError as error:
            await problem_from_error(error).response()(scope, receive, send)

    async def _pass_on(self, inner: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the engine's application answer.

        Raises:
            Overloaded: the engine died, or the server shuts down, before the answer began.
        """
        supervisor = self._service.engine.supervisor
        deaths = supervisor.deaths
        answer = OpenAIAnswer(send, lambda: self._service.stopping or supervisor.died_since(deaths))
        try:
            await inner(scope, receive, answer.send)
        except Exception:
            if not answer.refuse_if_ended():
                raise
        if answer.refused:
            self._service.check_ready()
            raise supervisor.restarting()

    def _engine_app(self, path: str) -> ASGIApp:
        # Looked up each time: an engine may have its application only once it has started.
        engine = self._service.engine.engine
        app: ASGIApp | None = getattr(engine, "openai_app", None)
        if app is None:
            self._service.check_ready()
            raise Unsupported(
                f"engine {engine.name!r} has no OpenAI endpoint; ask for plans at /v1/tasks", where=path
            )
        return app

    def _check(self, data: object, priority_header: str, principal: Principal) -> int:
        if not isinstance(data, dict):
            raise InvalidInput("must be an object", where="body")
        priority: Any = data.get("priority")
        where = "priority"
        if priority_header:
            # vLLM leaves out a header that is no integer; here it is refused, as the field is.
            where = PRIORITY_HEADER
            priority = int(priority_header) if INTEGER.fullmatch(priority_header) else None
        if priority_header or priority is not None:
            # The engine would take a text for a number, and the claims would not hold for it.
            is_number = type(priority) in (int, float) and abs(priority) <= MAX_PRIORITY
            if not is_number or priority != int(priority):
                raise InvalidInput(
                    f"must be an integer between -{MAX_PRIORITY:g} and {MAX_PRIORITY:g}", where=where
                )
            data["priority"] = int(principal.claims.priority(priority))
        return check_openai_http_fields(data, allow_grammars=self._service.settings.client_grammars)

    def _add_foreign_hints(self, data: dict[str, Any], headers: dict[str, str]) -> None:
        own = data.get(KEY, {})
        if isinstance(own, dict):
            foreign = foreign_http_hints(headers, data, self._service.settings.objectives)
            if data.get("priority") is not None:
                foreign.pop("priority", None)
            data[KEY] = {**foreign, **own}

    async def _kv_tokens(self, data: dict[str, Any], choices: int, principal: Principal, size: int) -> int:
        """Most KV cache that the answers may hold, tokens; 0 where the principal has no limit.

        The whole body counts as the prompt of each answer.
        """
        if principal.limits.kv_tokens is None:
            return 0
        self._service.check_ready()
        client = self._service.engine
        longest = client.engine.max_prompt_tokens
        answer = data.get("max_completion_tokens") or data.get("max_tokens") or longest
        prompt = longest
        if size <= COUNTED_BYTES:
            prompt = await client.count_tokens(json.dumps(data, ensure_ascii=False))
        return choices * min(prompt + answer, longest)

    async def _annotate(
        self, data: dict[str, Any], hints: dict[str, Any], name: str, principal: Principal
    ) -> dict[str, Any]:
        """The hints of a request, with its id, text and predictions."""
        text = str(hints.get("text") or openai_http_text(data))[:MAX_TEXT_CHARS]
        annotation = await self._service.predictions.annotate(
            PredictorArrival(
                name,
                text,
                hints.get("urgency"),
                hints.get("expected_tokens"),
                hurry="tuf" in hints and server_task_utility_from_wire(hints["tuf"]).urgent,
            )
        )
        hints["task_id"] = name
        if text:
            hints["text"] = text
        urgency = task_urgency_within_claims(annotation.urgency, principal.claims)
        if urgency.level is not None:
            hints["urgency"] = urgency.level
        if annotation.expected_tokens is not None:
            hints["expected_tokens"] = annotation.expected_tokens
        return hints


def _decode_bounded_http_body(body: bytes) -> Any:
    """The body.

    Raises:
        InvalidInput: no JSON, or no messages. TooLarge: too many values for the engine's checks.
    """
    value = decode_http_body(body)
    check_openai_http_parts(value)
    return value


def _decode_openai_http_body(body: bytes, special_texts: frozenset[str]) -> Any:
    """The body, its chat without special tokens.

    Raises:
        InvalidInput: no JSON, or a number or text that could not be written again for the engine.
        TooLarge: as ``_decode_bounded_http_body``.
    """
    value = http_plain_text(special_texts).body(_decode_bounded_http_body(body))
    try:
        _strict_json(value).encode()
    except ValueError as error:
        raise InvalidInput(
            "a number is not finite, or a text has half a character", where="fields"
        ) from error
    return value


async def _call_off_http_loop(function: Callable[[Any], Any], argument: object, size: int) -> Any:
    """The result of ``function``; from a thread for a body of megabytes, so that no robot waits for it."""
    return await asyncio.to_thread(function, argument) if size > LARGE_BYTES else function(argument)


def http_body_again(body: bytes, receive: Receive) -> Receive:
    """``receive`` of a request whose body was read: gives the body once, and keeps no copy of it."""
    unread: bytes | None = body

    async def again() -> Message:
        nonlocal unread
        if unread is None:
            return await receive()
        content, unread = unread, None
        return {"type": "http.request", "body": content, "more_body": False}

    return again
