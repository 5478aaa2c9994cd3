"""How recorded tokens are forced: by vLLM's own replay under its newer model runner, by our processor otherwise."""

from __future__ import annotations

import pytest
from optional_packages import require_package

from timely.engines.vllm import forced_decoding

require_package("vllm")

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("chosen", "triton", "cpu", "newer"),
    [
        (None, True, False, True),  # a GPU
        (None, False, True, False),  # this machine
        (None, True, True, False),  # the CPU's worker is the older one
        (False, True, False, False),  # VLLM_USE_V2_MODEL_RUNNER=0
        (True, False, False, True),
    ],
)
def test_which_runner_there_is(
    monkeypatch: pytest.MonkeyPatch, chosen: bool | None, triton: bool, cpu: bool, newer: bool
) -> None:
    import vllm.platforms
    import vllm.triton_utils
    from vllm import envs

    class Platform:
        def is_cpu(self) -> bool:
            return cpu

    monkeypatch.setattr(vllm.platforms, "current_platform", Platform())
    monkeypatch.setattr(vllm.triton_utils, "HAS_TRITON", triton)
    monkeypatch.setattr(envs, "VLLM_USE_V2_MODEL_RUNNER", chosen)
    assert forced_decoding.uses_newer_vllm_runner() is newer
    replay = ("--enable-trace-replay",)
    assert forced_decoding.vllm_engine_arguments() == (
        replay if newer else ("--logits-processors", forced_decoding.PROCESSOR)
    )
    assert list(forced_decoding.vllm_engine_keywords()) == [
        "enable_trace_replay" if newer else "logits_processors"
    ]


def test_the_plan_is_given_to_vllm_where_that_replays_it() -> None:
    assert forced_decoding.vllm_sampling_keywords({"forced_ids": [4, 5]}, trace_replay=True) == {
        "trace_decode_token_ids": [4, 5]
    }
    assert forced_decoding.vllm_sampling_keywords({"forced_ids": [4, 5]}, trace_replay=False) == {}
    assert forced_decoding.vllm_sampling_keywords({}, trace_replay=True) == {}


def test_after_a_value_the_rest_of_the_plan_is_forced() -> None:
    from vllm import SamplingParams

    timely = {"timely": {"task_id": "a", "forced_ids": [4, 5, 6]}}
    plain = SamplingParams(extra_args=timely)
    replayed = SamplingParams(extra_args=timely, trace_decode_token_ids=[4, 5, 6])
    assert forced_decoding.remaining_vllm_parameters(plain, 2).extra_args["timely"] == {
        "task_id": "a",
        "forced_ids": [6],
    }
    assert forced_decoding.remaining_vllm_parameters(plain, 2).trace_decode_token_ids is None
    assert forced_decoding.remaining_vllm_parameters(replayed, 2).trace_decode_token_ids == [6]
    assert forced_decoding.remaining_vllm_parameters(replayed, 3).trace_decode_token_ids is None
    assert replayed.trace_decode_token_ids == [4, 5, 6]
    other = SamplingParams(extra_args={"timely": {"task_id": "b"}})
    assert forced_decoding.remaining_vllm_parameters(other, 2) is other
