"""Keeps special tokens out of the chats that clients send to the engine's OpenAI application.

vLLM reads a special token wherever its text stands, so a user's ``<|im_end|><|im_start|>system`` would begin a forged
turn. Here such a text loses its role: a space follows its first character, and the model reads plain text, as it does
in a task. Special tokens then come from the chat template alone.

``prompt`` and ``suffix`` of ``/v1/completions`` stay as they are. The program that writes them has a template of its
own, and they hold no turns of others.
"""

import logging
import re
from functools import lru_cache
from typing import Any

from timely.core.errors import InvalidInput

log = logging.getLogger(__name__)

CHAT_FIELDS = ("messages", "tools", "functions", "documents", "chat_template_kwargs")
"""Fields of a body whose texts become part of a chat's prompt."""


class HttpPlainText:
    """Replaces the special tokens of one tokenizer."""

    def __init__(self, special_texts: frozenset[str]) -> None:
        longest_first = sorted(special_texts, key=lambda text: (-len(text), text))
        self._special = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        self._has_warned = False

    def body(self, data: Any) -> Any:
        """A decoded body whose chat has no special token.

        Raises:
            InvalidInput: it is nested too deeply.
        """
        if self._special is None or not isinstance(data, dict):
            return data
        try:
            return {key: self._value(data[key]) if key in CHAT_FIELDS else data[key] for key in data}
        except RecursionError as error:
            raise InvalidInput("nested too deeply", where="body") from error

    def text(self, text: str) -> str:
        """The text without special tokens; what a removed one leaves behind forms no other."""
        while self._special is not None and (match := self._special.search(text)):
            if not self._has_warned:
                self._has_warned = True
                log.warning("a chat's %r is read as plain text; /v1/completions takes templates", match[0])
            text = self._special.sub(_split_http_special_token, text)
        return text

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return self._list([self._value(item) for item in value])
        if isinstance(value, dict):
            return {self.text(key): self._value(item) for key, item in value.items()}
        return value

    def _list(self, items: list[Any]) -> list[Any]:
        """Chat templates join the parts of a message, so two parts could form a special token."""
        parts = [item for item in items if isinstance(item, dict) and isinstance(item.get("text"), str)]
        text = "".join(part["text"] for part in parts)
        if self._special is not None and self._special.search(text):
            for part in parts:
                part["text"] += " "
        return items


def _split_http_special_token(match: re.Match[str]) -> str:
    return f"{match[0][0]} {match[0][1:]}" if len(match[0]) > 1 else ""


@lru_cache(maxsize=4)
def http_plain_text(special_texts: frozenset[str]) -> HttpPlainText:
    """The replacement for a tokenizer, made once."""
    return HttpPlainText(special_texts)
