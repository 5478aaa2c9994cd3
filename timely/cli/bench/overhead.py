"""``timely bench overhead``: what segmenting and deciding cost."""

from importlib.util import find_spec
from typing import Annotated, Any

import typer

from timely.cli.bench.options import require_cli_package
from timely.cli.bench.tables import make_cli_console, show_cli_table
from timely.cli.output import JsonFile, write_cli_json
from timely.cli.terminal import Verbose, quiet_cli_terminal

JOB_COUNTS = (1, 8, 100, 1000)
POINT_REPETITIONS = 5
"""A scheduling point counts as the quickest of so many: other work on the machine is no cost of a decision."""


def command(
    repetitions: Annotated[int, typer.Option(min=3, help="Counted pairs of runs.")] = 15,
    batch: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 1,
    discipline: Annotated[str, typer.Option(help="Whose scheduling point.")] = "timely",
    engine: Annotated[
        bool, typer.Option(help="Measure the real engine too; --no-engine only decides.")
    ] = True,
    waiting: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="N ...", help="Also measure the scheduler with N queued requests."),
    ] = None,
    more_waiting: Annotated[list[int] | None, typer.Argument(hidden=True)] = None,
    json_file: JsonFile = None,
    verbose: Verbose = False,
) -> None:
    """Cost of segmenting, and of a scheduling decision.

    Segmented over unsegmented on the real engine, and a scheduling point.

    With --waiting also the processor time of our scheduler over vLLM's own, on the same queue without a model.
    """
    from timely.bench.decision_cost import scheduling_point_us

    console = make_cli_console(json_file)
    costs = {
        str(jobs): round(scheduling_point_us(discipline, jobs, repetitions=POINT_REPETITIONS), 1)
        for jobs in JOB_COUNTS
    }
    result: dict[str, Any] = {"discipline": discipline, "scheduling_point_us": costs}
    lengths = [*(waiting or ()), *(more_waiting or ())]
    if lengths:
        from timely.bench.queue_cost import bench_compose_us

        result["compose_us"] = {
            str(count): round(bench_compose_us(discipline, count), 1) for count in lengths
        }
    if engine:
        require_cli_package("vllm")
        from timely.engines.vllm.overhead import vllm_segmentation_cost

        with quiet_cli_terminal("bench-overhead", verbose=verbose):
            result["segmented_over_unsegmented"] = vllm_segmentation_cost(repetitions, batch)
    if lengths and find_spec("vllm") is not None:
        result |= _measure_cli_queues(lengths)
    write_cli_json(json_file, result)
    headings = ("jobs", "scheduling point, µs (TimelyLLM: 2030 at 8)")
    show_cli_table(console, headings, [(jobs, f"{cost:.0f}") for jobs, cost in costs.items()])
    for count, cost in result.get("compose_us", {}).items():
        console.print(f"a step of 256 chats, {count} waiting: {cost:.0f} µs")
    if engine:
        ratio = result["segmented_over_unsegmented"]
        console.print(
            f"segmented over unsegmented, {ratio['pairs']} pairs in turn: median {ratio['median']:.3f} "
            f"(p10 {ratio['p10']:.3f}, p90 {ratio['p90']:.3f}); TimelyLLM Table 4: 1.026 to 1.056"
        )
    if "waiting_us" in result:
        rows = [
            (
                length,
                f"{cost['stock_us']:.0f}",
                f"{cost['timely_us']:.0f}",
                f"{cost['ratio']:.2f}",
                f"{cost['stock_arrival_us']:.0f}",
                f"{cost['timely_arrival_us']:.0f}",
            )
            for length, cost in result["waiting_us"].items()
        ]
        show_cli_table(
            console,
            (
                "waiting", "vLLM's scheduler, µs a step", "Timely's, µs", "ratio", "an arrival, µs", "Timely's, µs",
            ),
            rows,
        )  # fmt: skip


def _measure_cli_queues(lengths: list[int]) -> dict[str, Any]:
    from timely.engines.vllm.queue_cost import measure_vllm_steps

    costs = {str(length): measure_vllm_steps(length) for length in lengths}
    return {
        "waiting": {length: round(cost["ratio"], 4) for length, cost in costs.items()},
        "waiting_us": costs,
    }
