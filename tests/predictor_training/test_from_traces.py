"""From a trace to a predictor file to a discipline that uses it, through the library and the command line."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from timely.bench.papers.justitia.workloads import paper_workload
from timely.cli.main import run_timely_command
from timely.core.errors import InvalidInput
from timely.disciplines import registry
from timely.disciplines.justitia.discipline import Justitia
from timely.disciplines.predictors.app_cost import TrainedAppCosts, predictor_kv_token_time
from timely.disciplines.predictors.history import HistoryPredictor
from timely.disciplines.sagesched.discipline import SageSched
from timely.predictor_training.from_traces import (
    predictor_history_from_traces,
    predictor_samples_from_traces,
    train_predictor_costs,
)

needs_sklearn = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs the extra 'predict'")

TASKS = paper_workload(1, applications=60, window_s=60.0)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "apps.lrtrace.jsonl"
    header = {"lrtrace": 1, "name": "apps", "seed": 1, "network_s": 0.0}
    jobs = [
        {
            "job": task.job, "arrival_s": task.arrival_s, "app": task.hints.app, "task": task.task,
            "prompt_tokens": task.prompt_tokens, "plan": [{"text": "", "tokens": task.output_tokens}],
        }
        for task in TASKS
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *jobs]))
    return path


def test_an_application_is_one_sample(trace: Path) -> None:
    samples = predictor_samples_from_traces([trace], "kv")
    assert sum(map(len, samples.values())) == 60
    total = sum(predictor_kv_token_time(task.prompt_tokens, task.output_tokens) for task in TASKS)
    assert sum(s.cost for group in samples.values() for s in group) == pytest.approx(total)
    twice = predictor_samples_from_traces([trace, trace], "kv")
    assert sum(map(len, twice.values())) == 120, "the same name in another trace is another instance"


@pytest.mark.process
@needs_sklearn
def test_costs_from_a_trace_serve_justitia(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "costs.npz"
    report, too_few = train_predictor_costs([trace], target)
    assert {row.kind for row in report} & {"EV", "FV", "CC", "ALFWI", "KBQAV", "PE", "SC"}
    assert "MRS" in too_few, "one or two of them are not enough"
    made = registry.create_discipline(f"justitia={target}")
    assert isinstance(made, Justitia)
    assert isinstance(made.costs, TrainedAppCosts)
    assert set(made.costs.models) == {row.kind for row in report}
    registry.load_discipline(f"srjf={target}")
    with pytest.raises(InvalidInput, match="not 'weighted'"):
        registry.load_discipline(f"justitia-c={target}")


def test_a_history_from_a_trace_serves_sagesched(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "history.npz"
    kept = predictor_history_from_traces([trace], target)
    for name in ("sagesched", "sagesched-mean", "gittins-static", "ssjf", "ltr", "trail", "vllm-sjf"):
        made = registry.create_discipline(f"{name}={target}")
        predictor = made.predictor  # type: ignore[attr-defined]
        assert isinstance(predictor, HistoryPredictor)
        assert len(predictor) == kept
    assert isinstance(made, registry.load_discipline("vllm-sjf"))
    assert isinstance(registry.create_discipline(f"sagesched={target}"), SageSched)


@pytest.mark.parametrize("name", ["fcfs", "weighted-tardiness", "parrot", "vtc", "fastserve"])
def test_who_predicts_nothing_takes_no_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="takes no predictor file"):
        registry.load_discipline(f"{name}={tmp_path / 'x.npz'}")


@pytest.mark.parametrize(
    "name", ["justitia", "justitia-c", "srjf", "sagesched", "ssjf", "ltr", "trail", "vllm-sjf"]
)
def test_a_file_that_is_none_is_told_at_start(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with pytest.raises(InvalidInput, match=r"x\.npz"):
        registry.load_discipline(f"{name}={path}")
    path.write_bytes(b"\x80\x04N.")
    with pytest.raises(InvalidInput, match=r"x\.npz"):
        registry.load_discipline(f"{name}={path}")


@pytest.mark.process
@needs_sklearn
def test_the_command_line(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs, history = tmp_path / "costs.npz", tmp_path / "history.npz"
    result = tmp_path / "told.json"
    assert (
        run_timely_command(["predictor", "costs", str(trace), "-o", str(costs), "--json", str(result)]) == 0
    )
    assert json.loads(result.read_text())["cost"] == "kv"
    assert run_timely_command(["predictor", "history", str(trace), "-o", str(history)]) == 0
    for name in (f"justitia={costs}", f"sagesched={history}"):
        assert (
            run_timely_command(
                ["replay", str(trace), "--discipline", name, "--mode", "whole", "--no-journal"]
            )
            == 0
        )
    capsys.readouterr()
    for arguments, complaint in (
        (["predictor", "costs", str(tmp_path / "none"), "-o", str(costs)], "none"),
        (["predictor", "costs", str(trace), "-o", str(costs), "--cost", "money"], "unknown cost 'money'"),
        (["predictor", "history", str(trace), "-o", str(tmp_path / "no" / "x")], "there is no folder"),
        (["predictor", "history", str(trace), "-o", str(history), "--embedder", "bert"], "hash, wordllama"),
        (["replay", str(trace), "--discipline", f"sagesched={costs}"], "not a timely-length-history file"),
    ):
        assert run_timely_command(arguments) == 2
        said = capsys.readouterr().err
        assert complaint in said.replace("\n", " ")
