"""The floating-point type that a device computes with fastest."""


def compute_type(device: str = "cpu") -> str:
    """``"bfloat16"``, or ``"float32"`` on a processor without AVX-512.

    There a product in bfloat16 takes two (one row) to eight times (256 rows) as long as in float32. Measured:
    docs/experiments/2026-11-27-processors-without-avx-512.md.
    """
    import torch

    slow = device == "cpu" and torch.backends.cpu.get_cpu_capability() == "AVX2"
    return "float32" if slow else "bfloat16"
