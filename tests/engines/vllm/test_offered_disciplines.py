"""Which disciplines an engine offers goes by how it was started: none that needs drafts where nothing is drafted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from timely.core.errors import EngineFailed, InvalidInput, Unsupported
from timely.disciplines import registry
from timely.engines.base import MAX_OUTPUT_TOKENS
from timely.engines.vllm.arguments import VllmOptions, parse_vllm_arguments
from timely.engines.vllm.engine import VllmEngine

DRAFTS = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}'


def started_with(speculative_config: object) -> VllmEngine:
    engine = VllmEngine(VllmOptions())
    engine._args = SimpleNamespace(speculative_config=speculative_config)
    return engine


def offered(engine: VllmEngine) -> list[str]:
    return [info.name for info in engine.disciplines()]


async def test_without_drafts_a_discipline_that_needs_them_is_neither_offered_nor_taken() -> None:
    for engine in (VllmEngine(VllmOptions()), started_with(None)):
        names = offered(engine)
        assert names == [
            name for name in (info.name for info in registry.discipline_infos()) if name != "laps-sd"
        ]
        with pytest.raises(Unsupported, match=r"'laps-sd' needs speculation: .*--speculative-config"):
            await engine.set_discipline("laps-sd")


async def test_with_drafts_all_are_offered() -> None:
    engine = started_with({"method": "ngram"})
    assert offered(engine) == [info.name for info in registry.discipline_infos()]
    with pytest.raises(EngineFailed, match="not running"):
        await engine.set_discipline("laps-sd")


@pytest.mark.engine
def test_at_start_it_is_refused_by_name() -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    with pytest.raises(Unsupported, match=r"'laps-sd' needs speculation: .*--speculative-config"):
        parse_vllm_arguments(VllmOptions(discipline="laps-sd"))
    parsed = parse_vllm_arguments(
        VllmOptions(discipline="laps-sd", arguments=("--speculative-config", DRAFTS))
    )
    assert parsed.speculative_config["method"] == "ngram"
    for arguments, method in (((), "custom_class"), (("--speculative-config", DRAFTS), "ngram")):
        parsed = parse_vllm_arguments(VllmOptions(jump_ahead=True, arguments=arguments))
        assert parsed.speculative_config["method"] == method, "the caller's own drafts win"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("--ssl_certfile", "/tmp/x.pem"), "--ssl-certfile"),
        (("--ssl-certf", "/tmp/x.pem"), "--ssl-certfile"),
        (("--api-ke", "secret"), "--api-key"),
        (("--uds", "/tmp/x"), "--uds"),
        (("--allowed-origins", '["https://a"]'), "--allowed-origins"),
        (("--headless",), "--headless"),
        (("--api-server-count", "2"), "--api-server-count"),
        (("--enable-scale-out",), "--enable-scale-out"),
    ],
)
def test_options_of_vllms_own_server_are_refused(arguments: tuple[str, ...], where: str) -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    with pytest.raises(InvalidInput, match="vLLM's HTTP server") as refused:
        parse_vllm_arguments(VllmOptions(arguments=arguments))
    assert refused.value.where == where


@pytest.mark.engine
def test_limits_of_where_images_come_from_are_the_engines() -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    parsed = parse_vllm_arguments(
        VllmOptions(arguments=("--allowed-media-domains", "a.example", "--allowed-local-media-path", "/p"))
    )
    assert (parsed.allowed_media_domains, parsed.allowed_local_media_path) == (["a.example"], "/p")


@pytest.mark.engine
@pytest.mark.parametrize("in_file", [False, True])
def test_a_model_that_is_named_elsewhere_than_in_our_option_is_refused(tmp_path: Path, in_file: bool) -> None:
    """vLLM's own command takes it so; here the packaged model would be served instead."""
    pytest.importorskip("vllm", reason="needs vLLM")
    file = tmp_path / "serve.yaml"
    file.write_text("model: /models/mine\n")
    with pytest.raises(InvalidInput, match="--model") as refused:
        parse_vllm_arguments(VllmOptions(arguments=("--config", str(file)) if in_file else ("/models/mine",)))
    assert refused.value.where == "/models/mine"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("--scheduler-cls", "their.Scheduler"), "--scheduler-cls"),
        (("--additional-config", '{"timely": {"discipline": "pud"}}'), "--additional-config"),
        (("--additional-config", '{"timely": {"mode": "whole"}}'), "--additional-config"),
    ],
)
def test_what_our_own_options_would_override_is_refused(arguments: tuple[str, ...], where: str) -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    with pytest.raises(InvalidInput) as refused:
        parse_vllm_arguments(VllmOptions(arguments=arguments))
    assert refused.value.where == where


@pytest.mark.engine
@pytest.mark.parametrize("written", [("--config", "{}"), ("--config={}",)])
def test_a_configuration_file_stands_between_our_defaults_and_the_command_line(
    tmp_path: Path, written: tuple[str, ...]
) -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    file = tmp_path / "serve.yaml"
    file.write_text("max-model-len: 1024\nmax_num_seqs: 7\nenable_lora: true\n")
    config = tuple(part.format(file) for part in written)
    parsed = parse_vllm_arguments(VllmOptions(arguments=("--max-num-seqs", "9", *config)))
    assert (parsed.max_model_len, parsed.max_num_seqs, parsed.enable_lora) == (1024, 9, True)
    plain = parse_vllm_arguments(VllmOptions(arguments=("--enable-lora",)))
    assert parsed.model == plain.model, "the planner stays apart"
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    for other_file in (tmp_path / "none.yaml", tmp_path / "none.txt", broken):
        with pytest.raises(InvalidInput) as refused:
            parse_vllm_arguments(VllmOptions(arguments=("--config", str(other_file))))
        assert refused.value.where == "--config"


@pytest.mark.engine
def test_a_chat_without_a_limit_gets_that_of_the_server() -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    parsed = parse_vllm_arguments(VllmOptions())
    assert parsed.override_generation_config == {"max_new_tokens": MAX_OUTPUT_TOKENS}
