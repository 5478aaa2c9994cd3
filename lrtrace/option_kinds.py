"""A command line whose help names kinds of values in words: TEXT, N (whole), X (any number), FILE."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import typer
import typer.core

Function = TypeVar("Function", bound=Callable[..., Any])

KINDS = {"str": "TEXT", "int": "N", "float": "X", "path": "FILE"}
"""Instead of typer's ``<str>``, ``<int range>`` and so on."""

_TYPE = re.compile(r" <(?:list\[)?(\w+)[^>]*>")


class PlainHelpCommand(typer.core.TyperCommand):
    """A command with plain kinds of values in its help; an argument says its kind by its name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                name = _TYPE.sub(
                    "" if parameter.param_type_name == "argument" else _plain_lrtrace_option_kind, record[0]
                )
                records[parameter.param_type_name].append((name, record[1]))
        for heading, rows in records.items():
            if rows:
                with formatter.section(f"{heading.capitalize()}s"):
                    formatter.write_dl(rows)


def _plain_lrtrace_option_kind(match: re.Match[str]) -> str:
    return f" {KINDS.get(match[1], match[1].upper())}"


class PlainHelpTyper(typer.Typer):
    """A group of such commands, which prints its help without arguments, and errors as typer has them."""

    def __init__(self, **options: Any) -> None:
        plain = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
        super().__init__(**{**plain, "no_args_is_help": True, **options})

    def command(self, *arguments: Any, **options: Any) -> Callable[[Function], Function]:
        return super().command(*arguments, **{"cls": PlainHelpCommand, **options})
