"""Constants that Justitia's paper states, with the section; the cost formulas are in ``predictors.app_cost``."""

TRAINING_SAMPLES = 100
"""Past instances of an application type that train its cost model (section IV-B)."""

KV_BLOCKS = 459
"""KV blocks of LLaMA-7B on an A100 of 40 GB (section III-A)."""

BLOCK_TOKENS = 16
"""Tokens of a block: vLLM's default; not in the paper."""

STEP_S = 0.050
"""A step with a full cache, seconds: some 4,200 steps in 210 s (Fig. 3)."""
