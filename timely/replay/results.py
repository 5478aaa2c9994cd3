"""The result of a replay as plain data: summary, one entry a job, series and journal."""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from timely.engines.replay_types import BackendRun, JobRecord, ReplayOptions

DIGITS = 9
"""Times are written in nanoseconds: exact enough for every sum, the same on every machine."""

Result = dict[str, Any]


def build_replay_result(
    run: BackendRun, options: ReplayOptions, *, engine: str, trace: str, wall_s: float
) -> Result:
    """The result of one replay, in the form of ``timely replay --json``."""
    return {
        "discipline": options.discipline,
        "mode": options.mode,
        "engine": engine,
        "profile": run.profile,
        "trace": trace,
        "seed": options.seed,
        "options": _other_replay_options(options),
        "wall_s": round(wall_s, 6),
        "end_s": _replay_number(run.end_s),
        "partial": run.partial,
        "summary": replay_result_summary(run.records, run.end_s),
        "counters": {name: _replay_number(value) for name, value in run.counters.items()},
        "jobs": [replay_job_result(record, run.end_s) for record in run.records],
        "series": {name: [_replay_number(v) for v in column] for name, column in run.series.items()},
        "journal": run.journal,
    }


def _other_replay_options(options: ReplayOptions) -> dict[str, Any]:
    """The options that are not their default and have no entry of their own."""
    own = ("discipline", "mode", "profile", "seed")
    values = {field.name: getattr(options, field.name) for field in fields(options) if field.name not in own}
    defaults = ReplayOptions()
    return {name: value for name, value in values.items() if value != getattr(defaults, name)}


def replay_result_summary(records: Sequence[JobRecord], end_s: float) -> Result:
    """Means and percentiles over all jobs and by class; ``urgent`` is an ERT under half a second."""
    result = _replay_group_result(records, end_s)
    result["by_class"] = {
        "urgent": _replay_group_result([r for r in records if r.task.hints.utility.urgent], end_s),
        "normal": _replay_group_result([r for r in records if not r.task.hints.utility.urgent], end_s),
    }
    return result


def _replay_group_result(records: Sequence[JobRecord], end_s: float) -> Result:
    complete_count = sum(record.outcome == "complete" for record in records)
    return {
        "jobs": len(records),
        "served": complete_count,
        "share_served": complete_count / len(records) if records else None,
        # A task without an answer counts with its utility at the end of the run.
        "utility_mean": _replay_mean(record.utility(end_s) for record in records),
        "utility_max_mean": _replay_mean(record.task.hints.utility.beta for record in records),
        "response_s": replay_latency_distribution([record.response_time_s for record in records]),
        "waiting_s": replay_latency_distribution([record.waiting_time_s for record in records]),
    }


def replay_latency_distribution(values: Iterable[float]) -> dict[str, float | None]:
    """Mean, median, 90th and 99th percentile of the finite values (linear interpolation), seconds."""
    finite = np.array([value for value in values if math.isfinite(value)])
    if finite.size == 0:
        return {"mean": None, "p50": None, "p90": None, "p99": None}
    p50, p90, p99 = np.percentile(finite, (50, 90, 99))
    return {
        "mean": _replay_number(finite.mean()),
        "p50": _replay_number(p50),
        "p90": _replay_number(p90),
        "p99": _replay_number(p99),
    }


def _replay_mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return _replay_number(math.fsum(numbers) / len(numbers)) if numbers else None


def replay_job_result(record: JobRecord, end_s: float) -> Result:
    """One job's entry. ``_time_s`` are durations; other ``_s`` are absolute, from the trace's origin."""
    task = record.task
    segments = zip(task.plan, record.ready_s, record.start_s, record.end_s, strict=False)
    return {
        "job": task.job,
        "agent": task.hints.agent,
        "app": task.hints.app,
        "class": "urgent" if task.hints.utility.urgent else "normal",
        "task": task.task,
        "outcome": record.outcome,
        "note": record.note,
        "ert_s": task.hints.utility.ert_s,
        "arrival_s": _replay_number(record.arrived_s),
        "admitted_s": _replay_number(record.admitted_s),
        "first_token_s": _replay_number(record.first_token_s),
        "last_token_s": _replay_number(record.last_token_s),
        "response_time_s": _replay_number(record.response_time_s),
        "waiting_time_s": _replay_number(record.waiting_time_s),
        "completion_s": _replay_number(record.end_s[-1]) if record.outcome == "complete" else None,
        "utility": _replay_number(record.utility(end_s)),
        "utility_max": task.hints.utility.beta,
        "prompt_tokens": task.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "output_tokens": record.output_tokens,
        "preemptions": record.preemptions,
        "recomputed_tokens": record.recomputed_tokens,
        "segments": [
            {
                "index": index,
                "tokens": segment.tokens,
                "ready_s": _replay_number(ready),
                "start_s": _replay_number(start),
                "end_s": _replay_number(end),
            }
            for index, (segment, ready, start, end) in enumerate(segments)
        ],
    }


def _replay_number(value: float) -> float | int | None:
    if isinstance(value, int):
        return value
    return round(float(value), DIGITS) if math.isfinite(value) else None


def replay_result_hash(result: Result) -> str:
    """SHA-256 over the fields that trace, options and seed determine: all but ``wall_s`` and the options themselves."""
    content = {name: value for name, value in result.items() if name not in ("wall_s", "options")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
