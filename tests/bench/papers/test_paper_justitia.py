"""The reproduction of Justitia, small: its oracles, its fluid schedule and Theorem 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from optional_packages import require_package

from timely.bench.papers import real_inputs
from timely.bench.papers.justitia import end_to_end, evaluation, micro, theorem, workloads
from timely.bench.papers.justitia.setting import MACHINE, ExactPaperCosts, NoisyPaperCosts
from timely.bench.papers.run_context import PaperEvaluation
from timely.core.hints import RequestHints
from timely.core.job import JobSpec
from timely.disciplines.basic import Fcfs
from timely.disciplines.justitia.constants import STEP_S
from timely.engines.replay_types import PlannedSegment, PlannedTask

require_package("sklearn")

pytestmark = pytest.mark.paper


def test_the_blurred_oracle_errs_as_much_as_asked() -> None:
    trace = workloads.paper_workload(1, applications=40, window_s=10.0)
    exact = ExactPaperCosts(trace)
    blurred = NoisyPaperCosts(trace, 4.52, np.random.default_rng(0))
    spec = JobSpec("x", 0.0, RequestHints(app=trace[0].hints.app))
    truth = exact.predict("", spec)
    errors = [abs(blurred.predict("", spec) / truth - 1.0) for _ in range(20_000)]
    assert np.mean(errors) == pytest.approx(4.52, rel=0.2)


def test_the_average_error_of_table_2_counts_each_class_by_its_share_of_the_mix() -> None:
    assert sum(workloads.SHARES.values()) == pytest.approx(1.0)
    errors = dict.fromkeys(workloads.KINDS, 0.1) | {"MRS": 2.1}
    assert micro.paper_average_error(errors) == pytest.approx(0.1 + 0.01 * 2.0)


def test_fair_ratios_compare_the_same_application() -> None:
    assert end_to_end.paper_fair_ratios([{"a": 2.0, "b": 3.0}], [{"b": 6.0, "a": 1.0}]) == [2.0, 0.5]


def test_two_applications_in_turn_hold_the_cache_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fig. 3 without a cost model: what is watched is what the table says, and it never is more than there is."""
    monkeypatch.setattr(micro, "make_paper_discipline", lambda name: Fcfs())
    blocks = micro._paper_app_blocks("fcfs", 1)
    assert set(blocks) == {"steps", "DM/0", "DM/1"}
    assert len(blocks["steps"]) == micro.SAMPLES
    assert blocks["steps"] == sorted(blocks["steps"])
    held = [a + b for a, b in zip(blocks["DM/0"], blocks["DM/1"], strict=True)]
    assert 200 < max(held) <= 459
    # First come, first served: when the first has almost ended the second has all of it.
    assert blocks["DM/0"][-1] <= blocks["DM/1"][-1]


def test_the_fluid_schedule_by_hand() -> None:
    """Two applications of one request each, the first with twice the cost; both share the capacity equally."""
    rate = MACHINE.kv.blocks * MACHINE.kv.block_tokens / STEP_S
    tasks = [
        PlannedTask(app, 0.0, (PlannedSegment("", 100, 0.0),), prompt, hints=RequestHints(app=app))
        for app, prompt in (("long", 950), ("short", 450))
    ]
    # Costs p d + d^2 / 2: 100,000 and 50,000 token-steps.
    ends = theorem.paper_fluid_completion_s(tasks)
    assert ends["short"] == pytest.approx(100_000 / rate)
    assert ends["long"] == pytest.approx(150_000 / rate)


@pytest.mark.parametrize(
    ("discipline", "variant", "seed"),
    [("justitia", "plain", 1), ("justitia", "plain", 2), ("timely", "plain", 1), ("timely", "chains", 2)],
)
def test_theorem_1_in_kv_units_with_growing_caches_and_known_costs(
    discipline: str, variant: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theorem, "APPLICATIONS", 60)
    delay_s, bound_s, token_time_s, within = theorem.measure_paper_theorem(variant, seed, discipline)
    assert delay_s <= bound_s <= token_time_s
    assert within == 1.0


def test_arrivals_are_a_stretch_of_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(f'{{"timestamp": {1000 * number}}}\n' for number in range(10)))
    assert real_inputs.paper_trace_arrivals(path, 3, 10.0, skip=4) == [0.0, 5.0, 10.0]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_evaluation_runs_and_beats_parrot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra 'report'")
    monkeypatch.setattr(end_to_end, "APPLICATIONS", 60)
    monkeypatch.setattr(workloads, "WINDOWS_S", {"1x": 216.0, "2x": 108.0, "3x": 72.0})
    monkeypatch.setattr(theorem, "APPLICATIONS", 40)
    monkeypatch.setattr(micro, "MICE", (40, 80, 120))
    monkeypatch.setattr(micro, "OVERHEAD_S", 30.0)
    rows = {row["id"]: row for row in evaluation.run_paper_evaluation(PaperEvaluation([1], tmp_path))}
    assert rows["fig8.average.parrot"]["ours"] > 0.0
    assert "Poisson" in rows["fig8.average.vtc"]["note"], "no trace at hand"
    assert rows["fig9"]["verdict"] == "not exercised"
    assert rows["table3.overhead"]["verdict"] == "met"
