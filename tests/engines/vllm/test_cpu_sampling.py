"""Sampling parameters of requests at their drafts, on CPUs."""

from __future__ import annotations

import pytest
from optional_packages import require_package

require_package("vllm")

import torch  # noqa: E402

from timely.engines.vllm.cpu_sampling import spread_over_drafts  # noqa: E402


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (torch.float32, [0.5, 0.0, 2.0, 7.0], [0.5, 0.5, 1.0, 1.0, 1.0, 7.0]),
        (torch.int32, [50, 0, 3, 9], [50, 50, 1, 1, 1, 9]),
    ],
)
def test_each_draft_has_the_value_of_its_request(
    dtype: torch.dtype, values: list[float], expected: list[float]
) -> None:
    drafts = torch.tensor([2, 5, 5, 6], dtype=torch.int32)  # of two, three, none and one
    spread = spread_over_drafts(torch.tensor(values, dtype=dtype), drafts, 6, 0, 1)
    assert spread.dtype == dtype
    assert spread.tolist() == expected
