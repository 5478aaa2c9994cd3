"""How vLLM is run: our options, vLLM's own arguments, and our defaults for a machine without a GPU."""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from yaml import YAMLError

from timely.core.errors import EngineFailed, InvalidInput
from timely.disciplines import registry
from timely.disciplines.requirements import SPECULATION, check_queue_discipline_needs
from timely.engines.base import MAX_OUTPUT_TOKENS, Mode
from timely.engines.vllm.compatibility import SUPPORTED_VERSIONS
from timely.engines.vllm.forced_drafts import SPECULATIVE_CONFIG
from timely.engines.vllm.model import NO_PLANNER, resolve_vllm_model
from timely.engines.vllm.plugin import SCHEDULER
from timely.planner.training.compute_type import compute_type

NO_COMPILER = "TORCHDYNAMO_DISABLE"
"""Environment variable that keeps PyTorch from compiling."""

THREADS_VARIABLE = "OMP_NUM_THREADS"
"""Environment variable: threads that PyTorch computes with."""

ALLOCATOR_VARIABLE = "GLIBC_TUNABLES"
"""Environment variable: settings of glibc's allocator."""

CACHE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
"""Environment variable: GiB of KV cache on a CPU, by which vLLM replaces ``--kv-cache-memory-bytes``."""

SOCKETS_VARIABLE = "VLLM_RPC_BASE_PATH"
"""Environment variable: folder of the sockets between vLLM's processes."""

ALLOCATOR_SETTINGS = {
    "glibc.malloc.hugetlb": 1,
    "glibc.malloc.mmap_threshold": 32 * 1024 * 1024,
    "glibc.malloc.trim_threshold": 128 * 1024 * 1024,
}
"""Of glibc's allocator on CPUs: huge pages, and freed memory up to 128 MiB stays for the next step."""

CPU_BINDING = ("VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_NUM_OF_RESERVED_CPU")
"""Environment variables of the processors that vLLM's workers compute on."""

IN_ENGINE = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""vLLM's executor without a worker process, by its path: vLLM's CPU platform replaces its short name."""

GRAPH_SIZES = (
    1, 2, 4, *range(8, 257, 8), *range(272, 513, 16), *range(576, 1025, 64), *range(1152, 2049, 128),
)  # fmt: skip
"""Tokens of the steps that have a CUDA graph on Hopper: vLLM's own up to 512, and steps with prompts of robots."""

OWN_GRAPHS = re.compile(
    r"compilation_config|optimization_level|performance_mode|(max_)?cudagraph_capture_sizes?|enforce_eager"
    r"|spec_.*|speculative_.*|enable_lora|(prefill|decode)_context_parallel_size|attention_.*"
)
"""Arguments of vLLM that say how it compiles and captures, or that whole graphs were not measured with."""

FRONT_END = re.compile(
    r"(ssl|h11|dp_supervisor)_.*|allowed_(origins|methods|headers)|allow_credentials|enable_ssl_refresh"
    r"|host|port|grpc|grpc_port|uds|root_path|api_key|api_server_count|headless|data_parallel_supervisor_port"
    r"|uvicorn_log_level|disable_access_log_for_endpoints|disable_fastapi_docs|enable_offline_docs"
    r"|enable_server_load_tracking|enable_tokenizer_info_endpoint|enable_scale_out|tool_server|tokens_only"
    r"|data_parallel_multi_port_external_lb|aggregate_engine_logging|shutdown_timeout|enable_sleep_mode"
    r"|anthropic_disabled_thinking_effort|cohere_is_reasoning_model|enable_flash_late_interaction"
    r"|enable_elastic_ep|enable_fault_tolerance|fault_tolerance_config|weight_transfer_config|profiler_config"
)
"""Arguments of vLLM's own HTTP server, which does not run here, and of endpoints that ours does not pass on."""

EXCLUDES_DRAFTS = frozenset({"logits_processors", "async_scheduling", "pipeline_parallel_size"})
"""Arguments beside which vLLM refuses drafts of our kind, or which say how steps follow each other."""

FRONT_END_MODULES = (
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.launchers.launcher",
    "vllm.entrypoints.common.cli_args",
)


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """How to run vLLM.

    Attributes:
        model: folder, Hugging Face name, or None for the packaged small model.
        planner: folder of an adapter to merge in, "none", or None: that of the packaged model.
            With ``--enable-lora`` among the arguments it stays apart and plans its own skill sets only.
        arguments: any further arguments of ``vllm serve``, as on its command line.
        journal: file for every event and decision (JSON lines), or None.
        journal_details: False for arrivals and ends of jobs, switches, and the times and counts of steps alone,
            which cost little.
    """

    model: str | None = None
    planner: str | None = None
    discipline: str = registry.DEFAULT
    mode: Mode = "segmented"
    predictors: tuple[str, ...] = ()
    """Predictor files for disciplines; each discipline takes its own when it is switched to."""
    max_batch: int | None = None
    prefill_chunk: int | None = None
    jump_ahead: bool | None = False
    """Tokens that a plan's grammar forces take no step of their own; ``--speculative-config`` is ours by default.

    None: on CPUs with the packaged model, where no other argument excludes it.
    """
    journal: str | None = None
    journal_details: bool = True
    arguments: tuple[str, ...] = ()
    warm_up: tuple[str, ...] | None = None
    """Skill sets whose fixed prompts and grammars are prepared at start; None: all installed ones."""


@dataclass(frozen=True, slots=True)
class EngineSizes:
    """Sizes of the KV cache and of a step; ``asynchronous``: steps are composed ahead."""

    kv_blocks: int
    block_tokens: int
    max_batch: int
    token_budget: int
    asynchronous: bool = False


def parse_vllm_arguments(options: VllmOptions) -> Any:
    """vLLM's own argument parser over our defaults and then the caller's arguments.

    Raises:
        InvalidInput: vLLM does not know an argument, or it is of vLLM's own HTTP server; the message says which.
        Unsupported: the discipline needs what these arguments do not give.
    """
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    make_arg_parser = _vllm_front_end_function("make_arg_parser")

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]
        def error(self, message: str) -> Any:
            raise InvalidInput(message, where="vllm arguments")

    parser = make_arg_parser(Parser())
    parser.set_defaults(model="")
    arguments = _vllm_arguments_with_file(parser, options.arguments)
    own = parser.parse_args(arguments)
    if own.model_tag or own.model:
        raise InvalidInput("a model is named with --model", where=str(own.model_tag or own.model))
    if own.scheduler_cls not in (None, SCHEDULER):
        raise InvalidInput("the scheduler is Timely's own", where="--scheduler-cls")
    for name in ("discipline", "mode"):
        if name in ((own.additional_config or {}).get("timely") or {}):
            raise InvalidInput(f"the {name} is set with --{name}", where="--additional-config")
    changed_names = [name for name, value in vars(own).items() if value != parser.get_default(name)]
    for name in changed_names:
        if FRONT_END.fullmatch(name):
            # An abbreviation comes here, too. Without effect it would promise what nothing keeps.
            raise InvalidInput(
                "it is of vLLM's HTTP server, which does not run here; see timely serve --help",
                where=f"--{name.replace('_', '-')}",
            )
    if own.stream_interval != 1:
        raise InvalidInput("must be 1: segments go out with their tokens", where="--stream-interval")
    for name in ("max_num_queued_reqs", "max_num_queued_tokens"):
        if getattr(own, name, None) == 0:
            raise InvalidInput(
                "must be at least 1: with 0 every request is refused", where=f"--{name.replace('_', '-')}"
            )
    if own.kv_cache_memory_bytes is not None and _vllm_replaces_cache_size():
        raise InvalidInput(f"vLLM would take {CACHE_VARIABLE} instead", where="--kv-cache-memory-bytes")
    apart = own.enable_lora
    model = str(resolve_vllm_model(options.model, planner=NO_PLANNER if apart else options.planner))
    arguments = [
        *_default_vllm_arguments(
            arguments, changed_names, model, jump_ahead=_jumps_ahead(options, changed_names)
        ),
        *arguments,
        "--model",
        model,
        "--scheduler-cls",
        SCHEDULER,
    ]
    namespace = parser.parse_args(arguments)
    if namespace.structured_outputs_config.backend not in ("auto", "xgrammar"):
        raise InvalidInput(
            "the grammars of plans need the backend xgrammar", where="--structured-outputs-config"
        )
    _load_vllm_parser_plugins(namespace)
    _validate_as_vllm(namespace)
    if namespace.enable_log_requests and not hasattr(namespace, "log_level"):
        namespace.log_level = "INFO"  # that of these messages
    check_queue_discipline_needs(
        registry.load_discipline(options.discipline).info, vllm_engine_features(namespace)
    )
    extra = dict(namespace.additional_config or {})
    extra["timely"] = {
        "fused_kernels": True,
        "draws_by_inversion": True,
        **dict(extra.get("timely") or {}),
        "discipline": options.discipline,
        "mode": options.mode,
        "gauges": False,
        **(
            {"journal": options.journal, "journal_details": options.journal_details}
            if options.journal
            else {}
        ),
        **({"predictors": list(options.predictors)} if options.predictors else {}),
        **({"max_batch": options.max_batch} if options.max_batch else {}),
        **({"prefill_chunk": options.prefill_chunk} if options.prefill_chunk else {}),
    }
    namespace.additional_config = extra
    if namespace.distributed_executor_backend is None and _vllm_computes_with_one_thread(namespace):
        namespace.distributed_executor_backend = IN_ENGINE
    return namespace


def _vllm_replaces_cache_size() -> bool:
    from vllm.platforms import current_platform

    return current_platform.is_cpu() and bool(os.environ.get(CACHE_VARIABLE))


def vllm_processor_count() -> int:
    """Processors that this process may use; all of the machine where the system does not say, as on macOS."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _vllm_computes_with_one_thread(arguments: Any) -> bool:
    """Whether a worker of vLLM would compute with one thread, as it does by default on one or two processors.

    vLLM keeps the other processor for the engine's process, which spins on it while the worker computes. Without a
    worker the text is the same, the processor is free, and the start imports all once less:
    docs/experiments/2026-11-27-a-core-that-spins.md.
    """
    from vllm.platforms import current_platform

    sizes = (arguments.tensor_parallel_size, arguments.pipeline_parallel_size, arguments.data_parallel_size)
    return (
        current_platform.is_cpu()
        and sizes == (1, 1, 1)
        and vllm_processor_count() <= 2
        and not any(name in os.environ for name in CPU_BINDING)
    )


def _vllm_arguments_with_file(parser: Any, arguments: Sequence[str]) -> list[str]:
    """The arguments behind those of their ``--config`` file; vLLM would put these before our defaults.

    Raises:
        InvalidInput: vLLM cannot read the file.
    """
    rest, files = [], []
    for argument in (unread := iter(arguments)):
        if argument == "--config":
            files.append(next(unread, ""))
        elif argument.startswith("--config="):
            files.append(argument.partition("=")[2])
        else:
            rest.append(argument)
    try:
        return [part for file in files for part in parser.load_config_file(file)] + rest
    except (OSError, ValueError, YAMLError) as error:
        raise InvalidInput(str(error), where="--config") from error


def vllm_engine_features(namespace: Any) -> set[str]:
    """What an engine with these arguments has that a discipline may need; empty before the arguments are parsed."""
    return {SPECULATION} if getattr(namespace, "speculative_config", None) else set()


def _load_vllm_parser_plugins(namespace: Any) -> None:
    """Load the files whose parsers ``--tool-call-parser`` and ``--reasoning-parser`` may name.

    Raises:
        InvalidInput: vLLM cannot load one.
    """
    from vllm.utils.import_utils import import_plugin

    for name in ("tool_parser_plugin", "reasoning_parser_plugin"):
        path = getattr(namespace, name)
        if path and import_plugin(path) is None:
            raise InvalidInput(f"vLLM cannot load {path!r}", where=f"--{name.replace('_', '-')}")


def _validate_as_vllm(namespace: Any) -> None:
    """Check what vLLM checks before its own server loads a model.

    Raises:
        InvalidInput: an argument lacks another one, or names a parser that is not there.
    """
    try:
        _vllm_front_end_function("validate_parsed_serve_args")(namespace)
        if namespace.reasoning_parser:
            # vLLM does the same when it has begun to make the engine.
            namespace.structured_outputs_config.reasoning_parser = namespace.reasoning_parser
        _vllm_front_end_function("validate_api_server_args")(namespace)
    except Exception as error:
        # vLLM raises errors of its own and of Python.
        raise InvalidInput(str(error.args[0]).removeprefix("Error: "), where="vllm arguments") from error


def _vllm_front_end_function(name: str) -> Any:
    """A function of vLLM's front-end: 0.33 keeps it elsewhere than 0.32."""
    for module in FRONT_END_MODULES:
        with suppress(ModuleNotFoundError, AttributeError):
            return getattr(import_module(module), name)
    raise EngineFailed(f"this vLLM has no {name}; supported: {SUPPORTED_VERSIONS}", where="vllm")


def fastest_vllm_dtype() -> str:
    """vLLM's ``dtype``: that which a CPU computes with fastest, and on other devices that of the model."""
    from vllm.platforms import current_platform

    return compute_type() if current_platform.is_cpu() else "auto"


def _jumps_ahead(options: VllmOptions, changed_names: Collection[str]) -> bool:
    """Whether forced tokens take no step; by itself where it takes nothing from any request.

    On GPUs steps would no longer be composed ahead. Models with Mamba states take no drafts.
    """
    from vllm.platforms import current_platform

    if options.jump_ahead is not None:
        return options.jump_ahead
    return (
        current_platform.is_cpu()
        and options.model is None
        and not EXCLUDES_DRAFTS.intersection(changed_names)
    )


def _default_vllm_arguments(
    arguments: Sequence[str], changed_names: Iterable[str], model: str, *, jump_ahead: bool
) -> list[str]:
    """Our defaults for arguments that are absent: a small machine without a GPU, short plans of robots.

    On a GPU vLLM's own defaults stay. Fewer slots there would mean CUDA graphs for fewer tokens, and slower prompts.
    On Hopper steps with prompts have whole CUDA graphs, too (``vllm_graph_arguments``).
    """
    from vllm.platforms import current_platform

    defaults: dict[str, str | None] = {
        "--disable-uvicorn-access-log": None,
        # A chat that says no limit would get the whole context.
        "--override-generation-config": json.dumps({"max_new_tokens": MAX_OUTPUT_TOKENS}),
    }
    if Path(model).is_dir():
        defaults["--served-model-name"] = Path(model).name
    if current_platform.is_cpu():
        # Blocks of 32 are the finest the CPU backend takes: finer prefix reuse and eviction.
        defaults |= {
            "--block-size": "32", "--enforce-eager": None, "--max-model-len": "4096", "--max-num-seqs": "64",
            "--max-num-batched-tokens": "1024", "--dtype": compute_type(),
        }  # fmt: skip
        if "gpu_memory_utilization" not in changed_names and not os.environ.get(CACHE_VARIABLE):
            defaults["--kv-cache-memory-bytes"] = str(2**30)
    if jump_ahead:
        defaults["--speculative-config"] = json.dumps(SPECULATIVE_CONFIG)
    elif graphs := vllm_graph_arguments(changed_names):
        defaults[graphs[0]] = graphs[1]
    present = {argument.split("=", 1)[0] for argument in arguments}
    result: list[str] = []
    for flag, value in defaults.items():
        if flag not in present and f"--no-{flag[2:]}" not in present:
            result.append(flag)
            if value is not None:
                result.append(value)
    return result


def vllm_graph_arguments(changed_names: Iterable[str] = ()) -> tuple[str, ...]:
    """Arguments by which steps with up to 2,048 tokens run as one CUDA graph each; none except on Hopper.

    Robots' tasks come one by one, so many steps have a few short prompts. To launch such a step kernel by kernel takes
    the processor longer than the accelerator needs to compute it. FlashAttention 3, of Hopper, can be captured with
    prompts. Models with other attention have graphs in pieces, of 3.4 GiB with 8 billion weights.

    Args:
        changed_names: names of the caller's arguments that are not vLLM's defaults.
            None is added where they say how vLLM compiles or captures.
    """
    from vllm.platforms import current_platform

    own = any(map(OWN_GRAPHS.fullmatch, changed_names))
    if own or not (current_platform.is_cuda() and current_platform.is_device_capability_family(90)):
        return ()
    graphs = {"cudagraph_mode": "FULL", "cudagraph_capture_sizes": list(GRAPH_SIZES)}
    return "--compilation-config", json.dumps(graphs)


def set_vllm_environment(options: VllmOptions) -> None:
    """Settings that vLLM takes from the environment only; those of the caller win."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if options.model is None or Path(options.model).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


def cpu_allocator_settings() -> str:
    """``GLIBC_TUNABLES`` of this process, with ours where it says nothing of them."""
    own = os.environ.get(ALLOCATOR_VARIABLE, "")
    ours = [f"{name}={value}" for name, value in ALLOCATOR_SETTINGS.items() if name not in own]
    return ":".join(filter(None, (own, *ours)))


@contextmanager
def vllm_engine_environment(arguments: Any, sockets: Path | None = None) -> Iterator[None]:
    """Variables of the processes that this one starts meanwhile.

    An eager engine on a CPU compiles nothing, unless the caller says otherwise. At the first request for
    log-probabilities vLLM would compile what they need, and all generations would wait for seconds. An engine without
    a worker computes with one thread whatever the caller says, as vLLM's worker would. On a CPU weights and cache lie
    in huge pages where the system allows that. Memory that a step frees stays for the next one there. Measured:
    docs/experiments/2026-11-28-huge-pages.md.

    Args:
        sockets: folder of the sockets between the processes, which vLLM never removes; None: the system's folder for
            temporary files. That of the caller wins.
    """
    from vllm.platforms import current_platform

    variables = {}
    if sockets is not None and SOCKETS_VARIABLE not in os.environ:
        variables[SOCKETS_VARIABLE] = str(sockets)
    if arguments.enforce_eager and current_platform.is_cpu() and NO_COMPILER not in os.environ:
        variables[NO_COMPILER] = "1"
    if arguments.distributed_executor_backend == IN_ENGINE and _vllm_computes_with_one_thread(arguments):
        variables[THREADS_VARIABLE] = "1"
    if current_platform.is_cpu():
        variables[ALLOCATOR_VARIABLE] = cpu_allocator_settings()
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
