"""Identifies operators by bearer token, with the file of principals that the server reads too."""

import os
from collections.abc import Iterable
from pathlib import Path

from timely.core.errors import InvalidInput, NotAllowed
from timely.principals import principal_token_digest, read_principal_file

PRINCIPALS_VARIABLE = "TIMELY_PRINCIPALS"
"""Environment variable: the file of principals, where no parameter names one."""
LOCAL = "local"
"""Every caller where no principals are configured."""


class RobotOperators:
    """The principals with the role ``operator``. The file is read at each check, so tokens change without a restart.

    Args:
        file: of principals, as for ``timely serve --principals``; empty: ``$TIMELY_PRINCIPALS``. Without either every
            caller is an operator.
    """

    def __init__(self, file: str = "") -> None:
        name = file or os.environ.get(PRINCIPALS_VARIABLE, "")
        self._file = Path(name).expanduser() if name else None

    def identify(self, token: str, robots: Iterable[str], action: str) -> str:
        """The name of the operator with this token, who may command all these robots.

        Raises:
            NotAllowed: there is none, or the file cannot be read.
        """
        if self._file is None:
            return LOCAL
        try:
            principal = read_principal_file(self._file).by_digest.get(principal_token_digest(token))
        except InvalidInput as error:
            raise NotAllowed(f"the principals cannot be read: {error}", where=str(self._file)) from error
        if principal is None or "operator" not in principal.roles or not all(map(principal.commands, robots)):
            raise NotAllowed(f"to {action} needs the token of an operator of these robots", where="token")
        return principal.name
