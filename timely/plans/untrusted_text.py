"""Keeps text from users and robots inside its field of a prompt.

A prompt has one field a line, each with a label: ``Scene``, ``History``, ``Task``, ``Plan``. A line break in a text
could start a forged field. Ordinary text on one line stays byte for byte the same.
"""

import re
import unicodedata

LABELS = ("Scene", "History", "Task", "Plan")

_COLONS = ":\uff1a\ufe55\ufe13\u2236\ua789"
_INNER_LABEL = re.compile(rf"\b(Scene|History|Task)\s{{0,8}}[{_COLONS}]")
"""Labels inside a text. ``Plan:`` is none: a re-plan quotes the failed plan so."""
_LABELLED_LINE = re.compile(rf"^({'|'.join(LABELS)})\s{{0,8}}[{_COLONS}]", re.MULTILINE)
_JOINERS = "\u200c\u200d"
"""Invisible characters that some scripts and emoji need."""


def one_prompt_line(text: str) -> str:
    """The text as a single line without labels and invisible characters.

    Line breaks and control characters become spaces, other invisible characters go, and a label loses its colon.
    """
    first, *others = [_visible(line).strip() for line in text.strip().splitlines()] or [""]
    line = " ".join(filter(None, [first, *(_LABELLED_LINE.sub(r"\1", other) for other in others)]))
    return _INNER_LABEL.sub(r"\1", line)


def multiline_prompt_text(text: str) -> str:
    """The text of a conversation. It keeps its lines, but a line that starts with a label gets a space before it."""
    lines = [_visible(line) for line in text.strip().splitlines()]
    return _LABELLED_LINE.sub(r" \g<0>", "\n".join(lines))


def _visible(text: str) -> str:
    return text if text.isprintable() else "".join(map(_visible_character, text))


def _visible_character(character: str) -> str:
    if character == "\t" or character in _JOINERS:
        return character
    match unicodedata.category(character):
        case "Cc" | "Zl" | "Zp":
            return " "
        case "Cf" | "Cs" | "Co" | "Cn":
            return ""
    return character
