"""``timely bench disciplines-live``: every discipline on the real engine."""

from pathlib import Path
from typing import Annotated, Any

import typer

from timely.cli.bench.options import (
    Budget,
    MarkdownFile,
    Resume,
    require_cli_package,
    resumable_cli_checkpoints,
    split_cli_names,
)
from timely.cli.bench.tables import format_cli_number, show_cli_bench_result
from timely.cli.output import JsonFile
from timely.cli.terminal import Verbose, quiet_cli_terminal

HEADINGS = (
    "discipline", "plans", "segments", "requests", "lost", "steps", "as decided", "uninvited", "overtaken",
    "against its rule", "evictions", "response p50, s", "latency p50, s", "good",
)  # fmt: skip


def command(
    disciplines: Annotated[
        str,
        typer.Option(
            help="Comma-separated; all by default. a+b+c switches between them while one load is served."
        ),
    ] = "",
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, max=86400, help="Duration of the load under each.")
    ] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the ordinary requests.")] = 1,
    resume: Resume = None,
    budget: Budget = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder for journals and event logs.")
    ] = None,
    json_file: JsonFile = None,
    markdown: MarkdownFile = None,
    verbose: Verbose = False,
) -> None:
    """Every discipline on the real engine under mixed load.

    Do the steps follow its decisions, and is nothing lost?
    """
    require_cli_package("vllm")
    from timely.bench.disciplines_live import benchmark_disciplines_live
    from timely.disciplines import registry

    names = split_cli_names(disciplines) or registry.discipline_names()
    for name in "+".join(names).split("+"):
        registry.load_discipline(name)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    with (
        resumable_cli_checkpoints(resume, budget) as checkpoints,
        quiet_cli_terminal("bench-disciplines-live", verbose=verbose) as terminal,
    ):
        results = benchmark_disciplines_live(names, seconds, seed, checkpoints, keep, terminal.say)
    data = {"seconds": seconds, "seed": seed, "disciplines": results}
    rows = [_cli_table_row(name, row) for name, row in sorted(results.items())]
    show_cli_bench_result(json_file, data, HEADINGS, rows, markdown=markdown)


def _cli_table_row(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    verdict = row["verdict"]
    losses = row["unanswered"] + len(verdict["lost"]) + len(row["event_log"]["unsettled"])
    rule = "" if verdict["out_of_rule"] is None else str(verdict["out_of_rule"])
    return (
        f"{name}, with drafts" if row["drafts"] else name,
        str(row["plans"]), str(row["segments"]), str(row["requests"]), str(losses), str(verdict["steps"]),
        f"{100 * verdict['as_asked'] / max(1, verdict['steps']):.1f}%", str(verdict["strangers"]),
        str(verdict["overtaken"]), rule, str(verdict["evictions"]), format_cli_number(row["response_p50_s"]),
        format_cli_number(row["latency_p50_s"]), "yes" if row["good"] else "**no**",
    )  # fmt: skip
