"""Finds the object names of a prompt, and the object argument that an unfinished plan is writing.

A tokenizer encodes a word differently behind a quotation mark than behind a space. A small model must learn word by
word how to copy it, and writes `flamo` for `flamingo`. So an object argument is either a run of words of the scene,
task or history, or one of a planner's own names. The grammar stays that of the skill set, compiled once.
``timely.plans.name_mask`` narrows it to these names for one request.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise

from timely.plans import ebnf
from timely.plans.skill_set import SkillArgument, SkillSet

MAX_NAMES = 512
"""With more names than this in its texts, a request may use any name."""

_LABEL = re.compile(r"^(Scene|History|Task|Plan):", re.MULTILINE)
_WORD_RUN = re.compile(r"[^\W_](?:[\w -]*\w)?", re.UNICODE)
_POSITIONED_NAME = re.compile(r"[^\W\d_][\w -]*\[0\.\d{1,2}\]")
_SPACELESS = re.compile(r"[\u0e00-\u0eff\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
"""Scripts without spaces between words, or with particles attached. Spaces do not delimit names there."""
_STOP_WORDS = frozenset(
    (
        "a", "an", "the", "my", "your", "our", "his", "her", "its", "their", "this", "that", "these",
        "those", "some", "any", "no", "and", "or", "nor", "but", "not", "to", "at", "in", "on", "of", "for",
        "from", "by", "with", "is", "are", "was", "were", "be", "been", "do", "does", "did", "it", "there",
        "here", "then", "if", "i", "you", "we", "he", "she", "they", "me", "us", "them", "please",
    )
)  # fmt: skip
"""Words that no name starts or ends with."""
_COUNTS = frozenset(
    (
        *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "several", "many", "few"),
        *("both", "all"),
    )
)
_CONJUNCTIONS = frozenset(("and", "or", "nor"))
_CALL = re.compile(r"([^\W\d]\w*)\(((?:[^()']|'[^']*')*)\Z")
_ESCAPED_CHARACTER = re.compile(r"\\.", re.DOTALL)
_QUOTED_TEXT = re.compile(r"'[^']*'")


def object_names_in(*texts: str) -> frozenset[str] | None:
    """Possible object names in these texts; None if any name may be used.

    They are runs of words without stop words at their ends, as prefix and in lower case. The text `two bananas` also
    gives ``banana``, and `the red or the blue box` also gives ``red box``.
    """
    names: dict[str, None] = {}
    for text in texts:
        if _SPACELESS.search(text):
            return None
        content = _LABEL.sub("", text)
        for name in (*_POSITIONED_NAME.findall(content), *_object_name_word_runs(content)):
            names[name] = None
            names[name.lower()] = None
        if len(names) > MAX_NAMES:
            return None
    return frozenset(names)


def allowed_object_names(prompt: str, planner_names: Iterable[str]) -> frozenset[str] | None:
    """Names that a request's plan may use: those of its prompt and of its planner; None if any name may be used."""
    names = object_names_in(prompt)
    return None if names is None else names.union(planner_names)


def _object_name_word_runs(text: str) -> Iterator[str]:
    stretches = [stretch.split() for stretch in _WORD_RUN.findall(text)]
    for words in stretches:
        for start in range(len(words)):
            for end in range(start + 1, min(len(words), start + ebnf.OBJECT_WORDS) + 1):
                run = words[start:end]
                if run[0].lower() in _STOP_WORDS or run[-1].lower() in _STOP_WORDS:
                    continue
                yield " ".join(run)
                if start and (words[start - 1].lower() in _COUNTS or words[start - 1].isdigit()):
                    yield from (" ".join([*run[:-1], word]) for word in _singular_object_names(run[-1]))
        yield from _shared_object_nouns(words)
    nouns = dict.fromkeys(word for words in stretches for word in words if word.lower() not in _STOP_WORDS)
    for words in stretches:
        # "into the left basket, the rest into the right one"
        for first, last in pairwise(words):
            if last.lower() == "one" and first.lower() not in _STOP_WORDS:
                yield from (f"{first} {noun}" for noun in nouns)


def _singular_object_names(word: str) -> Iterator[str]:
    if word.endswith("s") and len(word) > 3:
        yield word[:-1]
        if word.endswith("es"):
            yield word[:-2]
        if word.endswith("ies"):
            yield f"{word[:-3]}y"


def _shared_object_nouns(words: list[str]) -> Iterator[str]:
    """Names that share a noun: `the red or the blue box`."""
    for at in range(1, len(words) - 2):
        if words[at].lower() in _CONJUNCTIONS:
            after = [word for word in words[at + 1 : at + 4] if word.lower() not in _STOP_WORDS]
            if len(after) > 1:
                yield f"{words[at - 1]} {after[1]}"


@cache
def _fitting_object_pattern(chars: int) -> re.Pattern[str]:
    return re.compile(ebnf.ebnf_object_pattern(chars))


def fitting_object_names(names: Iterable[str], argument: SkillArgument) -> list[str]:
    pattern = _fitting_object_pattern(argument.chars)
    return sorted(name for name in names if pattern.fullmatch(name))


def names_of_plan(plan: str, skills: SkillSet) -> Iterator[str]:
    plan = _ESCAPED_CHARACTER.sub("", plan)
    for match in _QUOTED_TEXT.finditer(plan):
        argument = open_plan_argument(plan[: match.end() - 1], skills)
        if argument is not None:
            yield argument[1] or ""


def open_plan_argument(plan: str, skills: SkillSet) -> tuple[SkillArgument, str | None] | None:
    """The object argument at the end of an unfinished plan, and the start of its name.

    Returns:
        None if the plan does not end in an object argument. The name is None before the opening quotation mark.
    """
    if "\\" in plan:  # a quotation mark in a choice ends no text
        plan = _ESCAPED_CHARACTER.sub("", plan)
    prefix: str | None = None
    if plan.count("'") % 2:
        plan, _, prefix = plan.rpartition("'")
    if not plan.endswith(("(", ",")):
        return None
    call = _CALL.search(plan)
    skill = skills.find(call[1]) if call else None
    if call is None or skill is None:
        return None
    at = _QUOTED_TEXT.sub("", call[2]).count(",")
    if at >= len(skill.arguments):
        return None
    argument = skill.arguments[at]
    return (argument, prefix) if argument.type == "object" and argument.choices is None else None
