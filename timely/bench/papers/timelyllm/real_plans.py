"""Figure 9 with plans that people wrote for a robot: those of SayCan in place of desk cleaning's."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from timely.bench.papers.claims import NOT_EXERCISED, Claim, PaperRule, paper_claim
from timely.bench.papers.real_inputs import ROBOT_PLANS, paper_robot_plans
from timely.bench.papers.seed_statistics import paper_interval, paper_ratio_of_means
from timely.bench.papers.timelyllm.other_robots import DESK
from timely.bench.papers.timelyllm.report import PaperReport
from timely.bench.papers.timelyllm.runs import (
    BY_NAME,
    PUD,
    VLLM,
    PaperOutcome,
    paper_workload,
    simulate_paper_run,
)
from timely.engines.replay_types import PlannedSegment, PlannedTask

CHARS_PER_TOKEN = 4.0


def paper_real_plans(report: PaperReport, label: str, new_tokens: int) -> Iterator[Claim]:
    """The claims of Figure 9 on desk cleaning, with SayCan's plans."""
    where = f"SayCan's plans in place of desk cleaning's; {new_tokens} new tokens"
    path = report.evaluation.input(ROBOT_PLANS)
    if path is None:
        yield paper_claim(
            f"fig9-saycan-{label}", f"Fig. 9: waiting saved, {where}", 0.84, None, "share", NOT_EXERCISED
        )
        return
    vllm, pud = (
        report.evaluation.each("real plans", measure_paper_real_plans, str(path), system.name, new_tokens)
        for system in (VLLM, PUD)
    )
    note = "execution times are desk cleaning's, tokens are characters over four"
    yield paper_claim(
        f"fig9-saycan-utility-{label}", f"Fig. 9: utility over vLLM's, {where}", 1.97,
        paper_ratio_of_means([run[0] for run in pud], [run[0] for run in vllm]), "ratio",
        PaperRule.near(1.97, neutral=1.0), f"of vLLM's {paper_interval([run[0] for run in vllm])[0]:.3f}; {note}",
    )  # fmt: skip
    ratio = paper_ratio_of_means([run[1] for run in pud], [run[1] for run in vllm])
    yield paper_claim(
        f"fig9-saycan-waiting-{label}", f"Fig. 9: waiting saved, {where}", 0.84,
        (1.0 - ratio[0], 1.0 - ratio[2], 1.0 - ratio[1]), "share", PaperRule.near(0.84, neutral=0.0), note,
    )  # fmt: skip


def measure_paper_real_plans(path: str, system: str, new_tokens: int, seed: int) -> list[float]:
    """Mean utility and waiting (seconds) of WID 3's desk cleaning when its plans are those of the file."""
    tasks, ids = paper_workload("wid3", seed, new_tokens)
    plans = paper_robot_plans(Path(path))
    rng = np.random.default_rng([seed, 9])
    desk_tasks = [
        _paper_task_with_plan(task, plans[int(rng.integers(len(plans)))]) if number == DESK else task
        for task, number in zip(tasks, ids, strict=True)
    ]
    run = simulate_paper_run(BY_NAME[system], desk_tasks)
    utility, _, waiting_s = PaperOutcome.of(run.records, ids, run.end_s).types[DESK]
    return [utility, waiting_s]


def _paper_task_with_plan(task: PlannedTask, steps: tuple[str, ...]) -> PlannedTask:
    """The task with a segment a step; each executes as long as one of its own segments does on average."""
    execution_s = float(np.mean([segment.execution_s for segment in task.plan]))
    plan = [PlannedSegment(step, max(1, round(len(step) / CHARS_PER_TOKEN)), execution_s) for step in steps]
    return replace(task, plan=tuple(plan))
