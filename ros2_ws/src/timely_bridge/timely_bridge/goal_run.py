"""A goal from its first plan to its last: after a failed skill, or when the scene has changed, another plan follows.

The new plan is urgent and knows what was done (``POST /v1/tasks/{id}/replan``; TimelyLLM's tasks 6 to 8). The robot
stays the goal's own meanwhile, so no other task comes in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from timely_interfaces.msg import ErrorCode

from timely_bridge.goals import TaskGoal
from timely_bridge.plan_run import Replan, TaskEnd, TaskRun, Timeline
from timely_bridge.robot_lock import Turn, Turnstile

REPLANNED_CODES = (ErrorCode.MOTION_FAILED, ErrorCode.MOTION_TIMEOUT, ErrorCode.SEGMENT_TIMEOUT)
"""Another plan may help. Not where the robot itself is the trouble, nor where somebody ended the task."""

MakeRun = Callable[["Mission", str, Replan | None], TaskRun]


@dataclass(slots=True, eq=False)
class Mission:
    """One goal. ``run`` is called once; ``cut`` and ``replan`` may be called at any time on the same loop.

    Attributes:
        task_id: the name of its first plan for server and driver; later ones add ``-r1``, ``-r2`` ...
        make_run: mission, task id and what to re-plan -> the run of one plan.
        attempts: how many more plans a failure may lead to; a new scene always does.
    """

    task_id: str
    goal: TaskGoal
    turnstile: Turnstile
    make_run: MakeRun
    attempts: int = 0
    keeper: asyncio.Task[None] | None = None
    """The task that runs it, kept from being collected."""
    timeline: Timeline = field(default_factory=Timeline)
    turn: Turn = field(init=False)
    plans: int = 0
    """Plans that followed the first."""
    _run: TaskRun | None = None
    _wanted: tuple[str, str | None] | None = None
    _early: tuple[int, str] | None = None

    def __post_init__(self) -> None:
        self.turn = Turn(self.goal.utility.urgent, self.cut)

    def cut(self, code: int, message: str) -> None:
        """End the goal now: the motion is cancelled, no plan is generated. The first reason counts."""
        self._wanted = None
        self._early = self._early or (code, message)
        if self._run is not None:
            self._run.cut(code, message)

    def replan(self, reason: str, scene: str | None = None) -> bool:
        """Drop what is left of the plan and go on with another; False when the goal is at its end."""
        run = self._run
        if self._early is not None or run is None or not run.submitted or run.over:
            return False
        self._wanted = (reason, scene)
        run.cut(ErrorCode.PREEMPTED, reason)
        return True

    @property
    def current(self) -> TaskRun | None:
        """The run of the plan that is being carried out, or of the last one."""
        return self._run

    async def run(self) -> TaskEnd:
        """From the first plan to the last execution; never raises but for cancellation of the coroutine itself."""
        try:
            end = await self._one(self.task_id, None)
            while (following := self._following(end)) is not None:
                self.plans += 1
                self._wanted = None
                end = _joined(end, await self._one(f"{self.task_id}-r{self.plans}", following))
            return end
        finally:
            self.turnstile.leave(self.turn)

    async def _one(self, task_id: str, what: Replan | None) -> TaskEnd:
        self._run = run = self.make_run(self, task_id, what)
        if self._early is not None:
            run.cut(*self._early)
        return await run.run()

    def _following(self, end: TaskEnd) -> Replan | None:
        """What to re-plan now, if anything."""
        if self._early is not None or self._run is None:
            return None
        if self._wanted is not None:
            return self._run.replan(*self._wanted)
        if end.code not in REPLANNED_CODES or not end.began or self.plans >= self.attempts:
            return None
        return self._run.replan(end.message)


def _joined(before: TaskEnd, end: TaskEnd) -> TaskEnd:
    """A new plan that could not be had leaves the failure that it was to mend."""
    if end.began or end.outcome in ("complete", "cancelled"):
        return end
    why = f"{before.message or 'the plan was given up'}; no other plan: {end.message}"
    return replace(end, outcome="failed", code=before.code or end.code, message=why)
