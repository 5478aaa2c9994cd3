"""The soak: it works for a while and finds nothing, and it would say so if something grew."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from timely_ros_bench.soak import _judge_soak

from timely.cli.main import run_timely_command

pytestmark = [pytest.mark.ros]


@pytest.mark.long
def test_two_robots_leave_nothing_behind(
    tmp_path: Path, domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain_id))
    file = tmp_path / "soak.json"
    assert run_timely_command(["bench", "soak", "--minutes", "7", "--speed", "60", "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    assert result["flat"]
    assert (result["tasks_left"], set(result["outcomes"])) == (0, {"complete"})
    assert result["tasks"] >= 12
    assert set(result["processes"]) == {"server", "fleet", "program"}
    assert result["recorded_mb"] > 0.0


@pytest.mark.parametrize(
    ("what", "per_look", "flat"),
    [("rss_mb", 1.0, False), ("files", 1.0, False), ("threads", 0.5, False), ("", 0.0, True)],
)
def test_growth_is_seen(what: str, per_look: float, flat: bool) -> None:
    def look(number: int) -> dict[str, dict[str, float]]:
        values = {"rss_mb": 100.0, "files": 10.0, "threads": 5.0, "children": 0.0}
        if what:
            values[what] += per_look * number
        return {"fleet": values}

    worker: Any = SimpleNamespace(tasks=1, outcomes={})
    samples = [look(number) for number in range(24)]
    assert _judge_soak(samples, worker, 0, 24.0, 40.0, 0.0)["flat"] is flat
    assert not _judge_soak(samples, worker, 1, 24.0, 40.0, 0.0)["flat"], "a task is left"
