"""Draws words, wordings and names for a generated task from one seeded stream."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from timely.planner.cases.vocabulary import PHRASES, WORDS, CaseSplitList, Split, Words
from timely.planner.cases.wordings import draw_case_wording

T = TypeVar("T")


@dataclass(slots=True)
class CaseSampler:
    """Seeded choices for one split.

    Attributes:
        coin_share: share of names that are coined. A plan can only copy such a name, not recall it.
        coinable: words that coined names are drawn from. None of them is held out.
    """

    rng: random.Random
    split: Split
    coin_share: float = 0.0
    coinable: tuple[str, ...] = ()

    def from_table(self, table: CaseSplitList[T]) -> T:
        """One entry of this split's list."""
        return self.rng.choice(table.of(self.split))

    def choose(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        return self.rng.sample(list(options), count)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def held_apart(self, numbers: Iterable[int]) -> list[int]:
        """The numbers of this split: multiples of 7 are held out of training."""
        return [n for n in numbers if (n % 7 == 0) == (self.split == "test")]

    @property
    def training(self) -> bool:
        """The split is training, which may be harder: similar names, scenes in sentences, several of a kind."""
        return self.split == "train"

    def phrase(self, kind: str, *parts: str, **slots: object) -> str:
        """One wording of a kind of task with its slots filled; ``parts`` fill the slots 1, 2 and so on."""
        patterns = PHRASES[self.split][kind]
        wording = draw_case_wording(self.rng, patterns) if self.training else self.choose(patterns)
        return wording.format("", *parts, **slots)

    def object_name(self, table: Words) -> str:
        """The name of an object: from the table or any noun, sometimes with an adjective."""
        if self.coins():
            return self.coined_name() if self.chance(0.6) else self.qualify(self.from_table(WORDS.nouns))
        name = self.from_table(table if self.chance(0.45) else WORDS.nouns)
        if " " not in name and self.chance(0.25 if self.training else 0.15):
            return f"{self.from_table(WORDS.adjectives)} {name}"
        return name

    def coins(self) -> bool:
        """The next name is coined. Draws nothing when ``coin_share`` is zero."""
        return self.coin_share > 0 and self.chance(self.coin_share)

    def coined_name(self) -> str:
        """A coinable word, or the head of one noun and the tail of another: flamello, turquet."""
        if self.coinable and self.chance(0.8):
            return self.choose(self.coinable)
        head, tail = (self.from_table(WORDS.nouns).split()[0] for _ in range(2))
        name = head[: self.rng.randint(2, 6)] + tail[len(tail) // 2 - self.choose((0, 1)) :]
        return name if name.isalpha() else self.coined_name()

    def qualify(self, name: str) -> str:
        """The name with an adjective or a coined word before it."""
        return f"{self.coined_name() if self.chance(0.5) else self.from_table(WORDS.adjectives)} {name}"

    def with_article(self, name: str) -> str:
        """The name with its article. A plural gets "some", in training sometimes nothing."""
        plural = name.endswith("s") and not name.endswith(("ss", "us"))
        if not plural:
            return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
        return name if self.training and self.chance(0.5) else f"some {name}"

    def with_position(self, name: str) -> str:
        """The name as a scene lists it; in training sometimes with a position."""
        if not self.training or self.chance(0.88):
            return name
        return f"{name} {self.choose(WORDS.common.positions)}"
