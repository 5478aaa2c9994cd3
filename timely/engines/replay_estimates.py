"""What the server of a replay knows of plans beforehand, the same on every engine.

These are the longest segment of a skill set and how long the robot will take for each segment.
"""

import math

import numpy as np

from timely.engines.replay_types import PlannedTask, ReplayOptions


class ReplayEstimates:
    """Estimates of the tasks of one replay."""

    def __init__(self, options: ReplayOptions) -> None:
        self._options = options
        self._noise_factors: dict[int | str, tuple[float, ...]] = {}
        self._bounds: dict[str, int] = {}
        """Longest segment so far, by skill set."""

    def segment_bound(self, task: PlannedTask) -> int | None:
        """The longest segment of the task's skill set: as the task names it, or the longest so far."""
        if task.segment_bound is not None or task.plain:
            return task.segment_bound
        longest = max(segment.tokens for segment in task.plan)
        bound = max(longest, self._bounds.get(task.skill_set, self._options.segment_bound))
        self._bounds[task.skill_set] = bound
        return bound

    def estimate_s(self, task: PlannedTask, index: int) -> float:
        """What the server expects segment ``index`` to take, seconds; the same in every run of one seed."""
        segment, options = task.plan[index], self._options
        expected_s = segment.execution_s if segment.estimate_s is None else segment.estimate_s
        if options.estimate_noise == 0.0:
            return expected_s * options.estimate_factor
        return expected_s * options.estimate_factor * self._noise_of(task)[index]

    def _noise_of(self, task: PlannedTask) -> tuple[float, ...]:
        factors = self._noise_factors.get(task.job)
        if factors is None:
            # Keyed by the job, not by the order of events: a discipline that runs jobs in another order meets
            # the very same robots.
            name = task.job if isinstance(task.job, int) else int.from_bytes(task.job.encode(), "little")
            rng = np.random.default_rng((self._options.seed, name))
            noise = self._options.estimate_noise
            factors = tuple(math.exp(noise * z) for z in rng.standard_normal(len(task.plan)))
            self._noise_factors[task.job] = factors
        return factors
