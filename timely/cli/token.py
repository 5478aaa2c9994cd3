"""``timely token``: a token for a principal of the server, and its entry for the file of principals."""

from typing import Annotated

import typer


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the principal.")],
    role: Annotated[
        list[str], typer.Option(metavar="ROLE", help="robot, program, operator or viewer; may be repeated.")
    ],
    agent: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Robot that it may command, or a pattern such as drone-*."),
    ] = None,
) -> None:
    """Make a token. Its entry for the file of principals goes to standard output, the token to standard error.

    Example: timely token hall-1 --role robot --agent "drone-*" >> principals.yaml
    """
    from timely.principals import new_principal_entry

    token, entry = new_principal_entry(name, role, agent or ())
    typer.echo(entry, nl=False)
    typer.echo(f"timely: the token of {name}, shown this once: {token}", err=True)
