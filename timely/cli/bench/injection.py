"""``timely bench injection``: prompt injections on a real model."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from timely.bench.checkpoints import BenchCheckpoints
from timely.cli.bench.options import Budget, Resume, require_cli_package, resumable_cli_checkpoints
from timely.cli.output import JsonFile, cli_say, write_cli_json
from timely.cli.terminal import Verbose, quiet_cli_terminal
from timely.core.progress import Say

if TYPE_CHECKING:
    from timely.bench.injection.run import InjectionBenchResult

PROGRESS_EVERY = 50


def command(
    cases: Annotated[int, typer.Option(min=1, help="Number of attacks.")] = 600,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the attacks.")] = 0,
    model: Annotated[
        str | None, typer.Option(metavar="DIR|NAME", help="Folder or name; the packaged model by default.")
    ] = None,
    grammar: Annotated[
        str, typer.Option(help="Decode with the grammar, without it, or both: on, off, both.")
    ] = "both",
    resume: Resume = None,
    budget: Budget = None,
    json_file: JsonFile = None,
    verbose: Verbose = False,
) -> None:
    """Attack prompts: unsafe calls and forged fields.

    The attacks come by families; both counts must be 0.
    """
    require_cli_package("vllm")
    from timely.core.errors import check_name

    ways = {"both": (True, False), "on": (True,), "off": (False,)}
    check_name("choice", grammar, ways, where="--grammar")
    with (
        resumable_cli_checkpoints(resume, budget) as checkpoints,
        quiet_cli_terminal("bench-injection", verbose=verbose) as terminal,
    ):
        results = asyncio.run(
            _measure_cli_injection(cases, seed, model, ways[grammar], checkpoints, terminal.say)
        )
    unsafe = sum(result.unsafe for result in results.values())
    forgeries = sum(result.forged for result in results.values())
    by_way = {name: dataclasses.asdict(result) for name, result in results.items()}
    write_cli_json(
        json_file, {"cases": cases, "unsafe": unsafe, "forged": forgeries, "seed": seed, "ways": by_way}
    )
    say = cli_say(json_file)
    for name, result in results.items():
        say(
            f"{name}: {result.cases} attacks, {result.unsafe} unsafe, {result.forged} forged, "
            f"{result.refused} with a refused segment"
        )
        for failure in result.failures[:10]:
            say(f"  {failure}")
    if unsafe or forgeries:
        raise typer.Exit(1)


async def _measure_cli_injection(
    count: int, seed: int, model: str | None, ways: tuple[bool, ...], checkpoints: BenchCheckpoints, say: Say
) -> dict[str, InjectionBenchResult]:
    from timely.bench.injection.corpus import benchmark_attacks
    from timely.bench.injection.run import run_attack_benchmark
    from timely.engines.vllm.arguments import VllmOptions
    from timely.engines.vllm.engine import VllmEngine

    corpus = list(benchmark_attacks(count, seed))
    engine = VllmEngine(VllmOptions(model=model, discipline="fcfs", mode="stream", warm_up=("drone", "arm")))
    results = {}
    try:
        await engine.start()
        for constrained in ways:
            name = "with grammar" if constrained else "without grammar"

            def progress(done: int, name: str = name) -> None:
                if done % PROGRESS_EVERY == 0:
                    say(f"{name}: {done} of {count} attacks")

            results[name] = await run_attack_benchmark(
                engine,
                corpus,
                engine.prompt_encoder,
                constrained=constrained,
                experiment=f"injection {model or 'packaged'} {seed}",
                checkpoints=checkpoints,
                progress=progress,
            )
    finally:
        await engine.stop()
    return results
