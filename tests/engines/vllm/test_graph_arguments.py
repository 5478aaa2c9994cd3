"""CUDA graphs of steps with prompts: where our defaults add them, and what the caller's own arguments keep out."""

from __future__ import annotations

import json

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
    arguments = vllm_graph_arguments(("--max-model-len", "4096"))
    assert bool(arguments) == (capability == 90)
    if arguments:
        assert arguments[0] == "--compilation-config"
        graphs = json.loads(arguments[1])
        assert graphs == {"cudagraph_mode": "FULL", "cudagraph_capture_sizes": list(GRAPH_SIZES)}
    assert sorted(set(GRAPH_SIZES)) == list(GRAPH_SIZES)


@pytest.mark.parametrize(
    "own",
    [
        "-O3", "-O.cudagraph_mode=NONE", "-cc.cudagraph_mode=PIECEWISE", "--compilation-config={}",
        "--compilation_config", "--optimization-level", "--cudagraph-capture-sizes", "--max-cudagraph-capture-size=64",
        "--max_cudagraph_capture_size", "--enforce-eager", "--speculative-config",
    ],
)  # fmt: skip
def test_what_the_caller_says_of_graphs_stays(monkeypatch: pytest.MonkeyPatch, own: str) -> None:
    be(monkeypatch, 90)
    assert vllm_graph_arguments((own, "1")) == ()


def test_an_engine_on_hopper_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.platforms

    be(monkeypatch, 90)
    with monkeypatch.context() as patched:
        patched.setattr(type(vllm.platforms.current_platform), "is_cpu", lambda self: False)
        graphs = parse_vllm_arguments(VllmOptions()).compilation_config
        ahead = parse_vllm_arguments(VllmOptions(jump_ahead=True)).compilation_config
    assert graphs.cudagraph_capture_sizes == list(GRAPH_SIZES)
    assert not ahead.cudagraph_capture_sizes
