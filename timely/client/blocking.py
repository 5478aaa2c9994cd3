"""Runs the client of asyncio without an event loop: over a transport that blocks, so that no coroutine ever waits."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import httpx

Result = TypeVar("Result")
Client = TypeVar("Client")
Arguments = ParamSpec("Arguments")


def run_client_coroutine(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine whose input and output block; raises what it raises."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine of the client waits for an event loop")


def next_of_client_stream(stream: AsyncIterator[Result]) -> Result:
    """What ``next`` returns of a stream; raises StopIteration at its end."""
    try:
        return run_client_coroutine(anext(stream))  # type: ignore[arg-type]
    except StopAsyncIteration:
        raise StopIteration from None


class Blocking(Generic[Client]):
    """The same object for threads: ``client`` is that of asyncio, over a ``BlockingTransport``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __enter__(self) -> Self:
        return self


def blocking(
    method: Callable[Concatenate[Client, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Blocking[Client], Arguments], Result]:
    """A method of the client of asyncio, as one that returns when it is done."""

    @functools.wraps(method)
    def call(self: Blocking[Client], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return run_client_coroutine(method(self._client, *args, **kwargs))

    return call


class BlockingTransport(httpx.AsyncBaseTransport):
    """Sends requests on the calling thread, through a client that threads may share."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = self._http.send(request, stream=True)
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_BlockingStream(response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        self._http.close()


class _BlockingStream(httpx.AsyncByteStream):
    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._response.stream, httpx.SyncByteStream)
        for chunk in self._response.stream:
            yield chunk

    async def aclose(self) -> None:
        self._response.close()
