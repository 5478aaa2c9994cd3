"""A request of the OpenAI endpoint whose engine dies is refused, unless its answer has begun."""

from __future__ import annotations

import json
import socket

import pytest
from fleet import WAIT_S, Fleet, fleet
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

PAYLOAD = {"model": "m", "messages": [], "stream": True}
FAILED = 'data: {"error": {"message": "EngineCore encountered an issue", "code": 500}}\n\ndata: [DONE]\n\n'
CHUNK = 'data: {"choices": []}\n\n'


async def raises(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError("no server in the state of the application")


def streams(*chunks: str) -> ASGIApp:
    return StreamingResponse((chunk for chunk in chunks), media_type="text/event-stream")


def serve(served: Fleet, answer: ASGIApp, *, dies: bool) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if dies:
            served.engine.crash("out of memory")
        await answer(scope, receive, send)

    served.engine.openai_app = application  # type: ignore[attr-defined]


@pytest.mark.parametrize("answer", [JSONResponse({}, 500), raises, streams(FAILED)])
def test_a_request_of_a_dead_engine_is_refused(served: Fleet, answer: ASGIApp) -> None:
    serve(served, answer, dies=True)
    refused = served.http.post("/v1/chat/completions", json=PAYLOAD)
    assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
    assert refused.headers["Retry-After"]


@pytest.mark.process
def test_a_client_that_does_not_read_its_answer_loses_its_place() -> None:
    """Else a few hundred of them keep all others out."""
    chunks = iter(lambda: CHUNK * 10_000, "")
    with fleet(send_timeout_s=0.1) as served:
        serve(served, StreamingResponse(chunks, media_type="text/event-stream"), dies=False)
        host, port = served.url.removeprefix("http://").split(":")
        content = json.dumps(PAYLOAD).encode()
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
            connection.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(content), content)
            )
            assert connection.recv(20).startswith(b"HTTP/1.1 200")
            served.until(lambda: not served.service.tasks.places(), "the place is free")
        assert served.http.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("answer", "dies", "status", "text"),
    [
        (JSONResponse({}, 500), False, 500, "{}"),
        (streams(FAILED), False, 200, FAILED),
        (streams(CHUNK, FAILED), True, 200, CHUNK + FAILED),
        (JSONResponse({}, 400), True, 400, "{}"),
    ],
)
def test_other_answers_stay_as_they_are(
    served: Fleet, answer: ASGIApp, status: int, text: str, *, dies: bool
) -> None:
    serve(served, answer, dies=dies)
    response = served.http.post("/v1/chat/completions", json=PAYLOAD)
    assert (response.status_code, response.text) == (status, text)
