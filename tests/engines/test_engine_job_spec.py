"""What every engine tells its discipline of a request, by mode."""

from __future__ import annotations

import pytest

from timely.core.hints import NO_HINTS
from timely.core.job import PLAIN_SEGMENT_TOKENS, JobSpec
from timely.engines.base import Mode, engine_job_spec


def spec(mode: Mode, segment_tokens: int | None = 10, *, plain: bool = False) -> JobSpec:
    return engine_job_spec(
        "plan", 0.0, NO_HINTS, mode,
        prompt_tokens=5, cached_tokens=0, max_tokens=256, segment_tokens=segment_tokens, plain=plain,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["segmented", "stream"])
def test_a_plan_in_segments_is_bound_by_its_skill_set(mode: Mode) -> None:
    job = spec(mode)
    assert (job.segmented, job.whole_answer, job.segment_tokens) == (mode == "segmented", False, 10)


def test_in_mode_whole_the_plan_is_one_segment_that_only_its_limit_bounds() -> None:
    """With the bound of a skill set a long plan would count as about to end for most of its life."""
    job = spec("whole")
    assert (job.segmented, job.whole_answer, job.segment_tokens) == (False, True, 256)


def test_a_plain_request_has_no_segments_in_any_mode() -> None:
    for mode in ("segmented", "stream", "whole"):
        job = spec(mode, None, plain=True)
        assert (job.segmented, job.whole_answer, job.segment_tokens) == (False, False, PLAIN_SEGMENT_TOKENS)
