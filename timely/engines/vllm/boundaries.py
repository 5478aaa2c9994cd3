"""Finding segment boundaries in tokens as they come: detokenize, then feed the skill set's segmenter.

A boundary is a position in the text. Several tokens may arrive in one step (speculative decoding, async
scheduling), so each token is fed by itself and the surplus after a boundary is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from lrtrace.profiles import find_profile
from lrtrace.robot_profile import RobotProfile
from timely.core.errors import TimelyError
from timely.plans import (
    Segmenter,
    SegmentParser,
    SkillSet,
    find_skill_set,
    max_segment_tokens,
    segment_execution_s,
)


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed segment: its text, expected execution time (seconds), and tokens of this step beyond it."""

    text: str
    execution_s: float
    blocking: bool
    surplus_tokens: int


class BoundaryFinder(Protocol):
    """Turns new tokens into closed segments."""

    def feed(self, token_ids: Sequence[int]) -> list[Closed]:
        """Segments that these tokens complete, in order."""
        ...

    def finish(self) -> Closed | None:
        """At the end of the generation: a last segment that only the end could close, or None."""
        ...

    @property
    def tail(self) -> str:
        """Text after the last boundary that is not an executable segment (valid after ``finish``)."""
        ...


class TextBoundaries:
    """Boundaries found in the text by the skill set's segmenter.

    Args:
        detokenize: incremental; called with one token id at a time, returns the text it adds (maybe "").
    """

    def __init__(
        self, skill_set: SkillSet, profile: RobotProfile | None, detokenize: Callable[[int], str]
    ) -> None:
        self._skill_set = skill_set
        self._profile = profile
        self._segmenter = Segmenter(skill_set)
        self._parser = SegmentParser(skill_set) if skill_set.language != "text" else None
        self._detokenize = detokenize
        self.tail = ""

    def feed(self, token_ids: Sequence[int]) -> list[Closed]:
        """Feed token by token, so that the surplus behind a boundary is known."""
        closed: list[Closed] = []
        count = len(token_ids)
        for position, token_id in enumerate(token_ids, 1):
            text = self._detokenize(token_id)
            if not text:
                continue
            for boundary in self._segmenter.feed(text):
                closed.append(
                    Closed(boundary.text, self._estimate(boundary.text), boundary.blocking, count - position)
                )
        return closed

    def finish(self) -> Closed | None:
        """What only the end could close: a complete call without its ``;``, the rest of a prose text."""
        last = self._segmenter.close()
        self.tail = self._segmenter.finish()
        if not last:
            return None
        return Closed(last[0].text, self._estimate(last[0].text), False, 0)

    def _estimate(self, text: str) -> float:
        """Expected execution time, seconds; 0 for what is no plan: whether it may be sent is not decided here."""
        if self._profile is None:
            return 0.0
        try:
            if self._parser is not None:
                self._parser.feed(text)
            return segment_execution_s(text, self._skill_set, self._profile, parser_state=self._parser)
        except TimelyError:
            return 0.0


class CountedBoundaries:
    """Boundaries of a replayed plan: after given numbers of tokens.

    Args:
        plan: (text, tokens, execution_s, blocking) of each segment; the last may be left out.
    """

    def __init__(self, plan: Sequence[tuple[Any, ...]]) -> None:
        self._plan = list(plan)
        self._next = 0
        self._left = self._plan[0][1] if self._plan else 0
        self.tail = ""

    def feed(self, token_ids: Sequence[int]) -> list[Closed]:
        """Count tokens."""
        closed: list[Closed] = []
        for position in range(1, len(token_ids) + 1):
            if self._next >= len(self._plan):
                break
            self._left -= 1
            if self._left == 0:
                text, _, execution_s, *more = self._plan[self._next]
                closed.append(Closed(text, execution_s, bool(more and more[0]), len(token_ids) - position))
                self._next += 1
                self._left = self._plan[self._next][1] if self._next < len(self._plan) else 0
        return closed

    def finish(self) -> Closed | None:
        """Nothing is left open by a plan that ran to its end."""
        return None


@cache
def skill_set_named(name: str) -> SkillSet:
    """The skill set of that name, read once a process."""
    return find_skill_set(name)


@cache
def profile_named(name: str) -> RobotProfile:
    """The robot profile of that name, read once a process."""
    return find_profile(name)


class SegmentBounds:
    """Longest segment of each skill set under one tokenizer, measured at first use."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, int] = {}

    def tokens(self, skill_set: SkillSet) -> int:
        """Tokens of the longest segment that the skill set can produce."""
        bound = self._known.get(skill_set.name)
        if bound is None:
            bound = max_segment_tokens(
                skill_set, lambda text: list(self._tokenizer.encode(text, add_special_tokens=False))
            )
            self._known[skill_set.name] = bound
        return bound
