"""Runs the segments of plans on a robot: interprets each and makes the robot's calls, on the motion thread."""

from collections import OrderedDict
from functools import partial

from timely_robots import language
from timely_robots.error_codes import ErrorCode
from timely_robots.robot import Robot
from timely_robots.safety import SafetyGuard
from timely_robots.segments import Motion, MotionError, SegmentOrder, SkillCall, SkillValue

REMEMBERED_TASKS = 64
"""Tasks whose variables and open blocks are kept."""


class PlanRunner:
    """The ``SegmentRunner`` of a robot.

    Args:
        guard: called before each call of a plan, also between the rounds of a loop.
    """

    def __init__(self, robot: Robot, guard: SafetyGuard | None = None) -> None:
        self._robot = robot
        self._guard = guard
        self._interpreters: OrderedDict[str, language.ProseReader | language.PlanInterpreter] = OrderedDict()
        self._motion: tuple[Motion, list[str]] | None = None

    def check(self, order: SegmentOrder) -> None:
        language.check_robot_segment(order, self._robot.profile)

    def execute(self, motion: Motion, calls: list[str]) -> str | None:
        order = motion.order
        self._motion = (motion, calls)
        try:
            if order.index == 0:
                self._interpreters[order.task_id] = language.robot_executor_interpreter(
                    order.skill_set, self._perform
                )
                while len(self._interpreters) > REMEMBERED_TASKS:
                    self._interpreters.popitem(last=False)
            plan = self._interpreters.get(order.task_id)
            if plan is None:
                raise MotionError(
                    f"the state of task {order.task_id!r} is no longer kept", ErrorCode.OUT_OF_ORDER
                )
            value = plan.run(order.text)
        finally:
            self._motion = None
        return None if value is None else str(value)

    def halt(self) -> None:
        self._robot.halt()

    def _perform(self, call: SkillCall) -> SkillValue:
        if self._motion is None:
            raise MotionError("no segment is being executed", ErrorCode.DRIVER_INTERNAL)
        motion, calls = self._motion
        motion.check()
        call = language.approve_skill_call(
            call, language.robot_executor_skill_set(motion.order.skill_set), self._robot.profile
        )
        if self._guard is not None:
            self._guard(call, motion)
            motion.permit = partial(self._guard.permit, motion)
        calls.append(call.text)
        return self._robot.perform(call, motion)
