"""Draws of tokens by inverse transform sampling."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from optional_packages import require_package

from tests.engines.vllm.conftest import make_engine, shut_down
from timely.engines.vllm.arguments import VllmOptions, parse_vllm_arguments

require_package("vllm")

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from timely.engines.vllm import cpu_draws  # noqa: E402
from timely.engines.vllm.cpu_draws import draw_tokens, with_draws_by_inversion  # noqa: E402

VOCABULARIES = [3 * 256, 90, 7]
"""Of whole blocks, of smaller ones, and of blocks of one token."""


def draw_at(monkeypatch: pytest.MonkeyPatch, logits: Tensor, shares: list[float]) -> list[int]:
    """The tokens where the random numbers of a row are these."""
    monkeypatch.setattr(torch, "rand", lambda count, dtype: torch.tensor(shares, dtype=dtype))
    return [int(token) for token in draw_tokens(logits.expand(len(shares), -1))]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_a_draw_inverts_the_distribution(monkeypatch: pytest.MonkeyPatch, vocabulary: int) -> None:
    probabilities = torch.randn(vocabulary, generator=torch.Generator().manual_seed(1)).softmax(-1).double()
    ends = probabilities.cumsum(-1)
    middles = ((ends - probabilities / 2) / ends[-1]).tolist()
    assert draw_at(monkeypatch, probabilities.log().float(), middles) == list(range(vocabulary))


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_excluded_tokens_are_never_drawn(monkeypatch: pytest.MonkeyPatch, vocabulary: int) -> None:
    """Not at the ends of the distribution either."""
    allowed = [1, vocabulary // 2, vocabulary - 2]
    logits = torch.full((vocabulary,), -torch.inf)
    logits[allowed] = 0.0
    shares = [0.0, 1 / 3 - 1e-6, 1 / 3 + 1e-6, 2 / 3 + 1e-6, 1 - 2**-53]
    tokens = draw_at(monkeypatch, logits, shares)
    assert tokens == [allowed[0], allowed[0], allowed[1], allowed[2], allowed[2]]


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_logits_of_a_broken_model_give_some_token(value: float) -> None:
    tokens = draw_tokens(torch.full((2, 512), value))
    assert ((tokens >= 0) & (tokens < 512)).all()


def test_draws_have_the_probabilities_of_the_softmax() -> None:
    torch.manual_seed(3)
    logits = torch.tensor([0.0, 1.0, -2.0, 3.0, 0.5, -torch.inf])
    counts = torch.bincount(draw_tokens(logits.expand(100_000, -1)), minlength=6)
    expected = logits.softmax(-1) * 100_000
    possible = expected > 0
    assert counts[~possible].sum() == 0
    # The 99.9th percentile of chi-squared with four degrees of freedom.
    assert ((counts - expected)[possible] ** 2 / expected[possible]).sum() < 18.5


def vllm_sampler(**options: Any) -> Any:
    defaults = {"use_fp64_gumbel": False, "logprobs_mode": "raw_logprobs"}
    return SimpleNamespace(**(defaults | options))


def test_seeded_requests_draw_as_in_vllm() -> None:
    """Whatever other requests are in the step, and where."""
    calls = []

    def vllm_draw(
        sampler: Any, logits: Tensor, generators: dict[int, torch.Generator], k: None, p: None
    ) -> tuple[Tensor, None]:
        calls.append((logits[:, 0].tolist(), generators))
        return torch.tensor([7, 8], dtype=torch.int32), None

    logits = torch.zeros(4, 16)
    logits[:, 0] = torch.arange(4)
    last, first = torch.Generator(), torch.Generator()
    draw = with_draws_by_inversion(vllm_draw)
    tokens, _ = draw(vllm_sampler(), logits, {3: last, 1: first}, None, None)
    assert calls == [([3.0, 1.0], {0: last, 1: first})]
    assert tokens[[3, 1]].tolist() == [7, 8]
    assert draw(vllm_sampler(), logits, {}, None, None)[0].shape == (4,)
    assert len(calls) == 1


@pytest.mark.parametrize("options", [{"use_fp64_gumbel": True}, {"logprobs_mode": "processed_logits"}])
def test_other_options_leave_all_to_vllm(options: dict[str, Any]) -> None:
    draw = with_draws_by_inversion(lambda *arguments: ("vllm", arguments))
    name, (_, logits, generators, k, p) = draw(vllm_sampler(**options), "logits", {}, "k", "p")
    assert (name, logits, generators, k, p) == ("vllm", "logits", {}, "k", "p")


def test_top_k_and_top_p_hold() -> None:
    draw = with_draws_by_inversion(lambda *arguments: None)
    logits = torch.arange(8.0).expand(500, -1).clone()
    torch.manual_seed(0)
    top_two = torch.full((500,), 2)
    assert set(draw(vllm_sampler(), logits.clone(), {}, top_two, None)[0].tolist()) == {6, 7}
    half = torch.full((500,), 0.5)
    assert set(draw(vllm_sampler(), logits.clone(), {}, None, half)[0].tolist()) == {7}


@pytest.fixture
def vllm_draws() -> Iterator[None]:
    """Other engines of this process draw as vLLM does."""
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

    with mock.patch.object(TopKTopPSampler, "forward_cpu", TopKTopPSampler.forward_cpu):
        yield


@pytest.mark.engine
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("vllm_draws")
def test_an_engine_draws_so_where_its_options_say_so(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests with a seed get the tokens of an engine without the option, beside one that has none."""
    rows: list[int] = []

    def counting_draw(logits: Tensor) -> Tensor:
        rows.append(len(logits))
        return draw_tokens(logits)

    monkeypatch.setattr(cpu_draws, "draw_tokens", counting_draw)
    tokens = {}
    for draws_by_inversion in (False, True):
        rows.clear()
        options = {"timely": {"draws_by_inversion": draws_by_inversion}}
        engine = make_engine(model=tiny_model, num_gpu_blocks_override=64, additional_config=options)
        try:
            for name, seed in {"a": 5, "b": None, "c": 6}.items():
                engine.add(name, "Once upon a time", 8, temperature=1.0, seed=seed)
            outputs = engine.run()
        finally:
            shut_down(engine)
        tokens[draws_by_inversion] = {name: outputs[name].outputs[0].token_ids for name in ("a", "c")}
        assert bool(rows) is draws_by_inversion
    assert tokens[True] == tokens[False]
    assert tokens[True]["a"] != tokens[True]["c"]


@pytest.mark.parametrize(
    ("arguments", "draws_by_inversion"),
    [((), True), (("--additional-config", '{"timely": {"draws_by_inversion": false}}'), False)],
    ids=["default", "own"],
)
def test_our_server_asks_for_them(
    tiny_model: str, arguments: tuple[str, ...], draws_by_inversion: bool
) -> None:
    parsed = parse_vllm_arguments(VllmOptions(model=tiny_model, arguments=arguments))
    assert parsed.additional_config["timely"]["draws_by_inversion"] is draws_by_inversion
