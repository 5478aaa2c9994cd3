"""The deadline score of inferential, a public scheduler of robots' inference requests.

A waiting request's score is a weighted sum of five parts. They are how overdue the robot is, how urgent the request is,
how few steps the robot still has, a fixed priority, and the age. The highest score is served first, and no request is
interrupted.

The weights are the project's defaults. Our reading, since its requests are single inferences of a policy:

* A parked generation is the robot's next request. It is overdue by the time that the robot has had nothing to do.
* An urgent time-utility function is urgency 1, any other 0.5; an urgency level counts instead where there is one.
* A robot without an action to execute has no steps left; before its segments end it has one.
* The project scores a request when it is queued, where its age is always zero. Here every step scores anew.
* Requests that are older than 5 s are not dropped.
"""

import numpy as np

from timely.core.job import JobTable
from timely.core.utility import URGENT
from timely.disciplines.base import DisciplineInfo, Floats, StepLimits
from timely.disciplines.step_builder import KeyedDiscipline

CADENCE_WEIGHT, URGENCY_WEIGHT, STEPS_WEIGHT, PRIORITY_WEIGHT, AGE_WEIGHT = 45.0, 25.0, 15.0, 10.0, 15.0

CADENCE_S = 0.1
"""A robot overdue by this has the whole weight once."""

ONE_STEP_SHARE = 0.7
"""Share of the weight for a robot with one or two steps left."""

LEAST_PRIORITY = 10.0
"""Priority at which its weight is zero; 0 is the highest."""

LEVELS = 4.0
"""Of the five urgency levels the last one has no urgency."""

LEAST_ERT_S = 1e-3


class Inferential(KeyedDiscipline):
    """Weighted deadline score."""

    info = DisciplineInfo(
        name="inferential",
        summary="a weighted score of overdue time, urgency, steps left, priority and age",
        source="inferential (github.com/nalinraut/inferential), its deadline-aware scheduler",
        good_at="robots that ask for their next action again and again",
        starves="patient requests under a steady stream of urgent ones",
    )

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        now = limits.now
        later = (table.segment > 0) & ~table.plain
        overdue_s = np.where(later, np.maximum(0.0, now - table.due_s), 0.0)
        urgency = np.where(
            table.urgency <= LEVELS,
            1.0 - table.urgency / LEVELS,
            np.where(table.ert_s <= URGENT.ert_s, 1.0, 0.5),
        )
        steps = np.where(later & (table.due_s > now), ONE_STEP_SHARE, 1.0) * ~table.plain
        priority = LEAST_PRIORITY - np.clip(table.priority, 0.0, LEAST_PRIORITY)
        age_s = now - np.where(later, np.minimum(table.due_s, now), table.arrival_s)
        age = np.minimum(age_s / np.maximum(LEAST_ERT_S, table.ert_s), 1.0)
        result: Floats = (
            CADENCE_WEIGHT * overdue_s / CADENCE_S
            + URGENCY_WEIGHT * urgency
            + STEPS_WEIGHT * steps
            + PRIORITY_WEIGHT * priority / LEAST_PRIORITY
            + AGE_WEIGHT * age
        )
        return result
