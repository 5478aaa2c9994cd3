"""Fused kernels of eager engines on CPUs: the same numbers up to rounding, and only where they were asked for."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from optional_packages import require_package

from tests.engines.vllm.conftest import LocalEngine, make_engine, shut_down
from timely.engines.vllm.arguments import VllmOptions, parse_vllm_arguments

require_package("vllm")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

EAGER = SimpleNamespace(model_config=SimpleNamespace(enforce_eager=True))
COMPILED = SimpleNamespace(model_config=SimpleNamespace(enforce_eager=False))


def kernels() -> Any:
    """The module, which imports vLLM."""
    from timely.engines.vllm import fused_kernels

    return fused_kernels


def norms() -> tuple[Any, Any]:
    from vllm import ir

    return ir.ops.rms_norm, ir.ops.fused_add_rms_norm


def in_use() -> list[bool]:
    return [op._priority_impls[0].provider == kernels().PROVIDER for op in norms()]


@pytest.fixture(autouse=True)
def kernels_of_before() -> Iterator[None]:
    """Other engines of this process compute as vLLM does."""
    yield
    for op in norms():
        op.set_default(["native"])


@pytest.mark.parametrize("width", [64, 576, 40], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_kernels_compute_what_the_operations_do(dtype: str, width: int) -> None:
    """A width of 40 is none of whole vectors; columns of a wider matrix do not lie next to each other."""
    import torch

    for op in norms():
        op.set_default(["native"])
    kernels().use_fused_cpu_kernels(EAGER)
    rms_norm, add_and_norm = norms()
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator).to(getattr(torch, dtype))

    tolerance = {"rtol": 2e-5, "atol": 2e-5} if dtype == "float32" else {"rtol": 2e-2, "atol": 2e-2}
    wide = draw(5, 3 * width)
    for x in (draw(5, width), draw(2, 3, width), wide[:, width : 2 * width], wide.view(5, 3, width)[:, 1:]):
        weight, residual = draw(width), draw(*x.shape)
        expected = rms_norm.impls["native"].impl_fn(x, weight, 1e-5)
        torch.testing.assert_close(rms_norm(x, weight, 1e-5), expected, **tolerance)
        assert rms_norm(x, None, 1e-5).shape == x.shape
        sums = add_and_norm.impls["native"].impl_fn(x, residual, weight, 1e-5)
        results = add_and_norm.maybe_inplace(x.clone(), residual.clone(), weight, 1e-5)
        for result, one_sum in zip(results, sums, strict=True):
            torch.testing.assert_close(result, one_sum, **tolerance)


def test_compiled_engines_and_accelerators_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.platforms import current_platform

    for op in norms():
        op.set_default(["native"])
    kernels().use_fused_cpu_kernels(COMPILED)
    assert in_use() == [False] * 2
    monkeypatch.setattr(current_platform, "is_cpu", lambda: False)
    kernels().use_fused_cpu_kernels(EAGER)
    assert in_use() == [False] * 2


@pytest.mark.parametrize("options", [{"fused_kernels": True}, {}], ids=["asked", "not asked"])
def test_an_engine_uses_them_where_its_options_say_so(
    tiny_model: str, sync_engine: LocalEngine, options: dict[str, Any]
) -> None:
    """In float32 the greedy tokens stay the same."""
    expected = sync_engine.texts(3, 24, lambda _: None)
    engine = make_engine(model=tiny_model, num_gpu_blocks_override=64, additional_config={"timely": options})
    try:
        assert in_use() == [bool(options)] * 2
        results = engine.texts(3, 24, lambda _: None)
        for name, output in expected.items():
            assert list(results[name].outputs[0].token_ids) == list(output.outputs[0].token_ids)
    finally:
        shut_down(engine)


@pytest.mark.parametrize(
    ("arguments", "fused"),
    [((), True), (("--additional-config", '{"timely": {"fused_kernels": false}}'), False)],
    ids=["default", "own"],
)
def test_our_server_asks_for_them(tiny_model: str, arguments: tuple[str, ...], fused: bool) -> None:
    parsed = parse_vllm_arguments(VllmOptions(model=tiny_model, arguments=arguments))
    assert parsed.additional_config["timely"]["fused_kernels"] is fused
