"""Single steps of drone tasks, in words and as statements; tasks of several steps are joined from them."""

from __future__ import annotations

from dataclasses import dataclass

from timely.planner.cases.case import Draw
from timely.planner.cases.vocabulary import DRONE_OBJECTS, MESSAGES, Split
from timely.plans.worlds import Thing

MOVES = {"forward": "mf", "back": "mb", "left": "ml", "right": "mr", "up": "mu", "down": "md"}
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
FEET_CM = 30


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        words: without capital and full stop.
        plan: statements, each closed. kind: what must not stand twice in a row.
        things: what the room needs for it. conditional: costs a block.
    """

    words: str
    plan: str
    kind: str
    things: tuple[Thing, ...] = ()
    conditional: bool = False


KINDS: dict[Split, tuple[str, ...]] = {
    "train": ("cm", "cm", "m", "m", "m", "word", "word", "half", "feet", "feet"),
    "test": ("cm", "cm", "m", "m", "m", "word", "half", "feet"),
}
"""Ways to say a distance, as often as they come; training has more of those that must be worked out."""


def distance(draw: Draw) -> tuple[str, int]:
    """A distance in words and in cm."""
    kind = draw.one(KINDS[draw.split])
    if kind == "cm":
        # Those left over by 7 are the held-out numbers.
        options = [n for n in range(20, 300, 5) if (n % 7 == 0) == (draw.split == "test")]
        cm = draw.one(options)
        return draw.one((f"{cm} cm", f"{cm} centimetres", f"{cm}cm", f"{cm} centimeters")), cm
    if kind == "m":
        tenths = draw.one(
            [n for n in range(2, 51) if (n % 7 == 0) == (draw.split == "test")] + [10, 20, 30, 40, 50]
        )
        number = f"{tenths / 10:g}"
        return draw.one((f"{number} m", f"{number} metres", f"{number} meters", f"{number}m")), tenths * 10
    if kind == "word":
        n = draw.one((1, 2, 3, 4, 5))
        half = n < 5 and draw.chance(0.3)
        word = NUMBERS[n] + (" and a half" if half else "")
        return f"{word} {'metre' if word == 'one' else draw.one(('metres', 'meters'))}", n * 100 + 50 * half
    if kind == "half":
        return draw.one(
            (
                ("half a metre", 50),
                ("half a meter", 50),
                ("a metre", 100),
                ("a meter", 100),
                ("a bit", 50),
                ("a little", 50),
            )
        )
    feet = draw.one((1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
    return f"{draw.one((str(feet), NUMBERS[feet]))} {'foot' if feet == 1 else 'feet'}", feet * FEET_CM


def move(draw: Draw) -> Step:
    """Fly so far that way."""
    way = draw.one(list(MOVES))
    words, cm = distance(draw)
    if draw.chance(0.12):
        words, cm = "", 100
    plain = {
        "forward": ("forward", "forward", "forwards", "ahead", "straight ahead"),
        "back": ("back", "backward", "backwards"),
        "left": ("left", "to the left"),
        "right": ("right", "to the right"),
        "up": ("up", "upward", "up"),
        "down": ("down", "downward", "down"),
    }[way]
    if words:
        key = f"move {way}" if draw.chance(0.3) else "move"
        text = draw.phrase(key, w=draw.one(plain), d=words)
    else:
        text = draw.phrase("move a little", w=draw.one(plain))
    return Step(text, f"{MOVES[way]}({cm});", MOVES[way])


def turn(draw: Draw) -> Step:
    """Turn on the spot."""
    side, skill = draw.one((("right", "tc"), ("left", "tu")))
    kind = draw.one(("plain", "degrees", "degrees", "quarter", "half", "full", "around", "clock"))
    degrees = draw.one([n for n in range(10, 181, 5) if (n % 7 == 0) == (draw.split == "test")] + [45, 90])
    if kind == "plain":
        return Step(
            draw.phrase("turn", s=side),
            f"{skill}(90);",
            "turn",
        )
    if kind == "degrees":
        words = draw.one((f"{degrees} degrees", f"{degrees} deg", f"{degrees}°"))
        text = draw.phrase(
            "turn degrees",
            s=side, d=words,
        )  # fmt: skip
        return Step(text, f"{skill}({degrees});", "turn")
    if kind == "quarter":
        text = draw.phrase(
            "quarter turn",
            s=side,
        )
        return Step(text, f"{skill}(90);", "turn")
    if kind == "half":
        text = draw.phrase(
            "half turn",
            s=side,
        )
        return Step(text, f"{skill}(180);", "turn")
    if kind == "full":
        text = draw.phrase(
            "full turn",
        )
        return Step(text, "tc(360);", "turn")
    if kind == "around":
        return Step(
            draw.phrase("turn around"),
            "tc(180);",
            "turn",
        )
    clock, skill = draw.one((("clockwise", "tc"), ("counterclockwise", "tu"), ("anticlockwise", "tu")))
    text = draw.phrase(
        "turn clockwise",
        d=degrees,
        c=clock,
    )
    return Step(text, f"{skill}({degrees});", "turn")


def photo(draw: Draw) -> Step:
    """A picture of whatever is ahead."""
    text = draw.phrase(
        "photo",
    )
    return Step(text, "tp();", "tp")


def wait(draw: Draw) -> Step:
    """Hover for a while."""
    if draw.chance(0.2):
        words, seconds = draw.one((("half a minute", 30), ("a minute", 60), ("one minute", 60)))
    else:
        seconds = draw.one([n for n in range(1, 31) if (n % 7 == 0) == (draw.split == "test")])
        word = NUMBERS[seconds] if seconds <= 10 and draw.chance(0.3) else str(seconds)
        words = f"{word} second{'' if seconds == 1 else 's'}"
    text = draw.phrase(
        "wait",
        t=words,
    )
    return Step(text, f"d({seconds});", "d")


def say(draw: Draw) -> Step:
    """Say something given."""
    message = draw.of(MESSAGES)
    text = draw.phrase(
        "say",
        m=message,
    )
    return Step(text, f"l('{message}');", "l")


def somewhere(draw: Draw, name: str) -> Thing:
    """The thing, anywhere at eye level."""
    return Thing(
        name, draw.one((-150.0, -90.0, -20.0, 0.0, 25.0, 60.0, 120.0, 180.0)), draw.one((150.0, 250.0, 400.0))
    )


def find(draw: Draw, name: str | None = None) -> Step:
    """Look for a thing and go there."""
    name = name or draw.thing(DRONE_OBJECTS)
    text = draw.phrase(
        "step: find",
        a=draw.a(name),
        x=name,
    )
    return Step(
        text, f"?s('{name}')==True{{g('{name}')}}", f"find {name}", (somewhere(draw, name),), conditional=True
    )


def find_photo(draw: Draw) -> Step:
    """Look for a thing and take its picture."""
    name = draw.thing(DRONE_OBJECTS)
    text = draw.phrase(
        "step: photo of",
        a=draw.a(name),
        x=name,
    )
    return Step(
        text, f"?s('{name}')==True{{tp()}}", f"photo {name}", (somewhere(draw, name),), conditional=True
    )


def any_step(draw: Draw) -> Step:
    """Any of them."""
    steps = (move, move, move, turn, turn, photo, wait, say, find, find, find_photo)
    return draw.one((*steps, turn, say, find_photo) if draw.training else steps)(draw)
