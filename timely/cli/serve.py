"""``timely serve``: the server, on vLLM or without a model; every argument of ``vllm serve`` passes through."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from timely.cli.terminal import Verbose, quiet_terminal
from timely.core.clock import SystemClock
from timely.core.errors import InvalidInput, UnknownName, Unsupported
from timely.disciplines import registry
from timely.disciplines.predictors.batching import Batching
from timely.engines.base import Engine, Mode

MODES: tuple[Mode, ...] = ("segmented", "stream", "whole")
ENGINES = ("vllm", "scripted")

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def command(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Option(help="Folder or Hugging Face name; the packaged SmolLM2-135M unless given.")
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            help="Folder of a planner's adapter to merge in, or none; the packaged model has one of its own."
        ),
    ] = None,
    discipline: Annotated[
        str, typer.Option(help="Queue discipline; `timely disciplines` lists them.")
    ] = registry.DEFAULT,
    predictor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Predictor file (`timely predictor` makes them), may be repeated: urgency and lengths at the door,"
            " costs and history for the disciplines that take them; examples: urgency from the texts that ship, as"
            " without any; none: nothing at the door.",
        ),
    ] = None,
    predict: Annotated[
        str, typer.Option(help="immediate: predict whenever no prediction runs; full: in full batches.")
    ] = "immediate",
    predict_batch: Annotated[int, typer.Option(min=1, help="Most requests in one call of a predictor.")] = 64,
    predict_wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Longest that full waits for a batch to fill.")
    ] = 0.1,
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
        list[str] | None, typer.Option(help="Further host name under which clients reach this server.")
    ] = None,
    ssl_certfile: Annotated[Path | None, typer.Option(help="Certificate for TLS, PEM.")] = None,
    ssl_keyfile: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    ssl_ca_certs: Annotated[
        Path | None, typer.Option(help="Certificate authority of the clients: each must show a certificate.")
    ] = None,
    audit_log: Annotated[
        Path | None, typer.Option(help="Append every action of a principal as a JSON line.")
    ] = None,
    event_log: Annotated[
        Path | None, typer.Option(help="Append every task event as a JSON line; `lrtrace record` reads it.")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Append every scheduling decision as a JSON line ({pid} is replaced).")
    ] = None,
    verbose: Verbose = False,
) -> int:
    """Serve robots over HTTP. Arguments that are not listed here go to vLLM as they are.

    Example: timely serve --discipline pud --max-model-len 2048 --data-parallel-size 2
    """
    from timely.disciplines.predictors.request_annotator import Predictors
    from timely.server.access.principals import PrincipalRegistry
    from timely.server.app import create_app
    from timely.server.run import serve_app, tls_files
    from timely.server.settings import ServerSettings

    if predict not in get_args(Batching):
        raise UnknownName("prediction mode", predict, get_args(Batching), where="--predict")
    predictors = Predictors.read(predictor or ())
    settings = ServerSettings(
        event_log=event_log,
        audit_log=audit_log,
        prediction_batching=cast(Batching, predict),
        prediction_batch=predict_batch,
        prediction_max_wait_s=predict_wait,
    )
    tls = tls_files(ssl_certfile, ssl_keyfile, ssl_ca_certs)
    principal_registry = None
    if principals is not None or api_key:
        principal_registry = PrincipalRegistry(principals, api_key or None, SystemClock())
    # The engine's own OpenAI application would compare every request with this key alone.
    os.environ.pop("VLLM_API_KEY", None)
    with ExitStack() as stack:
        # The scripted engine prints nothing.
        terminal = stack.enter_context(quiet_terminal("serve", verbose=verbose or engine != "vllm"))
        loading = ExitStack()
        stack.push(loading)
        if engine == "vllm":
            title = "loading the model into vLLM"
            loading.enter_context(
                terminal.progress(f"{title}; its messages go to {terminal.log}" if terminal.log else title)
            )
        app = create_app(
            make_engine(
                engine,
                model=model,
                planner=planner,
                discipline=discipline,
                mode=mode,
                max_batch=max_batch,
                prefill_chunk=prefill_chunk,
                journal=journal,
                predictors=predictors.files,
                arguments=tuple(context.args),
            ),
            settings,
            predictors=predictors,
            registry=principal_registry,
            hosts=(host, *(allowed_host or ())),
        )

        def ready(url: str) -> None:
            loading.close()
            terminal.say(f"serving on {url} (live page there; robots ask at {url}/v1/tasks)")

        number = asyncio.run(serve_app(app, host=host, port=port, on_ready=ready, insecure=insecure, tls=tls))
        loading.close()
        terminal.say("stopped")
    return INTERRUPTED if number == signal.SIGINT else 0


def make_engine(
    name: str,
    *,
    model: str | None = None,
    planner: str | None = None,
    discipline: str = registry.DEFAULT,
    mode: str = "segmented",
    max_batch: int | None = None,
    prefill_chunk: int | None = None,
    journal: Path | None = None,
    predictors: tuple[Path, ...] = (),
    arguments: tuple[str, ...] = (),
) -> Engine:
    """An engine that is not started yet.

    Raises:
        UnknownName: unknown engine, discipline or mode.
        Unsupported: vLLM is not installed.
        InvalidInput: vLLM does not take these arguments.
    """
    registry.load_discipline(discipline)
    if mode not in MODES:
        raise UnknownName("mode", mode, MODES, where="--mode")
    if name == "scripted":
        from timely.engines.scripted import ScriptedEngine

        if arguments:
            raise InvalidInput(f"no such option: {arguments[0]}", where="serve")
        return ScriptedEngine(discipline=discipline, predictors=predictors)
    if name != "vllm":
        raise UnknownName("engine", name, ENGINES, where="--engine")
    if find_spec("vllm") is None:
        raise Unsupported(
            "vLLM is not installed; install timely-serving[vllm] or use --engine scripted", where="--engine"
        )
    from timely.engines.vllm.arguments import VllmOptions, parse_arguments
    from timely.engines.vllm.engine import VllmEngine

    options = VllmOptions(
        model=model,
        planner=planner,
        discipline=discipline,
        mode=mode,
        predictors=tuple(str(path.absolute()) for path in predictors),
        max_batch=max_batch,
        prefill_chunk=prefill_chunk,
        journal=str(journal) if journal is not None else None,
        arguments=arguments,
    )
    # A wrong argument is told now, in one line, not after the model has loaded.
    parse_arguments(options)
    return VllmEngine(options)
