"""``timely bench paper``: a paper's numbers and ours."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from timely.bench.papers.run_context import Evaluation
from timely.cli.bench.options import Budget, Jobs, MarkdownFile, Resume, log, resumable
from timely.cli.bench.tables import format_figure, make_console, show_table
from timely.cli.output import JsonFile, write_json
from timely.core.errors import UnknownName

PAPERS = {
    "timelyllm": "timely.bench.papers.timelyllm.evaluation",
    "semantic": "timely.bench.papers.semantic.evaluation",
    "justitia": "timely.bench.papers.justitia.evaluation",
    "sagesched": "timely.bench.papers.sagesched.evaluation",
    "laps-sd": "timely.bench.papers.laps_sd.evaluation",
}


def command(
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
    module = import_module(PAPERS[name])
    console = make_console(json_file)
    target = out / name
    target.mkdir(parents=True, exist_ok=True)
    with resumable(resume, budget, jobs) as checkpoints:
        claims = module.run(Evaluation(range(1, seeds + 1), target, log, checkpoints))
    write_json(json_file, {"paper": name, "seeds": seeds, "claims": claims})
    ours = "ours (95% interval)" if any(row.get("ci95") for row in claims) else "ours"
    headings = ("claim", "paper", ours, "unit", "ratio", "holds", "note")
    show_table(console, headings, [claim_row(row) for row in claims], markdown)
    console.print(f"plots: {target}")


def claim_row(row: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a claim; ``ratio`` is ours over the paper's."""
    paper, ours = row["paper"], row["ours"]
    ratio = f"{ours / paper:.2f}" if paper and ours is not None else ""
    holds = {True: "yes", False: "**no**", None: ""}[row["holds"]]
    low, high = row.get("ci95") or (None, None)
    interval = "" if low is None else f" ({format_figure(low)} to {format_figure(high)})"
    cells = format_figure(paper), format_figure(ours) + interval, row["unit"], ratio
    return (row["what"], *cells, holds, row["note"])
