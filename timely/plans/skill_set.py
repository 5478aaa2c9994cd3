"""Defines skill sets: the skills of a robot with typed arguments, and the fixed parts of their prompt.

A ``SkillSet`` is plain, frozen data, one YAML file each (``timely.plans.skill_library``). Prompt, grammar, segment
boundaries and validation follow from it.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import re2
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from timely.plans.untrusted_text import hidden_prompt_character

PLAN_MAX_TOKENS = 256
"""Most output tokens of a plan whose skill set names no limit."""

Language = Literal["minispec", "calls", "text"]
"""``minispec``: TypeFly's plan language (calls, conditionals, loops, variables). ``calls``: a flat list of calls.
``text``: prose for a reader."""

ArgumentType = Literal["int", "float", "str", "object", "bool"]
Returns = Literal["none", "bool", "float", "str"]

WORD = r"[A-Za-z][A-Za-z0-9_]{0,63}"
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

DEFAULT_CHARS: Mapping[str, int] = {"object": 48, "str": 120}
NUMERIC = ("int", "float")

MAX_BOUND = 10**12
"""Largest absolute bound or choice. The lexer reads numbers of at most 15 characters."""

Number = StrictInt | StrictFloat


class _SkillSetPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def changed_fields(self, exclude: set[str] | None = None) -> dict[str, Any]:
        """Fields that differ from their default: one that a later release adds counts for no fingerprint until then."""
        return self.model_dump(mode="json", exclude=exclude, exclude_defaults=True)


class SkillArgument(_SkillSetPart):
    """One argument of a skill.

    Attributes:
        type: ``object`` is a text that names an object in the scene.
        unit: unit of ``min``, ``max`` and the value in a plan (cm, m, deg, rad, s, ...).
        choices: the only values allowed; None allows all.
        max_chars: longest text; by default 48 for objects and 120 for other texts.
    """

    name: StrictStr = Field(pattern=rf"^{WORD}$")
    type: ArgumentType
    unit: StrictStr = ""
    min: Number | None = None
    max: Number | None = None
    choices: tuple[StrictInt | StrictFloat | StrictStr, ...] | None = None
    max_chars: StrictInt | None = Field(default=None, ge=1, le=2000)
    description: StrictStr = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.type in NUMERIC:
            if self.max_chars is not None:
                raise ValueError("max_chars is for texts")
            for name in ("min", "max"):
                bound = getattr(self, name)
                if self.type == "int" and bound is not None and not isinstance(bound, int):
                    raise ValueError(f"{name} of an int must be a whole number")
                if bound is not None and abs(bound) > MAX_BOUND:
                    raise ValueError(f"{name} is over {MAX_BOUND:g}: a plan's numbers have few digits")
            if self.min is not None and self.max is not None and self.min > self.max:
                raise ValueError(f"min {self.min} is over max {self.max}")
        elif self.min is not None or self.max is not None:
            raise ValueError(f"min and max are for numbers, not for {self.type}")
        if self.choices is not None:
            self._check_choices(self.choices)
        return self

    def _check_choices(self, choices: tuple[int | float | str, ...]) -> None:
        if not choices or len(set(choices)) != len(choices):
            raise ValueError("choices must be one or more different values")
        kind: tuple[type, ...] = {"int": (int,), "float": (int, float), "bool": ()}.get(self.type, (str,))
        for value in choices:
            if not isinstance(value, kind):
                raise ValueError(f"choice {value!r} is no {self.type}")
            low = isinstance(value, (int, float)) and self.min is not None and value < self.min
            high = isinstance(value, (int, float)) and self.max is not None and value > self.max
            if low or high:
                raise ValueError(f"choice {value!r} is outside min and max")
            if not self._writable(value):
                raise ValueError(f"choice {value!r} is no value that a plan may have here")

    def _writable(self, value: int | float | str) -> bool:
        """A plan can have this choice, and the check of its segments lets it pass."""
        if not isinstance(value, str):
            return abs(value) <= MAX_BOUND and "e" not in repr(value)
        if len(value) > self.chars or not value.isprintable() or hidden_prompt_character(value) is not None:
            return False
        return self.type != "object" or OBJECT_NAME.fullmatch(value) is not None

    @property
    def chars(self) -> int:
        """Maximum length of the argument as a text, characters."""
        return self.max_chars or DEFAULT_CHARS.get(self.type, 120)

    @property
    def meaning(self) -> dict[str, Any]:
        """What counts for ``SkillSet.fingerprint``: 20 and 20.0 are the same, and so is a default written out."""
        return self.changed_fields({"description"}) | {
            "unit": self.unit,
            "min": None if self.min is None else float(self.min),
            "max": None if self.max is None else float(self.max),
            "choices": self.choices and sorted(str(_exact_skill_choice(choice)) for choice in self.choices),
            "max_chars": self.chars,
        }

    @property
    def pattern(self) -> str:
        """RE2 pattern of the argument in a plan. A variable may stand for a text."""
        if self.type == "int":
            return r"-?[0-9]+"
        if self.type == "float":
            return r"-?[0-9]*\.?[0-9]+"
        if self.type == "bool":
            return r"(?:True|False)"
        return r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|_?[\pL\pN_]+)"""


class Skill(_SkillSetPart):
    """One skill of the robot.

    Attributes:
        name: full name, ``move_forward``, as in robot profiles.
        abbr: short name in plans, ``mf``; the full name by default. Plans may use both.
        returns: type of its value for the plan.
        blocks: generation waits for the value that the robot reports. The value joins the context.
        pure: the skill has no effect but its value, so the grammar never makes it a statement.
        confirm: an operator confirms each call before the robot performs it.
        in_a_row: maximum repetitions in a row under the grammar, since small models repeat without end.
        pattern: RE2 pattern that a whole call must match, narrower than its arguments; empty for none.
        description: a few words for the prompt.
        example: one call.
    """

    name: StrictStr = Field(pattern=rf"^{WORD}$")
    abbr: StrictStr = Field(default="", pattern=rf"^({WORD})?$")
    arguments: tuple[SkillArgument, ...] = ()
    returns: Returns = "none"
    blocks: StrictBool = False
    pure: StrictBool = False
    confirm: StrictBool = False
    in_a_row: StrictInt = Field(default=1, ge=1, le=20)
    pattern: StrictStr = ""
    description: StrictStr = ""
    example: StrictStr = ""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        if value:
            compile_skill_pattern(value)
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [argument.name for argument in self.arguments]
        if len(set(names)) != len(names):
            raise ValueError("two arguments have the same name")
        if self.returns == "none" and (self.pure or self.blocks):
            raise ValueError("pure and blocks are for skills that return something")
        return self

    @property
    def word(self) -> str:
        """The name in plans."""
        return self.abbr or self.name

    @property
    def meaning(self) -> dict[str, Any]:
        """What counts for ``SkillSet.fingerprint``, with defaults written out."""
        return self.changed_fields({"in_a_row", "description", "example"}) | {
            "abbr": self.word,
            "arguments": [argument.meaning for argument in self.arguments],
            **{name: getattr(self, name) for name in ("returns", "blocks", "pure", "confirm", "pattern")},
        }

    @property
    def call_pattern(self) -> str:
        """RE2 pattern of a whole call: ``pattern``, by default derived from the arguments."""
        if self.pattern:
            return self.pattern
        inside = r"\s*,\s*".join(argument.pattern for argument in self.arguments)
        return rf"(?:{self.name}|{self.word})\s*\(\s*{inside}\s*\)"

    def matches(self, call: str) -> bool:
        """``call``, the source text of one call, matches ``call_pattern``. Linear in its length."""
        return self._regex.fullmatch(call) is not None

    @cached_property
    def _regex(self) -> Any:
        return compile_skill_pattern(self.call_pattern)


class Example(_SkillSetPart):
    """An example for the prompt."""

    scene: StrictStr = ""
    task: StrictStr
    plan: StrictStr = Field(min_length=1)
    history: StrictStr = ""


class SkillSetTextRules(_SkillSetPart):
    """Segment boundaries of prose (TimelyLLM section 7.1).

    Attributes:
        unit: a segment is a ``sentence`` or a ``paragraph``.
        min_words: a shorter part joins the next one, so that "Yes." is no segment.
        max_words: after so many words the next space ends the segment.
    """

    unit: Literal["sentence", "paragraph"] = "sentence"
    min_words: StrictInt = Field(default=3, ge=1, le=100)
    max_words: StrictInt = Field(default=60, ge=1, le=2000)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min_words > self.max_words:
            raise ValueError("min_words is over max_words")
        return self

    @property
    def meaning(self) -> dict[str, Any]:
        """What counts for ``SkillSet.fingerprint``."""
        own = {name: getattr(self, name) for name in ("unit", "min_words", "max_words")}
        return self.changed_fields() | own


_NO_MEANING = {
    *("description", "profile", "role", "guidance", "examples"),
    *("max_statements", "max_tokens", "network_s", "skills", "text"),
}
"""Fields that leave the meaning of a plan as it is, or that ``SkillSet.fingerprint`` adds in another form."""


class SkillSet(_SkillSetPart):
    """The server's description of one kind of robot or reader.

    Attributes:
        name: its name in requests.
        version: number that rises with each change of meaning.
        language: language of the plans.
        description: one line for listings.
        profile: default robot profile.
        role: first sentence of the prompt.
        guidance: further instructions of the prompt.
        max_statements: maximum statements of a plan under the grammar, those in blocks included.
        max_tokens: default output limit of a request, tokens.
        network_s: default one-way delay to the robot if request and profile have none, seconds.
        text: boundaries of prose, only with language ``text``.
    """

    name: StrictStr = Field(pattern=rf"^{NAME}$")
    version: StrictInt = Field(default=1, ge=1)
    language: Language
    description: StrictStr = ""
    profile: StrictStr = ""
    role: StrictStr = ""
    guidance: StrictStr = ""
    skills: tuple[Skill, ...] = Field(default=(), validate_default=True)
    examples: tuple[Example, ...] = ()
    max_statements: StrictInt = Field(default=10, ge=1, le=200)
    max_tokens: StrictInt = Field(default=PLAN_MAX_TOKENS, ge=1, le=100_000)
    network_s: Annotated[float, Field(ge=0, le=60)] = 0.008
    text: SkillSetTextRules | None = None

    # Each field has its own validator, so that an error names its line in the file.

    @field_validator("skills")
    @classmethod
    def _check_skills(cls, skills: tuple[Skill, ...], info: ValidationInfo) -> tuple[Skill, ...]:
        if info.data.get("language") == "text":
            if skills:
                raise ValueError("a text skill set has no skills")
        elif not skills:
            raise ValueError("needs at least one skill")
        skills_by_word: dict[str, str] = {"True": "the value True", "False": "the value False"}
        for skill in skills:
            for word in {skill.name, skill.word}:
                if skills_by_word.get(word) == skill.name:
                    raise ValueError(f"two skills have the name {word!r}")
                if word in skills_by_word:
                    raise ValueError(f"{word!r} names both {skills_by_word[word]} and {skill.name}")
                skills_by_word[word] = skill.name
        return skills

    @field_validator("text")
    @classmethod
    def _check_text(cls, text: SkillSetTextRules | None, info: ValidationInfo) -> SkillSetTextRules | None:
        if text is not None and info.data.get("language") != "text":
            raise ValueError("text rules are for language text")
        return text

    @cached_property
    def by_word(self) -> Mapping[str, Skill]:
        return {word: skill for skill in self.skills for word in (skill.word, skill.name)}

    @cached_property
    def fingerprint(self) -> str:
        """Identifies what its plans mean and what they may do: 16 hexadecimal digits.

        Texts of the prompt, limits of a generation and the order of the skills do not count.
        """
        content = self.changed_fields(_NO_MEANING) | {
            "version": self.version,
            "skills": {skill.name: skill.meaning for skill in self.skills},
            "text": self.text_rules.meaning if self.language == "text" else None,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @cached_property
    def text_rules(self) -> SkillSetTextRules:
        """Boundaries of prose, with defaults."""
        return self.text or SkillSetTextRules()

    def find(self, word: str) -> Skill | None:
        return self.by_word.get(word)


def _exact_skill_choice(choice: int | float | str) -> float | str:
    return choice if isinstance(choice, str) else float(choice)


def compile_skill_pattern(pattern: str) -> Any:
    """Compile an RE2 pattern. RE2 itself would also log a mistake.

    Raises:
        ValueError: it is no RE2 pattern; the message says why.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        raise ValueError(
            f"not an RE2 pattern: {reason.decode() if isinstance(reason, bytes) else reason}"
        ) from error


OBJECT_NAME = compile_skill_pattern(r"[\pL\pN][\pL\pN ._-]*(?:\[[0-9]+(?:\.[0-9]+)?\])?")
"""An object name: words, with an optional horizontal position as in TypeFly (``chair[0.6]``)."""
