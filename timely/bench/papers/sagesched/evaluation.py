"""SageSched's evaluation in the simulator, with its own models and GPUs."""

from timely.bench.papers.claims import Claim
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.sagesched import ablation, end_to_end, overhead, real_texts, resources


def run_paper_evaluation(evaluation: PaperEvaluation) -> list[Claim]:
    parts = (
        end_to_end.paper_tuning, end_to_end.paper_over_load, end_to_end.paper_by_dataset, real_texts.paper_real_texts,
        end_to_end.paper_knowledge, ablation.paper_uncertainty, ablation.paper_prompt_similarity,
        ablation.paper_ablations, ablation.paper_sensitivity, resources.paper_figure_1b,
        resources.paper_figure_5, overhead.sagesched_paper_overhead,
    )  # fmt: skip
    return [row for part in parts for row in part(evaluation)]
