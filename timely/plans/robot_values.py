"""Writes the value of a blocking skill into the context of the plan that waits for it."""

from __future__ import annotations


def value_text(value: str) -> str:
    """The value as a comment behind the statement that waits for it: `` # red box, cup`` and a line break.

    The model reads the comment, but it is no part of the plan: neither segmenter nor grammar sees it. Line breaks
    and other control characters become spaces, so that a value cannot look like a statement.
    """
    flat = "".join(character if character.isprintable() else " " for character in value)
    return f" # {' '.join(flat.split())}\n"
