"""The workloads of Justitia and SageSched: seeded, valid as traces, of the sizes and mixes their papers state."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lrtrace.errors import BadInput
from lrtrace.job import TraceJob
from timely.bench.papers import real_inputs
from timely.bench.papers.justitia import workloads as apps
from timely.bench.papers.sagesched import workloads as requests
from timely.bench.papers.timelyllm.real_plans import measure_paper_real_plans
from timely.core.errors import InvalidInput
from timely.disciplines.predictors.app_cost import predictor_kv_token_time
from timely.replay.trace import replay_task_from_job

pytestmark = pytest.mark.paper


def test_the_same_seed_gives_the_same_applications() -> None:
    assert apps.paper_workload(3, applications=20) == apps.paper_workload(3, applications=20)
    assert apps.paper_workload(3, applications=20) != apps.paper_workload(4, applications=20)


def test_jobs_are_valid_and_in_order_and_wait_only_for_their_own_application() -> None:
    tasks = apps.paper_workload(1, applications=60, window_s=100.0)
    of = {task.job: task.hints.app for task in tasks}
    counts = Counter(of.values())
    before = 0.0
    for task in tasks:
        assert task.arrival_s >= before
        before = task.arrival_s
        assert all(of[other] == task.hints.app and other < task.job for other in task.after)  # type: ignore[operator]
        assert task.hints.app_requests == counts[task.hints.app]
        assert task.max_tokens is not None
        assert task.max_tokens >= task.output_tokens
        assert task.hints.expected_tokens is not None
    assert len(counts) == 60


def test_the_mix_is_the_paper_s() -> None:
    rng = np.random.default_rng(0)
    drawn = Counter(apps.draw_paper_application_kind(rng) for _ in range(20_000))
    assert sum(drawn[kind] for kind in apps.SMALL) / 20_000 == pytest.approx(0.72, abs=0.01)
    assert sum(drawn[kind] for kind in apps.MEDIUM) / 20_000 == pytest.approx(0.26, abs=0.01)
    assert sum(drawn[kind] for kind in apps.LARGE) / 20_000 == pytest.approx(0.02, abs=0.005)
    assert set(drawn) == set(apps.KINDS)


def test_sizes_are_small_medium_and_large() -> None:
    cost = {kind: np.mean([s.cost for s in apps.paper_samples(kind, 60)]) for kind in apps.KINDS}
    assert max(cost[k] for k in apps.SMALL) * 3 < min(cost[k] for k in apps.MEDIUM)
    assert max(cost[k] for k in apps.MEDIUM) * 3 < min(cost[k] for k in apps.LARGE)


def test_what_the_paper_shows_of_its_classes() -> None:
    rng = np.random.default_rng(1)
    fact = [apps.paper_application("FV", rng) for _ in range(40)]
    queries = [r for app in fact for r in app.requests[1::2]]
    assert all(360 <= r.prompt_tokens <= 380 for r in queries), "Fig. 4b"
    assert 10 <= np.median([r.output_tokens for r in queries]) <= 40
    merging = [apps.paper_application("DM", rng).cost() / (459 * 16) for _ in range(200)]
    assert 800 < np.median(merging) < 3000, "steps that one DM fills the cache for: some 2,100 in Fig. 3"


def test_an_application_s_cost_is_that_of_its_requests() -> None:
    app = apps.paper_application("SC", np.random.default_rng(2))
    assert app.cost() == pytest.approx(
        sum(predictor_kv_token_time(r.prompt_tokens, r.output_tokens) for r in app.requests)
    )


def test_the_starvation_trace_is_one_elephant_and_mice() -> None:
    tasks = apps.paper_starvation_workload(1, 30, parts=6)
    kinds = Counter((app or "").split("/")[0] for app in {task.hints.app for task in tasks})
    assert kinds["MRS"] == 1
    assert sum(kinds[k] for k in ("KBQAV", "CC", "ALFWI")) == 30
    assert [task.arrival_s for task in tasks if task.hints.app == "MRS/0"] == [0.0] * 7


def test_arrivals_may_come_from_a_production_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(f'{{"timestamp": {1000 * n}, "input_length": 5}}\n' for n in (0, 3, 3, 9, 12)))
    assert real_inputs.paper_trace_arrivals(path, 4, 90.0) == [0.0, 30.0, 30.0, 90.0]
    tasks = apps.paper_workload(0, arrival_s=[5.0, 1.0])
    assert sorted({task.arrival_s for task in tasks}) == [1.0, 5.0]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "has 0 arrivals"),
        ("{}\n" * 9, ":1: needs numbers as timestamp"),
        ("nonsense\n", ":1"),
        ('{"timestamp": NaN}\n', ":1: not valid JSON: NaN"),
        (3 * ('{"timestamp": 1' + 400 * "0" + "}\n"), ":1: needs numbers as timestamp"),
        (None, "cannot read it"),
    ],
)
def test_a_trace_that_is_none_is_refused(tmp_path: Path, text: str | None, match: str) -> None:
    path = tmp_path / "trace.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises((InvalidInput, BadInput), match=match):
        real_inputs.paper_trace_arrivals(path, 3, 60.0)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidInput, match="known: EV"):
        apps.paper_application("chat", np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="known: sharegpt"):
        requests.PaperPromptWorld(0, ["wiki"])


# --------------------------------------------------------------------------- SageSched


def test_the_same_world_and_seed_give_the_same_requests() -> None:
    one, _ = requests.paper_workload(requests.PaperPromptWorld(1), 5, 40, 8.0)
    two, _ = requests.paper_workload(requests.PaperPromptWorld(1), 5, 40, 8.0)
    other, _ = requests.paper_workload(requests.PaperPromptWorld(2), 5, 40, 8.0)
    assert one == two != other


def test_the_rate_and_the_datasets_are_as_asked() -> None:
    tasks, drawn = requests.paper_workload(requests.PaperPromptWorld(1), 5, 2000, 8.0)
    assert tasks[-1].arrival_s == pytest.approx(2000 / 8.0, rel=0.1)
    prompts = {
        name: np.mean([d.prompt_tokens for d in drawn if d.family.dataset == name])
        for name in requests.DATASETS
    }
    outputs = {
        name: np.mean([d.output_tokens for d in drawn if d.family.dataset == name])
        for name in requests.DATASETS
    }
    assert prompts["alpaca"] > 4 * prompts["sharegpt"] > prompts["write"]
    assert outputs["write"] > outputs["sharegpt"]


def test_one_prompt_has_many_lengths_and_similar_prompts_share_them() -> None:
    """Fig. 1a and 4: a family's own distribution is closer to itself than to that of all others."""
    rng = np.random.default_rng(3)
    drawn = requests.PaperPromptWorld(0).draw(1500, rng)
    everything = np.log([d.output_tokens for d in drawn])
    own = [np.log(d.family.lengths(200, rng)).std() for d in drawn[:60]]
    assert 0.2 < np.median(own) < 0.8 * everything.std()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("app_requests", 0), ("app_requests", 10_001), ("app_requests", "many"), ("app_requests", 2.5),
        ("app_requests", True), ("expected_tokens", -1), ("expected_tokens", "few"), ("max_tokens", 0),
        ("segment_tokens", "ten"), ("segment_tokens", 0), ("priority", "high"), ("priority", 10**400),
        ("after", 5), ("after", "abc"), ("after", ["abc"]), ("after_s", -1.0), ("after_s", "soon"),
    ],
)  # fmt: skip
def test_a_trace_whose_own_fields_make_no_sense_is_told_by_job_and_field(field: str, value: object) -> None:
    fields = {
        "job": 7, "arrival_s": 0.0, "agent": "a", "robot": "", "skill_set": "", "task": "x", "prompt_tokens": 5,
        "plan": [{"text": "x", "tokens": 3, "execution_s": 0.0}], field: value,
    }  # fmt: skip
    with pytest.raises(InvalidInput, match=rf"job 7: {field} must be"):
        replay_task_from_job(TraceJob.from_dict(fields))


@pytest.mark.parametrize("value", ["1", -1.0, True, 10**400])
def test_an_estimate_that_is_no_time_is_told_by_its_job(value: object) -> None:
    plan = [{"text": "x", "tokens": 3, "execution_s": 0.0, "estimate_s": value}]
    fields = {"job": 7, "arrival_s": 0.0, "prompt_tokens": 5, "plan": plan}
    with pytest.raises(InvalidInput, match="job 7: estimate_s must be"):
        replay_task_from_job(TraceJob.from_dict(fields))


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("t.csv", "ContextTokens\n1\n", "t.csv:1: column 'GeneratedTokens' is missing"),
        ("t.csv", "ContextTokens,GeneratedTokens\n", "t.csv: has no rows"),
        ("t.csv", "ContextTokens,GeneratedTokens\n1,x\n", "t.csv:2: needs numbers as ContextTokens and Gen"),
        ("t.csv", "ContextTokens,GeneratedTokens\n1\n", "t.csv:2: expected 2 fields"),
        ("t.jsonl", '{"input_length": 1}\n', "t.jsonl:1: needs numbers as input_length and output_length"),
        ("t.jsonl", "x\n", "t.jsonl:1: not valid JSON"),
    ],
)  # fmt: skip
def test_a_broken_public_trace_is_named(tmp_path: Path, name: str, text: str, match: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises((InvalidInput, BadInput), match=match):
        real_inputs.paper_token_counts(path)


def test_files_without_what_is_read_from_them_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("INPUT\tOUTPUT\nBring it.\tno\n")
    with pytest.raises(InvalidInput, match="has no plan"):
        real_inputs.paper_robot_plans(path)
    with pytest.raises(BadInput, match="column 'dialogue' is missing"):
        real_inputs.paper_dialogues(path)
    with pytest.raises(BadInput, match="column 'kv_decode' is missing"):
        real_inputs.paper_decode_attention(path)


def test_robot_plans_are_the_steps_of_each_line(tmp_path: Path) -> None:
    file = tmp_path / "plans.tsv"
    file.write_text(
        "INPUT\tOUTPUT\nBring it.\t1. go to the table, 2. pick up the cup, 3. done.\nNothing?\t1. done.\n"
    )
    assert real_inputs.paper_robot_plans(file) == (("go to the table", "pick up the cup"),)
    utility, waiting_s = measure_paper_real_plans(str(file), "vLLM", 42, seed=1)
    assert utility <= 1.0
    assert waiting_s > 0.0
