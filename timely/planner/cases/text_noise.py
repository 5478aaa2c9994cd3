# ruff: noqa: E501 (tables of words)
"""Makes tasks look as people write them: politeness, missing punctuation, lower case, slips of the keyboard."""

from __future__ import annotations

from timely.planner.cases import heldout
from timely.planner.cases.case import Draw

BEFORE = {
    "train": (
        "please", "hey,", "ok,", "could you", "can you", "now", "I want you to", "robot,", "hi,", "quick,", "kindly", "would you",
        "I would like you to", "hello,", "listen,", "you should", "you must", "will you", "go ahead and", "it is time to", "let us", "hurry,",
        "well,", "so,", "next,", "alright,", "you there,", "I need you to", "please now", "first of all,", "your task:", "be a dear and",
    ),
    "test": heldout.BEFORE,
}  # fmt: skip
AFTER = {
    "train": (
        "please", "thanks", "now", "for me", "thank you", "if you can", "right away", "at once", "quickly", "carefully", "will you", "ok?",
        "immediately", "and be quick", "today", "my friend", "for us",
    ),
    "test": heldout.AFTER,
}  # fmt: skip
WORDS_KEPT = 4
"""Shorter words are left as they are: a slip would make another word of them."""
CHANCE_DRESS, CHANCE_PLAIN_END, CHANCE_LOWER, CHANCE_SLIP = 0.3, 0.3, 0.25, 0.15


def dressed(draw: Draw, text: str, keep: str, *, command: bool = True) -> str:
    """The task as typed.

    Args:
        keep: words of the plan: they are never misspelt. command: an order, which takes "please" and the like.
    """
    if command and text.endswith(".") and draw.chance(CHANCE_DRESS):
        body = text[:-1]
        if draw.chance(0.6):
            before = draw.one(BEFORE[draw.split])
            body = f"{before} {body[0].lower()}{body[1:]}"
        else:
            body = f"{body} {draw.one(AFTER[draw.split])}"
        text = f"{body[0].upper()}{body[1:]}."
    if draw.chance(CHANCE_PLAIN_END) and text[-1] in ".!":
        text = text[:-1] if draw.chance(0.7) else f"{text[:-1]}!"
    if draw.chance(CHANCE_LOWER):
        text = text[0].lower() + text[1:]
    return slip(draw, text, keep) if draw.chance(CHANCE_SLIP) else text


def slip(draw: Draw, text: str, keep: str) -> str:
    """One word with a letter lost, doubled or swapped."""
    words = text.split(" ")
    able = [
        at
        for at, word in enumerate(words)
        if word.isalpha() and len(word) > WORDS_KEPT and word.lower() not in keep.lower()
    ]
    if not able:
        return text
    at = draw.one(able)
    word = words[at]
    cut = draw.rng.randrange(1, len(word) - 1)
    words[at] = draw.one(
        (
            word[:cut] + word[cut + 1 :],
            word[:cut] + word[cut] + word[cut:],
            word[:cut] + word[cut + 1] + word[cut] + word[cut + 2 :],
        )
    )
    return " ".join(words)
