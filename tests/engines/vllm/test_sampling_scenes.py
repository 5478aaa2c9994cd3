"""vLLM's sampling parameters on the real engine: a parked plan gets the tokens of an ordinary request."""

from __future__ import annotations

from typing import Any

import pytest
from optional_packages import require_package

require_package("vllm")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(580)]


def sampling_parameters() -> dict[str, dict[str, Any]]:
    from vllm.sampling_params import RepetitionDetectionParams, StructuredOutputsParams

    return {
        "min_tokens": {"min_tokens": 20, "stop_token_ids": list(range(3, 60))},
        "stop_token_ids": {"stop_token_ids": list(range(3, 12))},
        "long stop": {"stop": ["x" * 3000]},
        "bad_words": {"bad_words": ["a", "th", "Q"]},
        "allowed_token_ids": {"allowed_token_ids": list(range(30, 90))},
        "logit_bias": {"logit_bias": {50: 20.0, 51: 19.9}},
        "repetition": {
            "repetition_detection": RepetitionDetectionParams(
                max_pattern_size=4, min_pattern_size=1, min_count=2
            ),
            "allowed_token_ids": [50],
        },
        "penalties": {"presence_penalty": 1.5, "frequency_penalty": 0.7, "repetition_penalty": 1.2},
        "regex": {"structured_outputs": StructuredOutputsParams(regex="[a-c]{5,40}")},
        "choice": {"structured_outputs": StructuredOutputsParams(choice=["alpha", "beta", "gamma"])},
    }


@pytest.mark.parametrize("kind", ["sync_engine", "async_engine"])
def test_sampling_parameters_give_a_parked_plan_the_same_tokens(
    kind: str, request: pytest.FixtureRequest
) -> None:
    engine = request.getfixturevalue(kind)
    every, results = sampling_parameters(), []
    for is_plan in (False, True):
        for name, parameters in every.items():
            plan = {"task_id": name, "awaits_values": False, "forced": [["go();", 5, 0.02]] * 8}
            engine.add(
                name, f"Tell me about {name} and a robot.", 40, plan if is_plan else None, **parameters
            )
        ended = engine.run()
        results.append(
            {
                name: (list(one.outputs[0].token_ids), one.outputs[0].finish_reason)
                for name, one in ended.items()
            }
        )
    assert results[0] == results[1]
    assert results[0].keys() == every.keys()
    assert {reason for _, reason in results[0].values()} == {"stop", "length", "repetition"}
