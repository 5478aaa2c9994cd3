"""Writes a fit as a robot profile, and draws its residuals."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml

from lrtrace.errors import BadInput
from lrtrace.fit.execution_time import ExecutionTimeFit, SkillFit
from lrtrace.jsonl import open_trace_output
from lrtrace.models import LinearModel
from lrtrace.plots import new_lrtrace_figure, save_lrtrace_figure
from lrtrace.profiles import find_robot_profile, load_robot_profile
from lrtrace.robot_profile import RobotProfile

MAX_PANELS = 24


def robot_profile_from_fit(
    fit: ExecutionTimeFit,
    name: str,
    *,
    date: str,
    on: str = "",
    base: RobotProfile | None = None,
    network_s: float | None = None,
    check_errors: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The fields of a profile with this fit.

    Args:
        name: name of the new profile.
        date: date of the measurement, ISO 8601.
        on: the measured robot in words.
        base: profile with the limits and other skills. Without it the limits are the ranges of the runs.
        network_s: delay to the robot, seconds; by default that of the base.
        check_errors: errors on another recording by skill; by default those of cross-validation.
    """
    raw: dict[str, Any] = {"name": name}
    if base is not None and _is_fit_base_findable(base) and base.name != name:
        raw["extends"] = base.name
    elif base is not None:
        raw |= base.model_dump(mode="json", exclude_defaults=True)
        raw["name"] = name
        for skill, base_skill in base.skills.items():
            raw["skills"][skill]["execution"]["model"] = base_skill.execution.model
    raw |= {
        "robot": base.robot if base is not None else fit.robot,
        "source": f"fitted by lrtrace fit to {fit.run_count} recorded runs" + (f" on {on}" if on else ""),
        "measured": {"date": date, "samples": fit.run_count, "setup": on},
    }
    if network_s is not None or base is None:
        raw["network_s"] = network_s or 0.0
    skills: dict[str, Any] = raw.setdefault("skills", {})
    for skill, skill_fit in fit.skills.items():
        entry: dict[str, Any] = dict(skills.get(skill, {}))
        if base is None:
            entry["args"] = {argument: dict(limit) for argument, limit in skill_fit.args.items()}
        execution = skill_fit.model.model_dump(mode="json", exclude_defaults=True)
        entry["execution"] = {"model": skill_fit.model.model, **execution}
        if isinstance(skill_fit.model, LinearModel) and not skill_fit.model.unit:
            entry["execution"]["unit"] = _fitted_unit(base, skill, skill_fit.model.argument)
        entry["basis"] = "fitted"
        entry["held_out_error"] = round((check_errors or {}).get(skill, skill_fit.estimate_error), 4)
        skills[skill] = entry
    return raw


def _is_fit_base_findable(base: RobotProfile) -> bool:
    """The base is a profile that can be found by name."""
    try:
        return find_robot_profile(base.name) == base
    except BadInput:
        return False


def _fitted_unit(base: RobotProfile | None, skill: str, argument: str) -> str:
    limit = base.skills[skill].args.get(argument) if base is not None and skill in base.skills else None
    return limit.unit if limit is not None else ""


def write_fitted_profile(path: str | Path, raw: dict[str, Any]) -> RobotProfile:
    """Write a profile. It replaces the file only after it was read back without an error.

    Raises:
        BadInput: the file cannot be written, or the fields are no valid profile.
    """
    target = Path(path)
    try:
        with TemporaryDirectory(prefix=".lrtrace-", dir=target.parent) as folder:
            draft = Path(folder) / target.name
            with open_trace_output(draft) as file:
                yaml.safe_dump(
                    raw, file, sort_keys=False, default_flow_style=None, allow_unicode=True, width=110
                )
            profile = load_robot_profile(draft)
            os.replace(draft, target)
            return profile
    except OSError as error:
        raise BadInput(f"cannot write it: {error.strerror or error}", where=str(target)) from error


def plot_fit_residuals(fit: ExecutionTimeFit, path: str | Path) -> None:
    """Draw measured times, modelled times and residuals of each skill.

    Raises:
        BadInput: matplotlib is not installed, or the file cannot be written.
    """
    panel_fits = list(fit.skills.items())[:MAX_PANELS]
    columns = min(4, len(panel_fits))
    rows = -(-len(panel_fits) // columns)
    figure = new_lrtrace_figure(4.2 * columns, 4.4 * rows)
    panels = np.atleast_2d(figure.subfigures(rows, columns))
    for (skill, skill_fit), panel in zip(panel_fits, panels.reshape(-1), strict=False):
        upper, lower = panel.subplots(2, 1, height_ratios=(3, 2), sharex=True)
        _draw_fit(upper, skill, skill_fit)
        _draw_fit_residuals(lower, skill_fit)
    save_lrtrace_figure(figure, Path(path))


def _draw_fit(axes: Any, skill: str, skill_fit: SkillFit) -> None:
    x, times_s, model_s = skill_fit.points.T
    model = skill_fit.model
    if isinstance(model, LinearModel):
        line = dict(zip(x, model_s, strict=True))
        if model.measure == "magnitude" and x.min() < 0.0 < x.max():
            line[0.0] = max(model.floor_s, model.intercept_s)  # where the line turns
        axes.plot(x, times_s, ".", alpha=0.6, label="measured")
        axes.plot(*zip(*sorted(line.items()), strict=True), "-", label="model")
    else:
        levels = np.linspace(0, 1, 101)
        axes.plot(np.linspace(0, 1, len(times_s)), np.sort(times_s), ".", alpha=0.6, label="measured")
        axes.plot(levels, [model.quantile_s(float(level), {}) for level in levels], "-", label="model")
    axes.set_ylim(0, 1.15 * max(times_s.max(), 1e-3))
    axes.set_ylabel("execution [s]")
    kind = "minimum of" if model.variable else f"{model.model},"
    error = f"held-out error {100 * skill_fit.estimate_error:.1f}%"
    axes.set_title(f"{skill}: {kind} {len(x)} runs\n{error}", fontsize=9)
    axes.legend(fontsize=7)


def _draw_fit_residuals(axes: Any, skill_fit: SkillFit) -> None:
    model, residuals = skill_fit.model, skill_fit.residuals_s
    axes.axhline(0.0, linewidth=0.8, color="black")
    if isinstance(model, LinearModel):
        axes.plot(skill_fit.points[:, 0], residuals, ".", alpha=0.6)
        axes.set_xlabel(f"{model.argument} [{model.unit}]" if model.unit else model.argument)
    else:
        axes.plot(np.linspace(0, 1, len(residuals)), np.sort(residuals), ".", alpha=0.6)
        axes.set_xlabel("quantile of the runs")
    axes.set_ylabel("residual [s]")
