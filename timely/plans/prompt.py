"""Writes the prompt: the fixed part of a skill set, then the fields of one task.

The fixed part is byte for byte the same for every task of a skill set. So an engine computes it once and keeps it in
its prefix cache ("pre-stored" prompts, TimelyLLM section 4.1).
"""

from dataclasses import dataclass

from timely.core.errors import InvalidInput
from timely.plans.skill_set import NUMERIC, Skill, SkillArgument, SkillSet
from timely.plans.untrusted_text import multiline_prompt_text, one_prompt_line


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt without chat template. ``system`` is the fixed part, ``user`` has scene, history and task."""

    system: str
    user: str


def build_prompt(
    skill_set: SkillSet,
    task: str,
    scene: str = "",
    *,
    examples: bool = True,
    history: str = "",
    fixed_part: str | None = None,
) -> Prompt:
    """The prompt for one task. Each field is one line, and no text can forge another field.

    Args:
        examples: include the skill set's examples. A model trained for the skill set needs none.
        history: for a re-plan, the failed plan, the failure and the executed calls.
        fixed_part: ``fixed_prompt_part``, if the caller has it: it takes most of the time.

    Raises:
        InvalidInput: the task is empty.
    """
    if not task.strip():
        raise InvalidInput("is empty", where="task")
    if fixed_part is None:
        fixed_part = fixed_prompt_part(skill_set, examples=examples)
    return Prompt(fixed_part, _prompt_case(skill_set, scene, task, history))


def fixed_prompt_part(skill_set: SkillSet, *, examples: bool = True) -> str:
    parts = [skill_set.role] if skill_set.role else []
    if skill_set.skills:
        parts.append("Skills: " + ", ".join(_prompt_skill_entry(skill) for skill in skill_set.skills) + ".")
    if skill_set.guidance:
        parts.append(skill_set.guidance)
    if examples:
        parts += [
            f"{_prompt_case(skill_set, example.scene, example.task, example.history)} {example.plan}"
            for example in skill_set.examples
        ]
    return "\n".join(parts)


def _prompt_skill_entry(skill: Skill) -> str:
    arguments = ",".join(_prompt_argument_label(argument) for argument in skill.arguments)
    return f"{skill.word}({arguments}) {skill.description}".rstrip()


def _prompt_argument_label(argument: SkillArgument) -> str:
    """The label of an argument. A number's unit says more than its name and takes fewer tokens."""
    if argument.choices is not None:
        return "|".join(map(str, argument.choices))
    return argument.unit if argument.type in NUMERIC and argument.unit else argument.name


def _prompt_case(skill_set: SkillSet, scene: str, task: str, history: str) -> str:
    lines = []
    if scene.strip():
        lines.append(f"Scene: {one_prompt_line(scene)}")
    if history.strip():
        lines.append(f"History: {one_prompt_line(history)}")
    if skill_set.language == "text":
        # The task of a conversation has no label.
        lines.append(multiline_prompt_text(task))
    else:
        lines += [f"Task: {one_prompt_line(task)}", "Plan:"]
    return "\n".join(lines)
