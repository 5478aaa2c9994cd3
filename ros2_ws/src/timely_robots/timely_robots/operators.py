"""Identifies operators by bearer token, with the file of principals that the server reads too."""

import hashlib
import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lrtrace.errors import BadInput
from lrtrace.yaml_file import read_plain_yaml
from timely.core.errors import NotAllowed

PRINCIPALS_VARIABLE = "TIMELY_PRINCIPALS"
"""Environment variable: the file of principals, where no parameter names one."""
LOCAL = "local"
"""Every caller where no principals are configured."""
FIELDS = {"name", "roles", "token_sha256", "agents", "claims", "limits"}
"""Of an entry. Another one may be a typing error, as ``agent``, which would leave an operator with every robot."""


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
        digest = hashlib.sha256(token.encode()).hexdigest()
        try:
            for entry in self._read(self._file):
                agents = entry.get("agents")
                patterns = ["*"] if agents is None else agents
                commands = all(any(fnmatchcase(robot, one) for one in patterns) for robot in robots)
                if commands and digest in entry["token_sha256"] and "operator" in entry["roles"]:
                    return str(entry["name"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, BadInput) as error:
            raise NotAllowed(f"the principals cannot be read: {error}", where=str(self._file)) from error
        raise NotAllowed(f"to {action} needs the token of an operator of these robots", where="token")

    def _read(self, file: Path) -> list[dict[str, Any]]:
        entries = list(read_plain_yaml(file).value or [])
        for entry in entries:
            if unknown := sorted(map(str, entry.keys() - FIELDS)):
                raise ValueError(f"unknown field {unknown[0]!r}")
            # In a text instead of a list every part of a word would count.
            if any(isinstance(entry.get(key), str) for key in ("agents", "roles", "token_sha256")):
                raise ValueError("agents, roles and token_sha256 are lists")
        return entries
