"""Folder models of a few thousand made-up weights, one for each kind of model that vLLM serves.

The files are real: configuration, safetensors, tokenizer and, where a model has one, its processor. So vLLM loads such
a folder like any other model. The weights are wide, so that greedy text does not repeat one token.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

VOCABULARY = 320
WORDS = range(3, 250)
"""Token ids of ordinary bytes."""

SPECIALS = ("<bos>", "<eos>", "<pad>")
HIDDEN, HEAD = 64, 32

Builder = Callable[[Path], None]
BUILDERS: dict[str, Builder] = {}
"""Name of a model -> writes its folder, but for the tokenizer."""


def model(build: Builder) -> Builder:
    """Register a builder under its name."""
    BUILDERS[build.__name__] = build
    return build


def write_tiny_model(folder: Path, name: str) -> Path:
    """Write the model ``name`` of ``BUILDERS`` into ``folder``; returns it."""
    folder.mkdir(parents=True)
    write_tokenizer(folder)
    BUILDERS[name](folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of bytes."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    words += [f"<{number}>" for number in range(len(words), VOCABULARY)]
    tokenizer = Tokenizer(models.BPE(vocab={word: place for place, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in SPECIALS])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    ).save_pretrained(str(folder))


def save(folder: Path, config: Any, owner: Any, *, gain: float = 2.0, embedding: float = 1.0) -> None:
    """Write configuration and weights.

    Args:
        owner: the class of the model in transformers.
        gain: of the weights of a layer, over the inverse root of its inputs.
        embedding: size of embeddings of tokens; small where the last layer is the same, which would repeat each token.
    """
    import torch

    config.dtype = torch.float32
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = owner(config)
        with torch.no_grad():
            for name, weight in network.named_parameters():
                if weight.dim() >= 2 and "A_log" not in name:
                    weight.normal_(0.0, gain / math.sqrt(math.prod(weight.shape[1:])))
                    if "embed" in name and "patch" not in name:
                        weight.normal_(0.0, 1.0 if "position" in name else embedding)
    network.float().save_pretrained(str(folder))


SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": HEAD, "max_position_embeddings": 1024,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip


# ---------------------------------------------------------------------- attention


@model
def llama(folder: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    save(folder, LlamaConfig(**SIZES), LlamaForCausalLM)


@model
def reciting(folder: Path) -> None:
    """A token depends on the one before it more than on all others, so that its text goes in circles."""
    from transformers import LlamaConfig, LlamaForCausalLM

    save(folder, LlamaConfig(**SIZES), LlamaForCausalLM, gain=0.7)


@model
def mistral(folder: Path) -> None:
    """All layers look back 64 tokens."""
    from transformers import MistralConfig, MistralForCausalLM

    save(folder, MistralConfig(**SIZES, sliding_window=64), MistralForCausalLM)


@model
def gemma3(folder: Path) -> None:
    """One layer looks back 64 tokens, the other has full attention."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    config = Gemma3TextConfig(
        **SIZES, sliding_window=64, layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=HEAD,
    )  # fmt: skip
    save(folder, config, Gemma3ForCausalLM)


@model
def qwen3_moe(folder: Path) -> None:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, decoder_sparse_step=1
    )
    save(folder, config, Qwen3MoeForCausalLM)


# ---------------------------------------------------------------------- states beside attention


@model
def falcon_h1(folder: Path) -> None:
    """Mamba 2 and attention in each layer."""
    from transformers import FalconH1Config, FalconH1ForCausalLM

    config = FalconH1Config(
        **SIZES, mamba_d_ssm=128, mamba_n_heads=4, mamba_d_head=32, mamba_n_groups=1, mamba_d_state=32,
        mamba_chunk_size=32,
    )  # fmt: skip
    save(folder, config, FalconH1ForCausalLM)


@model
def granite_hybrid(folder: Path) -> None:
    """A layer of Mamba 2, then one of attention."""
    from transformers import GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM

    config = GraniteMoeHybridConfig(
        **SIZES, layer_types=["mamba", "attention"], mamba_n_heads=4, mamba_d_head=32, mamba_n_groups=1,
        mamba_d_state=32, mamba_chunk_size=32, num_local_experts=0, num_experts_per_tok=0,
        shared_intermediate_size=128, position_embedding_type="rope", mamba_expand=2,
    )  # fmt: skip
    save(folder, config, GraniteMoeHybridForCausalLM)


@model
def mamba2(folder: Path) -> None:
    """No attention at all."""
    from transformers import Mamba2Config, Mamba2ForCausalLM

    config = Mamba2Config(
        num_heads=4, head_dim=32, vocab_size=VOCABULARY, hidden_size=HIDDEN, state_size=32, expand=2,
        num_hidden_layers=2, n_groups=1, chunk_size=32, bos_token_id=0, eos_token_id=1, pad_token_id=2,
        tie_word_embeddings=False,
    )  # fmt: skip
    save(folder, config, Mamba2ForCausalLM)


@model
def qwen3_next(folder: Path) -> None:
    """Linear attention (gated delta net), then full attention."""
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    config = Qwen3NextConfig(
        **SIZES, layer_types=["linear_attention", "full_attention"], linear_conv_kernel_dim=4,
        linear_key_head_dim=128, linear_value_head_dim=128, linear_num_key_heads=2, linear_num_value_heads=4,
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64,
    )  # fmt: skip
    save(folder, config, Qwen3NextForCausalLM)


@model
def lfm2(folder: Path) -> None:
    """A layer of short convolutions, then one of attention."""
    from transformers import Lfm2Config, Lfm2ForCausalLM

    config = Lfm2Config(
        **SIZES, layer_types=["conv", "full_attention"], conv_L_cache=3, conv_dim=HIDDEN, block_dim=HIDDEN,
        block_ff_dim=128, block_auto_adjust_ff_dim=False,
    )  # fmt: skip
    save(folder, config, Lfm2ForCausalLM)


# ---------------------------------------------------------------------- sound


@model
def whisper(folder: Path) -> None:
    """An encoder of sound and a decoder that looks across."""
    from transformers import (
        AutoTokenizer,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperProcessor,
    )

    config = WhisperConfig(
        vocab_size=VOCABULARY, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=50,
        max_target_positions=256, num_mel_bins=80, bos_token_id=0, eos_token_id=1, pad_token_id=2,
        decoder_start_token_id=0, begin_suppress_tokens=None,
    )  # fmt: skip
    save(folder, config, WhisperForConditionalGeneration, embedding=0.1)
    features = WhisperFeatureExtractor(feature_size=80, chunk_length=1)
    WhisperProcessor(features, AutoTokenizer.from_pretrained(str(folder))).save_pretrained(str(folder))


# ---------------------------------------------------------------------- beside a model


def write_draft(folder: Path, target: Path, noise: float = 0.02) -> Path:
    """A draft model: the weights of ``target`` with some noise, so that a part of its drafts is right."""
    import shutil

    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(target, folder)
    tensors = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(1)
    for name, weight in tensors.items():
        tensors[name] = weight + noise * torch.randn(weight.shape, generator=generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_adapter(folder: Path, *, rank: int = 8, layers: int = 2, seed: int = 0) -> Path:
    """A LoRA adapter of the attention of ``llama``, wide enough to change the text."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(layers):
        for projection in ("q_proj", "v_proj"):
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{projection}"
            tensors[f"{prefix}.lora_A.weight"] = torch.randn(rank, HIDDEN, generator=generator) / 8
            tensors[f"{prefix}.lora_B.weight"] = torch.randn(HIDDEN, rank, generator=generator) / 2
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(
        json.dumps(
            {
                "peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": ["q_proj", "v_proj"],
                "bias": "none", "lora_dropout": 0.0, "task_type": "CAUSAL_LM",
            }
        )
        + "\n"
    )  # fmt: skip
    return folder
