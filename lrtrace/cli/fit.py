"""``lrtrace fit``: fit execution-time models to recorded runs."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, cast

import typer

from lrtrace.cli.output import JsonFile, Output, Plot, check_lrtrace_option, print_lrtrace_result
from lrtrace.errors import BadInput
from lrtrace.fit.execution_time import (
    KINDS,
    METHODS,
    MIN_SAMPLES,
    ExecutionTimeFit,
    Kind,
    Method,
    check_fit,
    fit_samples,
)
from lrtrace.fit.fitted_profile import plot_fit_residuals, robot_profile_from_fit, write_fitted_profile
from lrtrace.profiles import load_robot_profile
from lrtrace.record.samples import RecordedSample, read_recorded_samples
from lrtrace.robot_profile import NAME


def lrtrace_fit_command(
    files: Annotated[list[Path], typer.Argument(metavar="SAMPLES", help="Recorded runs (.samples.jsonl).")],
    output: Output,
    base: Annotated[
        str | None,
        typer.Option(metavar="PROFILE", help="Keep the limits and the other skills of this profile."),
    ] = None,
    method: Annotated[str, typer.Option(help=f"{' or '.join(METHODS)}.")] = "least-squares",
    level: Annotated[
        float | None,
        typer.Option(
            help="Of the line that the quantile method draws; 0.5 unless given. Plans use the mean."
        ),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(metavar="SKILL=MODEL", help=f"Model of a skill: {', '.join(KINDS)}.")
    ] = None,
    variable: Annotated[
        list[str] | None,
        typer.Option(metavar="SKILL", help="Its time depends on the scene: plan with its minimum."),
    ] = None,
    min_samples: Annotated[
        int, typer.Option(min=MIN_SAMPLES, help="Refuse skills with fewer runs.")
    ] = MIN_SAMPLES,
    on: Annotated[str, typer.Option(help="What was measured, in words, for the profile.")] = "",
    network: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.0, help="Delay to the robot, seconds.")
    ] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option(metavar="SAMPLES", help="Runs of another recording that the errors are measured on."),
    ] = None,
    plot: Plot = None,
    json_file: JsonFile = None,
) -> None:
    """Fit execution-time models to recorded runs.

    They are written as a robot profile, which is named like the file.
    """
    if output.suffix != ".yaml" or not NAME.fullmatch(output.stem):
        raise BadInput("name the profile like my-drone.yaml", where=str(output))
    if level is not None and method != "quantile":
        raise BadInput("goes with --method quantile", where="--level")
    _check_lrtrace_files_differ([*files, *(check or ())])
    base_profile = None if base is None else load_robot_profile(base)
    runs = [sample for file in files for sample in read_recorded_samples(file)]
    fit = fit_samples(
        _check_lrtrace_runs_not_empty(runs, files),
        base=base_profile,
        method=cast(Method, check_lrtrace_option("method", method, METHODS)),
        level=0.5 if level is None else level,
        kinds=_parse_lrtrace_kinds(model or []),
        variable=variable or (),
        min_samples=min_samples,
    )
    date = datetime.now(UTC).date().isoformat()
    others = (sample for file in check or () for sample in read_recorded_samples(file))
    other_errors = check_fit(fit, others, base_profile) if check else {}
    raw = robot_profile_from_fit(
        fit, output.stem, date=date, on=on, base=base_profile, network_s=network, check_errors=other_errors
    )
    write_fitted_profile(output, raw)
    if plot is not None:
        plot_fit_residuals(fit, plot)
    report = {skill: skill_fit.summary() for skill, skill_fit in fit.skills.items()}
    for skill, error in other_errors.items():
        report[skill]["checked_error"] = round(error, 6)
    print_lrtrace_result(
        json_file,
        {"profile": str(output), "robot": fit.robot, "samples": fit.run_count, "skills": report},
        [
            f"{output}: {len(fit.skills)} skills from {fit.run_count} runs of {fit.robot}",
            *_lrtrace_fit_report_lines(fit, other_errors),
        ],
    )


def _check_lrtrace_files_differ(files: Sequence[Path]) -> None:
    """Raise BadInput for a file that comes twice: a run that is fitted says nothing of the error on other runs."""
    earlier: set[Path] = set()
    for file in files:
        if file.resolve() in earlier:
            raise BadInput("is named twice", where=str(file))
        earlier.add(file.resolve())


def _check_lrtrace_runs_not_empty(runs: list[RecordedSample], files: Sequence[Path]) -> list[RecordedSample]:
    if not runs:
        raise BadInput("no run that was done", where=", ".join(map(str, files)))
    return runs


def _parse_lrtrace_kinds(options: Sequence[str]) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for text in options:
        skill, equals, kind = text.partition("=")
        if not equals:
            raise BadInput(f"write SKILL=MODEL, got {text!r}", where="--model")
        kinds[skill] = cast(Kind, check_lrtrace_option("model", kind, KINDS))
    return kinds


def _lrtrace_fit_report_lines(fit: ExecutionTimeFit, other_errors: Mapping[str, float]) -> list[str]:
    heading = f"{'skill':18}{'model':10}{'runs':>6}{'mean s':>10}{'min s':>10}{'residual s':>12}{'held-out error':>16}"
    lines = [heading + (f"{'on other runs':>15}" if other_errors else "")]
    for skill, skill_fit in fit.skills.items():
        summary = skill_fit.summary()
        lines.append(
            f"{skill:18}{summary['model']:10}{summary['samples']:>6}{summary['mean_s']:>10.3f}{summary['min_s']:>10.3f}"
            f"{summary['residual_std_s']:>12.4f}{100 * skill_fit.estimate_error:>15.1f}%"
            + (f"{100 * other_errors[skill]:>14.1f}%" if skill in other_errors else "")
            + (" (minimum rule)" if skill_fit.model.variable else "")
        )
    return lines
