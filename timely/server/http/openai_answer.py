"""The answer of the engine's OpenAI application, which becomes a refusal if the engine ended before it began."""

from collections.abc import Callable
from http import HTTPStatus

from starlette.types import Message, Send

STREAM_ERROR = b'data: {"error"'
"""How vLLM begins a stream that has failed already; its status is 200."""


class OpenAIAnswer:
    """Passes an answer on, its head together with its first body.

    Args:
        engine_ended: whether the engine has died, or ended its answers, since the request was passed on.

    Attributes:
        refused: the answer was an error of the ended engine, and nothing of it was sent.
    """

    def __init__(self, send: Send, engine_ended: Callable[[], bool]) -> None:
        self.refused = False
        self._send = send
        self._engine_ended = engine_ended
        self._head: Message | None = None
        self._has_begun = False

    async def send(self, message: Message) -> None:
        if self.refused:
            return
        if message["type"] == "http.response.start":
            self._head = message
            return
        head, self._head = self._head, None
        if head is not None:
            failed = head["status"] >= HTTPStatus.INTERNAL_SERVER_ERROR
            if (failed or message.get("body", b"").startswith(STREAM_ERROR)) and self._engine_ended():
                self.refused = True
                return
            self._has_begun = True
            await self._send(head)
        await self._send(message)

    def refuse_if_ended(self) -> bool:
        """After an error of the application: refuse if the engine ended before anything was sent."""
        self.refused = self.refused or (not self._has_begun and self._engine_ended())
        return self.refused
