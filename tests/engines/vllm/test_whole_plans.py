"""Mode ``whole``: a plan leaves as one segment when its generation is over."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from timely.engines.base import GenerationRequest
from timely.engines.vllm.engine_events import vllm_generation_done, vllm_merged_segment

SEGMENT = {
    "index": 0, "tokens": 4, "ready_s": 1.0, "execution_s": 2.0, "due_s": 3.0, "steps": 4, "first_token_s": 0.5,
}  # fmt: skip


@pytest.mark.parametrize(("finish", "text"), [("stop", "4{mf(50);}->True"), ("length", "4{mf(50);")])
def test_a_rest_that_the_limit_of_tokens_cut_off_does_not_leave(finish: str, text: str) -> None:
    tail = "}->True" if finish == "stop" else "tp"
    output = SimpleNamespace(outputs=[SimpleNamespace(finish_reason=finish)])
    account = {"segments": [SEGMENT], "tail": tail, "tokens": 9}
    done = vllm_generation_done(GenerationRequest("t", "x"), output, account, f"4{{mf(50);{tail}")
    segment = vllm_merged_segment(account, done)
    assert (segment.text, segment.tokens, segment.last) == (text, 4, True)


def test_segments_that_left_in_another_mode_do_not_leave_again() -> None:
    output = SimpleNamespace(outputs=[SimpleNamespace(finish_reason="stop")])
    account = {"segments": [{**SEGMENT, "index": 2}], "tail": "", "tokens": 4}
    done = vllm_generation_done(GenerationRequest("t", "x"), output, account, "tc(1);tc(2);mf(50);")
    segment = vllm_merged_segment(account, done, "tc(1);tc(2);")
    assert (segment.index, segment.text) == (2, "mf(50);")
