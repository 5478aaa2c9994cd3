"""Keeps text from users and robots inside its field of a prompt.

A prompt has one field a line, each with a label: ``Scene``, ``History``, ``Task``, ``Plan``. A line break in a text
could start a forged field. Ordinary text on one line stays byte for byte the same.
"""

import re
import unicodedata

LABELS = ("Scene", "History", "Task", "Plan")

_COLONS = ":\uff1a\ufe55\ufe13\u2236\ua789"
_INNER_LABEL = re.compile(rf"\b(Scene|History|Task)(?:\s{{0,8}}[{_COLONS}])+")
"""Labels inside a text. ``Plan:`` is none: a re-plan quotes the failed plan so."""
_LABELLED_LINE = re.compile(rf"^({'|'.join(LABELS)})(?:\s{{0,8}}[{_COLONS}])+", re.MULTILINE)
HIDDEN_CHARACTERS = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters that a reader does not see, as in a character class of a pattern or a grammar.

They are Unicode's Default_Ignorable_Code_Point, and the separators of lines and paragraphs.
"""

_HIDDEN = re.compile(f"[{HIDDEN_CHARACTERS}]")
_JOINERS = "\u200c\u200d"
"""Invisible characters that some scripts and emoji need behind one of their letters."""
_SELECTORS = re.compile(r"[\ufe00-\ufe0f]")
"""Variation selectors: they choose the form of the character before them."""


def one_prompt_line(text: str) -> str:
    """The text as a single line without labels and invisible characters.

    Line breaks and control characters become spaces, other invisible characters go, and a label loses its colons.
    """
    first, *others = [_visible_prompt_text(line).strip() for line in text.strip().splitlines()] or [""]
    line = " ".join(filter(None, [first, *(_LABELLED_LINE.sub(r"\1", other) for other in others)]))
    return _INNER_LABEL.sub(r"\1", line)


def multiline_prompt_text(text: str) -> str:
    """The text of a conversation. It keeps its lines, but a line that starts with a label gets a space before it."""
    lines = [_visible_prompt_text(line) for line in text.strip().splitlines()]
    return _LABELLED_LINE.sub(r" \g<0>", "\n".join(lines))


def hidden_prompt_character(text: str) -> int | None:
    """The place of the first of ``HIDDEN_CHARACTERS`` in a text; None if there is none.

    A joiner behind a letter that may need it does not count, nor does a variation selector behind a visible character.
    """
    if text.isascii():
        return None
    places = (match.start() for match in _HIDDEN.finditer(text))
    return next((at for at in places if _is_prompt_character_hidden(text[at], text[at - 1 : at])), None)


def _is_prompt_character_hidden(character: str, before: str) -> bool:
    if character in _JOINERS:
        return before.isascii() or before in _JOINERS
    if _SELECTORS.match(character):
        return not before.strip() or before in _JOINERS or _SELECTORS.match(before) is not None
    return _HIDDEN.match(character) is not None


def _visible_prompt_text(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    line = ""
    for character in text:
        line += _visible_prompt_character(character, line[-1:])
    return line


def _visible_prompt_character(character: str, before: str) -> str:
    match unicodedata.category(character):
        case "Cc" | "Zl" | "Zp" if character != "\t":
            return " "
        case "Cs" | "Co" | "Cn":
            return ""
        case "Cf" if character not in _JOINERS:
            return ""
    return "" if _is_prompt_character_hidden(character, before) else character
