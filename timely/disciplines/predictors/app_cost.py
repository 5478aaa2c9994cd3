"""What an application will cost in all, from the text of its first request (Justitia section IV-B).

Per application type a TF-IDF vector of the text goes through a small multi-layer perceptron. Training needs
scikit-learn (extra ``predict``), a hundred samples a type and seconds; predicting needs numpy only. Models are kept
in a file of plain numbers, never in a pickle.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from timely.core.arrays import Floats
from timely.core.errors import InvalidInput, Unsupported
from timely.core.job import JobSpec
from timely.disciplines.predictors.predictor_file import read_predictor_arrays, write_predictor_arrays

CostModel = Callable[[float, float], float]
"""Cost of one request from its prompt tokens and its output tokens."""


def predictor_kv_token_time(prompt_tokens: float, output_tokens: float) -> float:
    """``p d + d^2 / 2``: tokens in the KV cache, summed over the steps of a generation (Justitia Eq. 1)."""
    return prompt_tokens * output_tokens + output_tokens * output_tokens / 2.0


def predictor_weighted_tokens(prompt_tokens: float, output_tokens: float) -> float:
    """``p + 2 d``: VTC's cost, and that of Justitia/C (section V-D)."""
    return prompt_tokens + 2.0 * output_tokens


KV, WEIGHTED = "kv", "weighted"
COSTS: dict[str, CostModel] = {KV: predictor_kv_token_time, WEIGHTED: predictor_weighted_tokens}
"""Costs by the name that a predictor file is marked with."""


FIRST_OUTPUT_TOKENS = 128.0
"""Output length that ``OnlineAppCosts`` expects before anything is known."""
MEANS_OF = 50
"""How many of the latest applications of a type its mean remembers."""


class AppCosts(Protocol):
    """Tells what an application will cost, once, when its first request arrives."""

    def predict(self, kind: str, spec: JobSpec) -> float:
        """Cost of all requests of an application of type ``kind`` whose first request is ``spec``; positive."""

    def learn(self, kind: str, spec: JobSpec, cost: float) -> None: ...


class OnlineAppCosts:
    """Running means while serving: of the cost by application type, and of output length for the rest."""

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self._output = FIRST_OUTPUT_TOKENS
        self._means: dict[str, tuple[float, int]] = {}
        self._alone = 0

    def predict(self, kind: str, spec: JobSpec) -> float:
        entry = self._means.get(kind) if kind else None
        if entry is not None:
            return entry[0]
        output = spec.hints.expected_tokens if spec.hints.expected_tokens is not None else self._output
        one = self._cost(float(spec.prompt_tokens), min(max(1.0, output), float(max(1, spec.max_tokens))))
        return max(1.0, one * (spec.hints.app_requests or 1))

    def learn(self, kind: str, spec: JobSpec, cost: float) -> None:
        if not cost > 0.0:
            return
        if not kind:
            # Requests of their own have prompts of their own: what they share is how long they go on.
            length = self._implied_output(float(spec.prompt_tokens), cost)
            self._alone += 1
            self._output += (length - self._output) / min(self._alone, MEANS_OF)
            return
        # Taken out and put in again: the first is the one not heard of for longest.
        mean, count = self._means.pop(kind, (0.0, 0))
        if len(self._means) >= MAX_KINDS:
            del self._means[next(iter(self._means))]
        weight = 1.0 / min(count + 1, MEANS_OF)
        self._means[kind] = (mean + weight * (cost - mean), count + 1)

    def _implied_output(self, prompt_tokens: float, cost: float) -> float:
        """The output tokens at which a request costs that much; costs grow with the output."""
        low, high = 0.0, 1.0
        while self._cost(prompt_tokens, high) < cost and high < 1e9:
            low, high = high, 2.0 * high
        while high - low > 0.5:
            middle = (low + high) / 2.0
            low, high = (middle, high) if self._cost(prompt_tokens, middle) < cost else (low, middle)
        return max(1.0, high)


# ---------------------------------------------------------------------- TF-IDF and MLP

MAX_KINDS = 10_000
"""Most application types whose costs are kept."""

_TOKEN = re.compile(r"\b\w\w+\b")
"""The words scikit-learn's TF-IDF counts."""

APP_COSTS = "timely-app-costs"
"""Format of its files."""

DECAY = 1e-2
LEAST_SAMPLES = 8
"""Fewer instances than this teach nothing; the paper trains on 100."""


@dataclass(frozen=True, slots=True)
class CostSample:
    """An application that is over: the text and prompt length of its first request, and what it cost in all."""

    text: str
    prompt_tokens: int
    cost: float


@dataclass(frozen=True, slots=True)
class AppCostModel:
    """TF-IDF and a multi-layer perceptron for one application type, as plain arrays.

    Attributes:
        vocabulary: word -> column.
        idf: shape ``(words,)``.
        weights: one matrix a layer, shapes ``(words + 1, h1)``, ``(h1, h2)`` ... ``(h, 1)``; the last input is the
            length of the prompt, as ``length_scale * log(1 + tokens) + length_shift``.
        biases: one vector a layer.
        shift, scale: the output is ``log(1 + cost)`` less ``shift``, divided by ``scale``.
        floor, ceiling: the least and most a prediction may be: twice outside of what was seen.
    """

    vocabulary: Mapping[str, int]
    idf: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    shift: float
    scale: float
    length_shift: float
    length_scale: float
    floor: float
    ceiling: float

    def predict(self, text: str, prompt_tokens: int) -> float:
        """Predicted cost. Only the rows of the words that occur are touched: some 0.05 ms."""
        counts = Counter(_TOKEN.findall(text.lower()))
        columns_and_counts = [
            (self.vocabulary[word], n) for word, n in counts.items() if word in self.vocabulary
        ]
        length = self.length_scale * math.log1p(prompt_tokens) + self.length_shift
        layer: Floats = self.biases[0] + length * self.weights[0][-1]
        if columns_and_counts:
            columns = np.fromiter(
                (column for column, _ in columns_and_counts), np.int64, len(columns_and_counts)
            )
            values = (
                np.fromiter((n for _, n in columns_and_counts), np.float64, len(columns_and_counts))
                * self.idf[columns]
            )
            layer = layer + (values / np.sqrt(values @ values)) @ self.weights[0][columns]
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            layer = np.maximum(layer, 0.0) @ weight + bias
        cost = math.expm1(min(60.0, float(layer[0]) * self.scale + self.shift))
        return min(self.ceiling, max(self.floor, cost))


def predictor_app_cost_model(samples: Sequence[CostSample], *, seed: int = 0) -> AppCostModel:
    """Train the model of one application type.

    Four layers. The first is half as wide as the average input has words, within 16..64; in the paper it is
    proportional to the average input. The others narrow from there. Of three starts the best is kept, since a narrow
    network may start dead. The loss is the squared error of the logarithm, since costs span orders of magnitude, with
    L2 regularisation ``DECAY``. L-BFGS minimises it, because the paper's gradient descent needs a rate that it does not
    state. The length of the prompt is an input beside the paper's TF-IDF vector.

    Raises:
        InvalidInput: fewer than 8 samples, or a cost is not positive.
        Unsupported: scikit-learn is not installed.
    """
    if find_spec("sklearn") is None:
        raise Unsupported(
            "training needs scikit-learn: pip install 'timely-serving[predict]'", where="predictor"
        )
    if len(samples) < LEAST_SAMPLES:
        raise InvalidInput(f"{LEAST_SAMPLES} samples at least, got {len(samples)}", where="samples")
    if any(not (sample.cost > 0.0 and math.isfinite(sample.cost)) for sample in samples):
        raise InvalidInput("every cost must be positive", where="samples")
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.neural_network import MLPRegressor
    from threadpoolctl import threadpool_limits

    texts = [sample.text for sample in samples]
    words = [len(_TOKEN.findall(text.lower())) for text in texts]
    vectorizer = TfidfVectorizer(token_pattern=_TOKEN.pattern, max_features=2048)
    try:
        matrix = vectorizer.fit_transform(texts).toarray()
        vocabulary = {str(word): int(column) for word, column in vectorizer.vocabulary_.items()}
        idf = np.asarray(vectorizer.idf_, dtype=np.float64)
    except ValueError:  # not one word in all of them: only lengths are left
        matrix, vocabulary, idf = np.zeros((len(texts), 0)), {}, np.zeros(0)
    lengths = np.log1p([sample.prompt_tokens for sample in samples])
    length_scale = 1.0 / max(float(lengths.std()), 1e-6) if float(lengths.std()) > 1e-6 else 0.0
    length_shift = -float(lengths.mean()) * length_scale
    inputs = np.column_stack((matrix, length_scale * lengths + length_shift))
    target = np.log1p([sample.cost for sample in samples])
    shift, scale = float(target.mean()), max(float(target.std()), 1e-6)
    width = int(np.clip(np.mean(words) / 2.0, 16, 64))
    goal = (target - shift) / scale
    networks = []
    for start in range(3):
        network = MLPRegressor(
            hidden_layer_sizes=(width, max(12, width // 2), max(8, width // 4)),
            alpha=DECAY,
            solver="lbfgs",
            max_iter=300,
            random_state=seed + start,
        )
        # One thread: at this size handing work around costs a hundred times the work.
        with warnings.catch_warnings(), threadpool_limits(1):
            # Stopping early is meant: it is part of the regularisation.
            warnings.simplefilter("ignore", ConvergenceWarning)
            networks.append(network.fit(inputs, goal))
    network = min(networks, key=lambda n: float(n.loss_))
    costs = [sample.cost for sample in samples]
    return AppCostModel(
        vocabulary,
        idf,
        tuple(np.asarray(w, dtype=np.float64) for w in network.coefs_),
        tuple(np.asarray(b, dtype=np.float64) for b in network.intercepts_),
        shift,
        scale,
        length_shift,
        length_scale,
        min(costs) / 2.0,
        max(costs) * 2.0,
    )


class TrainedAppCosts:
    """Trained models by application type; types without one are learned while serving.

    Args:
        unit: name of the cost they predict (``kv`` or ``weighted``), kept in the file.
    """

    def __init__(self, models: Mapping[str, AppCostModel], unit: str, fallback: AppCosts) -> None:
        self.models = dict(models)
        self.unit = unit
        self.fallback = fallback

    def predict(self, kind: str, spec: JobSpec) -> float:
        model = self.models.get(kind)
        if model is None:
            return self.fallback.predict(kind, spec)
        return max(1.0, model.predict(spec.words, spec.prompt_tokens))

    def learn(self, kind: str, spec: JobSpec, cost: float) -> None:
        """See ``AppCosts.learn``; a trained model stays as it is."""
        if kind not in self.models:
            self.fallback.learn(kind, spec, cost)

    def save(self, path: Path) -> None:
        """Write all models as an ``npz`` of plain numbers with a JSON record."""
        kinds = sorted(self.models)
        arrays: dict[str, Floats] = {}
        records = []
        for i, kind in enumerate(kinds):
            model = self.models[kind]
            words = sorted(model.vocabulary, key=lambda word: model.vocabulary[word])
            records.append({"kind": kind, "words": words, "layers": len(model.weights)})
            arrays[f"{i}.idf"] = model.idf
            arrays[f"{i}.numbers"] = np.array([getattr(model, name) for name in _NUMBERS])
            for layer, (weight, bias) in enumerate(zip(model.weights, model.biases, strict=True)):
                arrays[f"{i}.w{layer}"], arrays[f"{i}.b{layer}"] = weight, bias
        write_predictor_arrays(path, APP_COSTS, {"unit": self.unit, "models": records}, arrays)

    @classmethod
    def load(cls, path: Path, unit: str, fallback: AppCosts) -> Self:
        """Read what ``save`` wrote.

        Raises:
            InvalidInput: missing, not such a file, damaged, or made for another ``unit``.
        """
        arrays = read_predictor_arrays(path, APP_COSTS)
        if arrays.meta.get("unit") != unit:
            raise InvalidInput(
                f"predicts the cost {arrays.meta.get('unit')!r}, not {unit!r}", where=str(path)
            )
        models: dict[str, AppCostModel] = {}
        try:
            records = arrays.meta["models"]
            if not isinstance(records, list):
                raise TypeError("models is not a list")
            for i, record in enumerate(records):
                models[str(record["kind"])] = _read_predictor_model(
                    arrays, i, list(record["words"]), int(record["layers"])
                )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"damaged {APP_COSTS} file ({error})", where=str(path)) from error
        return cls(models, unit, fallback)


_NUMBERS = ("shift", "scale", "length_shift", "length_scale", "floor", "ceiling")


def _read_predictor_model(
    arrays: Mapping[str, Floats], i: int, words: list[object], layers: int
) -> AppCostModel:
    """Model ``i`` of a file.

    Raises:
        KeyError, ValueError: something is missing or the shapes do not fit each other.
    """
    idf, numbers = arrays[f"{i}.idf"], arrays[f"{i}.numbers"]
    weights = tuple(arrays[f"{i}.w{layer}"] for layer in range(layers))
    biases = tuple(arrays[f"{i}.b{layer}"] for layer in range(layers))
    width = len(words) + 1
    if idf.shape != (len(words),) or numbers.shape != (len(_NUMBERS),) or not weights:
        raise ValueError(f"model {i}: arrays do not fit its {len(words)} words")
    for weight, bias in zip(weights, biases, strict=True):
        if weight.ndim != 2 or weight.shape[0] != width or bias.shape != (weight.shape[1],):
            raise ValueError(f"model {i}: layers do not fit each other")
        width = weight.shape[1]
    if width != 1:
        raise ValueError(f"model {i}: {width} outputs")
    vocabulary = {str(word): column for column, word in enumerate(words)}
    values = dict(zip(_NUMBERS, map(float, numbers), strict=True))
    return AppCostModel(vocabulary, idf, weights, biases, **values)
