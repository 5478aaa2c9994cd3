"""The example with five robots: it runs, with the vendors' clients, and its audit finds what it is for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from emulated_robots import need, own_host

pytestmark = [pytest.mark.ros]
EXAMPLES = Path(__file__).parents[3] / "examples" / "robots"
SCRIPT = EXAMPLES / "five_robots.py"


def test_five_robots_do_what_they_are_sent_and_nothing_else(tmp_path: Path, domain_id: int) -> None:
    need("neuromeka", "djitellopy")
    file = tmp_path / "report.json"
    command = [sys.executable, str(SCRIPT), "--engine", "scripted", "--seconds", "5", "--urgent-every", "2.5"]
    command += ["--timely", str(Path(sys.executable).with_name("timely")), "--json", str(file)]
    first = int(IPv4Address(own_host(20))) - int(IPv4Address("127.0.0.0"))
    command += ["--first-host", str(first)]
    done = subprocess.run(
        command,
        env={**os.environ, "ROS_DOMAIN_ID": str(domain_id)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = json.loads(file.read_text())
    assert report["wrong"] == []
    assert all(actions > 0 for actions in report["actions"].values()), report["actions"]
    assert sum(report["outcomes"].values()) >= 6
    assert report["outcomes"]["complete"] >= 4


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import five_robots

    return five_robots


def moved(*commands: str) -> list[dict[str, Any]]:
    return [
        {
            "event": "command" if "SetDO" in text else "motion",
            "command": text,
            "start_s": 1.0 + n,
            "t_s": 1.0 + n,
        }
        for n, text in enumerate(commands)
    ]


@pytest.mark.parametrize(
    ("commands", "wrong"),
    [
        (["takeoff", "back 50", "cw 60", "cw 60", "ccw 12", "forward 140", "up 40", "up 40", "land"], 0),
        (["back 50", "up 40", "up 40"], 0),
        (["back 50", "cw 60"], 0),
        (["back 50", "back 50", "up 40"], 1),
        (["up 40", "back 50"], 1),
        (["back 50", "up 40", "up 40", "up 40"], 1),
        (["back 51"], 1),
        (["back 50", "down 30"], 1),
    ],
)
def test_the_audit_follows_a_plan(example: Any, commands: list[str], wrong: int) -> None:
    texts = {0: "mb(50);", 1: "?s('cat')==True{", 2: "g('cat')}", 3: "2{mu(40);}", 4: "md(30);"}
    # The last segment was sent and never begun.
    plan = example.SentTask("drone", texts, dict.fromkeys(range(4), 0.5), 30.0)
    actions, problems = example.audit(moved(*commands), [plan])
    assert actions == sum(command not in ("takeoff", "land") for command in commands)
    assert len(problems) == wrong, problems


def test_the_audit_knows_one_plan_from_the_next(example: Any) -> None:
    first = example.SentTask("arm", {0: "pick('cup');"}, {0: 0.9}, 2.2)
    second = example.SentTask("arm", {0: "pick('box');", 1: "home();"}, {0: 2.4, 1: 6.0}, 9.0)
    line = "MoveL(1,2,3)"
    cut = moved(line, line, line, "SetDO(0=1)", line, "MoveJ(0)")
    assert example.audit(cut, [second, first])[1] == [], "the first was cut after one or two moves"
    again = moved(line, line, "SetDO(0=1)", line, line, "SetDO(0=1)", line, "MoveJ(0)", "SetDO(0=1)")
    assert len(example.audit(again, [first, second])[1]) == 1
