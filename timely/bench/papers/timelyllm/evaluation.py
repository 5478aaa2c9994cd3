"""TimelyLLM's section 7 in the simulator: each figure and table with the paper's number, ours, and a verdict.

The machine is an RTX 4090 with an 8B Llama as measured (profile ``rtx4090-llama3-8b``).
A prompt has 1,200 tokens that the server stores beforehand, and new ones whose number is calibrated (``calibration``).
``pud`` is the paper's algorithm, ``timely`` ours.
"""

from timely.bench.papers import plots
from timely.bench.papers.claims import Claim
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.timelyllm import calibration, drones, other_robots, ours, real_plans
from timely.bench.papers.timelyllm.report import PaperReport


def run_paper_evaluation(evaluation: PaperEvaluation) -> list[Claim]:
    """All of section 7; plots, ``numbers.csv`` and ``comparison.md`` go into ``evaluation.out``."""
    report = PaperReport(evaluation)
    claims = [*other_robots.paper_table_1(report)]
    evaluation.say("calibration ...")
    claims += calibration.calibrate_timelyllm_paper(report)
    for label, new_tokens in report.calibrations.items():
        for figure in (
            drones.paper_figure_5, drones.paper_figure_6, drones.paper_figure_7, drones.paper_figure_8,
            other_robots.paper_figure_9, real_plans.paper_real_plans,
        ):  # fmt: skip
            evaluation.say(f"{figure.__name__.replace('_', ' ')}, {new_tokens} new tokens ...")
            claims += figure(report, label, new_tokens)
    for part in (
        other_robots.paper_figure_10, other_robots.paper_tables_4_and_5, ours.compare_paper_systems,
        ours.paper_ablation, ours.paper_bounds,
    ):  # fmt: skip
        evaluation.say(f"{part.__name__.replace('_', ' ')} ...")
        claims += part(report)
    report.save_rows()
    if not plots.can_plot_papers():
        evaluation.say("matplotlib is not installed: numbers, no plots (install timely-serving[report])")
    return claims
