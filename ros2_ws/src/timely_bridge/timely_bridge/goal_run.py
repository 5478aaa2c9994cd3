"""A goal from its first plan to its last: another plan follows after a failed skill, or when the scene has changed.

The new plan is urgent and gets what was executed (``POST /v1/tasks/{id}/replan``; TimelyLLM's tasks 6 to 8). The goal
keeps the robot meanwhile, so that no other goal comes in between.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from timely_interfaces.msg import ErrorCode

from timely_bridge.error_codes import AWAY
from timely_bridge.goals import TaskGoal
from timely_bridge.interfaces import SegmentExecution
from timely_bridge.outcome import BridgeTimeline, TaskEnd
from timely_bridge.past_plan import INTERRUPTED_CODES, PastBridgePlan
from timely_bridge.plan_run import BridgePlanRun, Replan
from timely_bridge.robot_lock import BridgeRobotClaim, BridgeRobotLock

REPLANNED_CODES = (ErrorCode.MOTION_FAILED, ErrorCode.MOTION_TIMEOUT, ErrorCode.SEGMENT_TIMEOUT)
"""Another plan may help. It does not where the robot itself is broken, or where the goal was ended on request."""

MakeRun = Callable[["BridgeGoalRun", str, Replan | None, PastBridgePlan | None], BridgePlanRun]


@dataclass(frozen=True, slots=True)
class PastBridgeGoal:
    """A goal of an earlier life of the bridge.

    Attributes:
        task_id: of its last plan.
        plans: plans that followed the first.
        replaces: the description of the last plan, if it is not the first.
        before: what was planned and executed before that plan.
        began: the robot has begun the goal, and waits for no other.
    """

    task_id: str
    plans: int
    replaces: Replan | None
    plan: PastBridgePlan
    before: BridgeTimeline
    began: bool


@dataclass(slots=True, eq=False)
class BridgeGoalRun:
    """One goal. ``run`` is called once; ``cancel`` and ``replan`` may be called at any time on the same loop.

    Attributes:
        task_id: the name of its first plan for server and driver; later ones add ``-r1``, ``-r2`` ...
        make_run: goal run, task id and what to re-plan -> the run of one plan.
        attempts: how many more plans a failure may lead to; a new scene always does.
        on_cancel: is called when the goal is cancelled.
    """

    task_id: str
    goal: TaskGoal
    lock: BridgeRobotLock
    make_run: MakeRun
    attempts: int = 0
    on_cancel: Callable[[], object] = lambda: None
    past: PastBridgeGoal | None = None
    """What an earlier life of the bridge left of it."""
    task: asyncio.Task[None] | None = None
    """The asyncio task of the run, kept from being collected."""
    timeline: BridgeTimeline = field(default_factory=BridgeTimeline)
    claim: BridgeRobotClaim = field(init=False)
    plans: int = 0
    """Plans that followed the first."""
    executions: list[tuple[str, int, SegmentExecution]] = field(default_factory=list)
    """Task id and index of each segment that moved the robot, and the motion's end."""
    plan: BridgePlanRun | None = None
    """The plan in progress, or the last one."""
    _next_replan: tuple[str, str | None] | None = None
    """Reason and scene of a plan that was requested."""
    _cancellation: tuple[int, str] | None = None

    def __post_init__(self) -> None:
        self.claim = BridgeRobotClaim(self.goal.utility.urgent, self.cancel)

    def cancel(self, code: int, message: str) -> None:
        """End the goal now: its motion and its generation. The first reason counts."""
        self._next_replan = None
        is_first, self._cancellation = self._cancellation is None, self._cancellation or (code, message)
        if self.plan is not None:
            self.plan.cancel(code, message)
        if is_first:
            self.on_cancel()

    def replan(self, reason: str, scene: str | None = None) -> bool:
        """Drop the rest of the plan and go on with another; False when the goal is at its end."""
        plan = self.plan
        if self._cancellation is not None or plan is None or not plan.submitted or plan.over:
            return False
        self._next_replan = (reason, scene)
        plan.cancel(ErrorCode.PREEMPTED, reason)
        return True

    async def run(self) -> TaskEnd:
        """From the first plan to the last execution; raises only when its own coroutine is cancelled."""
        try:
            end = await (
                self._run_plan(self.task_id, None) if self.past is None else self._take_up(self.past)
            )
            while (replan := self._replan_after(end)) is not None:
                self.plans += 1
                self._next_replan = None
                end = _join_goal_ends(end, await self._run_plan(f"{self.task_id}-r{self.plans}", replan))
            if self._cancellation is not None and end.code == ErrorCode.PREEMPTED:
                # Another plan was about to follow when the goal was ended.
                code, message = self._cancellation
                end = replace(end, code=code, message=message)
            return end
        finally:
            self.lock.release(self.claim)

    async def _take_up(self, past: PastBridgeGoal) -> TaskEnd:
        """Go on with the last plan of an earlier life of the bridge, or with another if that one was interrupted."""
        if past.began:
            await self.lock.acquire(self.claim)  # before any other goal: the robot executes this one
        self.plans = past.plans
        end = await self._run_plan(past.task_id, past.replaces, past)
        if end.code not in INTERRUPTED_CODES or self._cancellation is not None or self.plan is None:
            return end
        end = replace(end, code=int(ErrorCode.BRIDGE_INACTIVE), message=f"{AWAY}: {end.message}", began=True)
        if self._next_replan is None:
            self._next_replan = (AWAY, None)
        return end

    async def _run_plan(
        self, task_id: str, replan: Replan | None, past: PastBridgeGoal | None = None
    ) -> TaskEnd:
        self.plan = plan = self.make_run(self, task_id, replan, past.plan if past is not None else None)
        if self._cancellation is not None:
            plan.cancel(*self._cancellation)
        end = await plan.run()
        for sent_segment in plan.sent_segments:
            if (motion := sent_segment.ended_motion) is not None:
                self.executions.append((task_id, sent_segment.segment.index, motion))
        return end

    def _replan_after(self, end: TaskEnd) -> Replan | None:
        """What to re-plan now, if anything."""
        if self._cancellation is not None or self.plan is None or end.outcome == "complete":
            return None
        if self._next_replan is not None:
            return self.plan.replan(*self._next_replan)
        if end.code not in REPLANNED_CODES or not end.began or self.plan.failures >= self.attempts:
            return None
        return self.plan.replan(end.message, after_failure=True)


def _join_goal_ends(before: TaskEnd, end: TaskEnd) -> TaskEnd:
    """The result of two plans: where the second one never began, the failure before it counts.

    A plan that a new scene ended had no failure.
    """
    if end.began or end.outcome in ("complete", "cancelled"):
        return end
    reason = f"{before.message or 'the plan was given up'}; no other plan: {end.message}"
    failed_before = before.code not in (ErrorCode.NONE, ErrorCode.PREEMPTED)
    return replace(end, outcome="failed", code=before.code if failed_before else end.code, message=reason)
