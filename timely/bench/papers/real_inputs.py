"""Inputs measured elsewhere: production traces and a dataset of texts, where ``--data`` names their folder."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrtrace.csv_rows import read_csv_rows
from lrtrace.jsonl import read_jsonl
from timely.core.errors import InvalidInput

MOONCAKE = "mooncake/conversation_trace.jsonl"
DIALOGUES = "mts_dialog/MTS-Dialog-TrainingSet.csv"
ATTENTION = "rtx4090_llama31_8b/attention.csv"
ROBOT_PLANS = "saycan/saycan_plan_v0_l.tsv"
AZURE = {
    "Azure code": "azure2023/AzureLLMInferenceTrace_code.csv",
    "Azure conversation": "azure2023/AzureLLMInferenceTrace_conv.csv",
}
AZURE_COLUMNS = ("ContextTokens", "GeneratedTokens")
TRACES = {**AZURE, "Mooncake": MOONCAKE}
"""Traces with the prompt and output tokens of each request."""

Floats = NDArray[np.float64]


def paper_trace_arrivals(path: Path, count: int, window_s: float, skip: int = 0) -> list[float]:
    """``count`` arrivals after the first ``skip`` of a trace, scaled to the window.

    Each line of the trace holds a ``timestamp`` in milliseconds, as in Mooncake's.

    Raises:
        BadInput: unreadable. InvalidInput: a line without a timestamp, or fewer lines.
    """
    with closing(read_jsonl(path)) as lines:
        rows = list(islice(lines, skip, skip + count))
    if len(rows) < count:
        raise InvalidInput(f"has {len(rows)} arrivals, {count} are asked for", where=str(path))
    times = _read_paper_numbers(path, rows, ("timestamp",))[:, 0].tolist()
    first, last = min(times), max(times)
    scale = window_s / (last - first) if last > first else 0.0
    return sorted((t - first) * scale for t in times)


@cache
def paper_token_counts(path: Path) -> Floats:
    """Prompt and output tokens of each request of one of ``TRACES``, shape ``(n, 2)``."""
    if path.suffix == ".csv":
        return _read_paper_numbers(path, read_csv_rows(path, AZURE_COLUMNS), AZURE_COLUMNS)
    return _read_paper_numbers(path, read_jsonl(path), ("input_length", "output_length"))


def _read_paper_numbers(
    path: Path, rows: Iterable[tuple[int, Mapping[str, Any]]], columns: Sequence[str]
) -> Floats:
    """Columns of a table as an array, shape ``(rows, columns)``.

    Raises:
        InvalidInput: a value is no finite number, or there are no rows.
    """
    result = []
    for line, row in rows:
        try:
            numbers = [float(row[name]) for name in columns]
        except (KeyError, TypeError, ValueError, OverflowError):
            numbers = [math.nan]
        if not all(map(math.isfinite, numbers)):
            raise InvalidInput(f"needs numbers as {' and '.join(columns)}", where=f"{path}:{line}")
        result.append(numbers)
    if not result:
        raise InvalidInput("has no rows", where=str(path))
    return np.array(result, dtype=np.float64)


@cache
def paper_dialogues(path: Path) -> tuple[tuple[str, str], ...]:
    """Dialogue and written summary of each row of MTS-Dialog."""
    columns = ("dialogue", "section_text")
    return tuple((row["dialogue"], row["section_text"]) for _, row in read_csv_rows(path, columns))


@cache
def paper_robot_plans(path: Path) -> tuple[tuple[str, ...], ...]:
    """The steps of each plan of SayCan, without the last one, which says that it is done.

    Raises:
        InvalidInput: there are none.
    """
    rows = read_csv_rows(path, ("OUTPUT",), delimiter="\t")
    plans = (re.findall(r"\d+\. ([^,.]+)", row["OUTPUT"]) for _, row in rows)
    result = tuple(tuple(steps[:-1]) for steps in plans if len(steps) > 1)
    if not result:
        raise InvalidInput("has no plan", where=str(path))
    return result


@cache
def paper_decode_attention(path: Path) -> Floats:
    """Context tokens and microseconds of one request's attention in a decoding step, shape ``(n, 2)``."""
    columns = ("kv_decode", "time_us")
    rows = read_csv_rows(path, (*columns, "n_decode", "prefill_chunk"))
    single = ((line, row) for line, row in rows if row["n_decode"] == "1" and row["prefill_chunk"] == "0")
    return _read_paper_numbers(path, single, columns)
