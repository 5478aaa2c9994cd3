"""A model folder without weights: vLLM makes them up (``--load-format dummy``), as step times do not depend on them."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timely.core.files import core_write_file


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A Llama's sizes, as in its configuration."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int

    @property
    def weight_bytes(self) -> int:
        """Of all weights, in bfloat16: embedding and head, the layers with their two norms, and the last norm."""
        attention = 2 * (self.heads + self.kv_heads) * self.head_dim
        layer = self.hidden * (attention + 3 * self.intermediate + 2)
        return 2 * (self.hidden * (2 * self.vocabulary + 1) + self.layers * layer)


MODEL_SIZES = {
    "tiny": ModelSize(256, 2, 4, 2, 64, 512, 49152),
    "8b": ModelSize(4096, 32, 32, 8, 128, 14336, 128256),
    "24b": ModelSize(5120, 40, 32, 8, 128, 32768, 131072),
}
"""A tiny one for processors, Llama-3-8B, and one like Mistral Small 24B."""


def gpu_bench_model_configuration(size: ModelSize) -> dict[str, Any]:
    """The content of ``config.json``."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "vocab_size": size.vocabulary,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }


def write_gpu_bench_model(folder: Path, size: ModelSize, tokenizer: Path) -> Path:
    """Write a configuration and the tokenizer of another model; returns ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(tokenizer.glob("*")):
        if path.name.startswith(("tokenizer", "special_tokens", "vocab", "merges", "added_tokens")):
            shutil.copyfile(path, folder / path.name)
    core_write_file(folder / "config.json", json.dumps(gpu_bench_model_configuration(size), indent=1) + "\n")
    return folder
