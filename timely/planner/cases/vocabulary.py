"""Loads the words and wordings of generated tasks from ``data/`` and checks them.

No word of the held-out split occurs in training: a test compares the two.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, Field

from lrtrace.yaml_file import read_lrtrace_yaml
from timely.planner.cases.wordings import check_case_pattern

Split = Literal["train", "test"]
T = TypeVar("T")

_DATA = Path(__file__).resolve().parent / "data"
_WORD = re.compile("[a-z]+")
_COINABLE = re.compile("[a-z]{4,11}")
_SPACE_MARK = "\u0120"
"""How a tokenizer's vocabulary writes a space."""

Patterns = Annotated[tuple[Annotated[str, AfterValidator(check_case_pattern)], ...], Field(min_length=1)]


class CaseSplitList(BaseModel, Generic[T], extra="forbid", frozen=True):
    """One list for each split. The test of some kinds is empty."""

    train: tuple[T, ...] = Field(min_length=1)
    test: tuple[T, ...]

    def of(self, split: Split) -> tuple[T, ...]:
        return self.train if split == "train" else self.test


Words: TypeAlias = CaseSplitList[str]
WordPairs: TypeAlias = CaseSplitList[tuple[str, str]]


class CommonCaseWords(BaseModel, extra="forbid", frozen=True):
    """Lists that both splits use."""

    furniture: tuple[str, ...]
    positions: tuple[str, ...]
    obstacles: tuple[str, ...]


class CaseWordTables(BaseModel, extra="forbid", frozen=True):
    """The content of ``data/words.yaml``; the file says what each table holds."""

    drone_objects: Words
    nouns: Words
    adjectives: Words
    surfaces: Words
    unders: Words
    needs: WordPairs
    messages: Words
    questions: WordPairs
    people: Words
    animals: Words
    movers: Words
    arm_objects: Words
    arm_places: Words
    sort_places: Words
    colours: Words
    shapes: Words
    looked_at: Words
    politeness_before: Words
    politeness_after: Words
    groups: dict[str, Words]
    common: CommonCaseWords


class CaseWordings(BaseModel, extra="forbid", frozen=True):
    """The content of ``data/wordings.yaml``: patterns by skill set, split and kind of task."""

    drone: dict[Split, dict[str, Patterns]]
    arm: dict[Split, dict[str, Patterns]]

    def by_kind(self, split: Split) -> dict[str, tuple[str, ...]]:
        """All patterns of a split; kinds of the arm are prefixed with ``arm``."""
        return {**self.drone[split], **{f"arm {kind}": texts for kind, texts in self.arm[split].items()}}


WORDS = CaseWordTables.model_validate(read_lrtrace_yaml(_DATA / "words.yaml").value)
_WORDINGS = CaseWordings.model_validate(read_lrtrace_yaml(_DATA / "wordings.yaml").value)
PHRASES: dict[Split, dict[str, tuple[str, ...]]] = {
    "train": _WORDINGS.by_kind("train"),
    "test": _WORDINGS.by_kind("test"),
}
"""Patterns by split and kind of task."""


def _held_out_case_texts() -> list[str]:
    """Every text of the held-out split, politeness excepted."""
    texts = [text for patterns in PHRASES["test"].values() for text in patterns]
    tables = [
        table for name, table in WORDS if isinstance(table, CaseSplitList) and not name.startswith("polite")
    ]
    for table in (*tables, *WORDS.groups.values()):
        texts += [item if isinstance(item, str) else " ".join(item) for item in table.test]
    return texts


def coinable_case_words(vocabulary: Iterable[str]) -> tuple[str, ...]:
    """Words of a tokenizer's vocabulary that may stand for names: none of the wordings, none that is held out.

    A model reads a common word as one token, and writes it after a quotation mark as several. It learns that word
    by word, so training shows as many words as it can.
    """
    training_texts = [text for patterns in PHRASES["train"].values() for text in patterns]
    excluded_words = {word for text in training_texts for word in _WORD.findall(text)}
    excluded_words |= {word for text in _held_out_case_texts() for word in _WORD.findall(text.lower())}
    words = (word[1:] for word in vocabulary if word.startswith(_SPACE_MARK))
    return tuple(sorted(word for word in words if _COINABLE.fullmatch(word) and word not in excluded_words))
