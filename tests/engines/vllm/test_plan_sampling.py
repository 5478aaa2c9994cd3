"""vLLM checks the grammar of a skill set once, and parses it once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from timely.engines.base import GenerationRequest
from timely.engines.vllm.engine import VllmEngine

pytestmark = pytest.mark.engine


def check(params: Any) -> None:
    from vllm.config import StructuredOutputsConfig

    model, tokenizer = SimpleNamespace(is_diffusion=False), object()
    params._validate_structured_outputs(model, StructuredOutputsConfig(), tokenizer)


def test_the_grammar_of_a_skill_set_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    from vllm.v1.structured_output import backend_xgrammar

    parse, parsed = backend_xgrammar.validate_xgrammar_grammar, []

    def count(params: Any) -> None:
        parsed.append(params)
        parse(params)

    monkeypatch.setattr(backend_xgrammar, "validate_xgrammar_grammar", count)
    engine = VllmEngine()
    engine._args = SimpleNamespace(enable_trace_replay=False)
    for number in range(3):
        request = GenerationRequest(f"task-{number}", "Find a shoe.", skill_set="drone", max_tokens=8)
        params = engine._sampling_parameters(request, 0)
        check(params)
        assert params.structured_outputs._backend == "xgrammar"
        assert params.clone().structured_outputs == params.structured_outputs
    assert len(parsed) == 1


def test_a_grammar_that_is_refused_is_refused_again() -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import StructuredOutputsParams

    from timely.engines.vllm.plan_sampling import PlanSamplingParams

    outputs = StructuredOutputsParams(grammar="  ")
    for _ in range(2):
        with pytest.raises(VLLMValidationError, match="empty"):
            check(PlanSamplingParams(structured_outputs=outputs))
