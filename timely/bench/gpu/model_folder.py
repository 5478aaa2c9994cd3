"""A model folder with made-up weights: step times do not depend on their values.

The files are real, so that every server loads the folder like any other model. A block of random numbers is repeated.
"""

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from timely.core.errors import InvalidInput
from timely.core.files import core_write_file

BLOCK_NUMBERS = 1 << 24
"""Random numbers that are repeated; 32 MiB of them."""

SHARD_BYTES = 4 << 30
"""A file of weights is closed when it holds so much."""

SIGMA = 0.02
"""Of the weights; those of norms are 1."""

Shape = tuple[int, ...]


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
        """Of all weights, in bfloat16."""
        return 2 * sum(math.prod(shape) for _, shape in gpu_bench_model_tensors(self))


MODEL_SIZES = {
    "tiny": ModelSize(256, 2, 4, 2, 64, 512, 49152),
    "8b": ModelSize(4096, 32, 32, 8, 128, 14336, 128256),
    "24b": ModelSize(5120, 40, 32, 8, 128, 32768, 131072),
}
"""A tiny one for processors, Llama-3-8B, and one like Mistral Small 24B."""


def gpu_bench_model_tensors(size: ModelSize) -> Iterator[tuple[str, Shape]]:
    hidden, queries, keys = size.hidden, size.heads * size.head_dim, size.kv_heads * size.head_dim
    yield "model.embed_tokens.weight", (size.vocabulary, hidden)
    for layer in range(size.layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        yield prefix + "self_attn.q_proj.weight", (queries, hidden)
        yield prefix + "self_attn.k_proj.weight", (keys, hidden)
        yield prefix + "self_attn.v_proj.weight", (keys, hidden)
        yield prefix + "self_attn.o_proj.weight", (hidden, queries)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        yield prefix + "mlp.gate_proj.weight", (size.intermediate, hidden)
        yield prefix + "mlp.up_proj.weight", (size.intermediate, hidden)
        yield prefix + "mlp.down_proj.weight", (hidden, size.intermediate)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (size.vocabulary, hidden)


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
        "initializer_range": SIGMA,
    }


def write_gpu_bench_model(folder: Path, size: ModelSize, tokenizer: Path) -> Path:
    """Write configuration, weights and the tokenizer of another model; returns ``folder``.

    ``config.json`` comes last: a folder with one is whole.

    Raises:
        InvalidInput: the disk has too little space.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "config.json").exists():
        return folder
    free = shutil.disk_usage(folder).free
    if free < 1.05 * size.weight_bytes:
        raise InvalidInput(
            f"{size.weight_bytes / 1e9:.0f} GB of weights do not fit, {free / 1e9:.0f} GB are free",
            where=str(folder),
        )
    for path in sorted(tokenizer.glob("*")):
        if path.name.startswith(("tokenizer", "special_tokens", "vocab", "merges", "added_tokens")):
            shutil.copyfile(path, folder / path.name)
    _write_weights(folder, list(gpu_bench_model_tensors(size)))
    core_write_file(folder / "config.json", json.dumps(gpu_bench_model_configuration(size), indent=1) + "\n")
    return folder


def _write_weights(folder: Path, tensors: Sequence[tuple[str, Shape]]) -> None:
    shards: list[list[tuple[str, Shape]]] = [[]]
    shard_bytes = 0
    for name, shape in tensors:
        if shard_bytes > SHARD_BYTES:
            shards.append([])
            shard_bytes = 0
        shards[-1].append((name, shape))
        shard_bytes += 2 * math.prod(shape)
    block = _random_block()
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write_shard(folder / file, shard, block)
        index |= {name: file for name, _ in shard}
    total = 2 * sum(math.prod(shape) for _, shape in tensors)
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index})
    core_write_file(folder / "model.safetensors.index.json", text + "\n")


def _random_block() -> np.ndarray:
    """Normal numbers as bfloat16, that is the upper half of float32."""
    numbers = np.random.default_rng(0).standard_normal(BLOCK_NUMBERS, dtype=np.float32) * np.float32(SIGMA)
    return (numbers.view(np.uint32) >> 16).astype(np.uint16)


def _write_shard(path: Path, shard: Sequence[tuple[str, Shape]], block: np.ndarray) -> None:
    """A safetensors file: the length of the header, the header in JSON, the numbers."""
    header: dict[str, Any] = {}
    offset = 0
    for name, shape in shard:
        end = offset + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    ones = np.full(
        max((math.prod(shape) for name, shape in shard if "norm" in name), default=0), 0x3F80, np.uint16
    )
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name, shape in shard:
            source, values_left = ones if "norm" in name else block, math.prod(shape)
            while values_left > 0:
                part = source[: min(values_left, len(source))]
                file.write(part.tobytes())
                values_left -= len(part)
