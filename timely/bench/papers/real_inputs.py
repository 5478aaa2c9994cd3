"""Inputs measured elsewhere: production traces and a dataset of texts, where ``--data`` names their folder."""

import csv
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timely.core.errors import InvalidInput

MOONCAKE = "mooncake/conversation_trace.jsonl"
DIALOGUES = "mts_dialog/MTS-Dialog-TrainingSet.csv"
ATTENTION = "rtx4090_llama31_8b/attention.csv"
ROBOT_PLANS = "saycan/saycan_plan_v0_l.tsv"
AZURE = {
    "Azure code": "azure2023/AzureLLMInferenceTrace_code.csv",
    "Azure conversation": "azure2023/AzureLLMInferenceTrace_conv.csv",
}
TRACES = {**AZURE, "Mooncake": MOONCAKE}
"""Traces with the prompt and output tokens of each request."""

Floats = NDArray[np.float64]


def paper_trace_arrivals(path: Path, count: int, window_s: float, skip: int = 0) -> list[float]:
    """``count`` arrivals after the first ``skip`` of a trace, scaled to the window.

    Each line of the trace holds a ``timestamp`` in milliseconds, as in Mooncake's.

    Raises:
        InvalidInput: unreadable, a line without a timestamp, or fewer lines.
    """
    times: list[float] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if len(times) == count:
                    break
                if number <= skip:
                    continue
                try:
                    times.append(float(json.loads(line)["timestamp"]))
                except (ValueError, KeyError, TypeError) as error:
                    raise InvalidInput("no JSON object with a timestamp", where=f"{path}:{number}") from error
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=str(path)) from error
    if len(times) < count:
        raise InvalidInput(f"has {len(times)} arrivals, {count} are asked for", where=str(path))
    first, last = min(times), max(times)
    scale = window_s / (last - first) if last > first else 0.0
    return sorted((t - first) * scale for t in times)


@cache
def paper_token_counts(path: Path) -> Floats:
    """Prompt and output tokens of each request of one of ``TRACES``, shape ``(n, 2)``."""
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            rows = [(row["ContextTokens"], row["GeneratedTokens"]) for row in csv.DictReader(file)]
        else:
            rows = [(row["input_length"], row["output_length"]) for row in map(json.loads, file)]
    return np.array(rows, dtype=np.float64)


@cache
def paper_dialogues(path: Path) -> tuple[tuple[str, str], ...]:
    """Dialogue and written summary of each row of MTS-Dialog."""
    with path.open(encoding="utf-8", newline="") as file:
        return tuple((row["dialogue"], row["section_text"]) for row in csv.DictReader(file))


@cache
def paper_robot_plans(path: Path) -> tuple[tuple[str, ...], ...]:
    """The steps of each plan of SayCan, without the last one, which says that it is done."""
    with path.open(encoding="utf-8", newline="") as file:
        plans = (re.findall(r"\d+\. ([^,.]+)", row["OUTPUT"]) for row in csv.DictReader(file, delimiter="\t"))
        return tuple(tuple(steps[:-1]) for steps in plans if len(steps) > 1)


@cache
def paper_decode_attention(path: Path) -> Floats:
    """Context tokens and microseconds of one request's attention in a decoding step, shape ``(n, 2)``."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            (row["kv_decode"], row["time_us"])
            for row in csv.DictReader(file)
            if row["n_decode"] == "1" and row["prefill_chunk"] == "0"
        ]
    return np.array(rows, dtype=np.float64)
