"""``timely disciplines``: the queue disciplines and their properties."""

from timely.cli.output import JsonFile, cli_say, write_cli_json
from timely.disciplines import registry


def command(json_file: JsonFile = None) -> None:
    """List the queue disciplines: source, requirements, strengths, and requests that may starve."""
    infos = registry.discipline_infos()
    write_cli_json(json_file, {"default": registry.DEFAULT, "disciplines": infos})
    say = cli_say(json_file)
    for info in infos:
        default = ", the default" if info.name == registry.DEFAULT else ""
        say(f"{info.name}{default}: {info.summary}")
        for heading, text in (
            ("from", info.source),
            ("needs", ", ".join(info.needs) or "nothing beyond the job itself"),
            ("good at", info.good_at or "-"),
            ("may starve", info.starves or "none"),
        ):
            say(f"    {heading:<11}{text}")
