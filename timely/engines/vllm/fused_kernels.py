"""vLLM's fused CPU kernels for norms, which vLLM leaves to its compiler.

Without the compiler a norm is ten small operations, and a decoding step of a small model has six hundred of them.
The kernels round once where the operations round in between, so logits differ from vLLM's in their last bits.
Measured: docs/experiments/2026-11-28-fused-kernels.md.

vLLM's kernel for SwiGLU takes three times as long as the operations, from a few tokens on.
"""

from typing import Any

import torch
from torch import Tensor
from vllm import _custom_ops, ir
from vllm.platforms import current_platform

PROVIDER = "timely"
"""Name of these implementations among vLLM's."""

WIDTH_STEP = 32
"""The kernels take widths of whole vectors, the longest of which has so many elements."""


def use_fused_cpu_kernels(vllm_config: Any) -> None:
    """Let the model that this process loads next use them, where the engine is eager and on a CPU.

    Inputs that the kernels do not take are computed as before.

    Args:
        vllm_config: of an engine whose options ask for them (``SchedulerSettings.fused_kernels``).
    """
    if not (current_platform.is_cpu() and vllm_config.model_config.enforce_eager):
        return
    norm, add_and_norm = ir.ops.rms_norm, ir.ops.fused_add_rms_norm
    if PROVIDER not in norm.impls:
        norm.register_impl(PROVIDER, supports_args=_can_norm)(_rms_norm)
        add_and_norm.register_impl(PROVIDER, supports_args=_can_add_and_norm, inplace=True)(_add_and_norm)
    for op in (norm, add_and_norm):
        op.set_default([PROVIDER, "native"])


def _can_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> bool:
    is_plain = variance_size is None and weight is not None and weight.dtype == x.dtype
    return is_plain and x.is_contiguous() and x.shape[-1] % WIDTH_STEP == 0


def _rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    result = torch.empty_like(x)
    _custom_ops.rms_norm(result, x, weight, epsilon)
    return result


def _can_add_and_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> bool:
    return _can_norm(x, weight, epsilon, variance_size) and x_residual.is_contiguous()


def _add_and_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    _custom_ops.fused_add_rms_norm(x, x_residual, weight, epsilon)
    return x, x_residual
