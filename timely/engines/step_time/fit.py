"""From timed steps to a step-time profile: least squares, its errors, and the file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from timely.core.arrays import Floats
from timely.core.errors import InvalidInput
from timely.core.files import core_write_file
from timely.engines.step_time.journal import TimedStep
from timely.engines.step_time.profile import (
    KvCache,
    ProfileLimits,
    StepTerms,
    StepTime,
    StepTimeCurve,
    StepTimeProfile,
)

LEAST_STEPS = 12
"""Fewer timed steps than this say nothing about five coefficients."""

OUTLIER = 3.0
"""A step this many times farther off than the median one counts that much less (Huber): a machine does other things."""

REFITS = 5


KNOTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of sequences at which a step's time may bend: kernels are chosen by batch size."""

KNOT_STEPS = 8
"""Steps with that many sequences, or more than at the knot before, that a bend takes."""

CURVE_GAIN = 0.8
"""Bends have to bring the squared error below this share of a straight line's."""

NEGLIGIBLE = 1e-6
"""A mean squared relative error this small is none."""


def fit_steps(steps: Sequence[TimedStep]) -> tuple[StepTerms, dict[str, float | str]]:
    """A profile's form fitted to timed steps, coefficients not negative; and its relative errors, as fractions.

    Least squares of the relative error, in which steps far off count less. Then all are scaled, so that the steps
    together take as long as they did. The number of sequences enters as a straight line, or one with bends where that
    is better.

    Raises:
        InvalidInput: fewer than ``LEAST_STEPS`` steps, or one that took no time.
    """
    if len(steps) < LEAST_STEPS:
        raise InvalidInput(
            f"{len(steps)} timed steps are too few to fit, {LEAST_STEPS} at least", where="steps"
        )
    time = np.array([step.step_s for step in steps])
    if not np.all(np.isfinite(time) & (time > 0.0)):
        raise InvalidInput("a timed step took no time", where="steps")
    table = np.array(
        [(s.decodes + s.prefills, s.prefill_tokens, s.prefill_squares, s.context_tokens) for s in steps],
        dtype=np.float64,
    )
    sequences, others = table[:, 0], table[:, 1:]
    coefficients, error = _fit_step_least_squares(
        np.column_stack([np.ones(len(time)), others, sequences]), time
    )
    terms = _fitted_step_terms(coefficients[:4], per_sequence=coefficients[4])
    knots = _step_curve_knots(sequences)
    if len(knots) > 1:
        widths = np.diff(knots).astype(np.float64)
        widths[-1] = np.inf  # beyond the last knot as before it
        bends = np.clip(sequences[:, None] - np.array(knots[:-1]), 0.0, widths)
        coefficients, bend_error = _fit_step_least_squares(
            np.column_stack([np.ones(len(time)), others, bends]), time
        )
        if error > NEGLIGIBLE and bend_error < CURVE_GAIN * error:
            rises = np.concatenate([[0.0], np.cumsum(coefficients[4:] * np.diff(knots))])
            curve = StepTimeCurve(at=tuple(map(float, knots)), s=tuple(map(step_time_digits, rises)))
            terms = _fitted_step_terms(coefficients[:4], sequences=curve)
    return terms, step_errors(terms, steps)


def _fitted_step_terms(
    coefficients: Floats, per_sequence: float = 0.0, sequences: StepTimeCurve | None = None
) -> StepTerms:
    base, token, square, context, sequence = map(step_time_digits, (*coefficients, per_sequence))
    return StepTerms(
        base=base,
        per_sequence=sequence,
        per_prefill_token=token,
        per_prefill_token_sq=square,
        per_context_token=context,
        sequences=sequences,
    )


def _step_curve_knots(sequences: Floats) -> list[int]:
    """Those numbers of sequences at which there are steps enough to tell a bend."""
    knots: list[int] = []
    for knot in KNOTS:
        since = knots[-1] if knots else 0
        if np.count_nonzero((sequences > since) & (sequences <= knot)) >= KNOT_STEPS:
            knots.append(knot)
    return knots


def _fit_step_least_squares(columns: Floats, time: Floats) -> tuple[Floats, float]:
    """Coefficients of the columns, and the mean squared relative error with those far off counting less."""
    # Relative errors count, and columns of very different size must not hide each other.
    x = columns / time[:, None]
    scale = np.abs(x).max(axis=0)
    scale[scale == 0.0] = 1.0
    x = x / scale
    coefficients = non_negative_step_fit(x, np.ones(len(time)))
    for _ in range(REFITS):
        off = np.abs(x @ coefficients - 1.0)
        tolerance = max(OUTLIER * float(np.median(off)), 1e-9)
        weight = np.sqrt(np.minimum(1.0, tolerance / np.maximum(off, 1e-12)))
        coefficients = non_negative_step_fit(x * weight[:, None], weight)
    off = np.abs(x @ coefficients - 1.0)
    error = float(np.mean(np.minimum(off, OUTLIER * max(float(np.median(off)), 1e-9)) ** 2))
    # What a robot waits for is a sum of steps, and relative errors favour the short ones: the sum has to be right.
    coefficients *= float(time.sum() / ((x @ coefficients) @ time))
    return coefficients / scale, error


def non_negative_step_fit(x: Floats, target: Floats) -> Floats:
    """Least squares of ``x @ c = target``; coefficients that would be negative are zero, the others fitted anew."""
    active = [index for index in range(x.shape[1]) if x[:, index].any()]
    coefficients = np.zeros(x.shape[1])
    while active:
        values = np.linalg.lstsq(x[:, active], target, rcond=None)[0]
        if values.min() >= 0.0:
            coefficients[active] = values
            break
        active.pop(int(values.argmin()))
    return coefficients


def step_errors(terms: StepTerms, steps: Iterable[TimedStep]) -> dict[str, float | str]:
    """Relative errors of a profile on timed steps, as fractions: median and 90th percentile by kind of step."""
    model = StepTime(terms)
    errors: dict[str, list[float]] = {"decode": [], "prefill": [], "mixed": []}
    for s in steps:
        predicted_s = model(*s.counts)
        kind = "mixed" if s.decodes and s.prefill_tokens else "prefill" if s.prefill_tokens else "decode"
        errors[kind].append(abs(predicted_s / s.step_s - 1.0))
    return step_time_error_summary(errors)


def step_time_error_summary(errors: Mapping[str, Sequence[float]]) -> dict[str, float | str]:
    """Median and 90th percentile by kind of step."""
    return {
        f"{kind}_{name}": round(float(np.percentile(values, q)), 4)
        for kind, values in errors.items()
        if values
        for name, q in (("median", 50), ("p90", 90))
    }


def step_time_digits(value: float) -> float:
    """The value to four significant digits, as profiles write it."""
    return float(f"{value:.4g}")


def measured_step_profile(
    name: str,
    source: str,
    steps: Sequence[TimedStep],
    sizes: Mapping[str, Any],
    loop_s: Mapping[str, float],
    date: str = "",
) -> StepTimeProfile:
    """A profile fitted to an engine's steps.

    Args:
        sizes: of the engine, by the names of ``EngineSizes``.
        loop_s: what the engine's own loop takes, by the fields of ``ProfileLimits``.

    Raises:
        InvalidInput: see ``fit_steps``.
    """
    kv = KvCache(blocks=sizes["kv_blocks"], block_tokens=sizes["block_tokens"], swap_s_per_token=0.0)
    limits = ProfileLimits(
        max_batch=sizes["max_batch"],
        token_budget=sizes["token_budget"],
        asynchronous=sizes.get("asynchronous", False),
        **{name: step_time_digits(time_s) for name, time_s in loop_s.items()},
    )
    terms, errors = fit_steps(steps_without_waiting_jobs(steps, limits))
    return StepTimeProfile(
        name=name, source=source, date=date, fit_error=errors, step_s=terms, kv=kv, limits=limits
    )


def steps_without_waiting_jobs(steps: Sequence[TimedStep], limits: ProfileLimits) -> Sequence[TimedStep]:
    """The steps, as long as they would have been if no job had waited beside them (``loop_waiting_s``).

    Without asynchronous scheduling a step lasts until the next one is composed, and waiting jobs delay that.
    """
    if limits.asynchronous or not limits.loop_waiting_s:
        return steps
    # A step much shorter than the others keeps half of its time.
    return [
        replace(step, step_s=max(0.5 * step.step_s, step.step_s - limits.loop_growth_s(0, step.waiting)))
        for step in steps
    ]


def _step_profile_text(profile: StepTimeProfile) -> str:
    """The profile as YAML, fields in the order of the format, what is not set left out."""
    data: dict[str, Any] = profile.model_dump(mode="json")
    data["step_s"] = {key: value for key, value in data["step_s"].items() if value is not None}
    for optional in [name for name, value in data.items() if value in (None, "", {})]:
        del data[optional]
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)


def save_step_time_profile(path: Path, profile: StepTimeProfile) -> None:
    """Write the profile."""
    core_write_file(path, _step_profile_text(profile))
