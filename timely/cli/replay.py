"""``timely replay``: a trace through an engine; what each robot saw, as JSON, report or Chrome trace."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from timely.cli.output import JsonFile, check_cli_output_file
from timely.cli.terminal import CliTerminal, Verbose, quiet_cli_terminal
from timely.core.files import STDOUT, core_write_file
from timely.disciplines.registry import DEFAULT
from timely.engines.replay_types import Progress, ReplayOptions
from timely.replay.perfetto import replay_perfetto_text
from timely.replay.report import html_replay_report
from timely.replay.result_file import replay_result_text
from timely.replay.results import replay_result_hash
from timely.replay.run import replay_through_engine
from timely.replay.trace import ReplayTasks

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

SHOW_AFTER_S = 1.0
"""A shorter replay shows no progress."""


def command(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace, *.lrtrace.jsonl.")],
    engine: Annotated[str, typer.Option(help="sim (virtual clock) or vllm (real time).")] = "sim",
    discipline: Annotated[str, typer.Option(help="Queue discipline; see `timely disciplines`.")] = DEFAULT,
    mode: Annotated[
        str, typer.Option(help="segmented, stream (generate on, send each segment) or whole (send the plan).")
    ] = "segmented",
    profile: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Step-time profile; a model for --engine vllm.")
    ] = None,
    max_batch: Annotated[int | None, typer.Option(min=1, help="Most sequences in a step.")] = None,
    token_budget: Annotated[int | None, typer.Option(min=1, help="Most tokens in a step.")] = None,
    prefill_chunk: Annotated[
        int | None, typer.Option(min=1, help="Most prompt tokens of one job in a step.")
    ] = None,
    kv_blocks: Annotated[int | None, typer.Option(min=1, help="Blocks of KV cache.")] = None,
    max_resident: Annotated[
        int | None, typer.Option(min=1, help="Most jobs with KV cache, parked ones too.")
    ] = None,
    eviction: Annotated[
        str, typer.Option(help="discipline, recompute, swap or auto: what becomes of evicted KV cache.")
    ] = "discipline",
    estimate_factor: Annotated[
        float, typer.Option(min=0.0, help="Estimated over true execution times.")
    ] = 1.0,
    estimate_noise: Annotated[float, typer.Option(min=0.0, help="Log-normal sigma of that estimate.")] = 0.0,
    step_noise: Annotated[
        float, typer.Option(min=0.0, help="Log-normal sigma of step times around the profile's; sim only.")
    ] = 0.0,
    warm: Annotated[bool, typer.Option("--warm", help="Shared prefixes are cached from the start.")] = False,
    open_loop: Annotated[bool, typer.Option("--open-loop", help="Robots report nothing.")] = False,
    draft_tokens: Annotated[
        int | None,
        typer.Option(
            min=0, help="Draft tokens a round of speculative decoding, for jobs with an acceptance."
        ),
    ] = None,
    until: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.0, help="Stop at this time of the trace, s.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    journal: Annotated[bool, typer.Option(help="Keep decisions, for `timely explain`.")] = True,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=check_cli_output_file, help="Write a report.")
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=check_cli_output_file, help="Write a Chrome trace."),
    ] = None,
    json_file: JsonFile = None,
    verbose: Verbose = False,
) -> int:
    """Run a trace through an engine and report what robots saw.

    Ctrl-C ends it early; files then hold what is done so far and say so.
    """
    options = ReplayOptions(
        discipline=discipline, mode=mode, profile=profile, max_batch=max_batch, token_budget=token_budget,  # type: ignore[arg-type]
        prefill_chunk=prefill_chunk, kv_blocks=kv_blocks, max_resident=max_resident, seed=seed, eviction=eviction,  # type: ignore[arg-type]
        estimate_factor=estimate_factor, estimate_noise=estimate_noise, step_noise=step_noise,
        warm_prefixes=warm,
        closed_loop=not open_loop, until_s=until,
        journal=journal, draft_tokens=draft_tokens,
    )  # fmt: skip
    tasks = ReplayTasks(trace)
    with quiet_cli_terminal("replay", verbose=verbose or engine != "vllm") as terminal:
        title = f"{tasks.name} on {engine}"
        with _cli_replay_progress(terminal, title) as progress, tasks.errors_with_lines():
            result = replay_through_engine(tasks, options, engine=engine, trace=tasks.name, progress=progress)
    if json_file is not None:
        core_write_file(json_file, replay_result_text(result))
    if html is not None:
        core_write_file(html, html_replay_report(result))
    if perfetto is not None:
        core_write_file(perfetto, replay_perfetto_text(result))
    if json_file != STDOUT:
        _print_cli_replay_result(result)
    return INTERRUPTED if result["partial"] else 0


@contextmanager
def _cli_replay_progress(terminal: CliTerminal, title: str) -> Iterator[Progress | None]:
    """A line for replays that last; nothing where there is no terminal."""
    console = terminal.console
    if not console.is_terminal:
        yield None
        return
    from rich.live import Live

    # Else it would show what libraries print, which has a log file.
    line = Live(console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    begin_s = time.monotonic()
    has_begun = False

    def progress(now: float, arrived_tasks: int, finished_tasks: int) -> None:
        nonlocal has_begun
        wall_s = time.monotonic() - begin_s
        if wall_s < SHOW_AFTER_S:
            return
        if not has_begun:
            line.start()
            has_begun = True
        line.update(
            f"{title}: {now:,.1f} s of trace, {finished_tasks:,} of {arrived_tasks:,} tasks done,"
            f" {now / wall_s:,.0f} times real time"
        )

    try:
        yield progress
    finally:
        if has_begun:
            line.stop()


def _print_cli_replay_result(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    summary = result["summary"]
    heading = f"{result['trace']}: {result['discipline']}, {result['mode']}, {result['engine']}, {result['profile']}"
    table = Table(title=heading, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for name in (
        "",
        "tasks",
        "served",
        "utility",
        "of",
        "response p50, s",
        "p90, s",
        "p99, s",
        "waiting mean, s",
    ):
        table.add_column(name, justify="left" if not name else "right")
    for name, group in [("all", summary), *summary["by_class"].items()]:
        if group["jobs"]:
            response, waiting = group["response_s"], group["waiting_s"]
            table.add_row(
                name, str(group["jobs"]), f"{group['share_served']:.1%}", f"{group['utility_mean']:.3f}",
                f"{group['utility_max_mean']:.3f}",
                *(
                    "-" if value is None else f"{value:.3f}"
                    for value in (response["p50"], response["p90"], response["p99"], waiting["mean"])
                ),
            )  # fmt: skip
    console.print(table)
    if result["engine"] == "sim":
        console.print(f"sha256 {replay_result_hash(result)}", style="dim", soft_wrap=True)
    if result["partial"]:
        console.print("interrupted: results so far")
