"""The command ``lrtrace``, a file a command."""

from lrtrace.cli.main import main, run_lrtrace_command

__all__ = ["main", "run_lrtrace_command"]
