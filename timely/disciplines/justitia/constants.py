"""Every constant that Justitia's paper states, with the section."""

OUTPUT_SQUARE_WEIGHT = 0.5
"""Weight of the squared output tokens in KV token-time, ``p d + d^2 / 2`` (Eq. 1)."""

VTC_OUTPUT_WEIGHT = 2.0
"""Weight of an output token in VTC's cost, ``p + 2 d`` (section V-D)."""

TRAINING_SAMPLES = 100
"""Past instances of an application type that train its cost model (section IV-B)."""

MLP_LAYERS = 4
"""Layers of the cost model (section IV-B)."""

KV_BLOCKS = 459
"""KV blocks of LLaMA-7B on an A100 of 40 GB (section III-A)."""

BLOCK_TOKENS = 16
"""Tokens of a block: vLLM's default; not in the paper."""

STEP_S = 0.050
"""A step with a full cache, seconds: some 4,200 steps in 210 s (Fig. 3)."""
