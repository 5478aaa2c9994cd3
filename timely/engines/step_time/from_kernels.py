"""Step-time profiles out of kernel tables: microseconds per layer, as a profiler measured them, to coefficients.

The tables are three CSV files of one machine and model. Their columns: ``dense.csv`` layer, tokens, time_us;
``per_sequence.csv`` layer, sequences, time_us; ``attention.csv`` prefill_chunk, kv_prefill, n_decode, kv_decode,
time_us.
"""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from lrtrace.csv_rows import read_csv_rows
from lrtrace.errors import BadInput
from timely.core.arrays import Bools, Floats
from timely.core.errors import InvalidInput
from timely.engines.step_time.fit import non_negative_step_fit, step_time_digits, step_time_error_summary
from timely.engines.step_time.profile import StepTerms, StepTime

ONCE_A_MODEL = ("embedding", "final_layernorm")
TWICE_A_LAYER = ("layernorm",)
POINTWISE = ("act_fn", "rotary_emb", "layernorm", "final_layernorm", "embedding")
"""Kernels a compiler fuses away in part; profilers time them one by one."""

MAX_CONTEXT = 4096
"""Attention is fitted up to here: robot prompts and chats, not books."""

MAX_DECODES = 64

MAX_NUMBER = 1e12
"""Larger numbers of tokens, sequences or microseconds are errors."""

CURVE_TOLERANCE = 0.02
"""A curve keeps the points it needs to be this close to the table, relatively."""


def fit_step_kernels(
    folder: Path, layers: int, pointwise_share: float = 1.0
) -> tuple[StepTerms, dict[str, float | str]]:
    """Coefficients from the tables in ``folder`` for a model of ``layers`` layers, and the fit's errors.

    ``pointwise_share`` is the share of the pointwise kernels' time that is left once the model is compiled.

    Errors are relative errors of whole steps against the sum of the tables' kernels, median and 90th percentile. They
    cover decode, prefill and mixed steps of the tables' grid.

    Raises:
        InvalidInput: a file is missing, broken or too small; names the file and line.
    """
    if layers < 1:
        raise InvalidInput(f"must be at least 1, got {layers}", where="layers")
    if not 0.0 <= pointwise_share <= 1.0:
        raise InvalidInput(f"must be from 0 to 1, got {pointwise_share}", where="pointwise_share")
    dense = _step_kernel_dense_s(
        _read_step_kernel_rows(folder / "dense.csv", ("layer", "tokens", "time_us")), layers, pointwise_share
    )
    heads = _step_kernel_heads_s(
        _read_step_kernel_rows(folder / "per_sequence.csv", ("layer", "sequences", "time_us"))
    )
    for name, points in (("dense.csv", dense), ("per_sequence.csv", heads)):
        if len(points) < 2:
            raise InvalidInput("needs rows of two sizes", where=str(folder / name))
    columns = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    attention = np.array(
        [
            [float(row[name]) for name in columns]
            for row in _read_step_kernel_rows(folder / "attention.csv", columns)
        ]
    )
    if len(attention) < 30:
        raise InvalidInput(f"{len(attention)} rows are too few to fit", where=str(folder / "attention.csv"))
    attention[:, 4] *= 1e-6 * layers
    tokens, sequences = _step_kernel_curve(dense), _step_kernel_curve(heads)
    terms = _step_attention_terms(attention, tokens, sequences)
    return terms, _step_kernel_errors(terms, attention, dense, heads)


def _read_step_kernel_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of a table, whose numbers are finite and not negative, and whose times are positive."""
    try:
        rows = list(read_csv_rows(path, columns))
    except BadInput as error:
        raise InvalidInput(error.message, where=error.where) from error
    for line, row in rows:
        for name in columns:
            if name != "layer":
                _check_step_kernel_number(row[name], f"{path}:{line}", name)
    return [row for _, row in rows]


def _check_step_kernel_number(text: str, where: str, name: str) -> None:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 <= number <= MAX_NUMBER or (number == 0.0 and name == "time_us"):
        kind = "a number over 0" if name == "time_us" else "a number of 0 or more"
        raise InvalidInput(f"{name} must be {kind}, got {text!r}", where=where)


def _step_kernel_dense_s(
    rows: list[dict[str, str]], layers: int, pointwise_share: float
) -> dict[float, float]:
    """Seconds of everything but attention and heads, by tokens in the step."""
    total: dict[float, float] = defaultdict(float)
    for row in rows:
        name = row["layer"]
        times: float = 1 if name in ONCE_A_MODEL else layers * (2 if name in TWICE_A_LAYER else 1)
        if name in POINTWISE:
            times *= pointwise_share
        total[float(row["tokens"])] += 1e-6 * times * float(row["time_us"])
    return dict(sorted(total.items()))


def _step_kernel_heads_s(rows: list[dict[str, str]]) -> dict[float, float]:
    """Seconds of output layer and sampler, by sequences in the step."""
    total: dict[float, float] = defaultdict(float)
    for row in rows:
        total[float(row["sequences"])] += 1e-6 * float(row["time_us"])
    return dict(sorted(total.items()))


def _step_kernel_curve(points: dict[float, float]) -> dict[str, list[float]]:
    """A piecewise linear curve through few of the points that stays close to all (Douglas-Peucker, relative)."""
    x, y = np.array(list(points)), np.array(list(points.values()))
    places = {0, len(x) - 1}
    open_spans = [(0, len(x) - 1)]
    while open_spans:
        first, last = open_spans.pop()
        if last - first < 2:
            continue
        line = np.interp(x[first : last + 1], x[[first, last]], y[[first, last]])
        off = np.abs(line - y[first : last + 1]) / y[first : last + 1]
        worst = first + int(off.argmax())
        if off.max() > CURVE_TOLERANCE:
            places.add(worst)
            open_spans += [(first, worst), (worst, last)]
    knots = sorted(places)
    # The knots are the tables' own abscissae; the ordinates are fitted to all of the table's points.
    basis = np.array([np.interp(x, x[knots], row) for row in np.eye(len(knots))]).T
    ordinates = np.linalg.lstsq(basis / y[:, None], np.ones_like(y), rcond=None)[0]
    return {"at": [float(v) for v in x[knots]], "s": [step_time_digits(v) for v in ordinates]}


def _step_attention_terms(attention: Floats, tokens: dict[str, Any], sequences: dict[str, Any]) -> StepTerms:
    chunk, context, n, kv, time = attention.T
    squares = (chunk + context) ** 2 - context**2
    small = (context <= MAX_CONTEXT) & (kv <= MAX_CONTEXT) & (n <= MAX_DECODES)
    one = np.ones_like(time)
    base, per_sequence, per_context = _fit_step_kernel_terms(small & (chunk == 0), (one, n, n * kv), time)
    rest = time - base - per_sequence * (n + 1)
    per_token, per_square = _fit_step_kernel_terms(small & (n == 0), (chunk, squares), time, rest)
    rest -= per_token * chunk + per_square * squares
    mixed_base, mixed_context = _fit_step_kernel_terms(
        small & (n > 0) & (chunk > 0), (one, n * kv), time, rest
    )
    return StepTerms(
        base=step_time_digits(base),
        per_sequence=step_time_digits(per_sequence),
        per_prefill_token=step_time_digits(per_token),
        per_prefill_token_sq=step_time_digits(per_square),
        per_context_token=step_time_digits(per_context),
        mixed_base=step_time_digits(mixed_base),
        mixed_per_context_token=step_time_digits(mixed_context),
        tokens=tokens,  # type: ignore[arg-type]
        sequences=sequences,  # type: ignore[arg-type]
    )


def _fit_step_kernel_terms(
    mask: Bools, terms: tuple[Floats, ...], time: Floats, rest: Floats | None = None
) -> list[float]:
    """Non-negative coefficients of ``terms`` for ``rest`` (or ``time``), by relative error of ``time``."""
    weight = 1.0 / np.maximum(time[mask], 0.2 * float(np.median(time)))
    target = (time if rest is None else rest)[mask] * weight
    x = np.stack([term[mask] * weight for term in terms], axis=1)
    return [float(value) for value in non_negative_step_fit(x, target)]


def _step_kernel_errors(
    terms: StepTerms, attention: Floats, dense: dict[float, float], heads: dict[float, float]
) -> dict[str, float | str]:
    step = StepTime(terms)
    relative: dict[str, list[float]] = {"decode": [], "prefill": [], "mixed": []}
    most = max(dense)
    for chunk, context, n, kv, time in attention:
        size = chunk + n
        if not 0 < size <= most or max(context, kv) > MAX_CONTEXT or n > MAX_DECODES:
            continue
        sequences = n + (chunk > 0)
        table = time
        table += float(np.interp(size, list(dense), list(dense.values())))
        table += float(np.interp(sequences, list(heads), list(heads.values())))
        fitted_s = step(int(n), int(chunk > 0), int(chunk), (chunk + context) ** 2 - context**2, int(n * kv))
        kind = "mixed" if chunk and n else "prefill" if chunk else "decode"
        relative[kind].append(abs(fitted_s / table - 1.0))
    return step_time_error_summary(relative)
