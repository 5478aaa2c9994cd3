"""``lrtrace import``: convert a public request trace."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lrtrace.cli.output import JsonFile, Output, print_lrtrace_result
from lrtrace.errors import BadInput
from lrtrace.importers.public_traces import SOURCES, PublicTraceImport
from lrtrace.job import Tuf
from lrtrace.trace import write_trace


def lrtrace_import_command(
    source: Annotated[str, typer.Argument(metavar="FORMAT", help=f"One of {', '.join(SOURCES)}.")],
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    output: Output,
    limit: Annotated[int | None, typer.Option(help="Take the first so many requests.")] = None,
    speed: Annotated[float, typer.Option(help="2 makes them arrive twice as fast.")] = 1.0,
    tuf: Annotated[
        str, typer.Option(metavar="ERT,ALPHA,BETA", help="Time-utility function of every request.")
    ] = "1.0,-2.0,1.0",
    network: Annotated[float, typer.Option(metavar="SECONDS", help="Delay to the users, seconds.")] = 0.0,
    json_file: JsonFile = None,
) -> None:
    """Turn a request trace of Azure, Mooncake or BurstGPT into ours."""
    source_trace = PublicTraceImport(
        source, file, tuf=_parse_lrtrace_tuf(tuf), limit=limit, speed=speed, network_s=network
    )
    write_trace(output, source_trace.header, source_trace.jobs)
    lines = [f"{output}: {source_trace.tally.jobs} jobs"]
    if source_trace.tally.skipped:
        lines.append(f"{source_trace.tally.skipped} rows without prompt or answer were left out")
    print_lrtrace_result(json_file, {"trace": str(output), **asdict(source_trace.tally)}, lines)


def _parse_lrtrace_tuf(text: str) -> Tuf:
    try:
        ert_s, alpha, beta = (float(part) for part in text.split(","))
    except ValueError:
        raise BadInput(f"write ERT,ALPHA,BETA, got {text!r}", where="--tuf") from None
    try:
        return Tuf(ert_s, alpha, beta)
    except BadInput as error:
        raise BadInput(error.message, where="--tuf") from error
