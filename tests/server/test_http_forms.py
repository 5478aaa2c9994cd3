"""Forms of requests beside the usual ones: HEAD, slashes, compressed bodies, bodies of a stop."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from fleet import WAIT_S, Fleet, Reader, body, fleet


@pytest.fixture(scope="module")
def served() -> Iterator[Fleet]:
    with fleet(grace_s=1000.0) as running:
        yield running


@pytest.mark.parametrize(
    "path", ["/livez", "/healthz", "/readyz", "/openapi.json", "/v1/status", "/v1/skill_sets"]
)
def test_head_is_get_without_a_body(served: Fleet, path: str) -> None:
    answer, whole = served.http.head(path), served.http.get(path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == whole.headers["content-type"]


def test_head_opens_no_stream(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body("ask", id="read")) as stream:
        Reader(stream).next()
        answer = served.http.head("/v1/tasks/read/events")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert served.http.head("/v1/tasks").headers["allow"] == "POST"
    assert served.http.head("/v1/tasks/read").status_code == 200
    for path in ("/livez", "/v1/models", "/version"):
        assert served.http.post(path).headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("request_line", "host", "status", "detail"),
    [
        ("GET /livez HTTP/1.0", "", 200, ""),
        ("GET /livez HTTP/1.0", "Host: 127.0.0.1", 200, ""),
        ("GET /livez HTTP/1.0", "Host: evil.example", 403, "is no name of this server"),
        ("GET /livez HTTP/1.0", "Host:", 403, "the header is missing"),
        ("GET /livez HTTP/1.1", "", 403, "the header is missing"),
        ("GET http://127.0.0.1/livez HTTP/1.1", "Host: 127.0.0.1", 200, ""),
    ],
)
def test_a_host_is_named_but_by_http_1_0(
    served: Fleet, request_line: str, host: str, status: int, detail: str
) -> None:
    url = urlsplit(served.url)
    lines = [request_line, *filter(None, [host]), "Connection: close", "", ""]
    with socket.create_connection((url.hostname, url.port), WAIT_S) as connection:
        connection.sendall("\r\n".join(lines).encode())
        answer = connection.makefile("rb").read().decode()
    assert int(answer.split()[1]) == status
    assert detail in answer


@pytest.mark.parametrize("path", ["/v1/stop/", "/v1/tasks/", "/livez/"])
def test_no_request_is_redirected(served: Fleet, path: str) -> None:
    answer = served.http.post(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert not served.service.fleet_stop.latch.is_latched


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks/none/reports", "/v1/chat/completions"])
@pytest.mark.parametrize("encoding", ["gzip", "br", "GZIP, identity"])
def test_a_compressed_body_is_said_to_be_one(served: Fleet, path: str, encoding: str) -> None:
    headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
    content = gzip.compress(json.dumps(body()).encode())
    answer = served.http.post(path, content=content, headers=headers)
    assert (answer.status_code, answer.json()["where"]) == (415, "Content-Encoding")
    assert answer.headers["accept-encoding"] == "identity"


def test_identity_is_no_compression(served: Fleet) -> None:
    answer = served.http.post("/v1/tasks", json={"task": 5}, headers={"Content-Encoding": "identity"})
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("content", "kind", "ignored"),
    [
        (b"reason=smoke", "application/x-www-form-urlencoded", "send application/json"),
        (b"{reason: smoke}", "application/json", "body: not JSON"),
        (b'{"reason": 5}', "application/json", "reason: "),
        (b'{"deadline_s": 1e9}', "application/json", "deadline_s: "),
        (b'{"why": "smoke"}', "application/json", "why: "),
        (b"\x1f\x8b", "application/json", "send the body without Content-Encoding"),
        (b"", "text/plain", None),
        (b'{"reason": "smoke", "deadline_s": 0.0}', "application/json", None),
    ],
)
def test_robots_stop_whatever_the_body_says(content: bytes, kind: str, ignored: str | None) -> None:
    with fleet() as served:
        headers = {"Content-Type": kind, "Content-Encoding": "gzip" if content[:1] == b"\x1f" else "identity"}
        answer = served.http.post("/v1/stop", content=content, headers=headers)
        assert (answer.status_code, answer.json()["stopped"]) == (200, True)
        assert (answer.json().get("ignored") or "").startswith(ignored or "")
        assert ("ignored" in answer.json()) is (ignored is not None)
        assert served.service.fleet_stop.latch.is_latched
