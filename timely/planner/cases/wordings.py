"""Wording patterns: ``(a|b|)`` is a choice, ``{...}`` a slot that a generator fills."""

from __future__ import annotations

import math
import random
import re
from functools import cache
from itertools import product
from string import Formatter

_CHOICE = re.compile(r"\(([^()]*)\)")


def check_case_pattern(pattern: str) -> str:
    """Return the pattern if its choices and slots are complete.

    Raises:
        ValueError: a parenthesis or brace is not closed, or a bar stands outside a choice.
    """
    text = pattern
    while (rest := _CHOICE.sub("", text)) != text:
        text = rest
    if "(" in text or "|" in text:
        raise ValueError(f"a choice of {pattern!r} is not closed")
    list(Formatter().parse(pattern))
    return pattern


@cache
def expand_wording(pattern: str) -> tuple[str, ...]:
    """All wordings of a pattern, in order.

    >>> expand("(go|fly) there(| now).")
    ('go there.', 'go there now.', 'fly there.', 'fly there now.')
    """
    texts = [pattern]
    # Innermost choices first, so that choices may stand in choices.
    while any("(" in text for text in texts):
        texts = [wording for text in texts for wording in _expand_innermost(text)]
    return tuple(dict.fromkeys(_tidy(text) for text in texts))


def _expand_innermost(text: str) -> list[str]:
    parts = _CHOICE.split(text)
    options = [part.split("|") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(choices) for choices in product(*options)]


def draw_wording(rng: random.Random, patterns: tuple[str, ...]) -> str:
    """One wording. A broad pattern is drawn more often than a narrow one, but not in proportion."""
    weights = [math.sqrt(min(_breadth(pattern), 16)) for pattern in patterns]
    text = rng.choices(patterns, weights)[0]
    while "(" in text:
        text = _CHOICE.sub(lambda match: rng.choice(match.group(1).split("|")), text)
    return _tidy(text)


@cache
def _breadth(pattern: str) -> int:
    return math.prod(choice.count("|") + 1 for choice in _CHOICE.findall(pattern)) if "(" in pattern else 1


def _tidy(text: str) -> str:
    """Remove double spaces, and spaces before a stop. A space at the start of the text stays."""
    return re.sub(r" ([,.;!?])", r"\1", re.sub(r"  +", " ", text)).rstrip(" ")
