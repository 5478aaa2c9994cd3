"""Plans for each round, and what the robots' own logs say was done of them, in the same words."""

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

from timely_ros_bench.faults.judge import FaultRobotMotion
from timely_ros_bench.faults.rounds import SEGMENTS, faulty_robot_kind

TOKENS, TOKEN_S, STALL_TOKENS = 3, 0.05, 110
"""A segment takes a sixth of a second to write, one that stalls five and a half."""
TELLO_WORDS = {"mf": "forward", "mb": "back", "tc": "cw", "tu": "ccw"}
SPOTS = {
    "apple": (0.45, -0.1, 0.12),
    "bowl": (0.4, 0.2, 0.12),
    "cup": (0.5, 0.05, 0.12),
    "plate": (0.42, -0.25, 0.12),
    "fork": (0.35, 0.0, 0.12),
    "knife": (0.38, 0.1, 0.12),
    "lamp": (0.48, -0.2, 0.12),
    "spoon": (0.35, -0.15, 0.12),
}
ARM_PLANS, DRONE_PLANS = 2, 3
"""Plans of a task: the first, and those that may replace it."""
PLANS_APART, SEGMENTS_APART = "//", "|"


def fault_round_plans(robot: str, round_number: int, rng: random.Random) -> list[list[str]]:
    """The plan of a task and those that may replace it.

    All motions differ from each other, and a drone's from those of the rounds before.
    """
    if faulty_robot_kind(robot) == "indy7":
        spots = [list(SPOTS)[SEGMENTS * number :][:SEGMENTS] for number in range(ARM_PLANS)]
        return [[f"move_to('{name}');" for name in rng.sample(names, SEGMENTS)] for names in spots]
    amounts = [20 + 4 * (round_number % 12 + 12 * number) for number in range(DRONE_PLANS)]
    return [
        [f"mf({amount});", f"tc({amount + 1});", f"mb({amount + 2});", f"tu({amount + 3});"]
        for amount in amounts
    ]


def fault_round_plan_number(task_id: str) -> int:
    return int(task_id.partition("-r")[2] or 0)


def fault_bench_plan_motions(robot: str, plan: Sequence[str]) -> list[str]:
    calls = [text.rstrip(";") for text in plan]
    if faulty_robot_kind(robot) == "tello":
        parts = [re.match(r"(\w+)\((\d+)\)", call) for call in calls]
        return [f"{TELLO_WORDS[part[1]]} {part[2]}" for part in parts if part]
    return calls


def fault_bench_log_motions(robot: str, files: Sequence[Path], begin_s: float) -> list[FaultRobotMotion]:
    """What the robot did, out of its own logs, without what a driver does for safety (takeoff, landing, home)."""
    motions = []
    for file in files:
        if not file.exists():
            continue
        for line in file.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # the last line of a program that was killed
            if record["event"] != "motion" or record["start_s"] < begin_s:
                continue
            what = _canonical_fault_motion(robot, record["command"])
            if what:
                motions.append(
                    FaultRobotMotion(what, record["start_s"], record["end_s"], record["outcome"] == "done")
                )
    return sorted(motions, key=lambda motion: motion.start_s)


def _canonical_fault_motion(robot: str, command: str) -> str:
    if faulty_robot_kind(robot) == "tello":
        return "" if command.split(maxsplit=1)[0] in ("takeoff", "land") else command
    if faulty_robot_kind(robot) == "indy7":
        numbers = re.match(r"MoveL\((-?[\d.]+),(-?[\d.]+)", command)
        if numbers is None:
            return ""
        x, y = 0.001 * float(numbers[1]), 0.001 * float(numbers[2])
        name = min(SPOTS, key=lambda one: (SPOTS[one][0] - x) ** 2 + (SPOTS[one][1] - y) ** 2)
        near = abs(SPOTS[name][0] - x) + abs(SPOTS[name][1] - y) < 0.02
        return f"move_to('{name}')" if near else command
    return command
