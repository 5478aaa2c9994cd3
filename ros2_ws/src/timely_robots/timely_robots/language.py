"""Between plan text and motion: checks a segment against the robot, and interprets the segments of one task.

Segments arrive one by one and may end inside a block. So an interpreter keeps variables and open blocks for the whole
task. It gives one call after the other, as far as the plan has arrived, and the motion thread makes them.
"""

from collections import OrderedDict
from functools import lru_cache
from typing import cast

from lrtrace.robot_profile import RobotProfile
from timely.core.errors import InvalidInput, TimelyError
from timely.plans.language import interpreter as plans
from timely.plans.language.parser import parse_plan_calls
from timely.plans.language.syntax import PlanCall, Value
from timely.plans.skill_library import find_skill_set
from timely.plans.skill_set import SkillSet
from timely.plans.units import plan_robot_argument_unit, plan_robot_arguments
from timely.plans.validation import MAX_SEGMENT_CHARS, check_plan_call, check_plan_segment
from timely_robots.error_codes import ErrorCode
from timely_robots.segments import MotionError, SegmentOrder, SkillCall, SkillValue

MAX_ID_CHARS = 256

REMEMBERED_TASKS = 64
"""Tasks whose variables and open blocks are kept."""


@lru_cache(maxsize=64)
def robot_executor_skill_set(name: str) -> SkillSet:
    """The skill set of that name; never a path, because the name comes over the network.

    Raises:
        MotionError: there is none.
    """
    try:
        return find_skill_set(name)
    except TimelyError as error:
        raise MotionError(str(error), ErrorCode.UNKNOWN_NAME) from error


def check_robot_segment(order: SegmentOrder, profile: RobotProfile) -> None:
    """Raise MotionError for a segment of another skill set, not in its language, or outside the robot's limits."""
    if len(order.text) > MAX_SEGMENT_CHARS or len(order.task_id) > MAX_ID_CHARS:
        raise MotionError(
            f"a segment has at most {MAX_SEGMENT_CHARS} characters, a task id {MAX_ID_CHARS}",
            ErrorCode.TOO_LARGE,
        )
    skills = robot_executor_skill_set(order.skill_set)
    if order.skill_set_fingerprint not in ("", skills.fingerprint):
        raise MotionError(
            f"the segment is of skill set {skills.name} {order.skill_set_fingerprint[:MAX_ID_CHARS]}, this driver has "
            f"{skills.fingerprint}: give server and driver the same file, and start both again",
            ErrorCode.SKILL_SET_MISMATCH,
        )
    try:
        calls = parse_plan_calls(order.text, skills)
    except InvalidInput as error:
        raise MotionError(str(error), ErrorCode.SEGMENT_INVALID) from error
    for call in calls:
        _check_robot_skill_allowed(call.skill, call.text, profile)
    try:
        check_plan_segment(order.text, skills, profile)
    except TimelyError as error:
        raise MotionError(str(error), ErrorCode.OUT_OF_LIMITS) from error


def approve_robot_call(call: SkillCall, skills: SkillSet, profile: RobotProfile) -> SkillCall:
    """One call as the robot takes it: checked once more, arguments in order and units of the robot's profile.

    A plan can compute arguments, so what the whole segment was checked for may not be what runs.

    Raises:
        MotionError: with the code that says why it must not run.
    """
    _check_robot_skill_allowed(call.skill, call.text, profile)
    skill = skills.find(call.skill)
    if skill is None:  # prose: one text
        return call
    plan_call = PlanCall(call.skill, cast("tuple[Value, ...]", call.args), call.text)
    try:
        check_plan_call(plan_call, skills, profile)
        values = plan_robot_arguments(plan_call, skill, profile)
        by_name = {argument.name: argument for argument in skill.arguments}
        units = tuple(plan_robot_argument_unit(by_name[name], skill, profile) for name in values)
        return SkillCall(call.skill, tuple(values.values()), call.text, units)
    except TimelyError as error:
        raise MotionError(str(error), ErrorCode.OUT_OF_LIMITS) from error


def _check_robot_skill_allowed(skill: str, text: str, profile: RobotProfile) -> None:
    if not profile.allows(skill):
        raise MotionError(
            f"{text or skill}: {skill} may not run on {profile.name}", ErrorCode.SKILL_FORBIDDEN
        )


class RobotProseReader:
    """A plan in prose: each segment is one thing to read out."""

    def __init__(self, skills: SkillSet) -> None:
        self._skill = skills.text_rules.unit
        self._call: SkillCall | None = None

    def feed(self, text: str) -> None:
        self._call = SkillCall(self._skill, (text.strip(),), text.strip())

    def next(self) -> SkillCall | None:
        call, self._call = self._call, None
        return call

    def answer(self, value: SkillValue) -> None: ...


class RobotPlanInterpreter:
    """MiniSpec and flat lists of calls, by the interpreter of ``timely.plans``."""

    def __init__(self, skills: SkillSet) -> None:
        self._plan = plans.Interpreter(skills)

    def feed(self, text: str) -> None:
        """Take the next segment; raises MotionError if it is not in the language."""
        try:
            self._plan.feed(text)
        except TimelyError as error:
            raise MotionError(str(error), ErrorCode.SEGMENT_INVALID) from error

    def next(self) -> SkillCall | None:
        """The next call to make; None when more of the plan is needed, or when it is over.

        Raises:
            MotionError: the plan cannot be executed, or the call before has no answer because it failed.
        """
        try:
            call = self._plan.next()
        except TimelyError as error:
            raise MotionError(str(error), ErrorCode.SEGMENT_INVALID) from error
        return None if call is None else SkillCall(call.skill, call.args, call.text)

    def answer(self, value: SkillValue) -> None:
        """The last call was made and returned ``value``."""
        self._plan.answer(value)


def robot_plan(name: str) -> RobotProseReader | RobotPlanInterpreter:
    """A fresh plan in the skill set of that name."""
    skills = robot_executor_skill_set(name)
    return RobotProseReader(skills) if skills.language == "text" else RobotPlanInterpreter(skills)


class RobotPlans:
    """The plans of a robot's last tasks."""

    def __init__(self) -> None:
        self._plans: OrderedDict[str, RobotProseReader | RobotPlanInterpreter] = OrderedDict()

    def with_segment(self, order: SegmentOrder) -> RobotProseReader | RobotPlanInterpreter:
        """The plan of a task with its next segment.

        Raises:
            MotionError: the segment is not in its language, or the plan is no longer kept.
        """
        if order.index == 0:
            self._plans[order.task_id] = robot_plan(order.skill_set)
            while len(self._plans) > REMEMBERED_TASKS:
                self._plans.popitem(last=False)
        plan = self._plans.get(order.task_id)
        if plan is None:
            raise MotionError(
                f"the state of task {order.task_id!r} is no longer kept", ErrorCode.OUT_OF_ORDER
            )
        plan.feed(order.text)
        return plan
