"""``timely bench mixed``: robots beside chat on one server."""

import asyncio
from typing import Annotated

import typer

from timely.cli.bench.options import require_cli_package
from timely.cli.bench.tables import make_cli_console
from timely.cli.output import JsonFile, write_cli_json
from timely.cli.terminal import Verbose, quiet_cli_terminal

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
START_S = 600.0
QUICK_S = 20.0
FIRST_SEGMENTS, QUICK_FIRST_SEGMENTS = 5, 2
"""Tasks of each utility whose first segment is measured, alone and beside a chat."""


def command(
    context: typer.Context,
    robots: Annotated[int, typer.Option(min=1, help="Robots; every third has urgent tasks.")] = 8,
    chats: Annotated[int, typer.Option(min=1, help="Chats at once.")] = 24,
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=5, max=86400, help="Duration of each of the three loads.")
    ] = 30.0,
    repetitions: Annotated[int, typer.Option(min=1, help="Times that the three loads take turns.")] = 3,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"One repetition with loads of {QUICK_S:.0f} s.")
    ] = False,
    discipline: Annotated[str, typer.Option(help="Queue discipline.")] = "timely",
    jump_ahead: Annotated[
        bool | None,
        typer.Option(
            "--jump-ahead/--no-jump-ahead",
            help="Tokens that grammar and names force take no step. Default: as timely serve.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="DIR|NAME", help="Model to serve; the packaged one by default.")
    ] = None,
    json_file: JsonFile = None,
    verbose: Verbose = False,
) -> None:
    """Robots beside chat: what each costs the other.

    Urgent response beside chat over that without, and the chat's share of the throughput that robots leave.

    Before that, the time to a task's first segment beside one streaming chat over that alone.
    Other arguments go to vLLM.
    """
    require_cli_package("vllm")
    from timely.bench.chat_and_first_segment import benchmark_first_segments
    from timely.bench.robots_and_chat import BenchHttpLoad, benchmark_robots_and_chat
    from timely.cli.serve import make_cli_engine
    from timely.engines.vllm.arguments import VllmOptions
    from timely.server.app import create_app
    from timely.server.server_thread import ServerThread
    from timely.server.settings import ServerSettings

    options = VllmOptions(
        model=model, discipline=discipline, jump_ahead=jump_ahead, arguments=tuple(context.args)
    )
    engine = make_cli_engine("vllm", options)
    with (
        quiet_cli_terminal("bench-mixed", verbose=verbose) as terminal,
        ServerThread(create_app(engine, ServerSettings()), start_timeout_s=START_S) as server,
    ):
        count = QUICK_FIRST_SEGMENTS if quick else FIRST_SEGMENTS
        result = asyncio.run(benchmark_first_segments(server.url, count, terminal.say))
        result |= asyncio.run(
            benchmark_robots_and_chat(
                BenchHttpLoad(server.url).run,
                robots=robots,
                chats=chats,
                seconds=QUICK_S if quick else seconds,
                repetitions=1 if quick else repetitions,
                say=terminal.say,
            )
        )
    write_cli_json(json_file, result)
    console = make_cli_console(json_file)
    console.print(
        f"urgent response {result['urgent_response_ratio']:.2f} times that without chat; "
        f"the chat has {result['chat_throughput_share']:.0%} of the throughput that the robots leave, "
        f"and {result['chat_share_of_idle_time']:.2f} times that of the time that they alone leave idle"
    )
    for utility, ratio in result["first_segment_ratio"].items():
        console.print(f"first segment beside a chat, {utility}: {ratio:.2f} times that alone")
