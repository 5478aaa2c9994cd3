"""Narrows the tokens that a grammar allows to the object names of one request.

A grammar for every request would need compilation, which takes 0.2 s for the drone on one core. Instead the mask
clears bits that the compiled grammar has set, and only while a plan writes the name of an object.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from timely.plans.object_names import fitting_object_names, open_plan_argument
from timely.plans.skill_set import SkillArgument, SkillSet

Bits = npt.NDArray[np.int32]
"""One bit per token, 32 in a word, lowest first, as in xgrammar and vLLM; shape (words,)."""

CACHED_BITS = 512
"""Sets of tokens that are kept as bits; each takes a bit a token, 6 kB for 49,000 tokens."""

_OPENS_NAME = re.compile(rb".+'[^\W_]", re.DOTALL)


class NameMaskVocabulary:
    """A tokenizer's tokens by their bytes.

    Args:
        tokens: the bytes of each token, by token id.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tokens
        self._by_text: dict[bytes, list[int]] = {}
        for token, text in enumerate(tokens):
            if text:
                self._by_text.setdefault(text, []).append(token)
        self._texts = sorted(self._by_text)
        self._longest = max(map(len, self._texts), default=0)
        self.quotes = self._starting_with(b"'")
        """Tokens that start with a quotation mark."""
        self.opening = np.array(
            [token for token, text in enumerate(tokens) if _OPENS_NAME.match(text)], dtype=np.int64
        )
        """Tokens with a quotation mark inside, followed by the start of a name."""
        self.bits_of = lru_cache(maxsize=CACHED_BITS)(self._bits_of)
        """``_bits_of``; plans in the same place of the same scene share the result."""
        self.quote_bits = lru_cache(maxsize=1)(partial(_pack_name_bits, self.quotes))

    def text(self, tokens: Iterable[int]) -> str:
        return b"".join(self.tokens[token] for token in tokens).decode(errors="replace")

    def leading_to(self, endings: Iterable[bytes]) -> set[int]:
        """Tokens that are a prefix of one of these endings, or start with a whole one."""
        tokens: set[int] = set()
        prefixes: set[bytes] = set()
        for ending in endings:
            for length in range(1, min(len(ending), self._longest + 1)):
                prefixes.add(ending[:length])
            tokens.update(self._starting_with(ending))
        for text in prefixes:
            tokens.update(self._by_text.get(text, ()))
        return tokens

    def _bits_of(self, endings: tuple[str, ...], words: int) -> Bits:
        """The tokens of ``leading_to`` as bits; not to be changed."""
        return _pack_name_bits(self.leading_to(ending.encode() for ending in endings), words)

    def _starting_with(self, start: bytes) -> list[int]:
        tokens: list[int] = []
        for at in range(bisect_left(self._texts, start), len(self._texts)):
            if not self._texts[at].startswith(start):
                break
            tokens += self._by_text[self._texts[at]]
        return tokens


class NameMaskGuide:
    """The object names of one request, and the tokens that can write them.

    Args:
        names: those of the prompt (``object_names_in``) and of the planner.
    """

    def __init__(self, names: Iterable[str], skills: SkillSet, vocabulary: NameMaskVocabulary) -> None:
        self.names = frozenset(names)
        self.skills = skills
        self.vocabulary = vocabulary
        # A name takes several tokens, and each of them needs the list again.
        self._fitting: dict[int, list[str]] = {}

    def add(self, names: Iterable[str]) -> None:
        """Add names that came into the context with a robot's value."""
        self.names |= frozenset(names)
        self._fitting.clear()

    def _names_for(self, argument: SkillArgument) -> list[str]:
        """The names that fit the argument. Arguments differ only in the longest name that they take."""
        names = self._fitting.get(argument.chars)
        if names is None:
            names = self._fitting[argument.chars] = fitting_object_names(self.names, argument)
        return names

    @staticmethod
    def _endings(names: Iterable[str], prefix: str) -> tuple[str, ...]:
        """What may follow ``prefix`` in a name, with the closing quotation mark."""
        return tuple(f"{name[len(prefix) :]}'" for name in names if name.startswith(prefix))

    def narrow(self, plan: str, bits: Bits) -> bool:
        """Clear, in place, the bits of tokens that would write another name.

        The bits stay as they are if none would remain, or if no name fits the argument.

        Returns:
            Whether a bit was cleared.
        """
        position = open_plan_argument(plan, self.skills)
        if position is None:
            return self._narrow_opening(plan, bits)
        argument, prefix = position
        names = self._names_for(argument)
        if not names or (prefix is not None and "[" in prefix):
            return False
        if prefix is None:
            endings = tuple(f"'{name}'" for name in names)
            # The grammar alone decides on tokens that open no text, for instance a variable.
            allowed_bits = self.vocabulary.bits_of(endings, len(bits)) | ~self.vocabulary.quote_bits(
                len(bits)
            )
        else:
            allowed_bits = self.vocabulary.bits_of(self._endings(names, prefix), len(bits))
        return _clear_name_bits(bits, allowed_bits)

    def forced_text(self, plan: str) -> str | None:
        """The only text that the names allow after ``plan``, "" if there is a choice.

        Returns:
            None where the names narrow nothing, as in ``narrow``: outside names, or if no name fits.
        """
        argument, prefix = open_plan_argument(plan, self.skills) or (None, None)
        if argument is None or prefix is None or "[" in prefix:
            return None
        endings = self._endings(self._names_for(argument), prefix)
        if not endings:
            return None
        # What the first and the last in order share, all share.
        pairs = zip(min(endings), max(endings), strict=False)
        return "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def _narrow_opening(self, plan: str, bits: Bits) -> bool:
        """Clear tokens that open a name and write the start of another name at once."""
        refusals = []
        opening = self.vocabulary.opening
        # In most places the grammar allows none of them.
        candidates = opening[(bits[opening >> 5] >> (opening & 31) & 1).astype(bool)]
        for token in candidates.tolist():
            position = open_plan_argument(
                plan + self.vocabulary.tokens[token].decode(errors="replace"), self.skills
            )
            if position is None or position[1] is None:
                continue
            names = self._names_for(position[0])
            if names and not any(name.startswith(position[1]) for name in names):
                refusals.append(token)
        return bool(refusals) and _clear_name_bits(bits, ~_pack_name_bits(refusals, len(bits)))


def _pack_name_bits(tokens: Iterable[int], words: int) -> Bits:
    flags = np.zeros(words * 32, dtype=np.uint8)
    flags[list(tokens)] = 1
    return np.packbits(flags, bitorder="little").view("<i4").astype(np.int32)


def _clear_name_bits(bits: Bits, allowed_bits: Bits) -> bool:
    rest = bits & allowed_bits
    if not rest.any() or np.array_equal(rest, bits):
        return False
    bits[:] = rest
    return True
