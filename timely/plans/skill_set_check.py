"""Checks skill sets against the robot profiles that they name, before a server serves them."""

from pathlib import Path

from lrtrace.profiles import PATH_VARIABLE
from lrtrace.yaml_file import Loc, read_lrtrace_yaml
from timely.core.errors import InvalidInput, TimelyError, UnknownName
from timely.plans.language.parser import SegmentParser
from timely.plans.language.segmenter import Segmenter
from timely.plans.robot_profiles import RobotProfile, find_plan_robot_profile
from timely.plans.skill_library import load_skill_set, plans_of_skill_set, skill_set_file, skill_set_names
from timely.plans.skill_set import SkillSet
from timely.plans.validation import check_plan_segment


def check_skill_sets() -> None:
    """Check every skill set of the folders; raises the InvalidInput of the first that is broken."""
    for name in skill_set_names():
        check_skill_set_file(skill_set_file(name))


def check_skill_set_file(file: Path) -> SkillSet:
    """Load a skill set and check it: the file, its default robot profile, and its examples on that robot.

    Raises:
        InvalidInput: the file or its profile is broken, or the robot may not execute an example. The message names
            file, line and field.
    """
    skill_set = load_skill_set(file)
    lines = read_lrtrace_yaml(file)

    def problem(loc: Loc, message: object) -> InvalidInput:
        return InvalidInput(str(message), where=f"{lines.where(loc)}, {'.'.join(map(str, loc))}")

    if not skill_set.profile:
        return skill_set
    try:
        profile = find_plan_robot_profile(skill_set.profile)
    except UnknownName as error:
        raise problem(("profile",), f"{error.message} ({PATH_VARIABLE} names folders of your own)") from error
    except InvalidInput as error:
        raise problem(("profile",), error) from error
    for loc, plan in plans_of_skill_set(skill_set):
        try:
            _check_skill_set_plan(plan, skill_set, profile)
        except TimelyError as error:
            raise problem(loc, error) from error
    return skill_set


def _check_skill_set_plan(plan: str, skill_set: SkillSet, profile: RobotProfile) -> None:
    segmenter, parser = Segmenter(skill_set), SegmentParser(skill_set)
    for segment in (*segmenter.feed(plan), *segmenter.close()):
        check_plan_segment(segment.text, skill_set, profile, parser_state=parser)
