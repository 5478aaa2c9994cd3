"""The free parameter of TimelyLLM's evaluation: new prompt tokens a request, calibrated on baselines only.

The paper does not say how many tokens of a prompt follow the part that the server stores beforehand.
This number decides how late the baselines are.
So it is chosen where a baseline has the paper's own number, and every other number is then predicted.
"""

import math
from collections.abc import Iterator

from timely.bench.papers import plots
from timely.bench.papers.claims import BY_CONSTRUCTION, CONTEXT, WITHIN, Claim, paper_claim
from timely.bench.papers.seed_statistics import Interval, paper_interval
from timely.bench.papers.timelyllm.report import PaperReport, paper_shares
from timely.bench.papers.timelyllm.runs import (
    EDF,
    FCFS,
    PUD,
    STREAM,
    TIMELY,
    VLLM,
    PaperSystem,
    paper_crossing,
)

SWEEP = (16, 50, 100, 150, 200, 300, 400, 600, 800, 1000, 1300)
"""New prompt tokens a request."""

VLLM_SHARE = 0.595
"""Urgent share of the maximum under vLLM, WID 1 (section 7.2, Fig. 5a)."""

FCFS_SHARE = 1.0 / 1.83
"""Largest urgent share that segmented FCFS can have in Fig. 8.

TimelyLLM has 1.83 times as much, and at most all.
"""

TARGETS: tuple[tuple[str, str, PaperSystem, float, str], ...] = (
    ("vllm", "wid1", VLLM, VLLM_SHARE, "vLLM, urgent share of the maximum, WID 1 (Fig. 5a)"),
    (
        "fcfs",
        "wid2",
        FCFS,
        FCFS_SHARE,
        "segmented FCFS, urgent share of the maximum, WID 2 (at most, from Fig. 8)",
    ),
)
"""Label, workload, baseline, the paper's number, and its description."""

LITERAL_TARGETS: tuple[tuple[str, PaperSystem, PaperSystem | None, float, str], ...] = (
    ("wid1", VLLM, None, 0.595, "vLLM 0.595 (5a)"),
    ("wid1", PUD, None, 0.815, "pud 0.815 (5a)"),
    ("wid2", PUD, VLLM, 2.91, "pud 2.91 times vLLM (5d)"),
    ("wid2", PUD, FCFS, 1.83, "pud 1.83 times FCFS (8)"),
    ("wid2", PUD, EDF, 1.42, "pud 1.42 times EDF (8)"),
)
"""Workload, system, the system it is divided by, the paper's number, and a short name."""


def calibrate_timelyllm_paper(report: PaperReport) -> Iterator[Claim]:
    """Sweep the free parameter, set ``report.calibrations``, and say where all targets hold jointly."""
    curves = {name: _sweep_paper_new_tokens(report, name) for name in ("wid1", "wid2")}
    for label, name, system, paper, what in TARGETS:
        tokens = paper_crossing(SWEEP, [value[0] for value in curves[name][system.name]], paper)
        if math.isfinite(tokens):
            report.calibrations[label] = round(tokens)
        yield paper_claim(
            f"calibration-{label}", f"New prompt tokens at which {system.name} has the paper's number", None,
            tokens, "tokens", BY_CONSTRUCTION, f"{what}: {paper:.3f}",
        )  # fmt: skip
    yield from _joint_paper_claims(report, curves)


def _sweep_paper_new_tokens(report: PaperReport, name: str) -> dict[str, list[Interval]]:
    """Urgent share of the maximum by system, a value for each number of new tokens."""
    curves: dict[str, list[Interval]] = {}
    for system in (VLLM, STREAM, FCFS, EDF, PUD, TIMELY):
        for new_tokens in SWEEP:
            outcomes = report.outcomes(system, name, new_tokens=new_tokens)
            for kind in ("urgent", "normal"):
                value = paper_interval(paper_shares(outcomes, kind))
                report.row(f"sweep, {kind}, {name}", system.name, str(new_tokens), value)
                if kind == "urgent":
                    curves.setdefault(system.name, []).append(value)
    plots.paper_line_plot(
        report.out / f"sweep-new-tokens-{name}.png",
        f"Urgent tasks, {name.upper()}, against new prompt tokens a request", SWEEP, curves,
        "new prompt tokens", "share of maximum utility", floor=-1.5,
    )  # fmt: skip
    return curves


def _joint_paper_claims(report: PaperReport, curves: dict[str, dict[str, list[Interval]]]) -> Iterator[Claim]:
    """At how many points of the sweep all of the paper's ratios hold at once."""
    hits: dict[int, list[str]] = {new_tokens: [] for new_tokens in SWEEP}
    for name, system, other, paper, short in LITERAL_TARGETS:
        for place, new_tokens in enumerate(SWEEP):
            value = curves[name][system.name][place][0]
            if other is not None:
                below = curves[name][other.name][place][0]
                value = value / below if below > 0.0 else math.nan
            if abs(value - paper) <= WITHIN * paper:
                hits[new_tokens].append(short)
    joint = sum(len(names) == len(LITERAL_TARGETS) for names in hits.values())
    yield paper_claim(
        "calibration-joint", f"Points of the sweep at which all {len(LITERAL_TARGETS)} targets are within 15%", None,
        float(joint), f"of {len(SWEEP)}", CONTEXT,
        "; ".join(f"{tokens}: {', '.join(names) or 'none'}" for tokens, names in hits.items()),
    )  # fmt: skip
