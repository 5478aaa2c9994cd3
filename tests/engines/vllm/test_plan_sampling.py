"""The grammar of a plan: vLLM parses it once for a skill set, and keeps to it from the first token."""

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


class Thinking:
    """A parser of a model that reasons first; its thoughts never end."""

    def __init__(self, tokenizer: Any) -> None: ...

    def is_reasoning_end(self, token_ids: Any) -> bool:
        return False


async def test_a_plan_keeps_to_its_grammar_beside_a_reasoning_parser() -> None:
    """vLLM applies no grammar while a model reasons; of a plan every token may be executed."""
    pytest.importorskip("vllm", reason="needs vLLM")
    from vllm.v1.request import Request
    from vllm.v1.structured_output import StructuredOutputManager
    from vllm_scheduler import base_config

    requests: dict[str, Any] = {}

    async def generate(prompt: Any, params: Any, *, request_id: str, **more: Any) -> Any:
        requests[request_id] = Request(
            request_id, [1, 2], params, None, reasoning_ended=more.get("reasoning_ended")
        )
        yield None

    engine = VllmEngine()
    engine._args = SimpleNamespace(enable_trace_replay=False, scheduling_policy="fcfs")
    engine._llm = SimpleNamespace(generate=generate)
    task = GenerationRequest("task", "Find a shoe.", skill_set="arm", max_tokens=8)
    async for _ in engine._stream(task, [1, 2], 0, None):
        pass
    check(requests["task"].sampling_params)
    manager = StructuredOutputManager(base_config())
    manager.reasoner_cls = Thinking
    manager._use_async_grammar_compilation = False
    manager.grammar_init(requests["task"])
    assert (manager.grammar_bitmask(requests, ["task"], {}) != -1).any(), "any token may come"
