"""``timely emulate``: the command ``timely-emulate`` under its other name."""

import typer

from timely.emulators.cli import run_emulator_command

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def command(context: typer.Context) -> int:
    """Emulate a robot on loopback, to try drivers without one: tello or indy7."""
    return run_emulator_command(context.args, "timely emulate")
