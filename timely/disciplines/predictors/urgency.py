"""Urgency levels from words (semantic scheduling, section 3.3): predicted, or an operator's, and always on record.

Five levels, 0 the most urgent, like those of the Emergency Severity Index. The predictor works at admission,
before the queue: it fills in the ``urgency`` of requests that come without one. ``PredictorStage`` models
what that costs in time.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from timely.core.arrays import Floats
from timely.core.errors import InvalidInput
from timely.disciplines.predictors.classifier import PredictorClassifier, TextClassifier
from timely.disciplines.predictors.embedding import prompt_embedder
from timely.disciplines.requirements import LEVELS, check_discipline_urgency

CAUTION = 0.4
"""Probability that a request is at least so urgent from which it is treated so."""

MAX_ASSIGNMENTS = 10_000
"""Requests whose assignment is kept, for overrides and their record."""

RECORDED_CHARS = 200
"""Of a text, in the record."""

Record = Mapping[str, Any]
Source = Literal["operator", "given", "predicted", "none"]


@dataclass(frozen=True, slots=True)
class UrgencyGuess:
    """A predicted level.

    Attributes:
        level: 0 (most urgent) to 4.
        confidence: probability of just this level.
        probabilities: of all levels.
    """

    level: int
    confidence: float
    probabilities: tuple[float, ...]


class UrgencyPredictor:
    """A classifier's probabilities turned into a level, on the safe side.

    The paper takes the likeliest level. But a request rated too low may cost a life, and one rated too high some
    seconds. So this takes the most urgent level that the request reaches with probability ``caution``: 0.5 is the
    median level, less is more careful.

    Args:
        classifier: with five classes, class k meaning level k.

    Raises:
        InvalidInput: it has another number of classes, or ``caution`` is not within 0..1.
    """

    def __init__(self, classifier: PredictorClassifier, *, caution: float = CAUTION) -> None:
        if classifier.classes != LEVELS:
            raise InvalidInput(
                f"an urgency classifier has {LEVELS} classes, {classifier.name} has {classifier.classes}",
                where="urgency predictor",
            )
        if not 0.0 < caution <= 1.0:
            raise InvalidInput(f"caution must lie within 0..1, got {caution}", where="caution")
        self.classifier = classifier
        self.caution = caution

    def predict(self, texts: Sequence[str]) -> list[UrgencyGuess]:
        table = self.classifier.probabilities(texts)
        is_reached = np.cumsum(table, axis=1) >= min(self.caution, 1.0 - 1e-9)
        levels = np.where(is_reached.any(axis=1), is_reached.argmax(axis=1), LEVELS - 1)
        return [
            UrgencyGuess(int(level), float(row[level]), tuple(float(p) for p in row))
            for level, row in zip(levels, table, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The level a request got, and why."""

    level: int | None
    source: Source
    confidence: float = 1.0


class UrgencyService:
    """Gives each request its level and keeps record: an operator's word before the request's own, before a guess.

    Args:
        predictor: for requests that bring no level; without one they keep none.
        record: receives every assignment and override as plain data (one JSON object a line makes a good log).
    """

    def __init__(
        self, predictor: UrgencyPredictor | None = None, record: Callable[[Record], None] | None = None
    ) -> None:
        self._predictor = predictor
        self._record = record
        self._assignments: OrderedDict[Hashable, Assignment] = OrderedDict()

    @property
    def predicts(self) -> bool:
        """Requests that bring no level get one all the same."""
        return self._predictor is not None

    def guess(self, texts: Sequence[str]) -> list[UrgencyGuess]:
        """The predictor alone, in one batch; touches no state, so it may run in a thread. Empty without one."""
        return [] if self._predictor is None or not texts else self._predictor.predict(texts)

    def unknown(self, name: Hashable, stated_level: int | None) -> bool:
        """Whether the level of a request is for the predictor to say."""
        return stated_level is None and not self._overridden(name)

    def assign(
        self,
        name: Hashable,
        text: str,
        stated_level: int | None,
        now: float,
        *,
        guess: UrgencyGuess | None = None,
        bound: int | None = None,
    ) -> Assignment:
        """Give a request its urgency level: the operator's, else the one that it brought, else the predicted one.

        Args:
            bound: a predicted level is not less urgent than this.

        Raises:
            InvalidInput: the level that it brought lies outside 0..4.
        """
        check_discipline_urgency(stated_level)
        if self._overridden(name):
            assignment = self._assignments[name]
        elif stated_level is not None:
            assignment = Assignment(stated_level, "given")
        elif guess is not None:
            level = guess.level if bound is None else min(guess.level, bound)
            assignment = Assignment(level, "predicted", guess.confidence)
        else:
            assignment = Assignment(None, "none")
        self._keep(name, assignment)
        self._note(
            {
                "event": "urgency",
                "t_s": now,
                "job": name,
                "level": assignment.level,
                "source": assignment.source,
                "confidence": round(assignment.confidence, 4),
                "text": text[:RECORDED_CHARS],
            }
            | ({} if guess is None else self._of(guess))
            | ({} if bound is None or guess is None else {"at_least_as_urgent_as": bound})
        )
        return assignment

    def _of(self, guess: UrgencyGuess) -> dict[str, Any]:
        name = "" if self._predictor is None else self._predictor.classifier.name
        return {"model": name, "probabilities": [round(p, 4) for p in guess.probabilities]}

    def override(
        self, name: Hashable, level: int, *, operator: str, reason: str, now: float
    ) -> Assignment | None:
        """An operator's word on one request, before or after it came; returns what it was before, None if unknown.

        For a request that is already in an engine, call ``EngineController.set_urgency`` too.

        Raises:
            InvalidInput: no such level, or no operator's name.
        """
        check_discipline_urgency(level)
        if level is None or not operator.strip():
            raise InvalidInput("an override needs a level and the operator's name", where="operator")
        before = self._assignments.get(name)
        self._keep(name, Assignment(level, "operator"))
        self._note(
            {
                "event": "urgency_override",
                "t_s": now,
                "job": name,
                "from": None if before is None else before.level,
                "to": level,
                "operator": operator,
                "reason": reason,
            }
        )
        return before

    def _overridden(self, name: Hashable) -> bool:
        assignment = self._assignments.get(name)
        return assignment is not None and assignment.source == "operator"

    def _keep(self, name: Hashable, assignment: Assignment) -> None:
        self._assignments[name] = assignment
        self._assignments.move_to_end(name)
        if len(self._assignments) > MAX_ASSIGNMENTS:
            self._assignments.popitem(last=False)

    def _note(self, record: Record) -> None:
        if self._record is not None:
            self._record(record)


def urgency_predictor_examples() -> tuple[list[str], list[int]]:
    """The texts and levels that ship, 30 a level: emergencies, robots' tasks, ordinary questions."""
    import yaml

    source = resources.files("timely.disciplines.predictors") / "urgency_examples.yaml"
    levels: dict[int, list[str]] = yaml.safe_load(source.read_text(encoding="utf-8"))["levels"]
    pairs = [(text, level) for level, texts in sorted(levels.items()) for text in texts]
    return [text for text, _ in pairs], [level for _, level in pairs]


@cache
def example_urgency_classifier(embedder_name: str = "hash") -> TextClassifier:
    """A classifier trained on ``examples`` at its first use, in under a second.

    A start, not a triage system. Measured by ten-fold cross-validation on its own 150 texts, mean of four. With
    ``hash`` 39% of the likeliest levels are right and 80% at most one off. With ``wordllama`` it is 47% and 87%, by
    guessing 20% and 52%.
    The predictor's caution takes the share rated too low from 32% to 22% and from 24% to 18%. Train one on labelled
    texts of your own domain with ``TextClassifier.train``.

    Raises:
        UnknownName: no such embedder.
        Unsupported: it is not installed.
    """
    texts, levels = urgency_predictor_examples()
    text_embedder = None if embedder_name == "hash" else prompt_embedder(embedder_name)
    return TextClassifier.train(texts, levels, LEVELS, embedder=text_embedder, note="the examples that ship")


class ExampleUrgencyClassifier:
    """``example_urgency_classifier`` on the best embedder that is installed.

    It is trained at its first use: that takes a quarter of a second, and most disciplines read no levels.
    """

    classes = LEVELS

    @property
    def name(self) -> str:
        """As of the trained classifier."""
        return self._classifier().name

    def probabilities(self, texts: Sequence[str]) -> Floats:
        return self._classifier().probabilities(texts)

    def load(self) -> None:
        """Train it now; this may run in a thread."""
        self._classifier()

    @staticmethod
    def _classifier() -> TextClassifier:
        return example_urgency_classifier("wordllama" if find_spec("wordllama") else "hash")
