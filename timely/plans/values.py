"""How the value of a blocking skill enters the context of the plan that waits for it."""

from __future__ import annotations


def value_text(value: str) -> str:
    """A comment at the end of the statement that asked: `` # red box, cup`` and a line break.

    It is part of what the model reads, not of the plan: neither the segmenter nor the grammar sees it. Line breaks
    and other control characters become spaces, so that a value cannot pretend to be a statement of its own.
    """
    flat = "".join(character if character.isprintable() else " " for character in value)
    return f" # {' '.join(flat.split())}\n"
