"""The benchmark on a GPU, without one: stages resume, the model folder is a model, the page has what was measured."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from timely.bench.gpu.live_points import (
    gpu_bench_measured_points,
    gpu_bench_point_name,
    gpu_bench_predicted_points,
    point_settings,
)
from timely.bench.gpu.model_folder import (
    MODEL_SIZES,
    ModelSize,
    gpu_bench_model_configuration,
    write_gpu_bench_model,
)
from timely.bench.gpu.report import gpu_bench_first_action_ratio, gpu_bench_prediction_error, write_gpu_page
from timely.bench.gpu.stages import (
    STAGES,
    GpuBench,
    GpuBenchSettings,
    GpuBenchStage,
    default_gpu_settings,
    gpu_bench_stage_order,
)
from timely.bench.live.runs import LiveBenchRuns
from timely.bench.papers import plots
from timely.bench.plain import MEASURES
from timely.cli.bench.gpu import RUN_S
from timely.cli.main import run_timely_command
from timely.core.errors import InvalidInput, UnknownName
from timely.engines.replay_types import BackendRun, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator

CPU = {"name": "no accelerator", "memory_bytes": 0, "processors": 2, "torch": "1", "vllm": "2"}
GPU = {**CPU, "name": "a big one", "memory_bytes": 80 << 30}
SMALL = ModelSize(8, 1, 2, 1, 4, 16, 32)


def quiet(line: str) -> None:
    pass


def test_the_machine_decides_the_model() -> None:
    assert default_gpu_settings(CPU, None, ()).size == "tiny"
    assert default_gpu_settings(GPU, None, ()).size == "8b"
    assert default_gpu_settings(GPU, "24b", (2.0,)).loads == (2.0,)
    assert not default_gpu_settings(CPU, None, ()).gpu
    with pytest.raises(InvalidInput, match="only the model tiny"):
        default_gpu_settings(CPU, "8b", ())
    with pytest.raises(InvalidInput, match="does not fit"):
        default_gpu_settings({**GPU, "memory_bytes": 24 << 30}, "24b", ())
    with pytest.raises(UnknownName, match="unknown size '70b'"):
        default_gpu_settings(GPU, "70b", ())


def test_the_sizes_are_those_of_the_models() -> None:
    billions = {name: size.weight_bytes / 2e9 for name, size in MODEL_SIZES.items()}
    assert billions["8b"] == pytest.approx(8.03, abs=0.01)
    assert billions["24b"] == pytest.approx(23.6, abs=0.1)
    assert billions["tiny"] < 0.05


def test_a_model_folder_is_a_configuration_and_a_tokenizer(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    for name in ("tokenizer.json", "config.json", "model.safetensors"):
        (tokenizer / name).write_text("{}")
    folder = write_gpu_bench_model(tmp_path / "model", SMALL, tokenizer)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "tokenizer.json"]
    assert json.loads((folder / "config.json").read_text())["hidden_size"] == 8


@pytest.mark.engine  # transformers and torch come with it, and take seconds to import
def test_the_counted_weights_are_those_that_the_model_has(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    configuration = transformers.LlamaConfig(**gpu_bench_model_configuration(SMALL))
    assert 2 * transformers.LlamaForCausalLM(configuration).num_parameters() == SMALL.weight_bytes


# ---------------------------------------------------------------- stages


def settings(**changes: Any) -> GpuBenchSettings:
    return replace(default_gpu_settings(CPU, None, (4.0, 8.0)), seconds=6.0, **changes)


def test_stages_resume_and_respect_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    stopped = {"second": 1}

    def stage(name: str, expected_s: float = 0.0) -> GpuBenchStage:
        def run(bench: GpuBench, left_s: float) -> dict[str, Any] | None:
            ran.append(name)
            if stopped.get(name):
                stopped[name] -= 1
                return None
            return {"name": name}

        return GpuBenchStage(run, expected_s, expected_s)

    stages = {"model": stage("first"), "calibrate": stage("second"), "live": stage("third", 1e6)}
    monkeypatch.setattr("timely.bench.gpu.stages.STAGES", stages)
    assert GpuBench(tmp_path, settings(), quiet).run(100.0) == ["calibrate", "live"]
    assert GpuBench(tmp_path, settings(), quiet).run(100.0) == ["live"]
    bench = GpuBench(tmp_path, settings(), quiet)
    assert bench.run(100.0) == [], "the first stage of a call always begins"
    assert ran == ["first", "second", "second", "third"]
    assert list(bench.results()) == ["model", "calibrate", "live"]
    with pytest.raises(InvalidInput, match="other settings"):
        GpuBench(tmp_path, settings(rounds=9), quiet)


def test_a_stage_that_fails_keeps_only_those_that_need_it_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = False

    def fragile(bench: GpuBench, left_s: float) -> dict[str, Any]:
        if not works:
            raise RuntimeError("out of memory")
        return {}

    def good(bench: GpuBench, left_s: float) -> dict[str, Any]:
        return {}

    stages = {
        "predict": GpuBenchStage(fragile, 0.0, 0.0), "live": GpuBenchStage(good, 0.0, 0.0, ("predict",)),
        "overhead": GpuBenchStage(good, 0.0, 0.0),
    }  # fmt: skip
    monkeypatch.setattr("timely.bench.gpu.stages.STAGES", stages)
    bench = GpuBench(tmp_path, settings(), quiet)
    assert bench.run(100.0) == ["predict", "live"]
    assert bench.failures == {"predict": "RuntimeError: out of memory"}
    assert list(bench.results()) == ["overhead"]
    works = True
    assert (bench.run(100.0), bench.failures) == ([], {})


def test_a_stage_without_a_number_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file could not be read again, and would keep every later call from running."""
    stages = {
        "overhead": GpuBenchStage(lambda bench, left_s: {"median": math.nan}, 0.0, 0.0),
        "plain": GpuBenchStage(lambda bench, left_s: {}, 0.0, 0.0),
    }
    monkeypatch.setattr("timely.bench.gpu.stages.STAGES", stages)
    bench = GpuBench(tmp_path, settings(), quiet)
    assert bench.run(100.0) == ["overhead"]
    assert list(bench.failures) == ["overhead"]
    assert list(bench.results()) == ["plain"]


def test_stages_run_in_the_order_that_is_asked_for() -> None:
    assert gpu_bench_stage_order(["plain", "live"]) == ["model", "plain", "calibrate", "predict", "live"]
    assert gpu_bench_stage_order(list(STAGES)) == list(STAGES)
    with pytest.raises(UnknownName, match="unknown stage 'life'"):
        gpu_bench_stage_order(["life"])


def test_a_long_live_stage_begins_where_a_part_of_it_fits() -> None:
    before_s = sum(STAGES[name].expected_s for name in ("model", "calibrate", "predict"))
    assert STAGES["live"].least_s < RUN_S - before_s <= STAGES["live"].expected_s


def test_ordinary_requests_stop_at_the_budget_and_go_on_in_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []
    now_s = 0.0

    class Servers:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            """As ``VllmBench``."""

        def run(self, server: str, seed: int) -> dict[str, float]:
            nonlocal now_s
            now_s += 100.0
            ran.append((server, seed))
            return dict.fromkeys(MEASURES.values(), 1.0)

        def close(self) -> None:
            """Nothing runs."""

    monkeypatch.setattr("timely.bench.plain.VllmBench", Servers)
    # The real ones import vLLM, for twenty seconds.
    monkeypatch.setattr("timely.engines.vllm.arguments.fastest_vllm_dtype", lambda: "float32")
    monkeypatch.setattr("timely.engines.vllm.arguments.vllm_graph_arguments", lambda: ())
    monkeypatch.setattr("timely.bench.gpu.stages.time.monotonic", lambda: now_s)
    bench = GpuBench(tmp_path, settings(), quiet)
    assert STAGES["plain"].run(bench, 250.0) is None
    assert len(ran) == 2
    assert STAGES["plain"].run(bench, 10.0) is not None
    assert ran == [("stock", 0), ("plugged", 0), ("served", 0)]


@pytest.mark.process
def test_a_call_with_a_short_budget_measures_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.bench.live.engine.LiveBenchVllm", lambda folder, settings: Machine())
    monkeypatch.setattr("timely.bench.gpu.stages.STAGES", {"live": replace(STAGES["live"], needs=())})
    monkeypatch.setattr("timely.bench.gpu.stages.call_in_fresh_gpu_process", lambda work, log: work())
    bench = GpuBench(tmp_path, settings(), quiet)
    pending = [len(list(bench.runs().pending(1)))]
    while bench.run(1.0):
        pending.append(len(list(bench.runs().pending(1))))
        assert pending[-1] < pending[-2], "each call does something"


def test_a_load_without_tasks_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no task arrives within 6 s at load 0.02"):
        GpuBench(tmp_path, replace(settings(), loads=(8.0, 0.02)), quiet)
    assert list(tmp_path.iterdir()) == []


def test_the_prediction_is_registered_before_the_runs(tmp_path: Path) -> None:
    names = list(STAGES)
    assert names.index("predict") < names.index("live")
    bench = GpuBench(tmp_path, settings(), quiet)
    runs = bench.runs()
    runs.path((gpu_bench_point_name(4.0), "timely", 0)).write_text("{}")
    with pytest.raises(InvalidInput, match="before the runs it predicts"):
        STAGES["predict"].run(bench, 1.0)


class Machine:
    """The simulator in the place of the engine."""

    async def run(self, tasks: Sequence[PlannedTask], options: ReplayOptions) -> BackendRun:
        return Simulator(replace(options, profile="unit")).run(tasks)

    async def close(self) -> None:
        """Nothing to close."""


@pytest.mark.process
async def test_points_are_measured_beside_their_prediction_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "can_plot_papers", lambda: False)
    runs = LiveBenchRuns(tmp_path / "live", point_settings((1.0, 2.0), 8.0, "model", ("--flag",), (600, 480)))
    predicted = gpu_bench_predicted_points(runs, "unit")
    assert await runs.measure(Machine(), 1, say=quiet) == 0
    measured = gpu_bench_measured_points(runs)
    assert set(measured) == {"wid2@1", "wid2@2"}
    point = measured["wid2@1"]["timely"]
    assert 0.0 <= point["in time, all"] <= 1.0
    assert point["served"] == 1.0
    # A warm engine has learned its step times, the other has not; both are the same machine.
    assert gpu_bench_prediction_error(measured, predicted) == pytest.approx(0.0, abs=0.1)
    ratio = gpu_bench_first_action_ratio(measured, 1.0)
    assert ratio is not None
    assert ratio > 1.5
    assert gpu_bench_first_action_ratio({}, 1.0) is None
    page = tmp_path / "docs" / "results.md"
    results = {
        "predict": {"points": predicted, "wall_s": 1.0},
        "live": {"points": measured, "wall_s": 2.0},
        "overhead": {
            "segmented_over_unsegmented": {"median": 1.01, "p10": 1.0, "p90": 1.1, "pairs": 3}, "wall_s": 3.0
        },
        "plain": {
            **{name: {"plugged": 0.98, "served": 0.97} for name in MEASURES},
            "medians": {"stock": dict.fromkeys(MEASURES.values(), 100.0)},
            "wall_s": 4.0,
        },
        "calibrate": {"profile": {"fit_error": {"decode_median": 0.01, "run": "one"}}, "wall_s": 5.0},
    }  # fmt: skip
    write_gpu_page(page, CPU, asdict(settings(loads=(1.0, 2.0))), results, ".venv/bin/timely bench gpu")
    text = page.read_text()
    for part in (
        "no accelerator",
        "| 2 | `vllm-stream` |",
        "median 1.010",
        "| throughput | 0.980 | 0.970 | 100.0 tokens/s |",
        "times as long",
    ):
        assert part in text
    assert "![" not in text, "nothing was drawn"


def test_the_page_shows_the_pictures_that_there_are(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    values = {"response mean": 1.0, "response p50": 1.0, "response p90": 1.0, "waiting mean": 1.0}
    points = {"wid2@0.5": dict.fromkeys(("timely", "vllm-stream", "vllm"), values)}  # without an urgent task
    results = {name: {"points": points, "wall_s": 1.0} for name in ("predict", "live")}
    page = tmp_path / "results.md"
    write_gpu_page(page, CPU, asdict(settings(loads=(0.5,))), results, "timely bench gpu")
    shown = re.findall(r"!\[.*\]\((.*)\)", page.read_text())
    assert shown == ["images/gpu-predicted.png"]
    assert (tmp_path / shown[0]).exists()


def test_the_page_names_the_command_that_was_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GpuBench, "run", lambda self, budget_s, names: [])
    (tmp_path / "machine.json").write_text(json.dumps(CPU))
    assert run_timely_command(["bench", "gpu", "--out", str(tmp_path), "--loads", "1"]) == 0
    text = (tmp_path / "results-gpu.md").read_text()
    assert f".venv/bin/timely bench gpu --out {tmp_path} --loads 1\n" in text


@pytest.mark.long
@pytest.mark.engine
@pytest.mark.process
@pytest.mark.timeout(7000)
def test_all_stages_on_processors(tmp_path: Path) -> None:
    """A tiny model, short loads: the command ends in a page, in as many calls as its budget takes.

    A call that measures starts engines, which takes minutes on a busy machine. So the second one has time for all.
    """
    folder = tmp_path / "gpu"
    arguments = ["bench", "gpu", "--out", str(folder), "--loads", "1"]
    assert run_timely_command([*arguments, "--budget", "1"]) == 75
    assert run_timely_command([*arguments, "--budget", "10000"]) == 0
    bench = json.loads((folder / "live.json").read_text())
    assert set(bench["points"]["wid2@1"]) == {"timely", "vllm-stream", "vllm"}
    assert "| throughput |" in (folder / "results-gpu.md").read_text()
