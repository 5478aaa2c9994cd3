"""The application cost model: trained from a hundred samples, kept without pickle, refused when damaged."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from optional_packages import require_package

from timely.core.errors import InvalidInput
from timely.core.hints import RequestHints
from timely.core.job import JobSpec
from timely.disciplines.predictors.app_cost import (
    AppCostModel,
    CostSample,
    OnlineAppCosts,
    TrainedAppCosts,
    predictor_app_cost_model,
    predictor_kv_token_time,
)
from timely.disciplines.predictors.predictor_file import read_predictor_arrays, write_predictor_arrays

require_package("sklearn")

WORDS = ("easy", "simple", "normal", "hard", "extreme")


def past(seed: int, count: int) -> list[CostSample]:
    """Costs that a word and the prompt's length tell, up to a tenth of noise."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        level, prompt = int(rng.integers(5)), int(rng.integers(100, 900))
        noise = " ".join(f"filler{int(n)}" for n in rng.integers(0, 30, 12))
        cost = 1e4 * 3.0**level * (prompt / 300.0) * float(np.exp(0.1 * rng.standard_normal()))
        result.append(CostSample(f"solve this {WORDS[level]} problem {noise}", prompt, cost))
    return result


@pytest.fixture(scope="module")
def model() -> AppCostModel:
    return predictor_app_cost_model(past(0, 100))


def error(model: AppCostModel, samples: list[CostSample]) -> float:
    return float(np.mean([abs(model.predict(s.text, s.prompt_tokens) - s.cost) / s.cost for s in samples]))


@pytest.mark.process
def test_a_hundred_samples_are_enough_to_beat_the_mean(model: AppCostModel) -> None:
    fresh = past(1, 200)
    mean = np.mean([s.cost for s in past(0, 100)])
    blind = float(np.mean([abs(mean - s.cost) / s.cost for s in fresh]))
    assert error(model, fresh) < 0.5 < blind


@pytest.mark.process
def test_numpy_predicts_what_scikit_learn_would(model: AppCostModel) -> None:
    """The same network, evaluated by scikit-learn's own code on scikit-learn's own TF-IDF."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    samples = past(0, 100)
    vectorizer = TfidfVectorizer(token_pattern=r"\b\w\w+\b", max_features=2048).fit([s.text for s in samples])
    for sample in past(2, 20):
        row = vectorizer.transform([sample.text]).toarray()[0]
        length = model.length_scale * np.log1p(sample.prompt_tokens) + model.length_shift
        layer = np.append(row, length)
        for depth, (weight, bias) in enumerate(zip(model.weights, model.biases, strict=True)):
            layer = (np.maximum(layer, 0.0) if depth else layer) @ weight + bias
        expected = np.clip(np.expm1(layer[0] * model.scale + model.shift), model.floor, model.ceiling)
        assert model.predict(sample.text, sample.prompt_tokens) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.process
def test_training_is_repeatable_and_has_four_layers(model: AppCostModel) -> None:
    again = predictor_app_cost_model(past(0, 100))
    assert len(model.weights) == 4
    for ours, theirs in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.process
def test_odd_texts_stay_within_what_was_seen(model: AppCostModel) -> None:
    for text in ("", "unknown words only", "\x00\x00", "easy " * 10_000):
        assert model.floor <= model.predict(text, 10**9) <= model.ceiling


@pytest.mark.process
def test_samples_without_a_word_leave_the_length() -> None:
    samples = [CostSample("", prompt, 10.0 * prompt) for prompt in range(100, 1100, 20)]
    model = predictor_app_cost_model(samples)
    assert model.predict("", 1000) > 3.0 * model.predict("", 150)


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [CostSample("a", 1, 1.0)] * 7,
        [CostSample("a", 1, 0.0)] * 20,
        [CostSample("a", 1, float("nan"))] * 20,
    ],
)
def test_useless_samples_are_refused(samples: list[CostSample]) -> None:
    with pytest.raises(InvalidInput):
        predictor_app_cost_model(samples)


@pytest.mark.process
def test_a_type_without_a_model_is_learned_while_serving(model: AppCostModel) -> None:
    costs = TrainedAppCosts({"known": model}, "kv", OnlineAppCosts(predictor_kv_token_time))
    spec = JobSpec(
        "a", 0.0, prompt_tokens=100, text="solve this hard problem", hints=RequestHints(expected_tokens=10.0)
    )
    costs.learn("known", spec, 1.0)
    assert costs.predict("known", spec) > model.floor / 2
    assert costs.predict("other", spec) == 1050.0
    costs.learn("other", spec, 7.0)
    assert costs.predict("other", spec) == 7.0


# --------------------------------------------------------------------------- files


@pytest.mark.process
def test_models_survive_a_file(model: AppCostModel, tmp_path: Path) -> None:
    path = tmp_path / "costs.npz"
    TrainedAppCosts({"b": model, "a": model}, "kv", OnlineAppCosts(predictor_kv_token_time)).save(path)
    back = TrainedAppCosts.load(path, "kv", OnlineAppCosts(predictor_kv_token_time))
    assert sorted(back.models) == ["a", "b"]
    for sample in past(3, 20):
        assert back.models["a"].predict(sample.text, sample.prompt_tokens) == model.predict(
            sample.text, sample.prompt_tokens
        )


class Trap:
    """Runs when unpickled."""

    ran = False

    def __reduce__(self) -> tuple[object, ...]:
        return (_spring, ())


def _spring() -> None:
    Trap.ran = True


def _broken(path: Path, kind: str, model: AppCostModel) -> None:
    good = path.with_name("good.npz")
    TrainedAppCosts({"a": model}, "kv", OnlineAppCosts(predictor_kv_token_time)).save(good)
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Trap()))
    elif kind == "pickled array":
        meta = np.frombuffer(
            json.dumps({"format": "timely-app-costs", "version": 1}).encode(), dtype=np.uint8
        )
        np.savez(path, meta=meta, trap=np.array([Trap()], dtype=object))
    elif kind == "text":
        path.write_text("not a model")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "cut off":
        path.write_bytes(good.read_bytes()[:-200])
    elif kind == "flipped":
        data = bytearray(good.read_bytes())
        for place in range(300, len(data) - 300, 101):
            data[place] ^= 0xFF
        path.write_bytes(bytes(data))
    elif kind == "plain zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("readme", "hello")
    elif kind == "other kind":
        write_predictor_arrays(path, "timely-length-history", {}, {"x": np.zeros(3)})
    elif kind == "not finite":
        write_predictor_arrays(
            path, "timely-app-costs", {"unit": "kv", "models": []}, {"x": np.array([np.nan])}
        )
    elif kind == "layers that do not fit":
        record = {"kind": "a", "words": ["x", "y"], "layers": 1}
        arrays = {
            "0.idf": np.ones(2), "0.numbers": np.ones(6), "0.w0": np.ones((7, 1)), "0.b0": np.ones(1),
        }  # fmt: skip
        write_predictor_arrays(path, "timely-app-costs", {"unit": "kv", "models": [record]}, arrays)
    elif kind == "a missing array":
        record = {"kind": "a", "words": [], "layers": 2}
        write_predictor_arrays(
            path, "timely-app-costs", {"unit": "kv", "models": [record]}, {"0.idf": np.ones(0)}
        )
    elif kind == "another unit":
        TrainedAppCosts({"a": model}, "weighted", OnlineAppCosts(predictor_kv_token_time)).save(path)
    elif kind != "missing":
        raise AssertionError(kind)


@pytest.mark.process
@pytest.mark.parametrize(
    "kind",
    ["missing", "empty", "text", "pickle", "pickled array", "cut off", "flipped", "plain zip", "other kind",
     "not finite", "layers that do not fit", "a missing array", "another unit"],
)  # fmt: skip
def test_a_file_that_is_no_predictor_is_refused_and_never_run(
    kind: str, model: AppCostModel, tmp_path: Path
) -> None:
    path = tmp_path / "bad.npz"
    _broken(path, kind, model)
    with pytest.raises(InvalidInput, match=r"bad\.npz"):
        TrainedAppCosts.load(path, "kv", OnlineAppCosts(predictor_kv_token_time))
    assert not Trap.ran


def test_a_file_that_would_unpack_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.npz"
    write_predictor_arrays(path, "x", {}, {"zeros": np.zeros(100_000)})
    assert path.stat().st_size < 5_000
    monkeypatch.setattr("timely.disciplines.predictors.predictor_file.MAX_BYTES", 10_000)
    with pytest.raises(InvalidInput, match="too large"):
        read_predictor_arrays(path, "x")


def test_only_numbers_are_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no numbers"):
        write_predictor_arrays(tmp_path / "x.npz", "x", {}, {"a": np.array(["text"])})
