"""The stages of the benchmark on a GPU: each writes its result into the folder, and a later call skips it.

Each stage that starts an engine runs in a process of its own, so that its memory on the accelerator is free afterwards.
"""

import asyncio
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from timely.bench.checkpoints import BenchOutOfTime
from timely.bench.gpu.live_points import (
    gpu_bench_measured_points,
    gpu_bench_point_name,
    gpu_bench_predicted_points,
    point_settings,
)
from timely.bench.gpu.model_folder import MODEL_SIZES, write_gpu_bench_model
from timely.bench.live.runs import LiveBenchRuns
from timely.bench.live.settings import LiveBenchSettings
from timely.core.checkpoint import check_settings_file
from timely.core.errors import InvalidInput, UnknownName
from timely.core.files import core_read_json, core_write_file
from timely.core.progress import Say

SETTINGS_FILE = "gpu.json"

MEMORY_SHARE = 0.6
"""The weights may take so much of the accelerator's memory; the rest is KV cache and activations."""

MODEL_ARGUMENTS = ("--load-format", "dummy", "--max-model-len", "4096")
CPU_ARGUMENTS = (*MODEL_ARGUMENTS, "--enforce-eager", "--block-size", "32", "--max-num-seqs", "64")
GPU_ARGUMENTS = MODEL_ARGUMENTS
"""The sizes of a step and its CUDA graphs are those of ``timely serve``."""

PLAIN_PROMPTS = 480
"""Ordinary requests of a run on a GPU, where those of a CPU would take a second."""
PLAIN_REPETITIONS = 3
PLAIN_ARGUMENTS = ("--gpu-memory-utilization", "0.3", "--kv-cache-memory-bytes", str(2 << 30))
"""Three servers share a GPU, and one that starts must not take its neighbour's memory for its own.
On processors the first is the share of the machine's memory."""

Value = dict[str, Any]
Returned = TypeVar("Returned")


@dataclass(frozen=True, slots=True)
class GpuBenchSettings:
    """What all stages share.

    Attributes:
        size: a name in ``MODEL_SIZES``.
        loads: of WID 2 in the live comparison.
        seconds: of WID 2 at each load.
        rounds: of the calibration; pairs: of the overhead.
        gpu: whether there is an accelerator; without one the defaults are those of processors.
    """

    size: str
    loads: tuple[float, ...]
    seconds: float
    rounds: int
    pairs: int
    gpu: bool

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of vLLM, the same in all stages."""
        return GPU_ARGUMENTS if self.gpu else CPU_ARGUMENTS

    @property
    def prompt(self) -> tuple[int, int]:
        """Tokens of a prompt, and of the part that is cached."""
        return (1300, 1200) if self.gpu else (600, 480)


def default_gpu_settings(
    machine: Mapping[str, Any], size: str | None, loads: tuple[float, ...]
) -> GpuBenchSettings:
    """Settings for a machine: the model of 8 billion weights where it fits, else the tiny one.

    Raises:
        UnknownName: no such size. InvalidInput: the model does not fit.
    """
    gpu = machine["memory_bytes"] > 0
    if size is not None and size not in MODEL_SIZES:
        raise UnknownName("size", size, MODEL_SIZES, where="--size")
    fitting = [
        name
        for name, model in MODEL_SIZES.items()
        if model.weight_bytes <= MEMORY_SHARE * machine["memory_bytes"] or (name == "tiny" and not gpu)
    ]
    model_name = size or ("8b" if "8b" in fitting else "tiny")
    if gpu and model_name not in fitting:
        raise InvalidInput(f"the model {model_name} does not fit into {machine['name']}", where="--size")
    if not gpu and model_name != "tiny":
        raise InvalidInput("without an accelerator only the model tiny is measured", where="--size")
    return GpuBenchSettings(
        model_name, loads or ((1.0, 16.0, 48.0) if gpu else (0.5, 1.0, 2.0)), 20.0,
        rounds=2 if gpu else 1, pairs=9 if gpu else 3, gpu=gpu,
    )  # fmt: skip


def check_gpu_machine() -> Value:
    """Name and memory of the accelerator, and versions; memory 0 without one. It leaves the accelerator untouched."""
    from importlib.metadata import version

    import torch

    gpu = torch.cuda.is_available()
    properties = torch.cuda.get_device_properties(0) if gpu else None
    return {
        "name": properties.name if properties else "no accelerator",
        "memory_bytes": int(properties.total_memory) if properties else 0,
        "processors": os.cpu_count(),
        "torch": torch.__version__,
        "vllm": version("vllm"),
    }


class GpuBench:
    """The stages in a folder.

    Raises:
        InvalidInput: the folder holds stages of other settings, or a load brings no task.
    """

    def __init__(self, folder: Path, settings: GpuBenchSettings, say: Say) -> None:
        self.folder = folder
        self.settings = settings
        self.say = say
        self.failures: dict[str, str] = {}
        """What went wrong in a stage of the last call."""
        points = self._points()
        for load in settings.loads:
            if not points.tasks(gpu_bench_point_name(load)):
                raise InvalidInput(
                    f"no task arrives within {settings.seconds:g} s at load {load:g}", where="--loads"
                )
        folder.mkdir(parents=True, exist_ok=True)
        check_settings_file(
            folder / SETTINGS_FILE, {**asdict(settings), "arguments": list(settings.arguments)}
        )

    @property
    def model(self) -> Path:
        return self.folder / f"made-up-{self.settings.size}"

    @property
    def log(self) -> Path:
        """File of vLLM's messages."""
        return self.folder / "vllm.log"

    @property
    def profile(self) -> Path:
        return self.folder / "profile.yaml"

    def result(self, stage: str) -> Value | None:
        file = self.folder / f"{stage}.json"
        return core_read_json(file) if file.exists() else None

    def results(self) -> dict[str, Value]:
        return {stage: value for stage in STAGES if (value := self.result(stage)) is not None}

    def runs(self) -> LiveBenchRuns:
        """The live comparison's folder."""
        return LiveBenchRuns(self.folder / "live", self._points())

    def _points(self) -> LiveBenchSettings:
        settings = self.settings
        return point_settings(
            settings.loads, settings.seconds, str(self.model), settings.arguments, settings.prompt
        )

    def run(self, budget_s: float, names: Sequence[str] = ()) -> list[str]:
        """Run the stages that are not done, in order; returns those that are left.

        No stage begins that is expected to end after the budget, but the first one always does. A stage that fails
        keeps only those that need it from running.

        Args:
            names: the stages, in this order, each behind those it needs; all in their own order by default.
        """
        begin_s = time.monotonic()
        self.failures.clear()
        todo = [name for name in gpu_bench_stage_order(names or list(STAGES)) if self.result(name) is None]
        left: list[str] = []
        ran = False
        for name in todo:
            left_s = budget_s - (time.monotonic() - begin_s)
            if not set(left).isdisjoint(STAGES[name].needs) or (ran and left_s < STAGES[name].least_s):
                left.append(name)
                continue
            ran = True
            self.say(f"{name} ...")
            stage_begin_s = time.monotonic()
            try:
                value = STAGES[name].run(self, left_s)
                if value is None:
                    left.append(name)
                    continue
                value["wall_s"] = round(time.monotonic() - stage_begin_s, 1)
                text = json.dumps(value, indent=1, allow_nan=False)
            except Exception as error:  # whatever vLLM raises, or a number that JSON does not have
                self.failures[name] = f"{type(error).__name__}: {error}"
                self.say(f"{name} failed: {self.failures[name]}")
                left.append(name)
                continue
            core_write_file(self.folder / f"{name}.json", text + "\n")
        return left


@dataclass(frozen=True, slots=True)
class GpuBenchStage:
    """A part of the benchmark.

    Attributes:
        run: with the seconds left of the budget; None if it stopped before its end.
        expected_s: how long it takes on a GPU, about, seconds.
        least_s: so much must be left of a budget for it to begin, seconds; a part of it for one that can be cut.
        needs: stages that come before it.
    """

    run: Callable[[GpuBench, float], Value | None]
    expected_s: float
    least_s: float
    needs: tuple[str, ...] = ()


def call_in_fresh_gpu_process(function: Callable[[], Returned], *, log: Path | None = None) -> Returned:
    """Call it in a new process, whose memory is free afterwards; ``log`` gets what it prints."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, _print_gpu_bench_into, (log,)) as pool:
        return pool.submit(function).result()


def _print_gpu_bench_into(log: Path | None) -> None:
    """Send the output of this process and of its children to the end of a file."""
    if log is not None:
        with log.open("ab") as file:
            os.dup2(file.fileno(), sys.stdout.fileno())
            os.dup2(file.fileno(), sys.stderr.fileno())


# ---------------------------------------------------------------- the stages


def _write_gpu_bench_stage_model(bench: GpuBench, left_s: float) -> Value:
    from timely.engines.vllm.model import NO_PLANNER, resolve_vllm_model

    size = MODEL_SIZES[bench.settings.size]
    tokenizer = Path(resolve_vllm_model(None, planner=NO_PLANNER, progress=bench.say))
    write_gpu_bench_model(bench.model, size, tokenizer)
    return {"folder": str(bench.model), "weight_bytes": size.weight_bytes}


def _calibrate_gpu_bench(bench: GpuBench, left_s: float) -> Value:
    settings, model = bench.settings, str(bench.model)
    call = partial(
        calibrate_gpu_bench_in_process, model, settings.arguments, settings.rounds, str(bench.profile)
    )
    return {"profile": call_in_fresh_gpu_process(call, log=bench.log)}


def calibrate_gpu_bench_in_process(model: str, arguments: tuple[str, ...], rounds: int, target: str) -> Value:
    """Measure step times and write them as a profile; returns the profile."""
    from timely.engines.step_time.fit import save_step_time_profile
    from timely.engines.vllm.calibrate import calibrate_vllm_profile

    profile = calibrate_vllm_profile(Path(target).stem, model, arguments, rounds)
    save_step_time_profile(Path(target), profile)
    return profile.model_dump(mode="json")


def _predict_gpu_bench(bench: GpuBench, left_s: float) -> Value:
    runs = bench.runs()
    every = [
        (workload, system, 0) for workload in runs.settings.workloads for system in runs.settings.systems
    ]
    if any(runs.path(run).exists() for run in every):
        raise InvalidInput("a prediction must come before the runs it predicts", where=str(runs.folder))
    return {
        "points": gpu_bench_predicted_points(runs, str(bench.profile)),
        "registered_s": round(time.time(), 1),
    }


def _measure_gpu_bench_overhead(bench: GpuBench, left_s: float) -> Value:
    from timely.engines.vllm.overhead import vllm_segmentation_cost

    call = partial(vllm_segmentation_cost, bench.settings.pairs, 1, str(bench.model), "dummy")
    return {"segmented_over_unsegmented": call_in_fresh_gpu_process(call, log=bench.log)}


def _measure_gpu_bench_plain(bench: GpuBench, left_s: float) -> Value | None:
    from timely.bench.plain import QUICK_PROMPTS, VllmBench, benchmark_plain_throughput
    from timely.engines.vllm.arguments import fastest_vllm_dtype, vllm_graph_arguments

    folder = bench.folder / "plain"
    folder.mkdir(exist_ok=True)
    gpu = bench.settings.gpu
    # Stock vLLM takes the model's type, on processors without AVX-512 a slow one.
    types = () if gpu else ("--dtype", fastest_vllm_dtype())
    servers = VllmBench(
        folder, str(bench.model), (*bench.settings.arguments, *PLAIN_ARGUMENTS, *types, *vllm_graph_arguments()),
        "timely", PLAIN_PROMPTS if gpu else QUICK_PROMPTS, keep=gpu,
    )  # fmt: skip
    try:
        return benchmark_plain_throughput(
            servers.run, PLAIN_REPETITIONS if gpu else 1, bench.say, folder / "runs.json", budget_s=left_s
        )
    except BenchOutOfTime:
        return None
    finally:
        servers.close()


def _measure_gpu_bench_live(bench: GpuBench, left_s: float) -> Value | None:
    runs = bench.runs()
    if list(runs.pending(1)):
        call = partial(measure_gpu_bench_live_in_process, bench.folder, bench.settings, left_s)
        if call_in_fresh_gpu_process(call, log=bench.log):
            return None
    return {"points": gpu_bench_measured_points(runs)}


def measure_gpu_bench_live_in_process(folder: Path, settings: GpuBenchSettings, left_s: float) -> int:
    """Measure the runs that are not done, of which only the first begins after the budget; how many are left."""
    from timely.bench.live.engine import LiveBenchVllm

    runs = GpuBench(folder, settings, lambda line: None).runs()
    engine = LiveBenchVllm(runs.folder, runs.settings)
    # The last run to begin takes its own time and that of the answers still to come. The first one always begins.
    budget_s = max(1.0, left_s - 2.0 * settings.seconds)
    say = partial(print, file=sys.stderr, flush=True)
    return asyncio.run(runs.measure(engine, 1, budget_s=budget_s, say=say))


STAGES: dict[str, GpuBenchStage] = {
    "model": GpuBenchStage(_write_gpu_bench_stage_model, 10.0, 10.0),
    "calibrate": GpuBenchStage(_calibrate_gpu_bench, 150.0, 150.0, ("model",)),
    "predict": GpuBenchStage(_predict_gpu_bench, 30.0, 30.0, ("calibrate",)),
    "live": GpuBenchStage(_measure_gpu_bench_live, 350.0, 120.0, ("predict",)),
    "overhead": GpuBenchStage(_measure_gpu_bench_overhead, 60.0, 60.0, ("model",)),
    "plain": GpuBenchStage(_measure_gpu_bench_plain, 330.0, 150.0, ("model",)),
}
"""In order of worth: the prediction is registered before the runs that it predicts."""


def gpu_bench_stage_order(names: Sequence[str]) -> list[str]:
    """These stages in their order, each behind those that it needs.

    Raises:
        UnknownName: there is no such stage.
    """
    order: list[str] = []
    for name in names:
        if name not in STAGES:
            raise UnknownName("stage", name, STAGES, where="--stages")
        for stage in (*gpu_bench_stage_order(STAGES[name].needs), name):
            if stage not in order:
                order.append(stage)
    return order
