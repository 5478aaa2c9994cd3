"""Answers in progress beside robots under `timely`: whom they delay for how long, and at what price."""

from dataclasses import replace

import numpy as np
import pytest
from utility_scene import dated, join, limits, make_resident, ordinary

from timely.core.job import Job, JobTable
from timely.core.utility import NORMAL
from timely.disciplines.base import StepPlan
from timely.disciplines.timely.delayed import TimelyDelayedMembers
from timely.disciplines.timely.discipline import Timely
from timely.engines.step_time.learned import FixedSpeed

SPEED = FixedSpeed(0.045, 0.00275, 0.002)
"""A slow machine: seconds a step, a sequence and a prompt token."""


def compose(table: JobTable, discipline: Timely, now: float) -> StepPlan:
    return discipline.compose(table, replace(limits(now, max_batch=64), speed=SPEED))


def add_robot(
    table: JobTable, discipline: Timely, name: str, *, arrival_s: float, done: int, left: int
) -> Job:
    """A normal robot's first segment with so many tokens done and left."""
    (robot,) = join(table, discipline, dated(name, NORMAL, arrival_s=arrival_s))
    make_resident(robot, done)
    table.segment_tokens[robot.row] = done
    table.rank[robot.row] = done + left
    return robot


def add_chats(table: JobTable, discipline: Timely, now: float) -> None:
    specs = [replace(ordinary(f"chat {number}", expected=300.0), arrival_s=now) for number in range(24)]
    jobs = [table.add(spec) for spec in specs]
    for job in jobs:
        discipline.arrived(job, now)
        make_resident(job, 20)


def test_a_robot_that_is_nearly_done_keeps_out_no_answers() -> None:
    """Its slack of 34 ms is less than one answer adds to the ten tokens of the other robot, but that is not its loss.

    Each answer adds 2.75 ms to each of its two last steps.
    """
    table, discipline = JobTable(), Timely()
    add_chats(table, discipline, 0.0)
    add_robot(table, discipline, "nearly done", arrival_s=-0.75, done=10, left=2)
    add_robot(table, discipline, "begun", arrival_s=0.0, done=1, left=10)
    tokens = compose(table, discipline, 0.0).tokens
    assert {"nearly done", "begun"} <= set(tokens)
    assert len(tokens) - 2 >= 6


@pytest.mark.parametrize("composed", [True, False], ids=["composed", "repeated"])
def test_the_price_stays_while_steps_repeat(composed: bool) -> None:
    """Three late robots decode for ten seconds, all in each step. Then answers join, for later steps cost as much."""
    table, discipline = JobTable(), Timely()
    for number in range(3):
        add_robot(table, discipline, str(number), arrival_s=-5.0, done=1, left=300)
    assert compose(table, discipline, 0.0).steady
    if composed:
        for step in range(1, 200):
            assert compose(table, discipline, 0.05 * step).steady
    add_chats(table, discipline, 10.0)
    assert len(compose(table, discipline, 10.0).tokens) == 27


@pytest.mark.parametrize("seed", range(40))
def test_answers_are_judged_together_as_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sequence_s, longest, share, price = 0.01, 12.0, 0.5, float(rng.choice([0.0, 3.0, 12.0]))
    members = [
        (
            rng.uniform(-0.5, 2.0),
            float(rng.choice([2.0, 6.67, 0.1])),
            rng.uniform(0.1, 2.0),
            float(rng.integers(1, 13)),
        )
        for _ in range(rng.integers(0, 6))
    ]
    count, already_s = 20, 0.1
    lefts = rng.integers(1, 40, count).astype(float)
    weights, lates_s = rng.uniform(0.1, 1.0, count), rng.choice([0.0, 2.0, 60.0], count)
    together, alone = TimelyDelayedMembers(sequence_s), TimelyDelayedMembers(sequence_s)
    for due_s, weight, work_s, left in members:
        together.join(due_s, weight, work_s, left)
        alone.join(due_s, weight, work_s, left)
    mixing_s = float(rng.choice([0.0, 0.004]))
    settings = {"mixing_s": mixing_s, "longest_tokens": longest, "wait_share": share, "price": price}
    joins = together.worth(lefts, weights, lates_s, already_s=already_s, **settings)
    # Patience depends on who is late when the group is judged.
    late = [member for member in members if member[0] <= already_s]
    for at in range(count):
        one = slice(at, at + 1)
        expected = worth_alone(alone, members, lefts[at], weights[at], lates_s[at], late, already_s, settings)
        assert joins[at] == expected
        if expected:
            delay_s = sequence_s * min(lefts[at], longest)
            alone.join_answers(lefts[one], delay_s)
            already_s += delay_s + mixing_s


def worth_alone(
    state: TimelyDelayedMembers,
    members: list[tuple[float, float, float, float]],
    left: float,
    weight: float,
    late_s: float,
    late: list[tuple[float, float, float, float]],
    already_s: float,
    settings: dict[str, float],
) -> bool:
    """The rule for one answer, member by member."""
    sequence_s = state._sequence_s
    patient = late_s * sum(m[1] for m in late) < 10.0 * sum(m[1] * m[2] for m in late)
    loss = mild = hurt = work = 0.0
    for due_s, slope, work_s, member_left in members:
        if not patient and slope <= weight:
            continue
        rest_s = due_s - (already_s - state._charged_s)
        rest_s -= sum(sequence_s * min(other, member_left) for other in state._answers)
        delay_s = sequence_s * min(left, member_left) + settings["mixing_s"]
        over_s = min(delay_s, max(0.0, delay_s - rest_s))
        loss += slope * over_s
        if over_s > 0.0:
            hurt += slope
            work += slope * work_s
        if slope <= 2.0 and rest_s <= 0.0:
            mild += slope * over_s
    delay_s = sequence_s * min(left, settings["longest_tokens"]) + settings["mixing_s"]
    paid = min(settings["price"] * delay_s, mild)
    until_s = work / hurt if hurt else 0.0
    return bool(weight * settings["wait_share"] * until_s >= loss - paid)
