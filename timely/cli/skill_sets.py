"""``timely skill-sets``: the skill sets that a server would read, what their plans may call, and what is wrong."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from timely.cli.output import JsonFile, cli_say, write_cli_json
from timely.core.errors import TimelyError
from timely.plans.skill_library import skill_set_file, skill_set_names
from timely.plans.skill_set import Skill, SkillArgument, SkillSet
from timely.plans.skill_set_check import check_skill_set_file

BAD_INPUT = 2


def command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME|FILE", help="Show and check these.")
    ] = None,
    json_file: JsonFile = None,
) -> int:
    """List skill sets, or show some with their calls.

    Each is checked as ``timely serve`` checks all of them at its start. A broken one is a line on standard error, and
    the exit code is 2.
    """
    say = cli_say(json_file)
    entries: list[dict[str, Any]] = []
    problems: list[str] = []
    for file in [skill_set_file(name) for name in names or skill_set_names()]:
        try:
            skill_set = check_skill_set_file(file)
        except TimelyError as error:
            problems.append(str(error))
            print(f"timely: {error}", file=sys.stderr)
            continue
        entries.append(
            {**skill_set.model_dump(mode="json"), "fingerprint": skill_set.fingerprint, "file": str(file)}
        )
        say(f"{skill_set.name}: {skill_set.description}")
        for line in _cli_skill_set_lines(skill_set, file) if names else ():
            say(f"  {line}")
    write_cli_json(json_file, {"skill_sets": entries, "problems": problems})
    return BAD_INPUT if problems else 0


def _cli_skill_set_lines(skill_set: SkillSet, file: Path) -> list[str]:
    robot = f"robot {skill_set.profile}, " if skill_set.profile else ""
    return [
        f"file: {file}",
        f"language {skill_set.language}, {robot}{len(skill_set.examples)} examples, "
        f"fingerprint {skill_set.fingerprint}",
        *map(_cli_skill_call, skill_set.skills),
    ]


def _cli_skill_call(skill: Skill) -> str:
    call = f"{skill.word}({', '.join(map(_cli_skill_argument, skill.arguments))})"
    properties = [
        *([f"returns {skill.returns}"] if skill.returns != "none" else []),
        *(name for name in ("blocks", "confirm") if getattr(skill, name)),
    ]
    name = f" {skill.name}" if skill.word != skill.name else ""
    return f"{call}{name}" + (f" [{', '.join(properties)}]" if properties else "")


def _cli_skill_argument(argument: SkillArgument) -> str:
    if argument.choices is not None:
        return f"{argument.name}: {'|'.join(map(str, argument.choices))}"
    if argument.min is None and argument.max is None:
        return f"{argument.name}: {argument.type}"
    low, high = ("" if bound is None else f"{bound:g}" for bound in (argument.min, argument.max))
    return f"{argument.name}: {low}..{high} {argument.unit}".rstrip()
