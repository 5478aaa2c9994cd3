"""Sampling parameters of requests at their drafts, on CPUs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from optional_packages import require_package

require_package("vllm")

import torch  # noqa: E402

from timely.engines.vllm.cpu_sampling import (  # noqa: E402
    draw_where_needed,
    sample_plainly_without_drafts,
    spread_over_drafts,
)


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


@pytest.mark.parametrize(
    ("draft_counts", "temperatures", "draws"),
    [([2, 0], [0.0, 1.0], False), ([1, 1], [0.0, 1.0], True), ([0, 2], [0.0, 0.7], True)],
)
def test_nothing_is_drawn_where_no_drafting_request_samples(
    draft_counts: list[int], temperatures: list[float], draws: bool
) -> None:
    drawn = torch.tensor([7, 8], dtype=torch.int32)
    tokens = draw_where_needed(lambda *arguments: drawn)(
        2,
        draft_counts,
        None,
        torch.tensor([5, 6], dtype=torch.int32),
        None,
        None,
        SimpleNamespace(temperature=torch.tensor(temperatures)),
        torch.device("cpu"),
        False,
    )
    assert tokens.shape == drawn.shape
    assert tokens.dtype == drawn.dtype
    assert torch.equal(tokens, drawn) == draws


def test_a_step_without_drafts_samples_plainly() -> None:
    drafts_seen: list[Any] = []
    sample = sample_plainly_without_drafts(lambda runner, logits, drafts: drafts_seen.append(drafts))
    with_drafts = SimpleNamespace(max_spec_len=3)
    for drafts in (None, SimpleNamespace(max_spec_len=0), with_drafts):
        sample(None, torch.zeros(1, 9), drafts)
    assert drafts_seen == [None, None, with_drafts]
