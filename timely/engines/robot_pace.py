"""How much faster than its profile each robot is, learned from its reports: what makes its next plan due on time.

Reports correct the plan they are about. Without a memory the next plan begins with the same wrong estimate, and its
first segments are late again (measured: docs/experiments).
"""

import math
import re
from collections import OrderedDict
from functools import lru_cache

GAIN = 0.5
"""Share of the way to the latest measurement that a pace moves."""
SLOWEST_PACE = 1.0
"""A robot that is slower than its profile has its next segment early, which costs nothing: paces never exceed this."""
FASTEST_PACE = 0.5
"""Lowest pace: a faster robot needs another profile (``lrtrace fit``)."""
PLAUSIBLE = 0.25
"""Segments done in a smaller share of the expected time teach nothing: a branch that was not taken, a wrong clock."""
SHORTEST_S = 0.1
"""Segments expected to take less teach nothing: the computer is what takes time there."""
MOST_ROBOTS = 1000
MOST_SKILLS = 64
"""Skills remembered of one robot."""
MAX_REPORTED = 200
"""Robots an operator sees."""

_CALL = re.compile(r"[A-Za-z_]\w*(?=\()")


@lru_cache(maxsize=2048)
def engine_pace_skills(text: str) -> str:
    """The names a segment calls, each once, in order: ``"tc(180);mf(200);"`` is ``"tc+mf"``; prose is ``""``."""
    return "+".join(dict.fromkeys(_CALL.findall(text)))[:120]


class EngineRobotPaces:
    """Measured over expected execution time, by robot and skill, kept while the engine lives; 1 without reports.

    Deterministic: the same reports in the same order give the same paces. Bounded: each pace is from ``FASTEST_PACE``
    to ``SLOWEST_PACE``. Beyond ``MOST_ROBOTS`` the robots whose reports are oldest are forgotten.
    A robot without a name has no pace.
    """

    def __init__(self) -> None:
        self._robots: OrderedDict[str, _EngineRobotPace] = OrderedDict()

    def of(self, agent: str, text: str) -> float:
        """What to multiply the profile's time of this segment with; a skill not met yet has its robot's pace."""
        robot = self._robots.get(agent)
        return 1.0 if robot is None else robot.skills.get(engine_pace_skills(text), robot.pace)

    def learn(self, agent: str, text: str, expected_s: float, measured_s: float) -> None:
        """A segment was done in ``measured_s`` where the profile expects ``expected_s``, seconds.

        What cannot be a measurement of this robot's pace is ignored.
        """
        if not agent or not (math.isfinite(measured_s) and SHORTEST_S <= expected_s < math.inf):
            return
        ratio = measured_s / expected_s
        if ratio < PLAUSIBLE:
            return
        bounded_ratio = min(SLOWEST_PACE, max(FASTEST_PACE, ratio))
        robot = self._robots.get(agent)
        if robot is None:
            robot = self._robots[agent] = _EngineRobotPace()
            if len(self._robots) > MOST_ROBOTS:
                self._robots.popitem(last=False)
        self._robots.move_to_end(agent)
        robot.learn(engine_pace_skills(text), bounded_ratio)

    def robots(self) -> dict[str, float]:
        """Pace by robot that has reported; the latest, at most ``MAX_REPORTED``."""
        names = list(self._robots)[-MAX_REPORTED:]
        return {name: self._robots[name].pace for name in names}


class _EngineRobotPace:
    def __init__(self) -> None:
        self.pace = 1.0
        """Over all it does."""
        self.skills: dict[str, float] = {}

    def learn(self, skill: str, ratio: float) -> None:
        """Take one measurement within bounds."""
        before = self.skills.pop(skill, self.pace)
        self.skills[skill] = before + GAIN * (ratio - before)
        if len(self.skills) > MOST_SKILLS:
            del self.skills[next(iter(self.skills))]
        self.pace += GAIN * (ratio - self.pace)
