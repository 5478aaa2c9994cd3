"""Limits of connections, headers, bodies and readers; TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from fleet import PLANS, WAIT_S, Fleet, Reader, body, catalogue, fleet

from timely.client import TimelyClient
from timely.core.errors import InvalidInput
from timely.engines.scripted import ScriptedEngine
from timely.server import create_app, serve_app
from timely.server.run import TlsFiles, tls_files

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def connected(served: Fleet) -> Iterator[socket.socket]:
    parts = urlsplit(served.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=WAIT_S) as connection:
        yield connection


@pytest.mark.parametrize("start", [b"", b"GET /healthz HTTP/1.1\r\n", HEAD + b"X-Slow: "])
def test_a_connection_without_a_complete_header_is_closed(start: bytes) -> None:
    with fleet(header_timeout_s=0.1) as served, connected(served) as connection:
        connection.sendall(start)
        assert connection.recv(100) == b""


def test_a_kept_connection_has_the_same_limit_for_its_next_header() -> None:
    with fleet(header_timeout_s=0.1) as served, connected(served) as connection:
        connection.sendall(HEAD + b"\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(10_000)
        connection.sendall(HEAD)
        assert connection.recv(100) == b""


def test_a_header_over_its_limit_is_431() -> None:
    with fleet(max_header_bytes=2_000) as served, connected(served) as connection:
        connection.sendall(HEAD)
        try:
            for number in range(100):
                connection.sendall(b"X-%d: %s\r\n" % (number, b"y" * 500))
            answer = connection.recv(100)
        except (ConnectionResetError, BrokenPipeError):
            answer = b"HTTP/1.1 431"  # The answer was lost with the connection.
        assert answer.startswith(b"HTTP/1.1 431")
        assert served.http.get("/healthz").status_code == 200


def test_connections_over_the_limit_get_503() -> None:
    with fleet(max_connections=3) as served, connected(served), connected(served), connected(served):
        answer = httpx.get(served.url + "/healthz")
        assert answer.status_code == 503


def test_a_task_has_so_many_readers() -> None:
    with fleet(max_readers=2) as served, served.http.stream("POST", "/v1/tasks", json=body("long")) as first:
        # A reader that is garbage closes its stream.
        readers = [Reader(first)]
        url = f"/v1/tasks/{readers[0].next()[2]['task_id']}/events"
        with served.http.stream("GET", url) as second:
            readers.append(Reader(second))
            readers[1].next()
            answer = served.http.get(url)
            assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")


def test_bodies_share_a_limit() -> None:
    with fleet(max_buffered_bytes=1_000, max_body_bytes=5_000) as served:
        answer = served.http.post("/v1/tasks", json=body("x" * 2_000))
        assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
        assert served.http.post("/v1/tasks", json=body(skill_set="nope")).status_code == 422


def certificate(folder: Path) -> TlsFiles:
    """A certificate for localhost, signed by itself."""
    files = TlsFiles(folder / "cert.pem", folder / "key.pem")
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(files.key), "-out",
        str(files.certificate),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return files


@pytest.mark.process
async def test_the_server_speaks_tls_and_the_client_checks_its_certificate(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    app = create_app(ScriptedEngine(PLANS), None, None, catalogue())
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_app(app, port=0, on_ready=ready.set_result, tls=files))
    try:
        async with asyncio.timeout(WAIT_S):
            url = await ready
            assert url.startswith("https://")
            trusting = ssl.create_default_context(cafile=files.certificate)

            def health() -> str:
                with TimelyClient(url, verify=trusting) as timely:
                    return str(timely.health()["status"])

            assert await asyncio.to_thread(health) == "ok"
            with pytest.raises(httpx.ConnectError):
                async with httpx.AsyncClient() as stranger:
                    await stranger.get(url)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def test_unusable_files_for_tls_are_named(tmp_path: Path) -> None:
    assert tls_files(None, None, None) is None
    with pytest.raises(InvalidInput, match="needs a certificate and a key"):
        tls_files(tmp_path / "cert.pem", None, None)
    with pytest.raises(InvalidInput, match="unusable"):
        tls_files(tmp_path / "cert.pem", tmp_path / "key.pem", None)
