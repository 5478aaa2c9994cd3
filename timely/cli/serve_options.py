"""The options of ``timely serve``."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|NAME", help="Folder or Hugging Face name; the packaged SmolLM2-135M unless given."
    ),
]
Planner = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|none",
        help="Folder of a planner's adapter to merge in, or none; the packaged model has one of its own.",
    ),
]
DisciplineName = Annotated[str, typer.Option(help="Queue discipline; `timely disciplines` lists them.")]
PredictorFiles = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="Predictor file (`timely predictor` makes them), may be repeated: urgency and lengths of requests,"
        " costs and history for the disciplines that take them; examples: urgency from the texts that ship, as"
        " without any; none: no prediction.",
    ),
]
Predict = Annotated[
    str, typer.Option(help="immediate: predict whenever no prediction runs; full: in full batches.")
]
PredictBatch = Annotated[int, typer.Option(min=1, help="Most requests in one call of a predictor.")]
PredictWait = Annotated[
    float | None,
    typer.Option(
        min=0, metavar="SECONDS", help="Longest that full waits for a batch to fill, 0.1 unless given."
    ),
]
ModeName = Annotated[str, typer.Option(help="segmented, or for comparison stream or whole.")]
EngineName = Annotated[str, typer.Option(help="vllm; or scripted: no model, to try a fleet.")]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")]
MaxBatch = Annotated[
    int | None, typer.Option(min=1, help="Most sequences in one step, parked ones not counted.")
]
PrefillChunk = Annotated[
    int | None, typer.Option(min=1, help="Most prompt tokens of one request in one step.")
]
JumpAhead = Annotated[
    bool,
    typer.Option(
        "--jump-ahead",
        help="Tokens that a plan's grammar forces take no step of their own (speculative decoding of vLLM).",
    ),
]
Principals = Annotated[
    Path | None,
    typer.Option(help="YAML file of principals with roles and token digests; `timely token` makes entries."),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        envvar=["TIMELY_API_KEY", "VLLM_API_KEY"],
        show_envvar=True,
        help="Token of a principal with every role, for all endpoints; better given by the environment.",
    ),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Listen beyond loopback without principals.")]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST", help="Further host name under which clients reach this server."),
]
SslCertfile = Annotated[Path | None, typer.Option(help="Certificate for TLS, PEM.")]
SslKeyfile = Annotated[Path | None, typer.Option(help="Its private key, PEM.")]
SslCaCerts = Annotated[
    Path | None, typer.Option(help="Certificate authority of the clients: each must show a certificate.")
]
Objective = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=PRIORITY",
        help="Priority of chat requests whose gateway names this objective; larger is more important. Repeatable.",
    ),
]
OtlpEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Send OpenTelemetry traces there by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces.",
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of the latched stop and the tasks; by default server-PORT in $TIMELY_STATE_DIR or"
        " ~/.local/state/timely, none with port 0.",
    ),
]
FlushSegments = Annotated[
    bool,
    typer.Option(
        "--flush-segments", help="Send a segment when it is on the disk, so that a power failure loses none."
    ),
]
RefuseBelow = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        metavar="SHARE",
        help="Refuse a task whose predicted utility is below this share of its initial one: 0 refuses worthless"
        " tasks, 1 all that would be late; by default none.",
    ),
]
ClientGrammars = Annotated[
    bool,
    typer.Option(
        "--client-grammars",
        help="Let chats ask for structured outputs, response formats and tools that must be called. Their grammars are"
        " compiled beside the robots' plans.",
    ),
]
Drain = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="After SIGTERM let plans and chats in generation finish for up to so many seconds; no new ones.",
    ),
]
HangLimit = Annotated[
    float,
    typer.Option(
        min=1.0,
        metavar="SECONDS",
        help="Kill an engine that has answered nothing for so long, and start it again. Four times its longest"
        " answer so far, if that is more.",
    ),
]
AuditLog = Annotated[Path | None, typer.Option(help="Append every action of a principal as a JSON line.")]
EventLog = Annotated[
    Path | None, typer.Option(help="Append every task event as a JSON line; `lrtrace record` reads it.")
]
Journal = Annotated[
    Path | None, typer.Option(help="Append every scheduling decision as a JSON line ({pid} is replaced).")
]
