"""Synthetic stories for a chatbot workload, with the lengths of WritingPrompts answers.

In TimelyLLM (section 7.4.2) a model writes stories for prompts of the WritingPrompts dataset, which is not shipped
here. These texts come from a small vocabulary, with lengths like those of short stories. A sentence has about
a dozen words, a paragraph two to six sentences, a story three to eight paragraphs.
"""

from collections.abc import Callable
from typing import Literal

from lrtrace.job import TraceSegment
from lrtrace.random_draws import TraceRandomDraws
from lrtrace.robot_profile import RobotProfile

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


def compose_story(draw: TraceRandomDraws) -> tuple[str, list[list[str]]]:
    """A request and the story for it: sentences by paragraph."""
    subject, other = draw.choice(THINGS), draw.choice(THINGS)
    paragraphs = [
        [_draw_story_sentence(draw) for _ in range(_draw_story_number(draw, *SENTENCES))]
        for _ in range(_draw_story_number(draw, *PARAGRAPHS))
    ]
    return f"Write a short story about a {subject} and a {other}.", paragraphs


def _draw_story_number(draw: TraceRandomDraws, low: int, high: int) -> int:
    return low + draw.below(high - low + 1)


def _draw_story_sentence(draw: TraceRandomDraws) -> str:
    length = round(draw.log_normal(MEDIAN_WORDS, SIGMA_WORDS))
    length = min(LONGEST, max(SHORTEST, length))
    words = [draw.choice(OPENERS), draw.choice(THINGS), *(draw.choice(WORDS) for _ in range(length - 2))]
    return f"{' '.join(words).capitalize()}."


def compose_story_segments(
    paragraphs: list[list[str]], unit: Unit, profile: RobotProfile, count: Callable[[str], int]
) -> tuple[TraceSegment, ...]:
    """A story as segments of sentences or paragraphs. Executing a segment means reading it.

    Raises:
        UnknownName: the profile is not one of a reader.
    """
    # The first line break of a pair ends a sentence and the second one a paragraph. So the second break is the last
    # character of a paragraph segment, but the first one of the next sentence segment.
    if unit == "paragraph":
        pieces = [" ".join(paragraph) + "\n\n" for paragraph in paragraphs]
    else:
        pieces = []
        for number, paragraph in enumerate(paragraphs):
            sentence_texts = [f"{text} " for text in paragraph[:-1]] + [f"{paragraph[-1]}\n"]
            sentence_texts[0] = ("\n" if number else "") + sentence_texts[0]
            pieces += sentence_texts
    pieces[-1] = pieces[-1].rstrip()
    return tuple(
        TraceSegment(text, count(text), round(profile.execution_s(unit, [text]), 6)) for text in pieces
    )
