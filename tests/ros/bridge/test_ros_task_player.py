"""Scripts of tasks that are played over ROS 2, robot by robot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
from bridge_doubles import FakeServer
from fleet_world import a_fleet, fleet_world
from ros_harness import LIMIT_S, eventually
from timely_bridge.task_player import play_bridge_tasks
from timely_robots.ros import actions

pytestmark = [pytest.mark.ros]


def test_a_script_of_tasks_is_played_robot_by_robot(
    domain_id: int, server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with fleet_world(domain_id, a_fleet(), server):
        tasks = [
            {
                "at_s": 0.0,
                "robot": "drone1",
                "task": "fly",
                "tuf": {"ert_s": 0.2, "alpha": -6.67, "beta": 2.0},
            },
            {"at_s": 0.1, "robot": "drone1", "task": "fly", "urgency": 4},
            {"at_s": 0.0, "robot": "arm1", "task": "tidy", "scene": "a cup"},
            {"at_s": 0.0, "robot": "drone2", "task": ""},
        ]
        late = [{"at_s": 60.0, "robot": "drone2", "task": "fly"}]
        assert play_bridge_tasks(tasks, Event(), domain_id=domain_id)
        assert play_bridge_tasks(late, Event(), until_s=0.1, domain_id=domain_id)
        ended = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
        assert sorted((one["robot"], one["task"], one["outcome"]) for one in ended) == [
            ("arm1", "tidy", "complete"),
            ("drone1", "fly", "complete"),
            ("drone1", "fly", "complete"),
            ("drone2", "", "refused"),
        ]
        assert [one["utility"] for one in ended if one["robot"] == "drone2"] == [None]
        assert len(server.submitted) == 3


@contextmanager
def play(task: str, domain_id: int) -> Iterator[tuple[Event, Future[bool]]]:
    """Play a script of one task in the background: what stops it, and whether it came to its end."""
    stop, script = Event(), [{"at_s": 0.0, "robot": "drone1", "task": task}]
    with ThreadPoolExecutor(1) as thread:
        try:
            yield stop, thread.submit(play_bridge_tasks, script, stop, domain_id=domain_id)
        finally:
            stop.set()


def test_a_play_that_is_stopped_cancels_what_runs(domain_id: int, server: FakeServer) -> None:
    with fleet_world(domain_id, a_fleet(), server), play("wait", domain_id) as (stop, ended):
        eventually(lambda: server.reports, "it never began")
        stop.set()
        assert not ended.result(LIMIT_S)
        assert len(server.cancelled) == 1


def test_a_play_requests_a_lost_result_again(
    domain_id: int, server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost: list[Any] = []
    take_result = actions.RosActionCall._on_result

    def lose_first(call: actions.RosActionCall, response: Any) -> None:
        if lost:
            take_result(call, response)
        lost.append(response)

    monkeypatch.setattr(actions.RosActionCall, "_on_result", lose_first)
    monkeypatch.setattr(actions, "RESULT_S", 0.3)
    with fleet_world(domain_id, a_fleet(), server), play("fly", domain_id) as (_, ended):
        assert ended.result(LIMIT_S)
        assert len(lost) > 1
        assert '"outcome": "complete"' in capsys.readouterr().out
