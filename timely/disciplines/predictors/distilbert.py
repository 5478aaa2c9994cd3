"""DistilBERT, or any other sequence classifier of transformers, for users who have its weights in a folder.

The semantic scheduling paper predicts urgency and length buckets with it (section 4). Nothing is downloaded and no
code from the folder is run: safetensors only, no pickle. A text takes milliseconds to tens of them on a CPU, so put
it behind a ``PredictorStage``-like batch and not into the scheduler's own process.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from timely.core.arrays import Floats
from timely.core.errors import InvalidInput, Unsupported

MAX_TOKENS = 256
"""Read of a text."""


class DistilBertClassifier:
    """A fine-tuned sequence classifier.

    Args:
        folder: config, tokenizer and ``model.safetensors`` as ``save_pretrained`` writes them.

    Raises:
        Unsupported: transformers or torch is not installed.
        InvalidInput: the folder holds no such model, or one with another number of classes.
    """

    def __init__(self, folder: Path, *, classes: int | None = None, device: str = "cpu") -> None:
        if find_spec("transformers") is None or find_spec("torch") is None:
            raise Unsupported(
                "a DistilBERT predictor needs transformers and torch: pip install 'timely-serving[vllm]'",
                where="predictor",
            )
        if not (folder / "config.json").is_file() or not list(folder.glob("*.safetensors")):
            raise InvalidInput("no config.json with a .safetensors file in this folder", where=str(folder))
        self._tokenizer, self._model = _load_predictor_distilbert(folder, device)
        self._device = device
        self.classes = int(self._model.config.num_labels)
        self.name = f"{self._model.config.model_type} in {folder.name}"
        if classes is not None and classes != self.classes:
            raise InvalidInput(f"{self.classes} classes, {classes} are needed", where=str(folder))

    def probabilities(self, texts: Sequence[str]) -> Floats:
        """Shape ``(len(texts), classes)``; one batch, so keep it to some dozens of texts."""
        if not texts:
            return np.zeros((0, self.classes))
        import torch

        batch = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
        )
        with torch.inference_mode():
            inputs = {key: value.to(self._device) for key, value in batch.items() if key != "token_type_ids"}
            scores = self._model(**inputs).logits.float().softmax(dim=-1)
        return np.asarray(scores.cpu().numpy(), dtype=np.float64)


def _load_predictor_distilbert(folder: Path, device: str) -> tuple[Any, Any]:
    from safetensors import SafetensorError
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise InvalidInput(f"not a sequence classifier ({error})", where=str(folder)) from error
    return tokenizer, model.to(device).eval()
