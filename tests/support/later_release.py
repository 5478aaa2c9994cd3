"""A skill set as a later release may have it: every part has a further field."""

from __future__ import annotations

from timely.plans.skill_set import Skill, SkillArgument, SkillSet, SkillSetTextRules


class LaterArgument(SkillArgument):
    hint: str = ""


class LaterSkill(Skill):
    arguments: tuple[LaterArgument, ...] = ()
    cooldown_s: float = 0.0


class LaterTextRules(SkillSetTextRules):
    max_chars: int | None = None


class LaterSkillSet(SkillSet):
    skills: tuple[LaterSkill, ...] = ()
    text: LaterTextRules | None = None
    dialect: str = ""
