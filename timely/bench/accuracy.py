"""The simulator against a measured run of vLLM: latencies of the same requests and the simulator's error.

The measurement is a folder. ``requests.jsonl`` has one request a line, with times in seconds on one clock:
``input_toks``, ``output_toks``, ``queued_ts``, ``first_token_ts``, ``last_token_ts``.
``meta.json`` is optional and has the engine's limits: ``engine_kwargs.max_num_seqs``,
``engine_kwargs.max_num_batched_tokens``, ``kv_cache.num_gpu_blocks``, ``kv_cache.block_size``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrtrace.jsonl import read_jsonl
from timely.core.errors import InvalidInput
from timely.engines.replay_types import JobRecord, PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import StepTimeProfile, load_step_profile

STATISTICS = ("mean", "p50", "p90")
FIELDS = ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")


@dataclass(frozen=True, slots=True)
class MeasuredRequest:
    """One request of the measured run: token counts, and times in seconds from the first request's."""

    prompt_tokens: int
    output_tokens: int
    queued_s: float
    first_token_s: float
    last_token_s: float


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits of the measured engine; None where the profile's hold."""

    max_batch: int | None = None
    token_budget: int | None = None
    kv_blocks: int | None = None
    block_tokens: int | None = None


def read_bench_measured_run(folder: Path) -> tuple[list[MeasuredRequest], EngineLimits]:
    """A measured run.

    Raises:
        InvalidInput: a file is missing or a line is broken; names file, line and field.
    """
    path = folder / "requests.jsonl"
    requests = [_parse_measured_request(raw, f"{path}:{number}") for number, raw in read_jsonl(path)]
    if not requests:
        raise InvalidInput("holds no requests", where=str(path))
    requests.sort(key=lambda request: request.queued_s)
    origin = requests[0].queued_s
    times = ("queued_s", "first_token_s", "last_token_s")
    from_origin = [replace(r, **{name: getattr(r, name) - origin for name in times}) for r in requests]
    return from_origin, _read_measured_engine_limits(folder / "meta.json")


def _parse_measured_request(raw: Mapping[str, Any], where: str) -> MeasuredRequest:
    try:
        prompt, output, queued_s, first_s, last_s = (float(raw[name]) for name in FIELDS)
    except KeyError as error:
        raise InvalidInput(f"{error.args[0]} is missing", where=where) from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"not a request: {error}", where=where) from error
    if prompt < 1 or output < 2 or not queued_s <= first_s <= last_s:
        raise InvalidInput("needs a prompt, two tokens of output, and times in order", where=where)
    return MeasuredRequest(int(prompt), int(output), queued_s, first_s, last_s)


def _read_measured_engine_limits(path: Path) -> EngineLimits:
    if not path.exists():
        return EngineLimits()
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        arguments, cache = meta.get("engine_kwargs", {}), meta.get("kv_cache", {})
        return EngineLimits(
            arguments.get("max_num_seqs"),
            arguments.get("max_num_batched_tokens"),
            cache.get("num_gpu_blocks"),
            cache.get("block_size"),
        )
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidInput(f"cannot use it: {error}", where=str(path)) from error


def simulate_bench_measured_run(
    requests: list[MeasuredRequest], limits: EngineLimits, profile: StepTimeProfile, discipline: str = "fcfs"
) -> list[JobRecord]:
    """Serve the same requests on the simulator as vLLM does: first come, first served, and never parked."""
    if limits.block_tokens is not None:
        kv = {"blocks": limits.kv_blocks or profile.kv.blocks, "block_tokens": limits.block_tokens}
        profile = profile.model_copy(update={"kv": profile.kv.model_copy(update=kv)})
    options = ReplayOptions(
        discipline=discipline, mode="stream", max_batch=limits.max_batch, max_resident=limits.max_batch,
        token_budget=limits.token_budget, kv_blocks=limits.kv_blocks, eviction="recompute", journal=False,
    )  # fmt: skip
    tasks = [
        PlannedTask(
            job=number,
            arrival_s=request.queued_s,
            plan=(PlannedSegment("", request.output_tokens, 0.0),),
            prompt_tokens=request.prompt_tokens,
        )
        for number, request in enumerate(requests)
    ]
    return Simulator(options, profile).run(tasks).records


def compare_accuracy(folder: Path, profile_name: str, discipline: str = "fcfs") -> dict[str, Any]:
    """Measured and simulated time to first token, time per output token and latency, and the simulator's error.

    Returns ``{"requests", "profile", "metrics": {name: {statistic: {"measured", "simulated", "error"}}},
    "worst_error"}``; times in seconds, errors as fractions.

    Raises:
        InvalidInput: see ``read_run``. UnknownName: no such profile.
    """
    requests, limits = read_bench_measured_run(folder)
    records = simulate_bench_measured_run(requests, limits, load_step_profile(profile_name), discipline)
    refusals = sum(record.outcome != "complete" for record in records)
    if refusals:
        raise InvalidInput(f"{refusals} requests do not fit into the profile's KV cache", where=profile_name)
    measured_s = np.array([(r.queued_s, r.first_token_s, r.last_token_s) for r in requests])
    simulated_s = np.array([(s.arrived_s, s.first_token_s, s.last_token_s) for s in records])
    begin, first, last = np.stack((measured_s, simulated_s), axis=-1).swapaxes(
        0, 1
    )  # each of shape (requests, 2)
    later_tokens = np.array([[request.output_tokens - 1] for request in requests])
    metrics = {
        "time_to_first_token_s": _accuracy_statistics(first - begin),
        "time_per_output_token_s": _accuracy_statistics((last - first) / later_tokens),
        "latency_s": _accuracy_statistics(last - begin),
    }
    worst = max(abs(entry["error"]) for metric in metrics.values() for entry in metric.values())
    return {"requests": len(requests), "profile": profile_name, "metrics": metrics, "worst_error": worst}


def _accuracy_statistics(pairs: NDArray[np.float64]) -> dict[str, dict[str, float]]:
    result = {}
    for name in STATISTICS:
        measurement, prediction = (
            float(column.mean()) if name == "mean" else float(np.percentile(column, float(name[1:])))
            for column in pairs.T
        )
        error = prediction / measurement - 1.0 if measurement > 0.0 else 0.0
        result[name] = {"measured": measurement, "simulated": prediction, "error": error}
    return result


def accuracy_text(comparison: Mapping[str, Any]) -> str:
    lines = [f"{comparison['requests']} requests, profile {comparison['profile']}"]
    for metric, entries in comparison["metrics"].items():
        for statistic, entry in entries.items():
            lines.append(
                f"  {metric:<26}{statistic:<6}measured {entry['measured']:10.4f} s"
                f"  simulated {entry['simulated']:10.4f} s  {entry['error']:+7.2%}"
            )
    lines.append(f"  worst error {comparison['worst_error']:.2%}")
    return "\n".join(lines)
