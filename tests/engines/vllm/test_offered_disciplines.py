"""Which disciplines an engine offers goes by how it was started: none that needs drafts where nothing is drafted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from timely.core.errors import EngineFailed, InvalidInput, Unsupported
from timely.disciplines import registry
from timely.engines.base import MAX_OUTPUT_TOKENS
from timely.engines.vllm.arguments import (
    ALLOCATOR_VARIABLE,
    CACHE_VARIABLE,
    CPU_BINDING,
    IN_ENGINE,
    NO_COMPILER,
    THREADS_VARIABLE,
    VllmOptions,
    parse_vllm_arguments,
    set_vllm_environment,
    vllm_engine_environment,
)
from timely.engines.vllm.engine import VllmEngine
from timely.engines.vllm.model import resolve_vllm_model

DRAFTS = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}'


@pytest.fixture(scope="module", autouse=True)
def model_files_read_once() -> Iterator[None]:
    """To check the files of the model takes most of a second, in each of some forty calls of the parser."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("timely.engines.vllm.arguments.resolve_vllm_model", cache(resolve_vllm_model))
        yield


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
    ("model", "arguments", "is_cpu", "jumps"),
    [
        (None, (), True, True),
        (None, ("--max-num-seqs", "8"), True, True),
        (None, (), False, False),
        ("made-up/model", (), True, False),
        (None, ("--logits-processors", "a:B"), True, False),
        (None, ("--async-scheduling",), True, False),
        (None, ("--pipeline-parallel-size=2",), True, False),
    ],
)
def test_forced_tokens_take_no_step_where_that_excludes_nothing(
    model: str | None,
    arguments: tuple[str, ...],
    is_cpu: bool,
    jumps: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    import vllm.platforms

    monkeypatch.setattr(type(vllm.platforms.current_platform), "is_cpu", lambda self: is_cpu)
    options = VllmOptions(model=model, arguments=arguments, jump_ahead=None)
    assert bool(parse_vllm_arguments(options).speculative_config) == jumps
    assert not parse_vllm_arguments(replace(options, jump_ahead=False)).speculative_config


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
        (("--shutdown-timeout", "60"), "--shutdown-timeout"),
        (("--aggregate-engine-logging",), "--aggregate-engine-logging"),
        (("--data-parallel-multi-port-external-lb",), "--data-parallel-multi-port-external-lb"),
        (("--tokens-only",), "--tokens-only"),
        (("--enable-sleep-mode",), "--enable-sleep-mode"),
        (("--enable-elastic-ep",), "--enable-elastic-ep"),
        (("--enable-fault-tolerance",), "--enable-fault-tolerance"),
        (("--weight-transfer-config", '{"backend": "nccl"}'), "--weight-transfer-config"),
        (("--profiler-config", '{"profiler": "torch", "torch_profiler_dir": "/p"}'), "--profiler-config"),
        (("--no-cohere-is-reasoning-model",), "--cohere-is-reasoning-model"),
        (("--anthropic-disabled-thinking-effort", "low"), "--anthropic-disabled-thinking-effort"),
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
        (("--structured-outputs-config.backend", "guidance"), "--structured-outputs-config"),
        (("--stream-interval", "2"), "--stream-interval"),
        (("--max-num-queued-reqs", "0"), "--max-num-queued-reqs"),
        (("--max-num-queued-tokens", "0"), "--max-num-queued-tokens"),
    ],
)
def test_what_does_not_go_with_our_own_options_is_refused(arguments: tuple[str, ...], where: str) -> None:
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
@pytest.mark.parametrize(("capability", "dtype"), [("AVX2", "float32"), ("AVX512", "bfloat16")])
def test_a_processor_computes_in_the_type_that_it_is_fast_with(
    monkeypatch: pytest.MonkeyPatch, capability: str, dtype: str
) -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    import torch

    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert parse_vllm_arguments(VllmOptions()).dtype == dtype
    assert parse_vllm_arguments(VllmOptions(arguments=("--dtype", "half"))).dtype == "half"


@pytest.mark.engine
def test_the_size_of_the_kv_cache_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timely set an environment variable by which vLLM replaced the argument on a CPU."""

    def size(*arguments: str) -> int | None:
        options = VllmOptions(arguments=arguments)
        set_vllm_environment(options)
        assert os.environ.get(CACHE_VARIABLE) in (None, "2")
        bytes_: int | None = parse_vllm_arguments(options).kv_cache_memory_bytes
        return bytes_

    for name in ("VLLM_LOGGING_LEVEL", "VLLM_NO_USAGE_STATS", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    assert size() == 2**30
    assert size("--kv-cache-memory-bytes", "1") == 1
    assert size("--gpu-memory-utilization", "0.5") is None
    monkeypatch.setenv(CACHE_VARIABLE, "2")
    assert size() is None
    with pytest.raises(InvalidInput) as raised:
        size("--kv-cache-memory-bytes", "1")
    assert raised.value.where == "--kv-cache-memory-bytes"


def test_a_chat_without_a_limit_gets_that_of_the_server() -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    parsed = parse_vllm_arguments(VllmOptions())
    assert parsed.override_generation_config == {"max_new_tokens": MAX_OUTPUT_TOKENS}


PARSERS = """
from vllm.tool_parsers import ToolParser, ToolParserManager


@ToolParserManager.register_module(["mine"])
class MyParser(ToolParser):
    pass
"""


@pytest.mark.engine
def test_files_with_parsers_are_loaded(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    file = tmp_path / "my_parsers_of_tools.py"
    file.write_text(PARSERS)
    tools = ("--enable-auto-tool-choice", "--tool-call-parser", "mine")
    with pytest.raises(InvalidInput, match="invalid tool call parser: mine"):
        parse_vllm_arguments(VllmOptions(arguments=tools))
    parsed = parse_vllm_arguments(VllmOptions(arguments=(*tools, "--tool-parser-plugin", str(file))))
    assert parsed.tool_call_parser == "mine"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("arguments", "where", "reason"),
    [
        (("--tool-parser-plugin", "/none.py"), "--tool-parser-plugin", "cannot load"),
        (("--reasoning-parser-plugin", "/none.py"), "--reasoning-parser-plugin", "cannot load"),
        (("--reasoning-parser", "mine"), "vllm arguments", "invalid reasoning parser: mine"),
        (("--enable-auto-tool-choice",), "vllm arguments", "requires --tool-call-parser"),
        (("--enable-log-outputs",), "vllm arguments", "requires --enable-log-requests"),
        (("--sse-keep-alive-interval", "-1"), "vllm arguments", "non-negative"),
        (("--chat-template", "/none/at/all.jinja"), "vllm arguments", "chat template"),
    ],
)
def test_what_vllms_own_server_refuses_at_its_start_is_refused(
    arguments: tuple[str, ...], where: str, reason: str
) -> None:
    """Else it fails after the model has loaded, or does nothing."""
    pytest.importorskip("vllm", reason="needs vLLM")
    with pytest.raises(InvalidInput, match=reason) as refused:
        parse_vllm_arguments(VllmOptions(arguments=arguments))
    assert refused.value.where == where


@pytest.mark.engine
def test_requests_are_logged_where_the_operator_says_so() -> None:
    """vLLM logs them below the level that we set by default."""
    pytest.importorskip("vllm", reason="needs vLLM")
    parsed = parse_vllm_arguments(VllmOptions(arguments=("--enable-log-requests",)))
    assert parsed.log_level == "INFO"
    assert not hasattr(parse_vllm_arguments(VllmOptions()), "log_level")
    chosen = ("--enable-log-requests", "--log-level", "DEBUG")
    assert parse_vllm_arguments(VllmOptions(arguments=chosen)).log_level == "DEBUG"


@pytest.mark.engine
def test_the_ban_on_compiling_is_of_the_processes_that_an_eager_engine_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stayed in the environment, so another engine of this process compiled nothing either."""
    monkeypatch.delenv(NO_COMPILER, raising=False)
    for eager in (True, False):
        with vllm_engine_environment(engine_arguments(eager)):
            assert os.environ.get(NO_COMPILER) == ("1" if eager else None)
        assert NO_COMPILER not in os.environ
    monkeypatch.setenv(NO_COMPILER, "0")
    with vllm_engine_environment(engine_arguments()):
        assert os.environ[NO_COMPILER] == "0", "the caller's own setting wins"
    assert os.environ[NO_COMPILER] == "0"


THRESHOLDS = f"glibc.malloc.mmap_threshold={32 * 2**20}:glibc.malloc.trim_threshold={128 * 2**20}"


def engine_arguments(enforce_eager: bool = True, executor: str | None = None) -> SimpleNamespace:
    sizes = dict.fromkeys(("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"), 1)
    return SimpleNamespace(enforce_eager=enforce_eager, distributed_executor_backend=executor, **sizes)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, f"glibc.malloc.hugetlb=1:{THRESHOLDS}"),
        ("glibc.malloc.arena_max=1", f"glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1:{THRESHOLDS}"),
        ("glibc.malloc.hugetlb=0", f"glibc.malloc.hugetlb=0:{THRESHOLDS}"),
        (f"{THRESHOLDS}:glibc.malloc.hugetlb=0", f"{THRESHOLDS}:glibc.malloc.hugetlb=0"),
    ],
)
def test_an_engine_on_a_cpu_asks_for_huge_pages_and_keeps_freed_memory(
    monkeypatch: pytest.MonkeyPatch, own: str | None, expected: str
) -> None:
    """In small pages a process in an unlucky place took up to 1.5 times as long for a step."""
    pytest.importorskip("vllm", reason="needs vLLM")
    from vllm.platforms import current_platform

    monkeypatch.delenv(ALLOCATOR_VARIABLE, raising=False)
    if own is not None:
        monkeypatch.setenv(ALLOCATOR_VARIABLE, own)
    for is_cpu in (True, False):
        monkeypatch.setattr(current_platform, "is_cpu", lambda is_cpu=is_cpu: is_cpu)
        with vllm_engine_environment(engine_arguments()):
            assert os.environ.get(ALLOCATOR_VARIABLE) == (expected if is_cpu else own)
        assert os.environ.get(ALLOCATOR_VARIABLE) == own


@pytest.fixture
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in CPU_BINDING:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.mark.engine
@pytest.mark.usefixtures("two_processors")
@pytest.mark.parametrize("own", [None, "2"])
def test_an_engine_without_a_worker_computes_with_one_thread(
    monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    """Images set the number of threads to that of the cores; with two the engine took twice as long."""
    pytest.importorskip("vllm", reason="needs vLLM")
    from vllm.platforms import current_platform

    monkeypatch.delenv(THREADS_VARIABLE, raising=False)
    if own is not None:
        monkeypatch.setenv(THREADS_VARIABLE, own)
    for executor in (IN_ENGINE, "mp", None):
        has_one = executor == IN_ENGINE and current_platform.is_cpu()
        with vllm_engine_environment(engine_arguments(executor=executor)):
            assert os.environ.get(THREADS_VARIABLE) == ("1" if has_one else own)
        assert os.environ.get(THREADS_VARIABLE) == own
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    with vllm_engine_environment(engine_arguments(executor=IN_ENGINE)):
        assert os.environ.get(THREADS_VARIABLE) == own, "a caller that names this executor has more cores"


@pytest.mark.engine
@pytest.mark.usefixtures("two_processors")
def test_on_two_processors_the_engine_has_no_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    from vllm.platforms import current_platform

    def executor(*arguments: str) -> object:
        return parse_vllm_arguments(VllmOptions(arguments=arguments)).distributed_executor_backend

    default = IN_ENGINE if current_platform.is_cpu() else None
    assert executor() == default
    for chosen in (
        ("--distributed-executor-backend", "mp"), ("--distributed-executor-backend=mp",),
        ("--distributed_executor_backend=mp",),
    ):  # fmt: skip
        assert executor(*chosen) == "mp"
    config = tmp_path / "vllm.yaml"
    config.write_text("distributed-executor-backend: mp\n")
    assert executor("--config", str(config)) == "mp"
    for name in ("tensor", "pipeline", "data"):
        assert executor(f"--{name}-parallel-size", "2") is None, "vLLM's own"
    for variable in CPU_BINDING:
        with monkeypatch.context() as patched:
            patched.setenv(variable, "1")
            assert executor() is None, "the caller says where workers compute"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert executor() == default
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert executor() is None, "not measured there"
    # macOS does not say which processors a process may use.
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert executor() is None
