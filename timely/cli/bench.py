"""``timely bench``: overheads, latencies, the simulator's speed, the live comparison, and the papers' claims."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from timely.bench.checkpoints import OutOfTime, Pieces
from timely.bench.papers.run_context import Evaluation
from timely.cli.output import STDOUT, JsonFile, check_target, write_json
from timely.core.cpu_latency import awake, for_measurement
from timely.core.errors import InvalidInput, UnknownName, Unsupported

app = typer.Typer(help="Measure claims of the papers, overheads, latencies.", no_args_is_help=True)

POINTS = (1, 8, 100, 1000)
QUEUED = (8, 100, 1000, 10_000)
PAPERS = {
    "timelyllm": "timely.bench.papers.timelyllm.evaluation",
    "semantic": "timely.bench.papers.semantic.evaluation",
    "justitia": "timely.bench.papers.justitia.evaluation",
    "sagesched": "timely.bench.papers.sagesched.evaluation",
    "laps-sd": "timely.bench.papers.laps_sd.evaluation",
}
ROBOT_COUNTS = (1, 10, 30)
WIDE = 240
TRY_AGAIN = 75
"""Exit code of a run that its budget stopped; BSD's EX_TEMPFAIL."""

Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Keep each piece of the run there, and begin with those that are there."
    ),
]
DefaultSystem = Annotated[
    bool, typer.Option("--default-system", help="Let the processors sleep as they like.")
]
Jobs = Annotated[int, typer.Option(min=1, metavar="N", help="Pieces computed at once, in processes.")]
MarkdownFile = Annotated[
    Path | None, typer.Option(metavar="FILE", callback=check_target, help="Write the table there too.")
]
Budget = Annotated[
    float | None,
    typer.Option(
        min=1, metavar="SECONDS", help="With --resume: stop after so long; exit code 75, to be run again."
    ),
]


def _console(json_file: Path | None) -> Console:
    made = Console(stderr=json_file == STDOUT)
    # A file or a pipe is as wide as a table needs.
    return made if made.is_terminal else Console(stderr=json_file == STDOUT, width=WIDE)


@app.command()
def overhead(
    repetitions: Annotated[int, typer.Option(min=3, help="Counted pairs of runs.")] = 15,
    batch: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 1,
    discipline: Annotated[str, typer.Option(help="Whose scheduling point.")] = "timely",
    engine: Annotated[
        bool, typer.Option(help="Measure the real engine too; --no-engine only decides.")
    ] = True,
    json_file: JsonFile = None,
) -> None:
    """What segmenting and deciding cost: segmented over unsegmented on the real engine, and a scheduling point."""
    from timely.bench.decision_cost import scheduling_point_us

    console = _console(json_file)
    result: dict[str, Any] = {
        "discipline": discipline,
        "scheduling_point_us": {
            str(jobs): round(scheduling_point_us(discipline, jobs), 1) for jobs in POINTS
        },
    }
    if engine:
        _need("vllm")
        from timely.engines.vllm.overhead import measure

        result["segmented_over_unsegmented"] = measure(repetitions, batch)
    write_json(json_file, result)
    table = Table("jobs", "scheduling point, µs (TimelyLLM: 2030 at 8)")
    for jobs, cost in result["scheduling_point_us"].items():
        table.add_row(jobs, f"{cost:.0f}")
    console.print(table)
    if engine:
        ratio = result["segmented_over_unsegmented"]
        console.print(
            f"segmented over unsegmented, {ratio['pairs']} pairs in turn: median {ratio['median']:.3f} "
            f"(p10 {ratio['p10']:.3f}, p90 {ratio['p90']:.3f}); TimelyLLM Table 4: 1.026 to 1.056"
        )


@app.command()
def decisions(
    disciplines: Annotated[str, typer.Option(help="Comma-separated; all unless given.")] = "",
    jobs: Annotated[
        list[int] | None, typer.Option(min=1, help="How many are queued; may be repeated.")
    ] = None,
    points: Annotated[int, typer.Option(min=1, help="Scheduling points measured of each.")] = 40,
    json_file: JsonFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """What a scheduling decision costs under each discipline, with 8 to 10,000 requests queued."""
    from timely.bench.decision_cost import scheduling_point_us
    from timely.disciplines import registry

    names = [name.strip() for name in disciplines.split(",") if name.strip()] or registry.names()
    counts = jobs or list(QUEUED)
    console = _console(json_file)
    costs: dict[str, dict[str, float]] = {}
    for name in names:
        registry.load(name)
        costs[name] = {
            str(count): round(scheduling_point_us(name, count, points=points), 1) for count in counts
        }
        print(f"{name}: {costs[name]}", file=sys.stderr)
    write_json(json_file, {"scheduling_point_us": costs})
    headings = ("discipline", *(f"{count:,} queued, µs" for count in counts))
    rows = [(f"`{name}`", *(f"{cost:,.0f}" for cost in row.values())) for name, row in costs.items()]
    if markdown is not None:
        markdown.write_text(_markdown(headings, rows), encoding="utf-8")
    table = Table(*headings)
    for cells in rows:
        table.add_row(*(cell.strip("`") for cell in cells))
    console.print(table)


@app.command()
def ros(
    robots: Annotated[list[int] | None, typer.Option(min=1, help="How many robots; may be repeated.")] = None,
    segments: Annotated[int, typer.Option(min=1, help="Segments of each plan.")] = 20,
    default_system: DefaultSystem = False,
    json_file: JsonFile = None,
) -> None:
    """From a segment closed in the engine to the driver's callback, over HTTP and ROS 2.

    As latency tests do, it keeps the processors from sleeping meanwhile, where it may: the bridge's parameter
    wake_latency_us.
    """
    _need("rclpy")
    _need("timely_bridge")
    measure = import_module("timely_ros_bench.latency").measure_latency
    console = _console(json_file)
    latency_us, how = for_measurement(default_system)
    console.print(how)
    result: dict[str, Any] = {"wake_latency_us": latency_us, "robots": {}}
    for count in robots or ROBOT_COUNTS:
        result["robots"][str(count)] = measure(count, segments, wake_latency_us=latency_us)
    write_json(json_file, result)
    table = Table("robots", "median, ms", "p99, ms", "segments")
    for count, latency in result["robots"].items():
        table.add_row(count, f"{latency['p50_ms']:.2f}", f"{latency['p99_ms']:.2f}", str(latency["segments"]))
    console.print(table)


@app.command()
def stop(
    robots: Annotated[int, typer.Option(min=1, help="How many, all busy.")] = 10,
    repetitions: Annotated[int, typer.Option(min=1, help="Stops.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="When each stop comes.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """From the fleet's stop to the last motion command of each robot, all of them busy."""
    _need("rclpy")
    _need("timely_bridge")
    result = import_module("timely_ros_bench.stop").measure_stop(robots, repetitions, seed=seed)
    write_json(json_file, result)
    _console(json_file).print(
        f"{robots} robots busy, stopped {repetitions} times: no motion command later than "
        f"{result['p50_ms']:.1f} ms (median), {result['p99_ms']:.1f} ms (p99), {result['max_ms']:.1f} ms (longest)"
    )


@app.command()
def faults(
    count: Annotated[
        int, typer.Option(min=1, help="Faults, one after the other; each takes some 15 s.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Which faults, when, to whom.")] = 0,
    robots: Annotated[
        str, typer.Option(help="Kinds, comma-separated: tello and indy7 are emulated, sim needs no library.")
    ] = "tello,indy7,sim,sim",
    json_file: JsonFile = None,
) -> None:
    """Robots, networks and processes break at random: is any motion repeated, any task lost? 1 if so."""
    _need("rclpy")
    _need("timely_bridge")
    fleet = [kind.strip() for kind in robots.split(",") if kind.strip()]
    measure = import_module("timely_ros_bench.faults").measure_faults
    result = measure(count, seed, fleet=fleet, say=lambda line: print(line, file=sys.stderr, flush=True))
    write_json(json_file, result)
    table = Table("violation", "how often")
    for kind, often in {**result["violations"], "lost tasks": result["lost_tasks"]}.items():
        table.add_row(kind, str(often))
    console = _console(json_file)
    console.print(table)
    console.print(f"{count} faults, {result['tasks']} tasks: {result['outcomes']}")
    if any(result["violations"].values()) or result["lost_tasks"]:
        raise typer.Exit(1)


@app.command()
def soak(
    minutes: Annotated[float, typer.Option(min=1, help="Of the robots' time.")] = 24.0,
    speed: Annotated[float, typer.Option(min=1, max=100, help="Times faster than real time.")] = 40.0,
    json_file: JsonFile = None,
) -> None:
    """Two robots for a long time, accelerated: does memory grow, is anything left behind? 1 if so."""
    _need("rclpy")
    _need("timely_bridge")
    measure = import_module("timely_ros_bench.soak").measure
    result = measure(minutes, speed, say=lambda line: print(line, file=sys.stderr))
    write_json(json_file, result)
    table = Table("process", "memory, MB", "files", "threads", "children")
    for name, found in result["processes"].items():
        table.add_row(
            name,
            *(
                " to ".join(str(v) for v in found[what])
                for what in ("rss_mb", "files", "threads", "children")
            ),
        )
    console = _console(json_file)
    console.print(table)
    console.print(
        f"{result['tasks']} tasks in {minutes:g} simulated minutes, {result['tasks_left']} left at the end: "
        + ("flat" if result["flat"] else "NOT flat")
    )
    if not result["flat"]:
        raise typer.Exit(1)


@app.command("sim-speed")
def sim_speed(json_file: JsonFile = None) -> None:
    """How fast the simulator is: WID 2 against real time, and a thousand robots for an hour."""
    module = _module("timely.bench.sim_speed", "sim-speed")
    result = module.measure()
    write_json(json_file, result)
    if json_file != STDOUT:
        typer.echo(module.text(result))


@app.command("closed-loop")
def closed_loop(
    seeds: Annotated[int, typer.Option(min=1, help="How many workloads.")] = 5,
    workload: Annotated[str, typer.Option(help="wid1, wid2 or wid3.")] = "wid2",
    seconds: Annotated[float, typer.Option(min=10, help="How much of each.")] = 300.0,
    discipline: Annotated[str, typer.Option(help="Who decides.")] = "timely",
    json_file: JsonFile = None,
) -> None:
    """Waiting times with execution times 30% off the profile: robots report, or they do not (simulator)."""
    module = _module("timely.bench.closed_loop", "closed-loop")
    result = module.measure(
        list(range(1, seeds + 1)), workload=workload, duration_s=seconds, discipline=discipline
    )
    write_json(json_file, result)
    table = Table("robots are", "exact profile, s", "closed loop, s", "open loop, s", "closed", "open")
    for case, found in result["cases"].items():
        waits = found["waiting_s"]
        table.add_row(
            case,
            *(f"{waits[name]:.4f}" for name in ("perfect", "closed", "open")),
            *(f"{100 * (found[f'{name}_over_perfect'] - 1):+.1f}%" for name in ("closed", "open")),
        )
    console = _console(json_file)
    console.print(table)
    console.print(f"mean waiting a task, {result['tasks']} tasks of {workload}, {seeds} seeds, {discipline}")


@app.command()
def accuracy(
    run: Annotated[Path, typer.Argument(metavar="FOLDER", help="A measured run: requests.jsonl, meta.json.")],
    profile: Annotated[str, typer.Option(metavar="NAME|FILE", help="Step times.")] = "rtx4090-llama3-8b",
    discipline: Annotated[str, typer.Option(help="What served the run.")] = "fcfs",
    json_file: JsonFile = None,
) -> None:
    """The simulator against a measured run of vLLM: time to first token, per output token, latency."""
    from timely.bench.accuracy import compare as against
    from timely.bench.accuracy import text

    result = against(run, profile, discipline)
    write_json(json_file, result)
    if json_file != STDOUT:
        typer.echo(text(result))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def live(
    context: typer.Context,
    workloads: Annotated[
        str, typer.Option(help="Comma-separated; NAME or NAME:SECONDS of it.")
    ] = "wid1,wid2,wid3",
    systems: Annotated[
        str, typer.Option(help="Comma-separated; timely, pud, edf, fcfs, vllm-stream, vllm.")
    ] = "timely,pud,edf,fcfs,vllm-stream,vllm",
    seed: Annotated[int, typer.Option(min=0, help="Of the first repetition's tasks; +1 for each more.")] = 7,
    repetitions: Annotated[int, typer.Option(min=1, help="Each system so often, in turn.")] = 2,
    profile: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Of the prediction; runs: each run's own steps.")
    ] = "cpu-smollm2",
    model: Annotated[str | None, typer.Option(metavar="DIR|NAME", help="To serve; the built-in one.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs; a later call goes on in it.")] = Path(
        "out/live"
    ),
    budget: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="Begin no run after so long; 0 only reports."),
    ] = None,
    default_system: DefaultSystem = False,
    json_file: JsonFile = None,
) -> int:
    """The paper's comparison on the real engine, in real time, the simulator's prediction beside it.

    Arguments that it does not know go to vLLM.
    """
    from timely.bench.live import PARTS, SYSTEMS, WORKLOADS, LiveBench, Settings, VllmLive, text

    names = [name.strip() for name in systems.split(",") if name.strip()]
    for name in names:
        if name not in SYSTEMS and name not in PARTS:
            raise UnknownName("system", name, [*SYSTEMS, *PARTS], where="--systems")
    bench = LiveBench(
        out,
        Settings(
            _durations(workloads, WORKLOADS), tuple(names), seed, model=model, arguments=tuple(context.args)
        ),
    )
    left = len(list(bench.missing(repetitions)))
    if left and budget != 0.0:
        _need("vllm")
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr)  # noqa: E731
        limit = float("inf") if budget is None else budget
        latency_us, how = for_measurement(default_system)
        say(how)
        with awake(latency_us):
            left = asyncio.run(
                bench.measure(VllmLive(out, bench.settings), repetitions, budget_s=limit, say=say)
            )
    report = bench.report(profile)
    write_json(json_file, report)
    if json_file != STDOUT:
        typer.echo(text(report))
    if left:
        typer.echo(f"timely: {left} runs are left; the same command goes on.", err=True)
    return TRY_AGAIN if left else 0


def _durations(given: str, known: Mapping[str, float]) -> dict[str, float]:
    """``wid1,wid2:30`` as seconds by workload."""
    found: dict[str, float] = {}
    for part in (part.strip() for part in given.split(",")):
        name, _, seconds = part.partition(":")
        if name not in known:
            raise UnknownName("workload", name, known, where="--workloads")
        try:
            found[name] = float(seconds) if seconds else known[name]
        except ValueError:
            raise InvalidInput(f"{seconds!r} is no number of seconds", where="--workloads") from None
        if not 1.0 <= found[name] < float("inf"):
            raise InvalidInput(f"{name} for {seconds} s; at least 1 s", where="--workloads")
    return found


@app.command()
def cross(
    disciplines: Annotated[str, typer.Option(help="Comma-separated; all unless given.")] = "",
    workloads: Annotated[str, typer.Option(help="Comma-separated; all unless given.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 3,
    resume: Resume = None,
    budget: Budget = None,
    jobs: Jobs = 1,
    json_file: JsonFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Every discipline on every paper's workload, by that paper's measure, in the simulator."""
    module = _module("timely.bench.cross", "cross")
    from timely.disciplines import registry

    names = _listed(disciplines) or registry.names()
    for name in names:
        registry.load(name)
    chosen = _listed(workloads) or list(module.WORKLOADS)
    for name in chosen:
        if name not in module.WORKLOADS:
            raise UnknownName("workload", name, module.WORKLOADS, where="--workloads")
    console = _console(json_file)
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr)  # noqa: E731
    with _resumable(resume, budget, jobs) as pieces:
        found = module.table(names, chosen, list(range(1, seeds + 1)), pieces, say)
    write_json(json_file, {"seeds": seeds, "disciplines": found})
    columns = module.measures(chosen)
    tops = {column.name: module.best(found, column) for column in columns}
    headings = ("discipline", *(column.short for column in columns))
    rows = []
    for name in names:
        cells = [found[name][column.name] for column in columns]
        near = [
            abs(v - tops[c.name]) <= 0.01 * abs(tops[c.name]) for v, c in zip(cells, columns, strict=True)
        ]
        rows.append(
            (
                f"`{name}`",
                *(f"**{v:.4g}**" if top else f"{v:.4g}" for v, top in zip(cells, near, strict=True)),
            )
        )
    if markdown is not None:
        markdown.write_text(_markdown(headings, rows), encoding="utf-8")
    table = Table(*headings)
    for row in rows:
        table.add_row(*(cell.strip("*`") for cell in row))
    console.print(table)


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@app.command("disciplines-live")
def disciplines_live(
    disciplines: Annotated[
        str,
        typer.Option(
            help="Comma-separated; all unless given. a+b+c: in turn, switched while one load is served."
        ),
    ] = "",
    seconds: Annotated[float, typer.Option(min=1, help="Of load under each.")] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the ordinary requests.")] = 1,
    resume: Resume = None,
    budget: Budget = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep journals and event logs there.")
    ] = None,
    json_file: JsonFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Every discipline on the real engine under robots and ordinary load: decided is what happened, nothing lost."""
    _need("vllm")
    from timely.bench.decisions import compare
    from timely.disciplines import registry

    names = _listed(disciplines) or registry.names()
    for name in "+".join(names).split("+"):
        registry.load(name)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    console = _console(json_file)
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr)  # noqa: E731
    with _resumable(resume, budget) as pieces:
        found = compare(names, seconds, seed, pieces, keep, say)
    write_json(json_file, {"seconds": seconds, "seed": seed, "disciplines": found})
    rows = [_live_row(name, row) for name, row in sorted(found.items())]
    if markdown is not None:
        markdown.write_text(_markdown(LIVE_HEADINGS, rows), encoding="utf-8")
    table = Table(*LIVE_HEADINGS)
    for row in rows:
        table.add_row(*row)
    console.print(table)


LIVE_HEADINGS = (
    "discipline", "plans", "segments", "requests", "lost", "steps", "as decided", "uninvited", "overtaken",
    "against its rule", "evictions", "response p50, s", "latency p50, s", "good",
)  # fmt: skip


def _live_row(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    verdict = row["verdict"]
    lost = row["unanswered"] + len(verdict["lost"]) + len(row["event_log"]["unsettled"])
    rule = "" if verdict["out_of_rule"] is None else str(verdict["out_of_rule"])
    return (
        f"{name}, with drafts" if row["drafts"] else name,
        str(row["plans"]), str(row["segments"]), str(row["requests"]), str(lost), str(verdict["steps"]),
        f"{100 * verdict['as_asked'] / max(1, verdict['steps']):.1f}%", str(verdict["strangers"]),
        str(verdict["overtaken"]), rule, str(verdict["evictions"]), _figure(row["response_p50_s"]),
        _figure(row["latency_p50_s"]), "yes" if row["good"] else "**no**",
    )  # fmt: skip


@app.command()
def paper(
    name: Annotated[str, typer.Argument(help="timelyllm, semantic, justitia, sagesched or laps-sd.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many; ten or more for the record.")] = 10,
    out: Annotated[Path, typer.Option(help="Folder of the plots.")] = Path("out/paper"),
    resume: Resume = None,
    budget: Budget = None,
    jobs: Jobs = 1,
    json_file: JsonFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Reproduce a paper in the simulator: its number, ours, the ratio, whether the claim holds."""
    if name not in PAPERS:
        raise UnknownName("paper", name, PAPERS, where="paper")
    module = _module(PAPERS[name], f"paper {name}")
    console = _console(json_file)
    target = out / name
    target.mkdir(parents=True, exist_ok=True)
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr)  # noqa: E731
    with _resumable(resume, budget, jobs) as pieces:
        claims = module.run(Evaluation(range(1, seeds + 1), target, say, pieces))
    write_json(json_file, {"paper": name, "seeds": seeds, "claims": claims})
    rows = [_claim_row(row) for row in claims]
    ours = "ours (95% interval)" if any(row.get("ci95") for row in claims) else "ours"
    headings = ("claim", "paper", ours, "unit", "ratio", "holds", "note")
    if markdown is not None:
        markdown.write_text(_markdown(headings, rows), encoding="utf-8")
    table = Table(*headings)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(f"plots: {target}")


def _claim_row(row: dict[str, Any]) -> tuple[str, ...]:
    paper, ours = row["paper"], row["ours"]
    ratio = f"{ours / paper:.2f}" if paper and ours is not None else ""
    held = {True: "yes", False: "**no**", None: ""}[row["holds"]]
    low, high = row.get("ci95") or (None, None)
    interval = "" if low is None else f" ({_figure(low)} to {_figure(high)})"
    return (row["what"], _figure(paper), _figure(ours) + interval, row["unit"], ratio, held, row["note"])


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |\n" for line in lines)


@contextmanager
def _resumable(path: Path | None, budget_s: float | None, jobs: int = 1) -> Iterator[Pieces]:
    """Pieces kept in ``path``; when the budget is used up the command says so and exits with 75 (try again)."""
    if budget_s is not None and path is None:
        raise InvalidInput("a budget needs a file to go on from: --resume FILE", where="--budget")
    try:
        yield Pieces(path, budget_s, jobs=jobs)
    except OutOfTime as stopped:
        typer.echo(f"timely: out of time; {stopped}. The same command goes on.", err=True)
        raise typer.Exit(TRY_AGAIN) from None


def _module(name: str, what: str) -> Any:
    if find_spec(name) is None:
        raise Unsupported("is not in this version", where=f"bench {what}")
    return import_module(name)


def _need(package: str) -> None:
    if find_spec(package) is None:
        raise Unsupported(f"{package} is not installed; `make setup` installs it into .venv", where="bench")
