"""Finding segment boundaries in tokens as they arrive: detokenize, then feed the skill set's segmenter.

A boundary is a position in the text.
Tokens are fed singly, because a step may bring several: with speculative decoding or asynchronous scheduling.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from lrtrace.robot_profile import RobotProfile
from timely.core.errors import TimelyError
from timely.plans.language.parser import SegmentParser
from timely.plans.language.segmenter import Segmenter
from timely.plans.robot_profiles import find_plan_robot_profile
from timely.plans.skill_library import find_skill_set_copy
from timely.plans.skill_set import SkillSet
from timely.plans.timing import plan_segment_execution_s, plan_segment_max_tokens


@dataclass(frozen=True, slots=True)
class ClosedText:
    """The text of a closed segment and its expected execution time, seconds."""

    text: str
    execution_s: float
    blocking: bool


class VllmBoundaryFinder(Protocol):
    """Turns new tokens into closed segments."""

    def feed(self, token_id: int) -> list[ClosedText]: ...

    def finish(self, *, truncated: bool = False) -> ClosedText | None:
        """At the end of the generation: a last segment that only the end could close, or None.

        Args:
            truncated: the generation ended before the plan did.
        """

    @property
    def tail(self) -> str:
        """Text after the last boundary that is not an executable segment (valid after ``finish``)."""


class VllmTextBoundaries:
    """Boundaries that the skill set's segmenter sees in the text.

    Args:
        detokenize: incremental; takes a token id and returns the text it adds, maybe "".
        awaits_values: False where no value can come: then no segment blocks.
    """

    def __init__(
        self,
        skill_set: SkillSet,
        profile: RobotProfile | None,
        detokenize: Callable[[int], str],
        *,
        awaits_values: bool,
    ) -> None:
        self._awaits_values = awaits_values
        self._skill_set = skill_set
        self._profile = profile
        self._segmenter = Segmenter(skill_set)
        self._parser = SegmentParser(skill_set) if skill_set.language != "text" else None
        self._detokenize = detokenize
        self.tail = ""

    def feed(self, token_id: int) -> list[ClosedText]:
        text = self._detokenize(token_id)
        if not text:
            return []
        return [
            ClosedText(
                boundary.text, self._estimate_s(boundary.text), boundary.blocking and self._awaits_values
            )
            for boundary in self._segmenter.feed(text)
        ]

    def finish(self, *, truncated: bool = False) -> ClosedText | None:
        """A complete statement without its ``;``, or the rest of a prose text."""
        last = self._segmenter.close(truncated=truncated)
        self.tail = self._segmenter.finish()
        return ClosedText(last[0].text, self._estimate_s(last[0].text), False) if last else None

    def _estimate_s(self, text: str) -> float:
        """Expected execution time, seconds; 0 for a text that is no plan, which the server judges later."""
        if self._profile is None:
            return 0.0
        try:
            if self._parser is not None:
                self._parser.feed(text)
            return plan_segment_execution_s(text, self._skill_set, self._profile, parser_state=self._parser)
        except TimelyError:
            return 0.0


class VllmCountedBoundaries:
    """Boundaries of a replayed plan: after given numbers of tokens.

    Args:
        plan: (text, tokens, execution_s, blocking) of each segment; ``blocking`` may be left out.
    """

    def __init__(self, plan: Sequence[tuple[Any, ...]]) -> None:
        self._segments = iter(plan)
        self._segment = next(self._segments, None)
        self._tokens = 0
        self.tail = ""

    def feed(self, token_id: int) -> list[ClosedText]:
        if self._segment is None:
            return []
        text, tokens, execution_s, *more = self._segment
        self._tokens += 1
        if self._tokens < tokens:
            return []
        self._segment = next(self._segments, None)
        self._tokens = 0
        return [ClosedText(text, execution_s, bool(more and more[0]))]

    def finish(self, *, truncated: bool = False) -> ClosedText | None:
        return None


@cache
def vllm_skill_set(name: str, fingerprint: str = "") -> SkillSet:
    """The skill set of that name, read once a process and copy; see ``find_skill_set_copy``."""
    return find_skill_set_copy(name, fingerprint)


@cache
def vllm_robot_profile(name: str) -> RobotProfile:
    """The robot profile of that name, read once a process."""
    return find_plan_robot_profile(name)


class VllmSegmentBounds:
    """Longest segment of each skill set under one tokenizer, measured at first use."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._tokens: dict[str, int] = {}

    def tokens(self, skill_set: SkillSet) -> int:
        """Tokens of the longest segment that the skill set can produce."""
        bound = self._tokens.get(skill_set.fingerprint)
        if bound is None:
            bound = plan_segment_max_tokens(
                skill_set, lambda text: list(self._tokenizer.encode(text, add_special_tokens=False))
            )
            self._tokens[skill_set.fingerprint] = bound
        return bound
