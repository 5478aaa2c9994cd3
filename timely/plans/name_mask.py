"""Narrows a grammar's choice of tokens to the names that stand in a request's prompt.

A grammar of its own for every request would have to be compiled (the drone's takes 0.2 s on one core); this is a
second look at the bits the compiled grammar has set, and only while a plan writes the name of an object.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from timely.plans.object_names import fitting, open_argument
from timely.plans.skill_set import Argument, SkillSet

Bits = npt.NDArray[np.int32]
"""One bit a token, 32 in a word, lowest first, as xgrammar and vLLM keep them; shape (words,)."""

_OPENS_AND_GOES_ON = re.compile(rb".+'[^\W_]", re.DOTALL)


class Vocabulary:
    """A tokenizer's tokens by their bytes.

    Args:
        tokens: the bytes of each, by token id.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tokens
        self._by_text: dict[bytes, list[int]] = {}
        for token, text in enumerate(tokens):
            if text:
                self._by_text.setdefault(text, []).append(token)
        self._sorted = sorted(self._by_text)
        self._longest = max(map(len, self._sorted), default=0)
        self.quotes = self._behind(b"'")
        """Tokens that begin with a quotation mark."""
        self.opening = [token for token, text in enumerate(tokens) if _OPENS_AND_GOES_ON.match(text)]
        """Tokens that open a text on the way and go on in it."""

    def text(self, tokens: Iterable[int]) -> str:
        """What these tokens write."""
        return b"".join(self.tokens[token] for token in tokens).decode(errors="replace")

    def on_the_way(self, endings: Iterable[bytes]) -> set[int]:
        """Tokens that begin one of these endings, or write it whole and go on."""
        found: set[int] = set()
        begun: set[bytes] = set()
        for ending in endings:
            for length in range(1, min(len(ending), self._longest + 1)):
                begun.add(ending[:length])
            found.update(self._behind(ending))
        for text in begun:
            found.update(self._by_text.get(text, ()))
        return found

    def _behind(self, start: bytes) -> list[int]:
        """Tokens that begin with all of ``start``."""
        found: list[int] = []
        for at in range(bisect_left(self._sorted, start), len(self._sorted)):
            if not self._sorted[at].startswith(start):
                break
            found += self._by_text[self._sorted[at]]
        return found


class NameGuide:
    """The names of one request, and what of the vocabulary they leave.

    Args:
        names: in its prompt (``names_in``), with those the planner brings along.
    """

    def __init__(self, names: Iterable[str], skills: SkillSet, vocabulary: Vocabulary) -> None:
        self.names = frozenset(names)
        self.skills = skills
        self.vocabulary = vocabulary
        # A name is written over several tokens, and every token asks again.
        self._fitting: dict[int, list[str]] = {}

    def add(self, names: Iterable[str]) -> None:
        """More names: a robot's answer has come into the context."""
        self.names |= frozenset(names)
        self._fitting.clear()

    def _for(self, argument: Argument) -> list[str]:
        """The names that fit; how long they may be is all that tells arguments apart."""
        names = self._fitting.get(argument.chars)
        if names is None:
            names = self._fitting[argument.chars] = fitting(self.names, argument)
        return names

    def narrow(self, plan: str, bits: Bits) -> bool:
        """Take away, in place, the tokens that would write another name; ``plan``: what is written so far.

        Left as they are: bits of which nothing would remain, and arguments for which no name would do.

        Returns:
            Whether anything was taken away.
        """
        found = open_argument(plan, self.skills)
        if found is None:
            return self._narrow_opening(plan, bits)
        argument, written = found
        names = self._for(argument)
        if not names or (written is not None and "[" in written):
            return False
        if written is None:
            endings = [f"'{name}'".encode() for name in names]
            kept = _packed(self.vocabulary.on_the_way(endings), len(bits))
            # What does not open a text (a variable, say) is the grammar's business.
            kept |= ~_packed(self.vocabulary.quotes, len(bits))
        else:
            start = len(written)
            endings = [f"{name[start:]}'".encode() for name in names if name.startswith(written)]
            kept = _packed(self.vocabulary.on_the_way(endings), len(bits))
        return _take(bits, kept)

    def _narrow_opening(self, plan: str, bits: Bits) -> bool:
        """The few tokens that open a name and begin it at once."""
        wrong = []
        for token in self.vocabulary.opening:
            if bits[token >> 5] >> (token & 31) & 1:
                found = open_argument(
                    plan + self.vocabulary.tokens[token].decode(errors="replace"), self.skills
                )
                if found is None or found[1] is None:
                    continue
                names = self._for(found[0])
                if names and not any(name.startswith(found[1]) for name in names):
                    wrong.append(token)
        return bool(wrong) and _take(bits, ~_packed(wrong, len(bits)))


def _packed(tokens: Iterable[int], words: int) -> Bits:
    flags = np.zeros(words * 32, dtype=np.uint8)
    flags[list(tokens)] = 1
    return np.packbits(flags, bitorder="little").view("<i4").astype(np.int32)


def _take(bits: Bits, kept: Bits) -> bool:
    left = bits & kept
    if not left.any() or np.array_equal(left, bits):
        return False
    bits[:] = left
    return True
