"""The comparison with a measured run, on a run the simulator itself made: no error; on a slower one: that error."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lrtrace.errors import BadInput
from timely.bench.accuracy import accuracy_text, compare_accuracy, read_bench_measured_run
from timely.core.errors import InvalidInput
from timely.engines.replay_types import PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import load_step_profile

META = {
    "engine_kwargs": {"max_num_seqs": 32, "max_num_batched_tokens": 1024},
    "kv_cache": {"num_gpu_blocks": 600, "block_size": 16},
}


def measured_run(folder: Path, stretch: float = 1.0) -> None:
    """Forty requests under memory pressure, as vLLM (here: the simulator) served them."""
    rng = np.random.default_rng(5)
    tasks = [
        PlannedTask(
            job=k,
            arrival_s=0.05 * k,
            plan=(PlannedSegment("", int(rng.integers(20, 120)), 0.0),),
            prompt_tokens=int(rng.integers(50, 900)),
        )
        for k in range(40)
    ]
    options = ReplayOptions(
        discipline="fcfs", mode="stream", kv_blocks=600, max_batch=32, max_resident=32, token_budget=1024
    )
    records = Simulator(options, load_step_profile("rtx4090-llama3-8b")).run(tasks).records
    lines = [
        json.dumps(
            {
                "input_toks": r.task.prompt_tokens, "output_toks": r.output_tokens, "queued_ts": 1000.0 + r.arrived_s,
                "first_token_ts": 1000.0 + r.arrived_s + stretch * (r.first_token_s - r.arrived_s),
                "last_token_ts": 1000.0 + r.arrived_s + stretch * (r.last_token_s - r.arrived_s),
            }
        )
        for r in records
    ]  # fmt: skip
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "meta.json").write_text(json.dumps(META))


def test_its_own_run_is_met_exactly(tmp_path: Path) -> None:
    measured_run(tmp_path)
    result = compare_accuracy(tmp_path, "rtx4090-llama3-8b")
    assert result["requests"] == 40
    assert result["worst_error"] < 1e-9
    assert "worst error 0.00%" in accuracy_text(result)


def test_a_slower_machine_shows(tmp_path: Path) -> None:
    measured_run(tmp_path, stretch=1.25)
    result = compare_accuracy(tmp_path, "rtx4090-llama3-8b")
    assert result["worst_error"] == pytest.approx(0.2, abs=1e-6)


def test_broken_measurements_say_where(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"requests\.jsonl"):
        read_bench_measured_run(tmp_path)
    measured_run(tmp_path)
    path = tmp_path / "requests.jsonl"
    lines = path.read_text().splitlines()
    for broken, said in (
        ('{"input_toks": 3}', "output_toks is missing"),
        ("nonsense", "not valid JSON"),
        (lines[0].replace('"output_toks"', '"output_toks": 1, "x"'), "two tokens"),
    ):
        path.write_text("\n".join([lines[0], broken]) + "\n")
        with pytest.raises((InvalidInput, BadInput), match=said) as caught:
            read_bench_measured_run(tmp_path)
        assert f"{path}:2" in str(caught.value)
