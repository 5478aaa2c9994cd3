"""A crane whose skill set and profile differ in the order and in the units of their arguments."""

from lrtrace.robot_profile import RobotProfile
from timely.plans.skill_set import SkillSet


def crane() -> tuple[SkillSet, RobotProfile]:
    metres = {"type": "float", "unit": "m", "min": 0, "max": 5}
    arguments = [{"name": "ahead", **metres}, {"name": "up", **metres}]
    skills = {"name": "crane", "language": "calls", "skills": [{"name": "go", "arguments": arguments}]}
    centimetres = {"unit": "cm", "min": 0, "max": 300}
    execution = {"model": "linear", "argument": "up", "unit": "cm", "intercept_s": 1.0, "per_unit_s": 0.01}
    go = {"args": {"up": centimetres, "ahead": centimetres}, "execution": execution}
    robot = {"name": "crane", "robot": "a crane", "source": "tests", "skills": {"go": go}}
    return SkillSet.model_validate(skills), RobotProfile.model_validate(robot)
