"""Names that stand in a prompt, and where in a plan a name is being written: a small model then cannot misspell one.

A tokenizer writes a word differently behind a quotation mark than behind a space, so a small model has to learn word
by word how to copy, and `flamingo` comes out as `flamo`. Decoding knows better: an object argument may only be a run
of words of the scene, the task or the history (or one of a few names that a planner brings along). The plan's grammar
stays that of the skill set, compiled once; these names narrow it for one request (``timely.plans.name_mask``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise

from timely.plans import ebnf
from timely.plans.skill_set import Argument, SkillSet

MAX_NAMES = 512
"""A text with more is no task in a few words: any name may then be written."""

_LABEL = re.compile(r"^(Scene|History|Task|Plan):", re.MULTILINE)
_STRETCH = re.compile(r"[^\W_](?:[\w -]*\w)?", re.UNICODE)
_POSITIONED = re.compile(r"[^\W\d_][\w -]*\[0\.\d{1,2}\]")
_SPACELESS = re.compile(r"[\u0e00-\u0eff\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
"""Scripts that put no space between words, or hang particles on them: what a name is, spaces do not say."""
_SMALL = frozenset(
    (
        "a", "an", "the", "my", "your", "our", "his", "her", "its", "their", "this", "that", "these",
        "those", "some", "any", "no", "and", "or", "nor", "but", "not", "to", "at", "in", "on", "of", "for",
        "from", "by", "with", "is", "are", "was", "were", "be", "been", "do", "does", "did", "it", "there",
        "here", "then", "if", "i", "you", "we", "he", "she", "they", "me", "us", "them", "please",
    )
)  # fmt: skip
"""Words that no name begins or ends with."""
_COUNTS = frozenset(
    (
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "several",
        "many",
        "few",
        "both",
        "all",
    )
)
_JOINTS = frozenset(("and", "or", "nor"))
_CALL = re.compile(r"([^\W\d]\w*)\(((?:[^()']|'[^']*')*)\Z")
_QUOTED = re.compile(r"'[^']*'")


def names_in(*texts: str) -> frozenset[str] | None:
    """What may be meant as a name in these texts; None where that cannot be said: any name then.

    Runs of words without the small ones at their ends, as written and in lower case; ``bananas`` of `two bananas` also
    as ``banana``, and of `the red or the blue box` also ``red box``.
    """
    found: dict[str, None] = {}
    for text in texts:
        if _SPACELESS.search(text):
            return None
        said = _LABEL.sub("", text)
        for name in (*_POSITIONED.findall(said), *_runs(said)):
            found[name] = None
            found[name.lower()] = None
        if len(found) > MAX_NAMES:
            return None
    return frozenset(found)


def allowed_names(prompt: str, brought: Iterable[str]) -> frozenset[str] | None:
    """What a request's plan may name: names of its prompt, and those its planner brings along; None: any name."""
    said = names_in(prompt)
    return None if said is None else said.union(brought)


def _runs(text: str) -> Iterator[str]:
    stretches = [stretch.split() for stretch in _STRETCH.findall(text)]
    for words in stretches:
        for start in range(len(words)):
            for end in range(start + 1, min(len(words), start + ebnf.OBJECT_WORDS) + 1):
                run = words[start:end]
                if run[0].lower() in _SMALL or run[-1].lower() in _SMALL:
                    continue
                yield " ".join(run)
                if start and (words[start - 1].lower() in _COUNTS or words[start - 1].isdigit()):
                    yield from (" ".join([*run[:-1], one]) for one in _singular(run[-1]))
        yield from _shared_nouns(words)
    nouns = dict.fromkeys(word for words in stretches for word in words if word.lower() not in _SMALL)
    for words in stretches:
        # "into the left basket, the rest into the right one"
        for first, last in pairwise(words):
            if last.lower() == "one" and first.lower() not in _SMALL:
                yield from (f"{first} {noun}" for noun in nouns)


def _singular(word: str) -> Iterator[str]:
    if word.endswith("s") and len(word) > 3:
        yield word[:-1]
        if word.endswith("es"):
            yield word[:-2]
        if word.endswith("ies"):
            yield f"{word[:-3]}y"


def _shared_nouns(words: list[str]) -> Iterator[str]:
    """One noun for two adjectives: `the red or the blue box`."""
    for at in range(1, len(words) - 2):
        if words[at].lower() in _JOINTS:
            after = [word for word in words[at + 1 : at + 4] if word.lower() not in _SMALL]
            if len(after) > 1:
                yield f"{words[at - 1]} {after[1]}"


@cache
def _fitting(chars: int) -> re.Pattern[str]:
    return re.compile(ebnf.object_pattern(chars))


def fitting(names: Iterable[str], argument: Argument) -> list[str]:
    """Those the grammar takes for this argument, sorted."""
    pattern = _fitting(argument.chars)
    return sorted(name for name in names if pattern.fullmatch(name))


def names_of_plan(plan: str, skills: SkillSet) -> Iterator[str]:
    """The names a finished plan gives to object arguments."""
    for quoted in _QUOTED.finditer(plan):
        found = open_argument(plan[: quoted.end() - 1], skills)
        if found is not None:
            yield found[1] or ""


def open_argument(plan: str, skills: SkillSet) -> tuple[Argument, str | None] | None:
    """The object argument that an unfinished plan is about to write, and what of the name is written.

    Returns:
        None if it is at no object argument; the text is None before the opening quotation mark.
    """
    written: str | None = None
    if plan.count("'") % 2:
        plan, _, written = plan.rpartition("'")
    if not plan.endswith(("(", ",")):
        return None
    call = _CALL.search(plan)
    skill = skills.find(call[1]) if call else None
    if call is None or skill is None:
        return None
    at = _QUOTED.sub("", call[2]).count(",")
    if at >= len(skill.arguments):
        return None
    argument = skill.arguments[at]
    return (argument, written) if argument.type == "object" and argument.choices is None else None
