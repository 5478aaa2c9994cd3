"""Writes parts of EBNF for xgrammar and llama.cpp (GBNF): literals, numbers in a range, texts.

Every repetition is bounded, so a model cannot repeat itself without end.
"""

import math
from collections.abc import Iterable

from timely.core.errors import InvalidInput
from timely.plans.untrusted_text import HIDDEN_CHARACTERS

# Letters of object names: a subset of ``OBJECT_NAME``.
_LETTERS = (
    r"a-zA-Z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017f\u0391-\u03a1\u03a3-\u03c9\u0410-\u044f"
    r"\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3"
)
_PRIVATE = r"\ue000-\uf8ff\U000f0000-\U0010ffff"
"""Characters for private use, which the check of a segment refuses."""
_MAX_DIGITS = 4
MAX_DECIMALS = 6
_FEWEST_STEPS = 10
"""Steps of a range, in decimals, unless it needs more than ``MAX_DECIMALS``."""
_ROUNDING = 1e-9
"""0.29 times 100 is 28.999999999999996."""
_WORD_CHARS = 14
_MAX_WORDS = 8
OBJECT_WORDS = 3
"""Maximum words of an object name."""
_POSITION = ' "[0." [0-9]{1,2} "]"'
_POSITION_CHARS = 6


def ebnf_literal(text: str) -> str:
    escaped_text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped_text}"'


def ebnf_either(options: Iterable[str]) -> str:
    """One of ``options``, in brackets if there are several."""
    alternatives = list(dict.fromkeys(options))
    return alternatives[0] if len(alternatives) == 1 else f"({' | '.join(alternatives)})"


def ebnf_integer(low: int | None, high: int | None) -> str:
    """A whole number in ``low..high`` without leading zeros.

    Without a bound it has at most four digits, or as many as the other bound.
    """
    low, high = (int(bound) for bound in _ebnf_bounds(low, high))
    return ebnf_either(_ebnf_signed(low, high, 0))


def ebnf_decimal(low: float | None, high: float | None) -> str:
    """A number in ``low..high``, whole or with a decimal; in a range below 1 with more decimals.

    Without a bound it has at most four digits before the point, or as many as the other bound.

    Raises:
        InvalidInput: the range holds no number of ``MAX_DECIMALS``.
    """
    low, high = _ebnf_bounds(low, high)
    for decimals in range(1, MAX_DECIMALS + 1):
        bounds = [
            (math.ceil(low * 10**digits - _ROUNDING), math.floor(high * 10**digits + _ROUNDING))
            for digits in range(decimals + 1)
        ]
        if decimals == MAX_DECIMALS or bounds[-1][1] - bounds[-1][0] >= _FEWEST_STEPS:
            break
    parts = [part for digits, (start, end) in enumerate(bounds) for part in _ebnf_signed(start, end, digits)]
    if not parts:
        raise InvalidInput(f"no number of {MAX_DECIMALS} decimals lies in {low:g}..{high:g}", where="grammar")
    return ebnf_either(parts)


def _ebnf_bounds(low: float | None, high: float | None) -> tuple[float, float]:
    """Both bounds of a range that may be open."""
    digits = max([_MAX_DIGITS, *(len(str(abs(int(bound)))) for bound in (low, high) if bound is not None)])
    top = 10**digits - 1
    return -top if low is None else low, top if high is None else high


def _ebnf_signed(low: int, high: int, decimals: int) -> list[str]:
    """The numbers ``low..high`` with the point before their last ``decimals`` digits."""
    parts = [_ebnf_glue(classes, decimals) for classes in _ebnf_range(max(low, 0), high)]
    return parts + [f'"-" {_ebnf_glue(classes, decimals)}' for classes in _ebnf_range(max(1, -high), -low)]


def ebnf_text(chars: int) -> str:
    """A text in single quotes: words with one space between them, at most ``chars`` characters in the quotes."""
    words = max(1, min(_MAX_WORDS, (chars + 1) // (_WORD_CHARS + 1)))
    return _ebnf_words(rf"[^ '\"\\\x00-\x1f\x7f-\x9f{HIDDEN_CHARACTERS}{_PRIVATE}]", "", words, chars)


def ebnf_object_name(chars: int) -> str:
    """An object name in single quotes: words with one space between them, at most ``chars`` characters.

    If the length permits, a horizontal position may follow as in TypeFly: ``chair[0.6]``.
    """
    words = max(1, min(OBJECT_WORDS, (chars + 1) // 8))
    part, first = f"[{_LETTERS}0-9_-]", f"[{_LETTERS}]"
    plain = _ebnf_words(part, first, words, chars)
    if chars < 2 * _POSITION_CHARS:
        return plain
    return f"{plain} | {_ebnf_words(part, first, words, chars - _POSITION_CHARS, after=_POSITION)}"


def ebnf_object_pattern(chars: int) -> str:
    """A regular expression for the names that ``ebnf_object_name`` accepts, without quotes."""
    words = max(1, min(OBJECT_WORDS, (chars + 1) // 8))
    longest = (chars + 1) // words - 1
    part, first = f"[{_LETTERS}0-9_-]", f"[{_LETTERS}]"
    position = r"(?:\[0\.[0-9]{1,2}\])?" if chars >= 2 * _POSITION_CHARS else ""
    return rf"{first}{part}{{0,{longest - 1}}}(?: {part}{{1,{longest}}}){{0,{words - 1}}}{position}"


def _ebnf_words(part: str, first: str, words: int, chars: int, *, after: str = "") -> str:
    """One to ``words`` words of ``part`` characters. A non-empty ``first`` restricts the first character.

    The rule lists alternatives of plain repetitions. Nested repetitions would be shorter, but with them xgrammar 0.2
    tries thousands of tokens at each step inside a text: 20 ms a token with SmolLM2's vocabulary, not under 1 ms.
    """
    longest = (chars + 1) // words - 1
    word = f"{part}{{1,{longest}}}"
    start = f"{first} {part}{{0,{longest - 1}}}" if first else word
    further = f' " " {word}'
    return " | ".join(f'"\'" {start}{further * more}{after} "\'"' for more in range(words))


def _ebnf_glue(classes: list[str], decimals: int) -> str:
    """A sequence of digits and digit classes, with the point before the last ``decimals`` of them."""
    digits = ["0"] * (decimals + 1 - len(classes)) + classes
    if decimals:
        digits.insert(-decimals, ".")
    return " ".join(part if part.startswith("[") else f'"{part}"' for part in digits)


def _ebnf_range(low: int, high: int) -> list[list[str]]:
    """Patterns, digit by digit, that together match ``low..high`` (zero or more), each number once."""
    patterns: list[list[str]] = []
    if high < low:
        return patterns
    for digits in range(len(str(low)), len(str(high)) + 1):
        start = max(low, 0 if digits == 1 else 10 ** (digits - 1))
        end = min(high, 10**digits - 1)
        if start <= end:
            patterns += _ebnf_same_length(str(start), str(end))
    return patterns


def _ebnf_same_length(low: str, high: str) -> list[list[str]]:
    if low == high:
        return [list(low)]
    if len(low) == 1:
        return [[f"[{low}-{high}]"]]
    if low[0] == high[0]:
        return [[low[0], *rest] for rest in _ebnf_same_length(low[1:], high[1:])]
    width = len(low) - 1
    patterns = []
    first, last = int(low[0]), int(high[0])
    if int(low[1:]) > 0:
        patterns += [[low[0], *rest] for rest in _ebnf_same_length(low[1:], "9" * width)]
        first += 1
    tail: list[list[str]] = []
    if high[1:] != "9" * width:
        tail = [[high[0], *rest] for rest in _ebnf_same_length("0" * width, high[1:])]
        last -= 1
    if first <= last:
        lead = str(first) if first == last else f"[{first}-{last}]"
        patterns.append([lead, *["[0-9]"] * width])
    return patterns + tail
