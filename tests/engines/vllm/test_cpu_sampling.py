"""Sampling parameters of requests at their drafts, on CPUs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from optional_packages import require_package

require_package("vllm")

import torch  # noqa: E402
from vllm.v1.sample.logits_processor import LogitsProcessors  # noqa: E402
from vllm.v1.sample.metadata import SamplingMetadata  # noqa: E402

from timely.engines.vllm.cpu_sampling import (  # noqa: E402
    mask_logits_by_grammar,
    replace_where_logprobs_are_asked,
    sample_plainly_without_drafts,
    spread_over_drafts,
    verify_without_draws,
)


def metadata(temperatures: list[float]) -> SamplingMetadata:
    """Of requests that ask for a temperature alone."""
    return SamplingMetadata(
        temperature=torch.tensor(temperatures), all_greedy=False, all_random=min(temperatures) > 0,
        top_p=None, top_k=None, generators={}, max_num_logprobs=None, no_penalties=True, prompt_token_ids=None,
        frequency_penalties=torch.zeros(1), presence_penalties=torch.zeros(1), repetition_penalties=torch.ones(1),
        output_token_ids=[[]], allowed_token_ids_mask=None, bad_words_token_ids={}, logitsprocs=LogitsProcessors(),
    )  # fmt: skip


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
    ("draft_counts", "temperatures", "is_greedy"),
    [([2, 0], [0.0, 1.0], True), ([1, 1], [0.0, 1.0], False), ([0, 2], [0.0, 0.7], False)],
)
def test_nothing_is_drawn_where_no_drafting_request_samples(
    draft_counts: list[int], temperatures: list[float], is_greedy: bool
) -> None:
    sampling = metadata(temperatures)
    verified: list[Any] = []
    verify_without_draws(lambda *arguments, **options: verified.append((*arguments, options)))(
        None, draft_counts, 2, None, None, None, None, sampling, synthetic_mode=False
    )
    [(*_, seen, options)] = verified
    assert (seen.all_greedy, options) == (is_greedy, {"synthetic_mode": False})
    assert not sampling.all_greedy


def test_logits_are_copied_for_log_probabilities_alone() -> None:
    sampling = replace(metadata([1.0]), max_num_logprobs=3)
    assert replace_where_logprobs_are_asked(sampling, max_num_logprobs=-1).max_num_logprobs == -1
    assert replace_where_logprobs_are_asked(metadata([1.0]), max_num_logprobs=-1).max_num_logprobs is None


@pytest.mark.parametrize("layout", ["rows of each request", "as many rows for all"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_grammar_masks_the_rows_of_its_request(dtype: torch.dtype, layout: str) -> None:
    """Those of chats stay, and requests of the mask that have left the batch are passed over."""
    vocabulary, drafts = 70, {"b": [1], "d": [1, 2]}
    with_grammar = ["d", "left", "b", "e"]
    random = np.random.default_rng(1)
    rows = {name: 1 + len(drafts.get(name, ())) for name in with_grammar}
    masks = {
        name: random.integers(-(2**31), 2**31, (count, 3), dtype=np.int32) for name, count in rows.items()
    }
    most = max(rows.values()) if layout == "as many rows for all" else 0
    fill = np.zeros((1, 3), dtype=np.int32)
    bits = np.concatenate([np.concatenate([m, *[fill] * (most - len(m))]) for m in masks.values()])
    logits = torch.randn(9, vocabulary).to(dtype)
    expected = logits.clone()
    for name, first_row in {"b": 1, "d": 4, "e": 7}.items():
        for number, words in enumerate(masks[name]):
            for token in range(vocabulary):
                if not words[token // 32] >> (token % 32) & 1:
                    expected[first_row + number, token] = -torch.inf
    mask_logits_by_grammar(
        SimpleNamespace(scheduled_spec_decode_tokens=drafts),
        SimpleNamespace(structured_output_request_ids=with_grammar, grammar_bitmask=bits),
        SimpleNamespace(req_ids=["a", "b", "c", "d", "e", "f"]),
        logits,
    )
    assert torch.equal(logits, expected)


def test_a_step_without_drafts_samples_plainly() -> None:
    drafts_seen: list[Any] = []
    sample = sample_plainly_without_drafts(lambda runner, logits, drafts: drafts_seen.append(drafts))
    with_drafts = SimpleNamespace(max_spec_len=3)
    for drafts in (None, SimpleNamespace(max_spec_len=0), with_drafts):
        sample(None, torch.zeros(1, 9), drafts)
    assert drafts_seen == [None, None, with_drafts]
