"""Stand-ins for a chatbot's stories: texts with the lengths of WritingPrompts answers, cut as a reader reads them.

TimelyLLM (section 7.4.2) lets a model write stories for prompts of the WritingPrompts dataset. Its texts are not
shipped here; these are drawn from a small vocabulary, with sentence and paragraph lengths like those of short
stories (a dozen words a sentence, two to six sentences a paragraph, three to eight paragraphs).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from lrtrace.profiles import RobotProfile
from lrtrace.random_draws import Draw
from lrtrace.trace import PlanSegment

Unit = Literal["sentence", "paragraph"]
UNITS: tuple[Unit, ...] = ("sentence", "paragraph")

MEDIAN_WORDS, SIGMA_WORDS, SHORTEST, LONGEST = 12.0, 0.5, 4, 40
SENTENCES = (2, 6)
PARAGRAPHS = (3, 8)

_OPENERS = "the a one her his some every no that this"
_THINGS = (
    "lighthouse keeper dog letter garden river winter night city window door stranger train mother brother "
    "forest song lamp ship road mountain morning voice shadow clock mirror island bridge storm house child"
)
_WORDS = (
    "had never seen walked slowly through old quiet bright cold and then turned again before anyone could speak "
    "of it with small hands under grey sky near open sea where nothing moved but wind while years went by "
    "she knew he waited they found what was lost long ago behind hill until light came back"
)
OPENERS, THINGS, WORDS = _OPENERS.split(), _THINGS.split(), _WORDS.split()


def story(draw: Draw) -> tuple[str, list[list[str]]]:
    """A request and the story for it: sentences by paragraph."""
    subject, other = draw.choice(THINGS), draw.choice(THINGS)
    paragraphs = [
        [_sentence(draw) for _ in range(_between(draw, *SENTENCES))]
        for _ in range(_between(draw, *PARAGRAPHS))
    ]
    return f"Write a short story about a {subject} and a {other}.", paragraphs


def _between(draw: Draw, low: int, high: int) -> int:
    return low + draw.below(high - low + 1)


def _sentence(draw: Draw) -> str:
    length = round(draw.log_normal(MEDIAN_WORDS, SIGMA_WORDS))
    length = min(LONGEST, max(SHORTEST, length))
    words = [draw.choice(OPENERS), draw.choice(THINGS), *(draw.choice(WORDS) for _ in range(length - 2))]
    return f"{' '.join(words).capitalize()}."


def story_plan(
    paragraphs: list[list[str]], unit: Unit, profile: RobotProfile, count: Callable[[str], int]
) -> tuple[PlanSegment, ...]:
    """A story as segments of sentences or of paragraphs; a segment is executed by reading it.

    Raises:
        UnknownName: the profile is not one of a reader.
    """
    # A line break ends a sentence, the empty line after it a paragraph: so the second break of a pair is the last
    # character of a paragraph, but the first of the sentence that follows.
    if unit == "paragraph":
        pieces = [" ".join(paragraph) + "\n\n" for paragraph in paragraphs]
    else:
        pieces = []
        for number, paragraph in enumerate(paragraphs):
            spaced = [f"{text} " for text in paragraph[:-1]] + [f"{paragraph[-1]}\n"]
            spaced[0] = ("\n" if number else "") + spaced[0]
            pieces += spaced
    pieces[-1] = pieces[-1].rstrip()
    return tuple(
        PlanSegment(text, count(text), round(profile.estimate_s(unit, [text]), 6)) for text in pieces
    )
