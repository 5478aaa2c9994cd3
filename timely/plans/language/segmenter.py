"""Finds segment boundaries while text arrives: the ends of executable parts of a plan.

**The rule for plans** (``minispec`` and ``calls``). A segment ends with the statement that completes a skill call:

* after the ``;`` or line break that ends a statement with a call in it: ``mf(50);`` ``_1=ox('cat');``;
* or after the ``}`` that ends it and closes its block: ``g('scissors')}``. The segment takes one brace only. A
  further brace, ``;``, ``->False`` or ``:{`` starts the next segment or is the plan's tail;
* or after the ``}`` of a loop with a call in it, since the robot then begins the further rounds. In ``4{mf(50);}`` and
  ``2{?iv('a'){tp()}}`` that last brace is a segment of its own;
* or after the ``{`` of a condition with a call, which the robot can evaluate now: ``?s('scissors')==True{``. A
  condition without a call (``?_1!=False{``) and a loop's header (``4{``) belong to the next segment;
* or else before the first character that cannot continue the call (``mf(50)tc(90)``, ``mf(50)->True``). Spaces after
  the bracket belong to the call;
* in ``calls``, also after a ``->`` between two calls.

So after a call's closing bracket the segmenter waits for exactly one character that is not a space, at most one
token. With ``tc(90)`` alone the robot would not know that the loop body ``4{mf(50);tc(90)}`` is complete. It would
stop after the turn until the parked generation is due again. Waiting for more would delay the last segment of a block.

**The rule for prose** (``text``). A sentence ends after ``. ! ? …``, any closing quotes or brackets, and a space, so
``3.14`` is no end. Abbreviations and initials are no end either. A sentence also ends after a line break, and
directly after ``。！？``. A paragraph ends after an empty line. A part shorter than ``min_words`` joins the next one.
After ``max_words``, or 3,000 characters, the next space ends the segment: a robot takes at most 4,000.

Segments concatenate to the text. Boundaries depend on the text alone, not on its division into tokens. The automaton
reads each character once and keeps a few scalars and the open blocks, so it is linear. RE2 is linear too but cannot be
suspended: it would match the segment again from its start at each token.
"""

from dataclasses import dataclass
from typing import Protocol

from timely.plans.skill_set import SkillSet, SkillSetTextRules


@dataclass(frozen=True, slots=True)
class Boundary:
    """A closed segment.

    Attributes:
        end: offset of its end from the start of the text.
        blocking: it uses a skill whose value the generation waits for.
        skills: full names of its skills, in order; unknown names as written.
    """

    end: int
    text: str
    blocking: bool
    skills: tuple[str, ...]


_Use = tuple[bool, tuple[str, ...]]
"""``blocking`` and ``skills`` of a closed segment."""


class _PlanScanner(Protocol):
    """Reads each character once and keeps no text."""

    def scan(self, text: str) -> list[tuple[int, _Use]]:
        """Offsets in ``text`` (0..len) of segment ends. Every part of the text must pass, in order."""

    def at_end(self, rest: str, *, truncated: bool) -> _Use | None:
        """At the end of the text: the use of the last segment, ``rest``; None if that is no segment.

        Args:
            truncated: the generation was ended before the plan was.
        """


class Segmenter:
    """Finds the boundaries of one plan while it is generated.

    Feed it the generated text in parts of any length. At the end call ``close``, since a complete call without its
    ``;`` and the rest of a prose text are segments too. Then call ``finish``.
    """

    def __init__(self, skill_set: SkillSet) -> None:
        self._scanner: _PlanScanner
        if skill_set.language == "text":
            self._scanner = _PlanTextScanner(skill_set.text_rules)
        else:
            self._scanner = _PlanCallScanner(skill_set)
        self._parts: list[str] = []
        self.position = 0
        """Characters fed so far."""

    @property
    def pending_text(self) -> str:
        return "".join(self._parts)

    def feed(self, text: str) -> list[Boundary]:
        """Take the next part of the text; returns the segments that it closes, in order."""
        ends = self._scanner.scan(text)
        start = self.position
        self.position = start + len(text)
        if not ends:
            self._parts.append(text)
            return []
        boundaries = []
        previous = 0
        for end, use in ends:
            self._parts.append(text[previous:end])
            boundaries.append(Boundary(start + end, "".join(self._parts), *use))
            self._parts = []
            previous = end
        self._parts.append(text[previous:])
        return boundaries

    def close(self, *, truncated: bool = False) -> list[Boundary]:
        """End the text; returns the last segment, if the rest is one.

        Args:
            truncated: the generation was ended before the plan was, as by its limit of tokens. Then only a call with
                its closing bracket is complete: a word or an expression may be cut off.
        """
        text = self.pending_text
        use = self._scanner.at_end(text, truncated=truncated) if text else None
        if use is None:
            return []
        last = Boundary(self.position, text, *use)
        self._parts = []
        return [last]

    def finish(self) -> str:
        """The tail: the text after the last segment.

        After ``close`` the tail of a plan executes nothing: ``}``, ``->False`` or an incomplete statement. The tail of
        prose is its last segment, unless ``close`` has returned that.
        """
        tail = "".join(self._parts)
        self._parts = []
        return tail


# States after a call's closing bracket.
_NOTHING = 0
_STATEMENT = 1  # the call is the statement: a character that cannot continue it ends the segment
_VALUE = 2  # the call is a value of an assignment or a return: an operator may follow
_ARROW = 3  # in the flat language: the "-" of "->" has come

_CONTINUES = frozenset("=!<>&|+*/,.")
"""After a call these start no other statement, nor does a bracket. The result does not parse, but it is one segment."""


_UNFINISHED = tuple("=!<>&|+-*/,")
"""At the end of a text the second operand is absent."""


class _PlanCallScanner:
    """The rule for plans."""

    def __init__(self, skill_set: SkillSet) -> None:
        self._blocks = skill_set.language == "minispec"
        self._names = {word: skill.name for word, skill in skill_set.by_word.items()}
        self._blocking = frozenset(skill.name for skill in skill_set.skills if skill.blocks)
        self._bare = frozenset(word for word, skill in skill_set.by_word.items() if not skill.arguments)
        self._quote = ""
        self._is_escaped = False
        self._word = ""
        self._in_word = False
        self._calls: list[str] = []
        self._closed_calls = 0
        """Calls in the segments so far."""
        self._open_blocks: list[int | None] = []
        """Of each open block: the calls before it if it is a loop, else None."""
        self._brackets = 0
        self._condition = False
        self._value = False
        self._open = _NOTHING

    def _close(self) -> _Use:
        names = tuple([self._names.get(word, word) for word in self._calls])
        self._calls = []
        self._closed_calls += len(names)
        self._restart()
        return not self._blocking.isdisjoint(names), names

    def _restart(self) -> None:
        self._brackets = 0
        self._condition = self._value = False
        self._open = _NOTHING

    def at_end(self, rest: str, *, truncated: bool) -> _Use | None:
        """The end of the text closes a statement without its ``;``."""
        if self._quote or self._brackets or self._condition or (truncated and self._open != _STATEMENT):
            return None
        if self._word in self._bare:
            self._calls.append(self._word)
        elif self._open == _NOTHING and rest.rstrip().endswith(_UNFINISHED):
            return None
        return self._close() if self._calls else None

    def scan(self, text: str) -> list[tuple[int, _Use]]:
        ends: list[tuple[int, _Use]] = []
        for offset, char in enumerate(text):
            if self._quote:
                if self._is_escaped:
                    self._is_escaped = False
                elif char == "\\":
                    self._is_escaped = True
                elif char == self._quote:
                    self._quote = ""
            elif char.isalnum() or char == "_":
                if self._in_word:
                    self._word += char
                    continue
                if self._open in (_STATEMENT, _ARROW):
                    ends.append((offset, self._close()))
                self._word = char
                self._in_word = True
            elif char.isspace():
                self._in_word = False
                if char == "\n" and self._open:
                    ends.append((offset + 1, self._close()))
            else:
                self._in_word = False
                self._symbol(char, offset, ends)
                self._word = ""
        return ends

    def _symbol(self, char: str, offset: int, ends: list[tuple[int, _Use]]) -> None:
        """Handle a character outside words, spaces and quotes."""
        if self._open == _ARROW:
            if char == ">":
                ends.append((offset + 1, self._close()))
                return
            ends.append((offset, self._close()))
        if char == "(":
            self._bracket()
            return
        is_bare_call = self._word in self._bare and (self._blocks or not self._brackets)
        if is_bare_call:
            self._calls.append(self._word)
        if char == ")":
            self._brackets = max(0, self._brackets - 1)
            if not self._brackets and not self._condition and self._calls:
                self._open = _VALUE if self._value else _STATEMENT
        elif char == ";" or (self._blocks and char in "{}"):
            # These never stand inside brackets, so an unclosed bracket does not swallow the rest of the plan.
            begins_rounds = char != ";" and self._brace(char)
            if self._calls or begins_rounds:
                ends.append((offset + 1, self._close()))
            else:
                self._restart()
        elif char == "-" and not self._blocks and (self._open or is_bare_call):
            self._open = _ARROW
        else:
            if self._open == _STATEMENT and char not in _CONTINUES:
                ends.append((offset, self._close()))
            self._open = _NOTHING
            if char in "'\"":
                self._quote = char
            elif self._blocks and not self._brackets:
                self._condition = self._condition or char == "?"
                self._value = self._value or char in "=-"

    def _brace(self, char: str) -> bool:
        """Open or close a block; True if that lets the robot begin the further rounds of a loop."""
        if char == "{":
            is_loop = self._word.isdecimal() and not self._condition
            self._open_blocks.append(self._closed_calls if is_loop else None)
            return False
        calls_before = self._open_blocks.pop() if self._open_blocks else None
        return calls_before is not None and self._closed_calls > calls_before

    def _bracket(self) -> None:
        self._open = _NOTHING
        self._brackets += 1
        if self._word and self._word[0].isalpha():
            self._calls.append(self._word)


_SENTENCE_ENDS = frozenset(".!?…")
_WIDE_ENDS = frozenset("。！？")
_CLOSERS = frozenset("\"')]}”’»*_")
_ABBREVIATIONS = frozenset(
    (
        *("mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "gen", "gov", "sen", "rep", "inc", "ltd"),
        *("dept", "est", "vs", "etc", "cf", "approx", "no", "fig", "eq", "e.g", "i.e", "a.m", "p.m"),
    )
)
_MANY_CHARS = 3_000
"""A segment of prose that is so long ends at the next space."""
_FIRST_WIDE = "\u2e80"
"""First character of scripts without spaces, in which each character counts as a word."""


class _PlanTextScanner:
    """The rule for prose."""

    def __init__(self, rules: SkillSetTextRules) -> None:
        self._sentences = rules.unit == "sentence"
        self._min = rules.min_words
        self._max = rules.max_words
        self._words = 0
        self._chars = 0
        self._word = ""
        self._ended = False
        self._period = False
        self._newline = False
        self._has_text = False

    def _close(self) -> _Use:
        self._words = self._chars = 0
        self._word = ""
        self._has_text = False
        return False, ()

    def at_end(self, rest: str, *, truncated: bool) -> _Use | None:
        """The rest is the last segment, unless it is only space."""
        return self._close() if self._has_text else None

    def scan(self, text: str) -> list[tuple[int, _Use]]:
        ends: list[tuple[int, _Use]] = []
        for offset, char in enumerate(text):
            self._chars += 1
            if char.isspace():
                if self._space(char):
                    ends.append((offset + 1, self._close()))
                continue
            self._newline = False
            self._has_text = True
            if char in _SENTENCE_ENDS:
                self._period = char == "." and not self._ended
                self._ended = True
            elif char in _WIDE_ENDS:
                if self._sentences and self._words >= self._min:
                    ends.append((offset + 1, self._close()))
            elif self._ended and char in _CLOSERS:
                pass
            else:
                self._letter(char)
        return ends

    def _letter(self, char: str) -> None:
        if self._ended and self._word:
            # A full stop inside a word (3.14, e.g.) ends nothing.
            self._word += "."
        self._ended = False
        if char >= _FIRST_WIDE and char.isalnum():
            self._words += 1
            self._word = ""
        elif self._word:
            self._word += char
        elif char.isalnum():
            self._words += 1
            self._word = char

    def _space(self, char: str) -> bool:
        word, self._word = self._word, ""
        ended, self._ended = self._ended, False
        again, self._newline = self._newline, self._newline or char == "\n"
        if self._has_text and self._chars >= _MANY_CHARS:
            return True
        if self._words < self._min:
            return False
        if self._words >= self._max:
            return True
        if not self._sentences:
            return char == "\n" and again
        if char == "\n":
            return True
        return ended and not (self._period and _is_plan_abbreviation(word))


def _is_plan_abbreviation(word: str) -> bool:
    """The full stop after this word is part of it: an abbreviation or an initial."""
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isalpha() and word != "I")
