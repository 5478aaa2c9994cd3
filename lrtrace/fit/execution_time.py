"""Fits a robot's execution-time models to recorded runs and measures their prediction errors.

A skill with a numeric argument that goes with its time gets a linear model. Otherwise a skill whose runs differ little
(a coefficient of variation up to ``CONSTANT_SPREAD``) gets a constant model. All others get a sampled model, and
schedulers plan with its minimum (TimelyLLM, sections 4.3 and 6). Each model keeps the quantiles of its residuals, so
that simulated robots vary like the real one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lrtrace.errors import BadInput, TooFewSamples, UnknownName
from lrtrace.fit.regression import fit_execution_least_squares, fit_execution_quantile
from lrtrace.models import ConstantModel, ExecutionModel, LinearModel, Measure, SampledModel
from lrtrace.record.samples import RecordedSample
from lrtrace.robot_profile import RobotProfile

Floats = NDArray[np.float64]
Kind = Literal["linear", "constant", "sampled"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Method = Literal["least-squares", "quantile"]
METHODS: tuple[Method, ...] = get_args(Method)

MIN_SAMPLES = 5
"""Minimum runs of a skill; fewer say nothing about its spread."""
CONSTANT_SPREAD = 0.06
"""With this spread of normally distributed times, the mean has an error of 5% on average (0.8 sigma)."""
LEAST_LEVELS, MOST_LEVELS, RUNS_PER_LEVEL = 11, 101, 4
"""Number of quantiles of a distribution, evenly spaced from 0 to 1: one for every four runs, within these bounds.

Eleven alone draw a line from the 90% quantile to the maximum. With 1,000 log-normal runs (sigma 1) the mean of the
model was 49% above that of the runs; with 101 quantiles it is 2% above.
"""
FOLDS = 5
LEAST_RANKS, FEW_RANKS, CHANCE = 0.4, 0.8, 2.2
"""Rank correlation of an argument with the time from which there is a line; few runs need more, since chance gives it.

An argument that tells nothing exceeds ``CHANCE / sqrt(runs - 1)`` in 3 of 100 cases.
"""
LEAST_TIME_S = 1e-3
"""Errors are shares of the measured time, and of this at least: no schedule depends on less."""


@dataclass(frozen=True, slots=True)
class SkillFit:
    """One fitted skill.

    Attributes:
        points: (argument value or nan, measured s, modelled s) of every run, shape ``(n, 3)``.
        held_out: mean absolute error on runs outside the fit, as a share of the measured time (5-fold).
        held_out_s: the same error in seconds.
        too_early: mean shortfall of runs outside the fit below the fitted minimum, as a share of the measured time.
            It is the error of a schedule by minimum times (TimelyLLM, section 4.3).
    """

    skill: str
    model: ExecutionModel
    points: Floats
    held_out: float
    held_out_s: float
    too_early: float
    args: Mapping[str, Mapping[str, Any]]
    """Unit and range of each argument in the runs, for a profile without a base."""

    @property
    def residuals_s(self) -> Floats:
        """Measured minus modelled mean, seconds, shape ``(n,)``."""
        return self.points[:, 1] - self.points[:, 2]

    @property
    def estimate_error(self) -> float:
        """Error of the scheduler's estimate on runs outside the fit: ``held_out`` or ``too_early``."""
        return self.too_early if self.model.variable else self.held_out

    def summary(self) -> dict[str, Any]:
        """The residual report of this skill; times in seconds."""
        rest, times_s = self.residuals_s, self.points[:, 1]
        total_squares = float(((times_s - times_s.mean()) ** 2).sum())
        model = self.model
        values: dict[str, Any] = {
            "model": model.model,
            "samples": len(self.points),
            "variable": model.variable,
        }
        if isinstance(model, LinearModel):
            values |= {
                "argument": model.argument,
                "unit": model.unit,
                "intercept_s": model.intercept_s,
                "per_unit_s": model.per_unit_s,
            }
        return values | {
            "mean_s": round(float(times_s.mean()), 6),
            "min_s": round(float(times_s.min()), 6),
            "residual_mean_s": round(float(rest.mean()), 6),
            "residual_std_s": round(float(rest.std()), 6),
            "residual_max_s": round(float(np.abs(rest).max()), 6),
            "r_squared": round(1.0 - float((rest**2).sum()) / total_squares, 6)
            if total_squares > 0
            else None,
            "held_out_error": round(self.held_out, 6),
            "held_out_error_s": round(self.held_out_s, 6),
            "held_out_too_early": round(self.too_early, 6),
        }


@dataclass(frozen=True, slots=True)
class ExecutionTimeFit:
    robot: str
    skills: dict[str, SkillFit] = field(default_factory=dict)

    @property
    def run_count(self) -> int:
        return sum(len(skill.points) for skill in self.skills.values())


def fit_samples(
    samples: Iterable[RecordedSample],
    *,
    base: RobotProfile | None = None,
    method: Method = "least-squares",
    level: float = 0.5,
    kinds: Mapping[str, Kind] | None = None,
    variable: Sequence[str] = (),
    min_samples: int = MIN_SAMPLES,
) -> ExecutionTimeFit:
    """Fit every skill in the runs.

    Args:
        samples: runs of one robot.
        base: profile with full skill names.
        method: method to fit lines.
        level: quantile of the method ``quantile``.
        kinds: model by skill, instead of the automatic choice.
        variable: skills whose time depends on the scene although they get a line or a constant.
        min_samples: minimum number of runs of a skill.

    Raises:
        TooFewSamples: a skill has too few runs, or there are no runs. UnknownName: ``kinds`` or ``method`` has an
            unknown name. BadInput: runs of several robots or in several units, or no argument varies for a linear
            model.
    """
    _check_fit_options(method, level, kinds or {})
    groups: dict[str, list[RecordedSample]] = {}
    units: dict[str, dict[str, str]] = {}
    robot = ""
    last = ""
    for sample in samples:
        if robot and sample.robot != robot:
            raise BadInput(
                f"robot is {sample.robot!r}, above it was {robot!r}: fit one robot at a time",
                where=sample.where,
            )
        robot, last = sample.robot, sample.where
        skill = _fitted_skill_name(sample, base)
        if base is not None:
            _check_fit_units(sample, _fit_profile_units(base, skill), f"in profile {base.name} it is")
        _check_fit_units(sample, units.setdefault(skill, {}), "above it was")
        units[skill].update(sample.units)
        groups.setdefault(skill, []).append(sample)
    if not groups:
        raise TooFewSamples("no run that was done", where=last)
    for name in (*(kinds or {}), *variable):
        if name not in groups:
            raise UnknownName("skill", name, groups)
    min_count = (
        max(min_samples, math.ceil(1 / min(level, 1 - level))) if method == "quantile" else min_samples
    )
    min_count = max(2, min_count)  # one run cannot be held out
    skill_fits: dict[str, SkillFit] = {}
    for skill, group in groups.items():
        if len(group) < min_count:
            raise TooFewSamples(
                f"{skill}: {len(group)} samples, a fit needs at least {min_count}", where=group[-1].where
            )
        recipe = _fit_recipe(skill, group, (kinds or {}).get(skill), method, level)
        skill_fits[skill] = _fit_skill_model(skill, group, replace(recipe, variable=skill in variable))
    return ExecutionTimeFit(robot, skill_fits)


def check_fit(
    fit: ExecutionTimeFit, samples: Iterable[RecordedSample], base: RobotProfile | None = None
) -> dict[str, float]:
    """Errors of a fit on runs of another recording, by skill, as a share of the measured time.

    The error of a simple skill is the mean absolute error. The error of a variable skill is the mean shortfall below
    its minimum, with which schedulers plan. Skills outside the fit are ignored.

    Raises:
        BadInput: a run of another robot, in another unit, or without the model's argument.
    """
    errors: dict[str, list[float]] = {}
    for sample in samples:
        if sample.robot != fit.robot:
            raise BadInput(f"robot is {sample.robot!r}, fitted was {fit.robot!r}", where=sample.where)
        skill = _fitted_skill_name(sample, base)
        if skill not in fit.skills:
            continue
        fitted_units = {
            name: limit["unit"] for name, limit in fit.skills[skill].args.items() if "min" in limit
        }
        _check_fit_units(sample, fitted_units, "fitted was")
        model, elapsed_s = fit.skills[skill].model, sample.elapsed_s
        try:
            estimate_s = model.estimate_s(sample.args)
        except BadInput as error:
            raise BadInput(error.message, where=sample.where) from error
        error_s = max(0.0, estimate_s - elapsed_s) if model.variable else abs(estimate_s - elapsed_s)
        errors.setdefault(skill, []).append(error_s / max(elapsed_s, LEAST_TIME_S))
    return {skill: float(np.mean(shares)) for skill, shares in errors.items()}


def _check_fit_options(method: str, level: float, kinds: Mapping[str, str]) -> None:
    if method not in METHODS:
        raise UnknownName("method", method, METHODS)
    if not 0 < level < 1:
        raise BadInput(f"level: must lie between 0 and 1, got {level}")
    for kind in kinds.values():
        if kind not in KINDS:
            raise UnknownName("model", kind, KINDS)


def _fitted_skill_name(sample: RecordedSample, base: RobotProfile | None) -> str:
    if base is None:
        return sample.skill
    try:
        return base.skill_name(sample.skill)
    except UnknownName as error:
        raise BadInput(f"skill: {error.message}", where=sample.where) from error


def _check_fit_units(sample: RecordedSample, expected: Mapping[str, str], words: str) -> None:
    """Raise BadInput if the unit of an argument is not the expected one; an empty one is unknown."""
    for name, unit in sample.units.items():
        if (other := expected.get(name)) and other != unit:
            raise BadInput(f"units.{name}: is {unit!r}, {words} {other!r}", where=sample.where)


def _fit_profile_units(profile: RobotProfile, skill: str) -> dict[str, str]:
    entry = profile.skills[skill]
    return {name: entry.unit(name) for name in entry.args}


def _varying_fit_argument(group: Sequence[RecordedSample]) -> tuple[str | None, float]:
    """The varying numeric argument of all runs whose ranks correlate most with the times', and by how much."""
    best, strongest = None, -1.0
    y = _fit_times_s(group)
    for name in group[0].args:
        values = [sample.args.get(name) for sample in group]
        if not all(isinstance(value, float) for value in values):
            continue
        x = np.array(values, dtype=np.float64)
        if x.min() < 0.0:
            x = np.abs(x)
        if x.min() == x.max():
            continue
        # Ranks: a few runs that were held up do not hide what the argument tells.
        strength = 0.0 if y.min() == y.max() else abs(float(np.corrcoef(_fit_ranks(x), _fit_ranks(y))[0, 1]))
        if strength > strongest:
            best, strongest = name, strength
    return best, strongest


def _fit_ranks(values: Floats) -> Floats:
    """The place of each value in order; equal values share the middle of theirs."""
    ascending = np.sort(values)
    return (np.searchsorted(ascending, values, "left") + np.searchsorted(ascending, values, "right")) / 2.0


@dataclass(frozen=True, slots=True)
class _FitRecipe:
    """The model and method for one skill."""

    kind: Kind
    method: Method
    level: float
    argument: str = ""
    unit: str = ""
    variable: bool = False
    measure: Measure = "value"


def _fit_recipe(
    skill: str, group: Sequence[RecordedSample], kind: Kind | None, method: Method, level: float
) -> _FitRecipe:
    """The model and method for these runs, or for the requested ``kind``."""
    y = _fit_times_s(group)
    argument, strength = _varying_fit_argument(group) if kind in (None, "linear") else (None, 0.0)
    least = max(LEAST_RANKS, min(FEW_RANKS, CHANCE / math.sqrt(len(group) - 1)))
    if argument is not None and (kind == "linear" or strength >= least):
        unit = next((sample.units[argument] for sample in group if argument in sample.units), "")
        is_signed = any(float(sample.args[argument]) < 0.0 for sample in group)
        measure: Measure = "magnitude" if is_signed else "value"
        return _FitRecipe("linear", method, level, argument, unit, measure=measure)
    if kind == "linear":
        raise BadInput(
            f"{skill}: no numeric argument varies, so there is no line to fit", where=group[-1].where
        )
    spread = float(y.std() / y.mean()) if y.mean() > 0 else 0.0
    return _FitRecipe(kind or ("constant" if spread <= CONSTANT_SPREAD else "sampled"), method, level)


def _fit_times_s(group: Sequence[RecordedSample]) -> Floats:
    return np.array([sample.elapsed_s for sample in group])


def _fit_argument_values(group: Sequence[RecordedSample], argument: str) -> Floats:
    return np.array([float(sample.args[argument]) for sample in group])


def _fit_skill_model(skill: str, group: Sequence[RecordedSample], recipe: _FitRecipe) -> SkillFit:
    y = _fit_times_s(group)
    x = _fit_argument_values(group, recipe.argument) if recipe.argument else np.full(len(group), np.nan)
    model = _fit_execution_model(recipe, x, y)
    errors, early = _held_out_fit_errors(recipe, x, y)
    return SkillFit(
        skill,
        model,
        np.column_stack([x, y, _predict_fit(model, x)]),
        float((errors / np.maximum(y, LEAST_TIME_S)).mean()),
        float(errors.mean()),
        float((early / np.maximum(y, LEAST_TIME_S)).mean()),
        _fit_argument_ranges(group),
    )


def _fit_quantiles(values: Floats) -> tuple[float, ...]:
    levels = min(MOST_LEVELS, max(LEAST_LEVELS, len(values) // RUNS_PER_LEVEL + 1))
    return tuple(round(float(value), 6) for value in np.quantile(values, np.linspace(0, 1, levels)))


def _fit_execution_model(recipe: _FitRecipe, x: Floats, y: Floats) -> ExecutionModel:
    count, robust = len(y), recipe.method == "quantile"
    if recipe.kind == "sampled":
        return SampledModel(quantiles_s=_fit_quantiles(y), samples=count)
    if recipe.kind == "constant":
        centre = round(float(np.quantile(y, recipe.level) if robust else y.mean()), 6)
        return ConstantModel(
            seconds=centre, residual_s=_fit_quantiles(y - centre), samples=count, variable=recipe.variable
        )
    if recipe.measure == "magnitude":
        x = np.abs(x)
    intercept, slope = (
        fit_execution_quantile(x, y, recipe.level) if robust else fit_execution_least_squares(x, y)
    )
    intercept, slope = round(intercept, 9), round(slope, 9)
    return LinearModel(
        argument=recipe.argument,
        unit=recipe.unit,
        measure=recipe.measure,
        intercept_s=intercept,
        per_unit_s=slope,
        residual_s=_fit_quantiles(y - intercept - slope * x),
        samples=count,
        variable=recipe.variable,
    )


def _predict_fit(model: ExecutionModel, x: Floats) -> Floats:
    argument = model.argument if isinstance(model, LinearModel) else ""
    return np.array([model.mean_s({argument: float(value)}) for value in x])


def _held_out_fit_errors(recipe: _FitRecipe, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Cross-validation errors of each run, seconds, shapes ``(n,)``. A fold is every fifth run.

    They are the absolute error of the mean, and the shortfall below the minimum, of a model fitted without the fold.
    """
    errors, early = np.empty(len(y)), np.empty(len(y))
    folds = np.arange(len(y)) % FOLDS
    for fold in np.unique(folds):
        out = folds == fold
        model = _fit_execution_model(recipe, x[~out], y[~out])
        errors[out] = np.abs(y[out] - _predict_fit(model, x[out]))
        argument = model.argument if isinstance(model, LinearModel) else ""
        least = np.array([model.minimum_s({argument: float(value)}) for value in x[out]])
        early[out] = np.maximum(0.0, least - y[out])
    return errors, early


def _fit_argument_ranges(group: Sequence[RecordedSample]) -> dict[str, dict[str, Any]]:
    """Unit and range of each argument as limits of a profile. Values outside the runs are not allowed."""
    ranges: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for sample in group for name in sample.args):
        values = [sample.args[name] for sample in group if name in sample.args]
        unit = next((sample.units[name] for sample in group if name in sample.units), "")
        numbers = [value for value in values if isinstance(value, float)]
        if len(numbers) == len(values):
            ranges[name] = {"unit": unit, "min": min(numbers), "max": max(numbers)}
        else:
            ranges[name] = {"unit": unit or "text", "max_chars": 120}
    return ranges
