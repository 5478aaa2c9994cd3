"""``timely serve``: the server, on vLLM or without a model; every argument of ``vllm serve`` passes through."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from contextlib import nullcontext
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from timely.cli.terminal import JsonCliTerminal, Verbose, quiet_cli_terminal
from timely.core.clock import SystemClock
from timely.core.errors import InvalidInput, UnknownName, Unsupported, check_name
from timely.core.files import STATE_DIR_VARIABLE, check_folder_writable, default_state_folder
from timely.core.http_url import check_http_url
from timely.disciplines import registry
from timely.disciplines.predictors.batching import Batching
from timely.engines.base import Engine, Mode

if TYPE_CHECKING:
    from timely.engines.vllm.arguments import VllmOptions
    from timely.principals import PrincipalRegistry

ENGINES = ("vllm", "scripted")

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

HOST_NAME = re.compile(r"[\w-]{1,63}(\.[\w-]{1,63})*", re.ASCII)
"""As in the header ``Host``, without a port."""

OPTION = re.compile(r"--[a-z-]+")

OBJECTIVE_PRIORITY = re.compile(r"-?[0-9]{1,9}")

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def command(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|NAME", help="Folder or Hugging Face name; the packaged SmolLM2-135M unless given."
        ),
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|none",
            help="Folder of a planner's adapter to merge in, or none; the packaged model has one of its own.",
        ),
    ] = None,
    discipline: Annotated[
        str, typer.Option(help="Queue discipline; `timely disciplines` lists them.")
    ] = registry.DEFAULT,
    predictor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Predictor file of `timely predictor`, for urgency, lengths, costs or history; may be repeated."
            " `examples`, the default: urgency from the texts that ship. `none`: no prediction.",
        ),
    ] = None,
    predict: Annotated[
        str, typer.Option(help="immediate: predict whenever no prediction runs; full: in full batches.")
    ] = "immediate",
    predict_batch: Annotated[int, typer.Option(min=1, help="Most requests in one call of a predictor.")] = 64,
    predict_wait: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Longest that full waits for a batch to fill, 0.1 unless given."
        ),
    ] = None,
    mode: Annotated[str, typer.Option(help="segmented, or for comparison stream or whole.")] = "segmented",
    engine: Annotated[str, typer.Option(help="vllm; or scripted: no model, to try a fleet.")] = "vllm",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    max_batch: Annotated[
        int | None, typer.Option(min=1, help="Most sequences in one step, parked ones not counted.")
    ] = None,
    prefill_chunk: Annotated[
        int | None, typer.Option(min=1, help="Most prompt tokens of one request in one step.")
    ] = None,
    jump_ahead: Annotated[
        bool | None,
        typer.Option(
            "--jump-ahead/--no-jump-ahead",
            help="Tokens that a plan's grammar forces take no step of their own. By vLLM's speculative decoding, "
            "beside which it refuses min_p and logit_bias on GPUs. Default: on CPUs with the packaged model.",
        ),
    ] = None,
    principals: Annotated[
        Path | None,
        typer.Option(
            help="YAML file of principals with roles and token digests; `timely token` makes entries."
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar=["TIMELY_API_KEY", "VLLM_API_KEY"],
            show_envvar=True,
            help="Token of a principal with every role, for all endpoints; better given by the environment.",
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond loopback without principals.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Further host name under which clients reach this server."),
    ] = None,
    ssl_certfile: Annotated[Path | None, typer.Option(help="Certificate for TLS, PEM.")] = None,
    ssl_keyfile: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    ssl_ca_certs: Annotated[
        Path | None, typer.Option(help="Certificate authority of the clients: each must show a certificate.")
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PRIORITY",
            help="Priority of chat requests whose gateway names this objective; larger is more important. Repeatable.",
        ),
    ] = None,
    client_grammars: Annotated[
        bool,
        typer.Option(
            "--client-grammars",
            help="Let chats ask for structured outputs, response formats and tools that must be called."
            " Their grammars are compiled beside the robots' plans.",
        ),
    ] = False,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the latched stop and the tasks; by default server-PORT in $TIMELY_STATE_DIR or"
            " ~/.local/state/timely, none with port 0.",
        ),
    ] = None,
    flush_segments: Annotated[
        bool,
        typer.Option(
            "--flush-segments",
            help="Send a segment when it is on the disk, so that a power failure loses none.",
        ),
    ] = False,
    refuse_below: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Refuse a task whose predicted utility is below this share of its initial one; by default none."
            " With 0 these are worthless tasks, with 1 all that would be late.",
        ),
    ] = None,
    drain: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="After SIGTERM let plans and chats in generation finish for up to so many seconds; no new ones.",
        ),
    ] = 0.0,
    hang_limit: Annotated[
        float,
        typer.Option(
            min=1.0,
            metavar="SECONDS",
            help="Kill an engine that has answered nothing for so long, and start it again. Four times its longest"
            " answer so far, if that is more.",
        ),
    ] = 60.0,
    audit_log: Annotated[
        Path | None, typer.Option(help="Append every action of a principal as a JSON line.")
    ] = None,
    otlp_endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Send OpenTelemetry traces there by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces.",
        ),
    ] = None,
    event_log: Annotated[
        Path | None, typer.Option(help="Append every task event as a JSON line; `lrtrace record` reads it.")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Append every scheduling decision as a JSON line ({pid} is replaced).")
    ] = None,
    log_format: Annotated[
        str,
        typer.Option(
            help="text; or json: every line, also of vLLM, is a JSON object on standard error. Lines about tasks have"
            " their ids."
        ),
    ] = "text",
    verbose: Verbose = False,
) -> int:
    """Serve robots over HTTP. Arguments that are not listed here go to vLLM as they are.

    Example: timely serve --discipline pud --max-model-len 2048 --data-parallel-size 2
    """
    from timely.disciplines.predictors.request_annotator import PredictorFiles
    from timely.engines.vllm.arguments import VllmOptions
    from timely.plans.skill_set_check import check_skill_sets
    from timely.server.listener import server_tls
    from timely.server.run import run_server
    from timely.server.settings import ServerSettings

    check_name("log format", log_format, ("text", "json"), where="--log-format")
    json_terminal = JsonCliTerminal() if log_format == "json" else None
    check_name("prediction mode", predict, get_args(Batching), where="--predict")
    if predict_wait is not None and predict != "full":
        raise InvalidInput("only --predict full waits", where="--predict-wait")
    objectives = _parse_cli_objectives(objective or [])
    if engine != "vllm":
        _refuse_cli_vllm_options({"--client-grammars": client_grammars, "--objective": objectives})
    _check_cli_files_differ({"--event-log": event_log, "--audit-log": audit_log, "--journal": journal})
    check_skill_sets()
    predictors = PredictorFiles.read(predictor or ())
    if otlp_endpoint is not None:
        check_http_url(otlp_endpoint, "http://127.0.0.1:4318/v1/traces", where="--otlp-endpoint")
    state_folder = _cli_state_folder(state_dir, port)
    if flush_segments and state_folder is None:
        raise InvalidInput(
            "a server on a free port keeps no tasks; name a --state-dir", where="--flush-segments"
        )
    settings = ServerSettings(
        event_log=event_log,
        audit_log=audit_log,
        otlp_endpoint=otlp_endpoint,
        state_dir=state_folder,
        flush_segments=flush_segments,
        refuse_below=refuse_below,
        drain_s=drain,
        engine_hang_s=hang_limit,
        client_grammars=client_grammars,
        objectives=objectives,
        prediction_batching=cast(Batching, predict),
        prediction_batch=predict_batch,
        prediction_max_wait_s=0.1 if predict_wait is None else predict_wait,
    )
    principal_registry = _load_cli_principals(principals, api_key)
    engine_options = VllmOptions(
        model=model, planner=planner, discipline=discipline, mode=cast(Mode, mode), max_batch=max_batch,
        prefill_chunk=prefill_chunk, jump_ahead=jump_ahead, journal=str(journal) if journal is not None else None,
        predictors=tuple(str(path.absolute()) for path in predictors.files), arguments=tuple(context.args),
    )  # fmt: skip
    serve = partial(
        run_server,
        settings=settings,
        predictors=predictors,
        registry=principal_registry,
        hosts=(host, *_check_cli_host_names(allowed_host or [])),
        host=host,
        port=port,
        insecure=insecure,
        tls=server_tls(ssl_certfile, ssl_keyfile, ssl_ca_certs),
    )
    quiet = quiet_cli_terminal("serve", verbose=verbose or engine != "vllm")
    with nullcontext(json_terminal) if json_terminal else quiet as terminal:
        if engine == "vllm":
            terminal.say("loading the model into vLLM")

        def ready(url: str) -> None:
            terminal.say(f"serving on {url} (live page there; robots ask at {url}/v1/tasks)")

        try:
            number = asyncio.run(serve(make_cli_engine(engine, engine_options), on_ready=ready))
        except InvalidInput as error:
            own = [name for parameter in context.command.params for name in parameter.opts]
            raise InvalidInput(_vllm_error_with_cli_options(error.message, own), where=error.where) from error
        terminal.say("stopped")
    return INTERRUPTED if number == signal.SIGINT else 0


def _vllm_error_with_cli_options(message: str, own: list[str]) -> str:
    """vLLM's message about unknown arguments, with those of ours that they resemble."""
    if "unrecognized arguments" not in message:
        return message
    close = [name for text in OPTION.findall(message) for name in get_close_matches(text, own, 1, 0.8)]
    return f"{message} (did you mean {', '.join(close)}?)" if close else message


def _check_cli_host_names(hosts: list[str]) -> list[str]:
    """The names, if clients can send each in the header ``Host``."""
    for host in hosts:
        if HOST_NAME.fullmatch(host) is None:
            raise InvalidInput(
                f"must be a host name without scheme and port, not {host[:140]!r}", where="--allowed-host"
            )
    return hosts


def _parse_cli_objectives(texts: list[str]) -> dict[str, int]:
    """Priorities of the form ``NAME=PRIORITY``, by name."""
    priorities: dict[str, int] = {}
    for text in texts:
        name, _, priority = text.partition("=")
        if not name or OBJECTIVE_PRIORITY.fullmatch(priority) is None:
            raise InvalidInput(f"write NAME=PRIORITY, not {text[:140]!r}", where="--objective")
        if name in priorities:
            raise InvalidInput(f"{name[:140]} has two priorities", where="--objective")
        priorities[name] = int(priority)
    return priorities


def _refuse_cli_vllm_options(values: Mapping[str, object]) -> None:
    for option, value in values.items():
        if value:
            raise InvalidInput("needs --engine vllm", where=option)


def _check_cli_files_differ(files: Mapping[str, Path | None]) -> None:
    options_by_file: dict[Path, str] = {}
    for option, path in files.items():
        if path is not None and (other := options_by_file.setdefault(path.resolve(), option)) != option:
            raise InvalidInput(f"{path} is that of {other}", where=option)


def _cli_state_folder(folder: Path | None, port: int) -> Path | None:
    """The given folder, else that of a server that has a port of its own: a free port is another one next time.

    Raises:
        InvalidInput: the folder was named, and takes no files. None was named, and the user has no home folder.
    """
    if folder is None and port == 0:
        return None
    is_named = folder is not None or bool(os.environ.get(STATE_DIR_VARIABLE))
    if folder is None:
        folder = default_state_folder("--state-dir") / f"server-{port}"
    if is_named:
        check_folder_writable(folder)
    return folder


def _load_cli_principals(path: Path | None, api_key: str | None) -> PrincipalRegistry | None:
    from timely.principals import PrincipalRegistry

    # The engine's own OpenAI application would compare every request with this key alone.
    os.environ.pop("VLLM_API_KEY", None)
    if api_key == "":
        raise InvalidInput("is empty", where="--api-key")
    if path is None and api_key is None:
        return None
    return PrincipalRegistry(path, api_key, SystemClock())


def make_cli_engine(name: str, options: VllmOptions) -> Engine:
    """An engine that is not started yet; the scripted one takes some of vLLM's options.

    Raises:
        UnknownName: unknown engine, discipline or mode.
        Unsupported: vLLM is not installed.
        InvalidInput: the engine does not take these options.
    """
    registry.load_discipline(options.discipline)
    check_name("mode", options.mode, get_args(Mode), where="--mode")
    if name == "scripted":
        from timely.engines.scripted import ScriptedEngine

        if options.arguments:
            raise InvalidInput(f"no such option: {options.arguments[0]}", where="serve")
        names = ("model", "planner", "jump_ahead", "journal")
        _refuse_cli_vllm_options({f"--{name.replace('_', '-')}": getattr(options, name) for name in names})
        limits: dict[str, Any] = {"max_batch": options.max_batch, "prefill_chunk": options.prefill_chunk}
        return ScriptedEngine(
            discipline=options.discipline,
            mode=options.mode,
            predictors=tuple(Path(file) for file in options.predictors),
            **{limit: value for limit, value in limits.items() if value is not None},
        )
    if name != "vllm":
        raise UnknownName("engine", name, ENGINES, where="--engine")
    if find_spec("vllm") is None:
        raise Unsupported(
            "vLLM is not installed; install timely-serving[vllm] or use --engine scripted", where="--engine"
        )
    from timely.engines.vllm.arguments import parse_vllm_arguments
    from timely.engines.vllm.engine import VllmEngine

    # A wrong argument is refused here, in one line, not after the model has loaded.
    parse_vllm_arguments(options)
    return VllmEngine(options)
