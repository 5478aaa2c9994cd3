"""``timely bench paper``: a paper's numbers and ours."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from timely.bench.papers.run_context import PaperEvaluation
from timely.cli.bench.options import (
    Budget,
    Jobs,
    MarkdownFile,
    Resume,
    print_cli_progress,
    resumable_cli_checkpoints,
)
from timely.cli.bench.tables import format_cli_number, make_cli_console, show_cli_table
from timely.cli.output import JsonFile, write_cli_json
from timely.core.errors import check_name

PAPERS = {
    "timelyllm": "timely.bench.papers.timelyllm.evaluation",
    "semantic": "timely.bench.papers.semantic.evaluation",
    "justitia": "timely.bench.papers.justitia.evaluation",
    "sagesched": "timely.bench.papers.sagesched.evaluation",
    "laps-sd": "timely.bench.papers.laps_sd.evaluation",
}

HEADINGS = ("claim", "paper", "ours (95% interval)", "unit", "verdict", "note")
SUBJECTS = {
    "literal": "The paper's algorithm against its paper",
    "ours": "Ours against the paper's algorithm",
}


def command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="timelyllm, semantic, justitia, sagesched or laps-sd.")
    ],
    seeds: Annotated[int, typer.Option(min=1, help="How many; ten or more for the record.")] = 10,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the plots.")] = Path("out/paper"),
    data: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Folder with real traces and texts, for the rows that use them.",
        ),
    ] = None,
    resume: Resume = None,
    budget: Budget = None,
    jobs: Jobs = 1,
    json_file: JsonFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Reproduce a paper in the simulator.

    The paper's number, ours, and a verdict by a rule fixed beforehand.

    The first table holds the paper's own algorithm against its paper, the second ours against that algorithm.
    """
    check_name("paper", name, PAPERS, where="paper")
    module = import_module(PAPERS[name])
    console = make_cli_console(json_file)
    target = out / name
    with resumable_cli_checkpoints(resume, budget, jobs) as checkpoints:
        target.mkdir(parents=True, exist_ok=True)
        claims = module.run_paper_evaluation(
            PaperEvaluation(range(1, seeds + 1), target, print_cli_progress, checkpoints, data)
        )
    write_cli_json(json_file, {"paper": name, "seeds": seeds, "claims": claims})
    pages_text = ""
    for subject, title in SUBJECTS.items():
        rows = [cli_claim_row(row) for row in claims if row["subject"] == subject]
        if rows:
            console.print(title)
            show_cli_table(console, HEADINGS, rows, markdown)
            if markdown is not None:
                pages_text += f"## {title}\n\n{markdown.read_text(encoding='utf-8')}\n"
    if markdown is not None:
        markdown.write_text(pages_text.rstrip() + "\n", encoding="utf-8")
    console.print(f"plots: {target}")


def cli_claim_row(row: dict[str, Any]) -> tuple[str, ...]:
    low, high = row["interval"] or (None, None)
    interval = "" if low is None else f" ({format_cli_number(low)} to {format_cli_number(high)})"
    cells = format_cli_number(row["paper"]), format_cli_number(row["ours"]) + interval, row["unit"]
    return (row["what"], *cells, row["verdict"] or "", row["note"])
