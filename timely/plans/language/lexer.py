"""Cuts plan text into tokens in one pass, linear in its length."""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

from timely.core.errors import InvalidInput

Kind = Literal["number", "string", "name", "variable", "symbol"]

# No two alternatives start with the same character and no repetition is nested, so matching never backtracks and is
# linear. Patterns from files use RE2 instead.
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
    """A token. ``text`` is as written, strings with quotes; ``at`` and ``end`` are character offsets."""

    kind: Kind
    text: str
    at: int
    end: int


def lex_plan(text: str) -> Iterator[Token]:
    """The tokens of ``text``.

    Raises:
        InvalidInput: a character that starts no token, or a string without its closing quote.
    """
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            what = "text without its closing quote" if text[at] in "'\"" else f"unexpected {text[at]!r}"
            raise InvalidInput(what, where=plan_language_place(text, at))
        kind = match.lastgroup
        at = match.end()
        if kind == "number" and match.end() - match.start() > MAX_DIGITS:
            raise InvalidInput("number with too many digits", where=plan_language_place(text, match.start()))
        if kind != "space":
            yield Token(cast(Kind, kind), match.group(), match.start(), at)


def plan_language_place(text: str, at: int) -> str:
    """Describes a place in a plan: the character's number and the text there."""
    excerpt = text[at : at + MAX_SHOWN]
    return f"character {at}, at {excerpt!r}" if excerpt else f"character {at}, at the end"


def unquote_plan_text(text: str) -> str:
    """The text of a quoted string. ``\\n`` and ``\\t`` are as in Python; another escaped character is itself."""
    inside = text[1:-1]
    if "\\" not in inside:
        return inside
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), inside, flags=re.DOTALL)


def quote_plan_text(text: str) -> str:
    """``text`` as a plan literal, in single quotes."""
    escaped_text = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"'{escaped_text}'"
