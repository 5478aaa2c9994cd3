"""A request of the OpenAI endpoint whose engine dies is refused, unless its answer has begun."""

from __future__ import annotations

import pytest
from fleet import Fleet
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
