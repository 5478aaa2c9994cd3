"""Operators by token, out of the file of principals that the server reads."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from manual_clock import ManualClock
from ros_harness import principals
from timely_robots.operators import LOCAL, PRINCIPALS_VARIABLE, RobotOperators

from lrtrace.yaml_file import MAX_BYTES
from timely.core.errors import InvalidInput, NotAllowed
from timely.principals import PrincipalRegistry, new_principal_entry

TOKEN = "token-of-an-operator-of-all"
EMPTY = hashlib.sha256(b"").hexdigest()
"""The digest of the token that the tests of unusable files send."""


def test_without_principals_every_caller_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PRINCIPALS_VARIABLE, raising=False)
    assert RobotOperators().identify("", ["arm1"], "reset") == LOCAL


def test_a_token_counts_for_its_role_and_robots_and_changes_at_once(tmp_path: Path) -> None:
    file = tmp_path / "principals.yaml"
    file.write_text(principals(("ann", "operator", TOKEN, "arm*"), ("prog", "program", "p" * 20)))
    operators = RobotOperators(str(file))
    assert operators.identify(TOKEN, ["arm1", "arm2"], "reset") == "ann"
    for token, robots in ((TOKEN, ["arm1", "drone1"]), ("p" * 20, ["arm1"]), ("", []), ("x", [])):
        with pytest.raises(NotAllowed, match="token of an operator"):
            operators.identify(token, robots, "reset")
    file.write_text(principals(("bob", "operator", "b" * 20)))
    with pytest.raises(NotAllowed):
        operators.identify(TOKEN, ["arm1"], "reset")
    assert operators.identify("b" * 20, ["drone1"], "reset") == "bob"


def test_an_empty_list_of_robots_names_none(tmp_path: Path) -> None:
    file = tmp_path / "principals.yaml"
    (entry,) = json.loads(principals(("ann", "operator", TOKEN)))
    file.write_text(json.dumps([entry | {"agents": []}]))
    with pytest.raises(NotAllowed, match="token of an operator"):
        RobotOperators(str(file)).identify(TOKEN, ["arm1"], "reset")
    file.write_text(json.dumps([entry | {"agents": None}]))
    assert RobotOperators(str(file)).identify(TOKEN, ["arm1"], "reset") == "ann"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "{",
        "[" * 5000,
        "- 3",
        "- {name: a, roles: [operator]}",
        "a: b",
        f"- {{name: a, roles: no operator, token_sha256: [{EMPTY}]}}",
        f"- {{name: a, roles: [operator], token_sha256: {EMPTY}}}",
        f"- {{name: a, roles: [operator], token_sha256: [{EMPTY}], agents: '*arm1'}}",
        f"- {{name: a, roles: [operator], token_sha256: [{EMPTY}], agent: [drone1]}}",
        f"- {{name: a, roles: [operator], token_sha256: [{EMPTY}]}}\n"
        f"- {{name: a, roles: [viewer], token_sha256: ['{'0' * 64}']}}",
        f"- {{name: a, roles: [operator], token_sha256: [{EMPTY}]}}\n"
        f"- {{name: b, roles: [viewer], token_sha256: [{EMPTY}]}}",
    ],
)
def test_principals_that_cannot_be_read_allow_nothing(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "principals.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(NotAllowed, match="cannot be read"):
        RobotOperators(str(file)).identify("", ["arm1"], "reset")


def test_the_file_is_that_of_the_server(tmp_path: Path) -> None:
    token, entry = new_principal_entry("ann", ["operator"])
    file = tmp_path / "principals.yaml"
    file.write_text(entry)
    assert PrincipalRegistry(file, None, ManualClock()).find(token) is not None
    assert RobotOperators(str(file)).identify(token, ["arm1"], "reset") == "ann"


def test_a_large_file_is_one_for_driver_and_server(tmp_path: Path) -> None:
    token, entry = new_principal_entry("ann", ["operator"])
    file = tmp_path / "principals.yaml"
    file.write_text(entry + "#" * (MAX_BYTES - len(entry)))
    assert PrincipalRegistry(file, None, ManualClock()).find(token) is not None
    assert RobotOperators(str(file)).identify(token, ["arm1"], "reset") == "ann"
    file.write_text(f"{file.read_text()}#")
    with pytest.raises(InvalidInput, match="too large"):
        PrincipalRegistry(file, None, ManualClock())
    with pytest.raises(NotAllowed, match="too large"):
        RobotOperators(str(file)).identify(token, ["arm1"], "reset")
