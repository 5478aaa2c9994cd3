"""The command ``lrtrace``, a file a command."""

from lrtrace.cli.main import main, run

__all__ = ["main", "run"]
