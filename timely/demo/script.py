"""The tasks of the demonstration: the paper's eleven (TimelyLLM Table 2), mixed over two drones and an arm."""

from typing import Any

import numpy as np

from lrtrace.compose.tasks import WorkloadTask, find_workload_task

DRONES = ("drone1", "drone2")
ARM = "arm1"
ROBOTS = (*DRONES, ARM)
TAIL_S = 8.0
"""No task starts in the last seconds, so that most plans end in time."""


def demo_fleet(server_url: str) -> dict[str, Any]:
    robots: dict[str, Any] = {
        name: {"driver": "sim", "profile": "sim-drone", "skill_set": "drone"} for name in DRONES
    }
    robots[ARM] = {"driver": "sim", "profile": "sim-arm", "skill_set": "arm"}
    return {"server_url": server_url, "robots": robots}


def demo_tasks(seconds: float, seed: int) -> list[dict[str, Any]]:
    """A script for ``timely_bridge.task_player``: the tasks of each robot with their times.

    A robot gets its next task when the last one is done, and not before its time; about every third drone task
    is urgent.
    """
    rng = np.random.default_rng(seed)
    normal = [find_workload_task(number) for number in rng.permutation([1, 2, 3, 4, 5])]
    urgent = [find_workload_task(number) for number in rng.permutation([6, 7, 8])]
    arm = [find_workload_task(number) for number in rng.permutation([9, 10, 11])]
    script: list[dict[str, Any]] = []
    for offset, drone in enumerate(DRONES):
        at_s, count = 0.5 + 1.5 * offset, 0
        while at_s < seconds - TAIL_S:
            if count % 3 == 2 - offset:
                task = urgent[(count // 3 + offset) % len(urgent)]
            else:
                task = normal[(count + offset) % len(normal)]
            script.append(_demo_script_entry(task, drone, at_s, count))
            at_s += float(rng.uniform(5.0, 8.0))
            count += 1
    at_s, count = 1.0, 0
    while at_s < seconds - TAIL_S - 8.0:
        script.append(_demo_script_entry(arm[count % len(arm)], ARM, at_s, count))
        at_s += float(rng.uniform(16.0, 20.0))
        count += 1
    return sorted(script, key=lambda entry: float(entry["at_s"]))


def _demo_script_entry(task: WorkloadTask, robot: str, at_s: float, count: int) -> dict[str, Any]:
    variant = task.variants[count % len(task.variants)]
    tuf: dict[str, float] = {"ert_s": task.tuf.ert_s, "alpha": task.tuf.alpha, "beta": task.tuf.beta}
    return {
        "at_s": round(at_s, 2),
        "robot": robot,
        "task": task.task,
        "scene": variant.scene,
        "skill_set": task.skill_set,
        "tuf": tuf,
        "urgency": task.urgency,
    }
