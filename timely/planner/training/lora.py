"""Low-rank adapters on the linear layers of a frozen model, in the file format of PEFT.

This is no use of PEFT, because the CPU needs one fused product of base and adapter. Its backward pass makes no
gradient of the frozen weights and no copies in other precisions. Computation is in the model's type; the optimiser
keeps the weights in float32.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timely.core.errors import InvalidInput
from timely.core.files import core_write_file, replaced_file

LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""All linear layers of a Llama block."""

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."
NOT_AN_ADAPTER = "is no adapter that this version can read"


def attach_training_adapter(model: Any, rank: int, alpha: int, seed: int) -> dict[str, Any]:
    """Put an adapter on every linear layer of ``LAYERS``; A random by ``seed``, B zero, so nothing changes yet.

    Returns:
        The trainable tensors (of the model's type) by PEFT's names, in a fixed order.
    """
    import torch

    product = _training_lora_product()

    class AdaptedLinear(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, inner: Any, generator: Any) -> None:
            super().__init__()
            self.weight = inner.weight
            a = torch.empty(rank, inner.in_features)
            bound = 1 / math.sqrt(inner.in_features)
            a.uniform_(-bound, bound, generator=generator)
            like = {"dtype": inner.weight.dtype, "device": inner.weight.device}
            # The scale is inside B, so that it costs nothing at each step; files keep it apart, as PEFT does.
            self.a = torch.nn.Parameter(a.to(**like))
            self.b = torch.nn.Parameter(torch.zeros(inner.out_features, rank, **like))

        def forward(self, x: Any) -> Any:
            return product.apply(x, self.weight, self.a, self.b)

    for parameter in model.parameters():
        parameter.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    parameters: dict[str, Any] = {}
    for name, inner in list(model.named_modules()):
        if name.rpartition(".")[2] not in LAYERS:
            continue
        if inner.bias is not None:
            raise InvalidInput(f"{name} has a bias; only layers without are adapted", where="model")
        layer = AdaptedLinear(inner, generator)
        model.set_submodule(name, layer)
        parameters[f"{PREFIX}{name}.lora_A.weight"] = layer.a
        parameters[f"{PREFIX}{name}.lora_B.weight"] = layer.b
    if not parameters:
        raise InvalidInput(f"has none of the layers {', '.join(LAYERS)}", where="model")
    return parameters


def _training_lora_product() -> Any:
    """x (W + BA)^T as one function."""
    import torch

    class Product(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, x: Any, weight: Any, a: Any, b: Any) -> Any:
            flat = x.reshape(-1, x.shape[-1])
            low = flat @ a.t()
            y = flat @ weight.t()
            y.addmm_(low, b.t())
            context.save_for_backward(flat, low, weight, a, b)
            context.shape = x.shape
            return y.view(*x.shape[:-1], weight.shape[0])

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            flat, low, weight, a, b = context.saved_tensors
            g = gradients[0].reshape(-1, weight.shape[0])
            g_low = g @ b
            g_b = g.t() @ low
            g_a = g_low.t() @ flat
            g_x = None
            if context.needs_input_grad[0]:
                g_x = g @ weight
                g_x.addmm_(g_low, a)
                g_x = g_x.view(context.shape)
            return g_x, None, g_a, g_b

    return Product


def save_trained_adapter(folder: Path, parameters: Mapping[str, Any], rank: int, alpha: int) -> None:
    import torch
    from safetensors.torch import save_file

    scale = alpha / rank
    weights = {
        name: (value.detach().float() / (scale if ".lora_B." in name else 1.0))
        .to(torch.bfloat16)
        .cpu()
        .contiguous()
        for name, value in sorted(parameters.items())
    }
    with replaced_file(folder / WEIGHTS) as temporary:
        save_file(weights, temporary, metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": sorted(LAYERS),
    }
    core_write_file(folder / CONFIG, json.dumps(config, indent=1, sort_keys=True) + "\n")


def _read_training_adapter(folder: Path) -> tuple[dict[str, Any], float]:
    """Weights by name, and the scale of their product.

    Raises:
        InvalidInput: not there, corrupted, or of another kind; says which file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        config = json.loads((folder / CONFIG).read_text())
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
        if not math.isfinite(alpha):
            raise ValueError("no finite lora_alpha")
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{NOT_AN_ADAPTER}: {type(error).__name__}", where=str(folder / CONFIG)) from error
    try:
        weights = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise InvalidInput(f"{NOT_AN_ADAPTER}: {error}", where=str(folder / WEIGHTS)) from error
    if (
        rank < 1
        or not weights
        or any(value.ndim != 2 for value in weights.values())
        or any(value.shape[0 if ".lora_A." in name else 1] != rank for name, value in weights.items())
    ):
        raise InvalidInput(
            f"{NOT_AN_ADAPTER}: its weights are not of rank {rank}", where=str(folder / WEIGHTS)
        )
    return weights, alpha / rank


def load_training_adapter(folder: Path, parameters: Mapping[str, Any]) -> None:
    """Copy an adapter's weights into tensors from ``attach``.

    Raises:
        InvalidInput: unreadable, or made for another model.
    """
    import torch

    weights, scale = _read_training_adapter(folder)
    if {name: value.shape for name, value in weights.items()} != {
        name: value.shape for name, value in parameters.items()
    }:
        raise InvalidInput("was made for another base model or with another rank", where=str(folder))
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name].float() * (scale if ".lora_B." in name else 1.0))


def merge_lora_adapter(model: Any, folder: Path) -> None:
    """Add an adapter to the weights of a plain model, in place.

    Raises:
        InvalidInput: unreadable, or made for another model.
    """
    import torch

    weights, scale = _read_training_adapter(folder)
    parameters = dict(model.named_parameters())
    names = sorted(name.removesuffix(".lora_A.weight") for name in weights if name.endswith(".lora_A.weight"))
    if len(names) * 2 != len(weights):
        raise InvalidInput(
            f"{NOT_AN_ADAPTER}: not every layer has its two halves", where=str(folder / WEIGHTS)
        )
    for name in names:
        target = parameters.get(f"{name.removeprefix(PREFIX)}.weight")
        a, b = weights[f"{name}.lora_A.weight"].float(), weights.get(f"{name}.lora_B.weight")
        if target is None or b is None or target.shape != (b.shape[0], a.shape[1]):
            raise InvalidInput(
                f"was made for another base model: no place for {name.removeprefix(PREFIX)}",
                where=str(folder),
            )
        with torch.no_grad():
            target.copy_((target.float() + scale * (b.float() @ a)).to(target.dtype))


def quicken_training_norms(model: Any) -> None:
    """Replace the norms by torch's own: the same numbers in one call instead of six."""
    import torch

    for name, norm in list(model.named_modules()):
        if type(norm).__name__.endswith("RMSNorm") and hasattr(norm, "variance_epsilon"):
            fast = torch.nn.RMSNorm(norm.weight.shape, eps=norm.variance_epsilon)
            fast.weight = norm.weight
            model.set_submodule(name, fast)
