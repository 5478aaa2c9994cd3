"""Justitia's evaluation in the simulator, on its LLaMA-7B machine."""

from timely.bench.papers.claims import Claim
from timely.bench.papers.justitia import end_to_end, micro, theorem
from timely.bench.papers.justitia.setting import trained_paper_models
from timely.bench.papers.run_context import PaperEvaluation


def run_paper_evaluation(evaluation: PaperEvaluation) -> list[Claim]:
    """Raises Unsupported without scikit-learn."""
    if evaluation.checkpoints.jobs > 1:
        trained_paper_models()  # before there are processes, each of which would train again
    claims = [*theorem.paper_theorem_1(evaluation)]
    results = end_to_end.paper_completions(evaluation)
    return [
        *claims,
        *end_to_end.paper_efficiency(results, evaluation),
        *end_to_end.paper_fairness(results, evaluation),
        *end_to_end.paper_cost_models(results, evaluation),
        *end_to_end.paper_predictor_claims(results, evaluation),
        *micro.paper_saturation(evaluation),
        *micro.paper_demands(evaluation),
        *micro.paper_starvation(evaluation),
        *micro.paper_prediction(evaluation),
        *micro.justitia_paper_overhead(evaluation),
    ]
