"""Generates single steps of drone tasks, in words and as statements. Longer tasks join several steps."""

from __future__ import annotations

from dataclasses import dataclass

from timely.planner.cases.sampler import Sampler
from timely.planner.cases.vocabulary import WORDS, Split
from timely.plans.simulated_worlds import Thing

MOVES = {"forward": "mf", "back": "mb", "left": "ml", "right": "mr", "up": "mu", "down": "md"}
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
FEET_CM = 30


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a task.

    Attributes:
        words: the step in words, without capital letter and full stop.
        plan: its statements, each closed.
        kind: two steps in a row must differ in it.
        things: what the room must hold.
        conditional: the plan has a block.
    """

    words: str
    plan: str
    kind: str
    things: tuple[Thing, ...] = ()
    conditional: bool = False


DISTANCE_FORMS: dict[Split, tuple[str, ...]] = {
    "train": ("cm", "cm", "m", "m", "m", "word", "word", "half", "feet", "feet"),
    "test": ("cm", "cm", "m", "m", "m", "word", "half", "feet"),
}
"""Forms of a distance, with repetition as weight. Training has more of the forms that need arithmetic."""


def draw_distance(sampler: Sampler) -> tuple[str, int]:
    """A distance in words and in cm."""
    kind = sampler.choose(DISTANCE_FORMS[sampler.split])
    if kind == "cm":
        # Multiples of 7 are held out.
        options = [n for n in range(20, 300, 5) if (n % 7 == 0) == (sampler.split == "test")]
        cm = sampler.choose(options)
        return sampler.choose((f"{cm} cm", f"{cm} centimetres", f"{cm}cm", f"{cm} centimeters")), cm
    if kind == "m":
        tenths = sampler.choose(
            [n for n in range(2, 51) if (n % 7 == 0) == (sampler.split == "test")] + [10, 20, 30, 40, 50]
        )
        number = f"{tenths / 10:g}"
        return sampler.choose(
            (f"{number} m", f"{number} metres", f"{number} meters", f"{number}m")
        ), tenths * 10
    if kind == "word":
        n = sampler.choose((1, 2, 3, 4, 5))
        half = n < 5 and sampler.chance(0.3)
        word = NUMBERS[n] + (" and a half" if half else "")
        return (
            f"{word} {'metre' if word == 'one' else sampler.choose(('metres', 'meters'))}",
            n * 100 + 50 * half,
        )
    if kind == "half":
        return sampler.choose(
            (
                ("half a metre", 50),
                ("half a meter", 50),
                ("a metre", 100),
                ("a meter", 100),
                ("a bit", 50),
                ("a little", 50),
            )
        )
    feet = sampler.choose((1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
    return f"{sampler.choose((str(feet), NUMBERS[feet]))} {'foot' if feet == 1 else 'feet'}", feet * FEET_CM


def move_step(sampler: Sampler) -> Step:
    """Fly a distance in a direction."""
    way = sampler.choose(list(MOVES))
    words, cm = draw_distance(sampler)
    if sampler.chance(0.12):
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
        key = f"move {way}" if sampler.chance(0.3) else "move"
        text = sampler.phrase(key, w=sampler.choose(plain), d=words)
    else:
        text = sampler.phrase("move a little", w=sampler.choose(plain))
    return Step(text, f"{MOVES[way]}({cm});", MOVES[way])


def turn_step(sampler: Sampler) -> Step:
    """Turn on the spot."""
    side, skill = sampler.choose((("right", "tc"), ("left", "tu")))
    kind = sampler.choose(("plain", "degrees", "degrees", "quarter", "half", "full", "around", "clock"))
    degrees = sampler.choose(
        [n for n in range(10, 181, 5) if (n % 7 == 0) == (sampler.split == "test")] + [45, 90]
    )
    if kind == "plain":
        return Step(sampler.phrase("turn", s=side), f"{skill}(90);", "turn")
    if kind == "degrees":
        words = sampler.choose((f"{degrees} degrees", f"{degrees} deg", f"{degrees}°"))
        text = sampler.phrase("turn degrees", s=side, d=words)
        return Step(text, f"{skill}({degrees});", "turn")
    if kind == "quarter":
        text = sampler.phrase("quarter turn", s=side)
        return Step(text, f"{skill}(90);", "turn")
    if kind == "half":
        text = sampler.phrase("half turn", s=side)
        return Step(text, f"{skill}(180);", "turn")
    if kind == "full":
        text = sampler.phrase("full turn")
        return Step(text, "tc(360);", "turn")
    if kind == "around":
        return Step(sampler.phrase("turn around"), "tc(180);", "turn")
    clock, skill = sampler.choose((("clockwise", "tc"), ("counterclockwise", "tu"), ("anticlockwise", "tu")))
    text = sampler.phrase("turn clockwise", d=degrees, c=clock)
    return Step(text, f"{skill}({degrees});", "turn")


def photo_step(sampler: Sampler) -> Step:
    """Take a picture of the view ahead."""
    text = sampler.phrase("photo")
    return Step(text, "tp();", "tp")


def wait_step(sampler: Sampler) -> Step:
    """Hover for a while."""
    if sampler.chance(0.2):
        words, seconds = sampler.choose((("half a minute", 30), ("a minute", 60), ("one minute", 60)))
    else:
        seconds = sampler.choose([n for n in range(1, 31) if (n % 7 == 0) == (sampler.split == "test")])
        word = NUMBERS[seconds] if seconds <= 10 and sampler.chance(0.3) else str(seconds)
        words = f"{word} second{'' if seconds == 1 else 's'}"
    text = sampler.phrase("wait", t=words)
    return Step(text, f"d({seconds});", "d")


def say_step(sampler: Sampler) -> Step:
    """Say a message."""
    message = sampler.from_table(WORDS.messages)
    text = sampler.phrase("say", m=message)
    return Step(text, f"l('{message}');", "l")


def thing_somewhere(sampler: Sampler, name: str) -> Thing:
    """The thing at a random place at eye level."""
    return Thing(
        name,
        sampler.choose((-150.0, -90.0, -20.0, 0.0, 25.0, 60.0, 120.0, 180.0)),
        sampler.choose((150.0, 250.0, 400.0)),
    )


def find_step(sampler: Sampler, name: str | None = None) -> Step:
    """Look for an object and go there."""
    name = name or sampler.object_name(WORDS.drone_objects)
    text = sampler.phrase("step: find", a=sampler.with_article(name), x=name)
    return Step(
        text,
        f"?s('{name}')==True{{g('{name}')}}",
        f"find {name}",
        (thing_somewhere(sampler, name),),
        conditional=True,
    )


def find_photo_step(sampler: Sampler) -> Step:
    """Look for an object and take its picture."""
    name = sampler.object_name(WORDS.drone_objects)
    text = sampler.phrase("step: photo of", a=sampler.with_article(name), x=name)
    return Step(
        text,
        f"?s('{name}')==True{{tp()}}",
        f"photo {name}",
        (thing_somewhere(sampler, name),),
        conditional=True,
    )


def any_drone_step(sampler: Sampler) -> Step:
    """A random step."""
    steps = (
        move_step,
        move_step,
        move_step,
        turn_step,
        turn_step,
        photo_step,
        wait_step,
        say_step,
        find_step,
        find_step,
        find_photo_step,
    )
    return sampler.choose((*steps, turn_step, say_step, find_photo_step) if sampler.training else steps)(
        sampler
    )
