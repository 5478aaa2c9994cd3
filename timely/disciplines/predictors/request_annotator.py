"""Predictions for requests before they queue, from the predictor files of a server.

Two kinds are made at admission, before every queue: an urgency level and an output length, for requests that bring
none. The two others need what has been served and are made inside their disciplines. They are the cost of an
application (``justitia``) and the lengths that similar prompts got (``sagesched``). ``PredictorFiles`` sorts files into
these, and ``RequestAnnotator`` fills in a request. Pure: time is an argument; calls and threads are the server's.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from timely.core.errors import InvalidInput
from timely.disciplines.predictors.app_cost import APP_COSTS
from timely.disciplines.predictors.classifier import TEXT_CLASSIFIER, TextClassifier
from timely.disciplines.predictors.history import LENGTH_HISTORY
from timely.disciplines.predictors.length_bucket import LENGTH_BUCKETS, LengthBucketPredictor, LengthGuess
from timely.disciplines.predictors.predictor_file import predictor_kind
from timely.disciplines.predictors.urgency import (
    Assignment,
    ExampleUrgencyClassifier,
    Record,
    UrgencyGuess,
    UrgencyPredictor,
    UrgencyService,
)
from timely.disciplines.requirements import EXPECTED_TOKENS, LEVELS, URGENCY, check_discipline_urgency

EXAMPLES = "examples"
"""Instead of a file: the urgency classifier trained on the texts that ship."""

NONE = "none"
"""Instead of a file: nothing is predicted at admission."""

HURRY_LEVEL = 1
"""A robot in a hurry is never rated less urgent than this; the rule of ``semantic`` where nothing is predicted."""


@dataclass(frozen=True, slots=True)
class PredictorFiles:
    """Predictor files by where they belong.

    Attributes:
        urgency, lengths: for admission, or None.
        files: for disciplines: each takes those of its kind.
    """

    urgency: UrgencyPredictor | None = None
    lengths: LengthBucketPredictor | None = None
    files: tuple[Path, ...] = ()

    @classmethod
    def read(cls, names: Iterable[str]) -> Self:
        """Sort predictor files by what they say they are.

        Without any, ``examples`` predicts urgency, which is better than nothing and no triage.

        Args:
            names: files, ``examples``, or ``none`` by itself.

        Raises:
            InvalidInput: a file is no predictor file or damaged, or two are of the same kind.
            Unsupported: the embedder of one is not installed.
        """
        name_list = list(names)
        if name_list == [NONE]:
            return cls()
        if NONE in name_list:
            raise InvalidInput("'none' stands alone", where="predictor")
        urgency: UrgencyPredictor | None = None
        lengths: LengthBucketPredictor | None = None
        files: list[Path] = []
        names_by_kind: dict[str, str] = {}
        for name in name_list:
            kind = TEXT_CLASSIFIER if name == EXAMPLES else predictor_kind(Path(name))
            if kind in names_by_kind:
                raise InvalidInput(f"{names_by_kind[kind]} is a {kind} too; one is enough", where=name)
            names_by_kind[kind] = name
            if name == EXAMPLES:
                urgency = UrgencyPredictor(ExampleUrgencyClassifier())
            elif kind == TEXT_CLASSIFIER:
                urgency = _load_urgency_predictor(Path(name))
            elif kind == LENGTH_BUCKETS:
                lengths = LengthBucketPredictor.load(Path(name))
            elif kind == LENGTH_HISTORY or kind.partition(":")[0] == APP_COSTS:
                files.append(Path(name))
            else:
                raise InvalidInput(f"a {kind} file is for no predictor here", where=name)
        return cls(urgency or UrgencyPredictor(ExampleUrgencyClassifier()), lengths, tuple(files))

    def load(self, reads: Collection[str]) -> None:
        """Load now what predicts these fields and was not loaded yet; this may run in a thread."""
        if URGENCY in reads and self.urgency is not None:
            classifier = self.urgency.classifier
            if isinstance(classifier, ExampleUrgencyClassifier):
                classifier.load()


def _load_urgency_predictor(path: Path) -> UrgencyPredictor:
    classifier = TextClassifier.load(path)
    if classifier.classes != LEVELS:
        raise InvalidInput(
            f"tells {classifier.classes} classes apart; urgency has {LEVELS} levels", where=str(path)
        )
    return UrgencyPredictor(classifier)


@dataclass(frozen=True, slots=True)
class PredictorArrival:
    """A request at admission: its name, its words, and the hints it brings.

    Attributes:
        urgency, expected_tokens: as it brings them, or None. hurry: its robot is in a hurry.
    """

    name: Hashable
    text: str
    urgency: int | None = None
    expected_tokens: float | None = None
    hurry: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    urgency: Assignment
    expected_tokens: float | None
    length: LengthGuess | None = None


@dataclass(slots=True)
class Guesses:
    """What the predictors said of some arrivals, by their place."""

    urgency: dict[int, UrgencyGuess] = field(default_factory=dict)
    lengths: dict[int, LengthGuess] = field(default_factory=dict)


class RequestAnnotator:
    """Fills in what requests do not bring, as far as the discipline in use reads it.

    Args:
        record: receives every assignment and every override as plain data.
    """

    def __init__(
        self, predictors: PredictorFiles | None = None, record: Callable[[Record], None] | None = None
    ) -> None:
        self.predictors = predictors or PredictorFiles()
        self.desk = UrgencyService(self.predictors.urgency, record)
        self._record = record

    def lacks_prediction(self, arrival: PredictorArrival, reads: Collection[str]) -> bool:
        """Whether a predictor has to be asked about it.

        Args:
            reads: what the discipline in use reads; see ``discipline_reads``.
        """
        return self._level(arrival, reads) or self._length(arrival, reads)

    def guess(self, arrivals: Sequence[PredictorArrival], reads: Collection[str]) -> Guesses:
        """Ask the predictors, in one batch each. Changes nothing, so it may run in a thread."""
        guesses = Guesses()
        levels = [i for i, arrival in enumerate(arrivals) if self._level(arrival, reads)]
        if levels:
            levels_predicted = self.desk.guess([arrivals[i].text for i in levels])
            guesses.urgency = dict(zip(levels, levels_predicted, strict=True))
        lengths = [i for i, arrival in enumerate(arrivals) if self._length(arrival, reads)]
        if lengths and self.predictors.lengths is not None:
            lengths_predicted = self.predictors.lengths.predict([arrivals[i].text for i in lengths])
            guesses.lengths = dict(zip(lengths, lengths_predicted, strict=True))
        return guesses

    def annotate(
        self, arrivals: Sequence[PredictorArrival], guesses: Guesses, now: float
    ) -> list[Annotation]:
        """The annotation of each arrival; every level that is stated or predicted is recorded.

        Raises:
            InvalidInput: a level that was brought does not exist; nothing is assigned.
        """
        for arrival in arrivals:
            check_discipline_urgency(arrival.urgency)
        levels = [self._assign(arrival, guesses.urgency.get(i), now) for i, arrival in enumerate(arrivals)]
        result = []
        for i, (arrival, assignment) in enumerate(zip(arrivals, levels, strict=True)):
            length = guesses.lengths.get(i)
            tokens = arrival.expected_tokens if length is None else length.tokens
            result.append(Annotation(assignment, tokens, length))
            if length is not None and self._record is not None:
                self._record(
                    {
                        "event": "length",
                        "t_s": now,
                        "job": arrival.name,
                        "bucket": length.bucket,
                        "expected_tokens": round(length.tokens, 1),
                        "confidence": round(length.confidence, 4),
                    }
                )
        return result

    def annotate_without_guess(self, arrival: PredictorArrival, now: float) -> Annotation:
        """The annotation of one arrival of which nothing is predicted.

        Raises:
            InvalidInput: the level that it brought does not exist.
        """
        return Annotation(self._assign(arrival, None, now), arrival.expected_tokens)

    def _assign(self, arrival: PredictorArrival, guess: UrgencyGuess | None, now: float) -> Assignment:
        if guess is None and self.desk.unknown(arrival.name, arrival.urgency):
            return Assignment(None, "none")
        bound = HURRY_LEVEL if arrival.hurry else None
        return self.desk.assign(arrival.name, arrival.text, arrival.urgency, now, guess=guess, bound=bound)

    def _level(self, arrival: PredictorArrival, reads: Collection[str]) -> bool:
        reads_it = URGENCY in reads and self.desk.predicts
        return reads_it and self.desk.unknown(arrival.name, arrival.urgency)

    def _length(self, arrival: PredictorArrival, reads: Collection[str]) -> bool:
        reads_it = EXPECTED_TOKENS in reads and self.predictors.lengths is not None
        return reads_it and arrival.expected_tokens is None
