"""Wording patterns: ``(a|b|)`` is a choice, ``{...}`` a slot that a generator fills."""

import math
import random
import re
from functools import cache
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


def draw_case_wording(rng: random.Random, patterns: tuple[str, ...]) -> str:
    """One wording. A broad pattern is drawn more often than a narrow one, but not in proportion."""
    weights = [math.sqrt(min(_case_pattern_breadth(pattern), 16)) for pattern in patterns]
    text = rng.choices(patterns, weights)[0]
    while "(" in text:
        text = _CHOICE.sub(lambda match: rng.choice(match.group(1).split("|")), text)
    return _tidy_case_text(text)


@cache
def _case_pattern_breadth(pattern: str) -> int:
    return math.prod(choice.count("|") + 1 for choice in _CHOICE.findall(pattern)) if "(" in pattern else 1


def _tidy_case_text(text: str) -> str:
    """Remove double spaces, and spaces before a stop. A space at the start of the text stays."""
    return re.sub(r" ([,.;!?])", r"\1", re.sub(r"  +", " ", text)).rstrip(" ")
