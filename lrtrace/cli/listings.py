"""``lrtrace tasks`` and ``lrtrace profiles``: list benchmark tasks and robot profiles."""

from typing import Annotated, Any

import typer

from lrtrace.cli.output import JsonFile, print_lrtrace_result
from lrtrace.compose.tasks import TASKS
from lrtrace.profiles import load_robot_profile, robot_profile_names
from lrtrace.robot_profile import RobotProfile

COLUMNS = ("trace_id", "title", "kind", "task", "skill_set", "robot")


def lrtrace_tasks_command(json_file: JsonFile = None) -> None:
    """List the benchmark tasks and their plans."""
    values, lines = [], []
    for task in TASKS.values():
        plans = [list(variant.segments) for variant in task.variants]
        plain = {name: getattr(task, name) for name in COLUMNS}
        values.append({**plain, "tuf": task.tuf.to_dict(), "urgency": task.urgency, "plans": plans})
        lines.append(f"{task.trace_id:>3}  {task.title} ({task.kind})")
        lines += [f"       {' '.join(segments)}" for segments in plans]
    print_lrtrace_result(json_file, {"tasks": values}, lines)


def lrtrace_profiles_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME|FILE", help="Show or check these.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """List robot profiles, or show (and so check) some."""
    profiles = [load_robot_profile(name) for name in names or robot_profile_names()]
    lines: list[str] = []
    for profile in profiles:
        lines.append(f"{profile.name}: {profile.robot}")
        lines += _lrtrace_profile_lines(profile) if names else []
    print_lrtrace_result(
        json_file, {"profiles": [profile.model_dump(mode="json") for profile in profiles]}, lines
    )


def _lrtrace_profile_lines(profile: RobotProfile) -> list[str]:
    lines = [f"  source: {profile.source}", f"  network: {profile.network_s:g} s"]
    for part in ("geofence", "speed", "failsafe"):
        values = (profile.model_dump(mode="json", include={part}, exclude_none=True).get(part) or {}).items()
        lines += [f"  {part}: " + ", ".join(f"{name} {value}" for name, value in values)] if values else []
    for skill, entry in profile.skills.items():
        limits = ", ".join(
            f"{name} {limit.min:g}..{limit.max:g} {limit.unit}".rstrip()
            if limit.min is not None and limit.max is not None
            else name
            for name, limit in entry.args.items()
        )
        permission = "" if profile.allows(skill) else "  [forbidden]"
        short = f", abbr {entry.abbr}" if entry.abbr else ""
        basis = entry.basis or "no basis given"
        lines.append(
            f"  {skill}({limits}): {_lrtrace_model_text(entry.execution)}, {basis}{short}{permission}"
        )
    return lines


def _lrtrace_model_text(model: Any) -> str:
    if model.model == "linear":
        unit = f"|{model.unit}|" if model.measure == "magnitude" else model.unit
        return f"{model.intercept_s:g} s + {model.per_unit_s:g} s/{unit}"
    if model.model == "constant":
        return f"{model.seconds:g} s"
    return f"{model.quantiles_s[0]:g} to {model.quantiles_s[-1]:g} s"
