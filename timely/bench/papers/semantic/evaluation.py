"""Semantic scheduling's evaluation in the simulator, on the machines of its appendix B."""

from timely.bench.papers.claims import NOT_EXERCISED, Claim, paper_claim
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.semantic import figures, tables


def run_paper_evaluation(evaluation: PaperEvaluation) -> list[Claim]:
    return [
        *figures.paper_wrong_predictions(evaluation),
        *figures.paper_headline(evaluation),
        *tables.paper_table_1(evaluation),
        *tables.paper_table_2(evaluation),
        *tables.paper_memory(evaluation),
        *figures.paper_spikes_over_concurrency(evaluation),
        paper_claim(
            "fig3", "Fig. 3 and 5, the real dataset: urgency 0 against FCFS, at most", 167.3, None, "times faster",
            NOT_EXERCISED, "the 1,000 emergency conversations are not public",
        ),
    ]  # fmt: skip
