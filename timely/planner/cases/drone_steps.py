"""Generates single steps of drone tasks, in words and as statements. Longer tasks join several steps."""

from collections.abc import Callable
from dataclasses import dataclass

from timely.planner.cases.sampler import CaseSampler
from timely.planner.cases.vocabulary import WORDS, Split
from timely.plans.simulated_worlds import Thing

MOVES = {"forward": "mf", "back": "mb", "left": "ml", "right": "mr", "up": "mu", "down": "md"}
WAYS = {
    "forward": ("forward", "forward", "forwards", "ahead", "straight ahead"),
    "back": ("back", "backward", "backwards"),
    "left": ("left", "to the left"),
    "right": ("right", "to the right"),
    "up": ("up", "upward", "up"),
    "down": ("down", "downward", "down"),
}
SPINS = {
    "plain": ("turn", 90),
    "quarter": ("quarter turn", 90),
    "half": ("half turn", 180),
    "full": ("full turn", 360),
    "around": ("turn around", 180),
}
"""Turns by a fixed angle: wording and degrees."""
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
FEET_CM = 30


@dataclass(frozen=True, slots=True)
class CaseStep:
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
SHORT_DISTANCES = (
    *(("half a metre", 50), ("half a meter", 50), ("a metre", 100), ("a meter", 100)),
    *(("a bit", 50), ("a little", 50)),
)


def case_find_plan(name: str) -> str:
    """Look for the thing, and go there if it is found."""
    return f"?s('{name}')==True{{g('{name}')}}"


def draw_case_distance(sampler: CaseSampler) -> tuple[str, int]:
    """A distance in words and in cm."""
    kind = sampler.choose(DISTANCE_FORMS[sampler.split])
    if kind == "cm":
        cm = sampler.choose(sampler.held_apart(range(20, 300, 5)))
        return sampler.choose((f"{cm} cm", f"{cm} centimetres", f"{cm}cm", f"{cm} centimeters")), cm
    if kind == "m":
        tenths = sampler.choose([*sampler.held_apart(range(2, 51)), 10, 20, 30, 40, 50])
        number = f"{tenths / 10:g}"
        words = sampler.choose((f"{number} m", f"{number} metres", f"{number} meters", f"{number}m"))
        return words, tenths * 10
    if kind == "word":
        n = sampler.choose((1, 2, 3, 4, 5))
        half = n < 5 and sampler.chance(0.3)
        word = NUMBERS[n] + (" and a half" if half else "")
        unit = "metre" if word == "one" else sampler.choose(("metres", "meters"))
        return f"{word} {unit}", n * 100 + 50 * half
    if kind == "half":
        return sampler.choose(SHORT_DISTANCES)
    feet = sampler.choose((1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
    return f"{sampler.choose((str(feet), NUMBERS[feet]))} {'foot' if feet == 1 else 'feet'}", feet * FEET_CM


def move_case_step(sampler: CaseSampler) -> CaseStep:
    way = sampler.choose(list(MOVES))
    words, cm = draw_case_distance(sampler)
    if sampler.chance(0.12):
        key, words, cm = "move a little", "", 100
    else:
        key = f"move {way}" if sampler.chance(0.3) else "move"
    text = sampler.phrase(key, w=sampler.choose(WAYS[way]), d=words)
    return CaseStep(text, f"{MOVES[way]}({cm});", MOVES[way])


def turn_case_step(sampler: CaseSampler) -> CaseStep:
    side, skill = sampler.choose((("right", "tc"), ("left", "tu")))
    kind = sampler.choose(("plain", "degrees", "degrees", "quarter", "half", "full", "around", "clock"))
    degrees = sampler.choose([*sampler.held_apart(range(10, 181, 5)), 45, 90])
    if kind in SPINS:
        wording, degrees = SPINS[kind]
        skill = "tc" if kind in ("full", "around") else skill
        text = sampler.phrase(wording, s=side)
    elif kind == "degrees":
        words = sampler.choose((f"{degrees} degrees", f"{degrees} deg", f"{degrees}°"))
        text = sampler.phrase("turn degrees", s=side, d=words)
    else:
        clocks = (("clockwise", "tc"), ("counterclockwise", "tu"), ("anticlockwise", "tu"))
        clock, skill = sampler.choose(clocks)
        text = sampler.phrase("turn clockwise", d=degrees, c=clock)
    return CaseStep(text, f"{skill}({degrees});", "turn")


def photo_case_step(sampler: CaseSampler) -> CaseStep:
    """Take a picture of the view ahead."""
    return CaseStep(sampler.phrase("photo"), "tp();", "tp")


def wait_case_step(sampler: CaseSampler) -> CaseStep:
    if sampler.chance(0.2):
        words, seconds = sampler.choose((("half a minute", 30), ("a minute", 60), ("one minute", 60)))
    else:
        seconds = sampler.choose(sampler.held_apart(range(1, 31)))
        word = NUMBERS[seconds] if seconds <= 10 and sampler.chance(0.3) else str(seconds)
        words = f"{word} second{'' if seconds == 1 else 's'}"
    return CaseStep(sampler.phrase("wait", t=words), f"d({seconds});", "d")


def say_case_step(sampler: CaseSampler) -> CaseStep:
    message = sampler.from_table(WORDS.messages)
    return CaseStep(sampler.phrase("say", m=message), f"l('{message}');", "l")


def case_thing_somewhere(sampler: CaseSampler, name: str) -> Thing:
    """The thing at a random place at eye level."""
    bearing_deg = sampler.choose((-150.0, -90.0, -20.0, 0.0, 25.0, 60.0, 120.0, 180.0))
    return Thing(name, bearing_deg, sampler.choose((150.0, 250.0, 400.0)))


def find_case_step(sampler: CaseSampler) -> CaseStep:
    """Look for an object and go there."""
    return _search_case_step(sampler, "step: find", "find", "g('{x}')")


def find_photo_case_step(sampler: CaseSampler) -> CaseStep:
    """Look for an object and take its picture."""
    return _search_case_step(sampler, "step: photo of", "photo", "tp()")


def _search_case_step(sampler: CaseSampler, wording: str, kind: str, then: str) -> CaseStep:
    name = sampler.object_name(WORDS.drone_objects)
    text = sampler.phrase(wording, a=sampler.with_article(name), x=name)
    plan = f"?s('{name}')==True{{{then.format(x=name)}}}"
    return CaseStep(text, plan, f"{kind} {name}", (case_thing_somewhere(sampler, name),), conditional=True)


ANY_STEP: tuple[Callable[[CaseSampler], CaseStep], ...] = (
    *(move_case_step, move_case_step, move_case_step, turn_case_step, turn_case_step),
    *(photo_case_step, wait_case_step, say_case_step),
    *(find_case_step, find_case_step, find_photo_case_step),
)
"""Steps, with repetition as weight."""


def any_drone_case_step(sampler: CaseSampler) -> CaseStep:
    steps = (*ANY_STEP, turn_case_step, say_case_step, find_photo_case_step) if sampler.training else ANY_STEP
    return sampler.choose(steps)(sampler)
