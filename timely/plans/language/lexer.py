"""Cuts plan text into tokens; one left-to-right pass, linear in its length."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

from timely.core.errors import InvalidInput

Kind = Literal["number", "string", "name", "variable", "symbol"]

# No alternative can start where another one can, and none nests a repeat: the standard library's engine never
# backtracks over these, so the pass is linear. A pattern that comes from a file goes through RE2 instead.
_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<variable>_\w+)
      | (?P<name>[^\W\d_]\w*)
      | (?P<symbol>->|==|!=|<=|>=|&&|\|\||[-+*/<>=&|?:;,(){}])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t"}
MAX_DIGITS = 15
MAX_SHOWN = 20


class Token(NamedTuple):
    """``text`` as written (strings with their quotes); ``at`` and ``end`` are character offsets."""

    kind: Kind
    text: str
    at: int
    end: int


def tokens(text: str) -> Iterator[Token]:
    """The tokens of ``text``.

    Raises:
        InvalidInput: a character that starts no token, or a string without its closing quote.
    """
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            what = "text without its closing quote" if text[at] in "'\"" else f"unexpected {text[at]!r}"
            raise InvalidInput(what, where=place(text, at))
        kind = match.lastgroup
        at = match.end()
        if kind == "number" and match.end() - match.start() > MAX_DIGITS:
            raise InvalidInput("number with too many digits", where=place(text, match.start()))
        if kind != "space":
            yield Token(cast(Kind, kind), match.group(), match.start(), at)


def place(text: str, at: int) -> str:
    """Where in a plan: the character's number and what stands there."""
    shown = text[at : at + MAX_SHOWN]
    return f"character {at}, at {shown!r}" if shown else f"character {at}, at the end"


def unquote(text: str) -> str:
    """The text of a quoted string; ``\\n`` and ``\\t`` as in Python, any other escaped character stands for itself."""
    inside = text[1:-1]
    if "\\" not in inside:
        return inside
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), inside, flags=re.DOTALL)


def quote(text: str) -> str:
    """``text`` as a plan writes it, in single quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"'{escaped}'"
