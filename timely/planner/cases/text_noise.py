"""Adds the noise of typed text to tasks: politeness, missing punctuation, lower case, typing errors."""

from timely.planner.cases.sampler import CaseSampler
from timely.planner.cases.vocabulary import WORDS

MAX_EXACT_CHARS = 4
"""Words of at most this length get no typing error, which would make another word of them."""
P_POLITE, P_NO_FULL_STOP, P_LOWER_CASE, P_TYPO = 0.3, 0.3, 0.25, 0.15


def add_case_noise(sampler: CaseSampler, text: str, keep: str, *, command: bool = True) -> str:
    """The task as a person types it.

    Args:
        keep: the plan. Its words are never misspelt.
        command: the task is an order, which politeness may surround.
    """
    if command and text.endswith(".") and sampler.chance(P_POLITE):
        body = text[:-1]
        if sampler.chance(0.6):
            before = sampler.from_table(WORDS.politeness_before)
            body = f"{before} {body[0].lower()}{body[1:]}"
        else:
            body = f"{body} {sampler.from_table(WORDS.politeness_after)}"
        text = f"{body[0].upper()}{body[1:]}."
    if sampler.chance(P_NO_FULL_STOP) and text[-1] in ".!":
        text = text[:-1] if sampler.chance(0.7) else f"{text[:-1]}!"
    if sampler.chance(P_LOWER_CASE):
        text = text[0].lower() + text[1:]
    return _add_case_typo(sampler, text, keep) if sampler.chance(P_TYPO) else text


def _add_case_typo(sampler: CaseSampler, text: str, keep: str) -> str:
    """Lose, double or swap a letter of one word."""
    words = text.split(" ")
    candidates = [
        at
        for at, word in enumerate(words)
        if word.isalpha() and len(word) > MAX_EXACT_CHARS and word.lower() not in keep.lower()
    ]
    if not candidates:
        return text
    at = sampler.choose(candidates)
    word = words[at]
    cut = sampler.rng.randrange(1, len(word) - 1)
    words[at] = sampler.choose(
        (
            word[:cut] + word[cut + 1 :],
            word[:cut] + word[cut] + word[cut:],
            word[:cut] + word[cut + 1] + word[cut] + word[cut + 2 :],
        )
    )
    return " ".join(words)
