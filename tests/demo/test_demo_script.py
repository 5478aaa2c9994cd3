"""The demonstration's script: all of the paper's tasks, each robot's in order, the same by the same seed."""

from __future__ import annotations

from itertools import pairwise

from lrtrace.compose.tasks import TASKS
from timely.demo.script import ARM, DRONES, ROBOTS, demo_fleet, demo_tasks


def test_every_task_of_the_paper_is_asked() -> None:
    """Also the urgent ones, with their scenes and their time-utility functions."""
    script = demo_tasks(240.0, seed=1)
    by_task = {task.task: task for task in TASKS.values()}
    assert {entry["task"] for entry in script} == set(by_task)
    for entry in script:
        task = by_task[entry["task"]]
        assert entry["robot"] in ((ARM,) if task.skill_set == "arm" else DRONES)
        assert entry["scene"] in {variant.scene for variant in task.variants}
        assert entry["tuf"]["ert_s"] == task.tuf.ert_s
        assert entry["urgency"] == task.urgency


def test_robots_take_turns_in_time() -> None:
    script = demo_tasks(60.0, seed=2)
    assert script == demo_tasks(60.0, seed=2) != demo_tasks(60.0, seed=3)
    assert [entry["at_s"] for entry in script] == sorted(entry["at_s"] for entry in script)
    for robot in ROBOTS:
        times = [entry["at_s"] for entry in script if entry["robot"] == robot]
        assert times
        assert all(later - earlier >= 5.0 for earlier, later in pairwise(times))
        assert times[-1] < 60.0
    assert demo_fleet("http://127.0.0.1:1")["robots"].keys() == set(ROBOTS)
