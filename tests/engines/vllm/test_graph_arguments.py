"""CUDA graphs of steps with prompts: where our defaults add them, and what the caller's own arguments keep out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from optional_packages import require_package

from timely.engines.vllm.arguments import GRAPH_SIZES, VllmOptions, parse_vllm_arguments, vllm_graph_arguments

require_package("vllm")

pytestmark = pytest.mark.engine


def be(monkeypatch: pytest.MonkeyPatch, capability: int) -> None:
    """Be a CUDA machine of that capability, as far as vLLM's platform says; 0: one without a GPU."""
    import vllm.platforms

    platform = type(vllm.platforms.current_platform)
    monkeypatch.setattr(platform, "is_cuda", lambda self: capability > 0)
    monkeypatch.setattr(
        platform,
        "is_device_capability_family",
        classmethod(lambda cls, family: family == capability // 10 * 10),
    )


@pytest.mark.parametrize("capability", [90, 80, 89, 100, 120, 0])
def test_steps_with_prompts_have_whole_graphs_on_hopper_alone(
    monkeypatch: pytest.MonkeyPatch, capability: int
) -> None:
    be(monkeypatch, capability)
    arguments = vllm_graph_arguments(("max_model_len",))
    assert bool(arguments) == (capability == 90)
    if arguments:
        assert arguments[0] == "--compilation-config"
        graphs = json.loads(arguments[1])
        assert graphs == {"cudagraph_mode": "FULL", "cudagraph_capture_sizes": list(GRAPH_SIZES)}
    assert sorted(set(GRAPH_SIZES)) == list(GRAPH_SIZES)


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.platforms

    be(monkeypatch, 90)
    monkeypatch.setattr(type(vllm.platforms.current_platform), "is_cpu", lambda self: False)
    monkeypatch.setattr("timely.engines.vllm.arguments._validate_as_vllm", lambda namespace: None)


def capture_sizes(*arguments: str, jump_ahead: bool = False) -> list[int] | None:
    """Those of an engine whose model is a name: to check the files of the packaged one takes most of a second."""
    options = VllmOptions(model="made-up/model", arguments=arguments, jump_ahead=jump_ahead)
    sizes: list[int] | None = parse_vllm_arguments(options).compilation_config.cudagraph_capture_sizes
    return sizes


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    "own",
    [
        ("-O3",), ("-O.cudagraph_mode=NONE",), ("-cc.cudagraph_mode=PIECEWISE",), ("--compilation-config", "{}"),
        ("--compilation_config", '{"mode": 0}'), ("--cudagraph-capture-sizes", "1", "2"),
        ("--cudagraph-capture-s", "1", "2"), ("--max-cudagraph-capture-size=64",), ("--max-cudagraph", "64"),
        ("--enforce-eager",), ("-sc", '{"method": "ngram", "num_speculative_tokens": 3}'),
        ("--spec-method", "ngram", "--spec-tokens", "3"), ("--enable-lora",),
        ("--prefill-context-parallel-size", "2"), ("--attention-backend", "TRITON_ATTN"),
    ],
)  # fmt: skip
def test_what_the_caller_says_of_graphs_stays(own: tuple[str, ...]) -> None:
    assert capture_sizes(*own) != list(GRAPH_SIZES)


@pytest.mark.usefixtures("hopper")
def test_an_engine_on_hopper_gets_them(tmp_path: Path) -> None:
    assert capture_sizes("--max-model-len", "2048") == list(GRAPH_SIZES)
    assert not capture_sizes(jump_ahead=True)
    config = tmp_path / "vllm.yaml"
    config.write_text("enforce-eager: true\n")
    assert not capture_sizes("--config", str(config))
