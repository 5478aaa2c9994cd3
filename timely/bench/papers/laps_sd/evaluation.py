"""LAPS-SD's evaluation in the simulator, one request at a time as in the paper."""

from timely.bench.papers.claims import Claim
from timely.bench.papers.laps_sd import figures, sensitivity
from timely.bench.papers.run_context import PaperEvaluation


def run_paper_evaluation(evaluation: PaperEvaluation) -> list[Claim]:
    parts = (
        figures.paper_figure_2, figures.paper_figure_3, figures.paper_figure_5, sensitivity.paper_real_texts,
        sensitivity.paper_settings, figures.paper_figure_7, figures.paper_figure_6,
    )  # fmt: skip
    return [row for part in parts for row in part(evaluation)]
