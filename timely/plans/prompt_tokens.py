"""Encodes prompts so that text from users and robots never becomes a special token.

A tokenizer turns the text ``<|im_end|>`` into a role token. In a task that would end the user's turn and start a forged
one. Ordinary prompts keep the token ids of the plain encoding.
"""

from functools import lru_cache
from typing import Any

from timely.core.errors import InvalidInput

_SENTINEL = "timely-user-content"


class PlanPromptEncoder:
    """Encodes prompts with the chat template of a Hugging Face tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._has_template = bool(getattr(tokenizer, "chat_template", None))
        added_tokens = getattr(tokenizer, "added_tokens_decoder", {})
        special_ids = {
            *tokenizer.all_special_ids,
            *(key for key, token in added_tokens.items() if token.special),
        }
        special_tokens = {token.content for token in added_tokens.values() if token.special}
        self.special_texts = frozenset({*tokenizer.all_special_tokens, *special_tokens} - {""})
        """Texts that become special tokens in a plain encoding."""
        # An unknown character is no special token, unless the tokenizer uses its end token for it.
        unknown = getattr(tokenizer, "unk_token_id", None)
        if unknown not in (tokenizer.eos_token_id, tokenizer.bos_token_id):
            special_ids.discard(unknown)
        self._special_ids = frozenset(special_ids)
        # A server has few skill sets, and each has one system prompt.
        self._frame = lru_cache(maxsize=64)(self._make_frame)

    def encode(self, system: str, user: str) -> list[int]:
        """Token ids of a prompt. Special tokens come from the template and from ``system`` only."""
        head, tail, special_tokens = self._frame(system)
        token_ids = self._encode(f"{head}{user}{tail}")
        if self.special_tokens(token_ids) == special_tokens:
            return token_ids
        tail_ids = self._tokenizer.encode(tail, add_special_tokens=False) if tail else []
        return [*self._encode(head), *self.encode_text(user), *tail_ids]

    def encode_text(self, text: str) -> list[int]:
        """Token ids of plain text, without any special token."""
        token_ids = self._tokenizer.encode(text, add_special_tokens=False)
        if not self.special_tokens(token_ids):
            return list(token_ids)
        token_ids = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return [token_id for token_id in token_ids if token_id not in self._special_ids]

    def _make_frame(self, system: str) -> tuple[str, str, list[int]]:
        """The text before and after the user's, and the special tokens in both."""
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": _SENTINEL})
        if self._has_template:
            text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        else:
            text = "\n\n".join(message["content"] for message in messages)
        head, separator, tail = text.rpartition(_SENTINEL)
        if not separator:
            raise InvalidInput("leaves out the user's message", where="chat template")
        return head, tail, self.special_tokens(self._encode(text))

    def _encode(self, text: str) -> list[int]:
        # A chat template writes its own special tokens.
        return list(self._tokenizer.encode(text, add_special_tokens=not self._has_template))

    def special_tokens(self, token_ids: list[int]) -> list[int]:
        """The special tokens among these, in order."""
        return [token_id for token_id in token_ids if token_id in self._special_ids]


@lru_cache(maxsize=4)
def plan_prompt_encoder(tokenizer: Any) -> PlanPromptEncoder:
    """The encoder of a tokenizer, made once."""
    return PlanPromptEncoder(tokenizer)
