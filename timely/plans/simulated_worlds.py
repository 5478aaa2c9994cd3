"""Simulated worlds for plans: a room with a drone and a table with an arm. They record what a plan did.

They have plain geometry, no physics and no time. That is enough to judge whether a plan does its task.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from timely.plans.language.interpreter import Invocation, Plain, SkillFailed
from timely.plans.thing_names import plain_thing_name

Level = Literal["eye", "high", "low"]

HALF_VIEW_DEG = 45.0
MIN_HEIGHT_FOR_HIGH_CM, MAX_HEIGHT_FOR_LOW_CM = 20.0, -20.0
"""Heights at which the drone sees objects on furniture, and under it."""
STAND_OFF_CM = 60.0
APPARENT_SIZE = 0.2

MOVES_DEG = {"move_forward": 0.0, "move_backward": 180.0, "move_left": -90.0, "move_right": 90.0}
"""Direction of each straight move, clockwise from the heading."""


@dataclass(frozen=True, slots=True)
class Thing:
    """Something in a drone's room.

    Attributes:
        bearing_deg: direction from the drone's start, positive to the right.
        distance_cm: distance from the drone's start.
        level: ``high`` is visible from above only, ``low`` from below only.
        fits: purposes in lower case, by which ``scan_abstract`` finds the thing.
    """

    name: str
    bearing_deg: float = 0.0
    distance_cm: float = 250.0
    level: Level = "eye"
    fits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Photo:
    """A picture: where it was taken and what it shows."""

    position: tuple[float, float, float]
    heading_deg: float
    names: frozenset[str]


@dataclass(slots=True)
class SimulatedDroneWorld:
    """A drone in a room. It does the skills of the skill set ``drone``.

    Attributes:
        facts: answers of ``probe``. The first fact whose words are all in the question is the answer.
        x, y, z: cm from the start; x forward, y right.
        heading_deg: clockwise from the start.
        nearest_cm: smallest distance to each thing so far.
    """

    things: Sequence[Thing] = ()
    facts: Sequence[tuple[tuple[str, ...], str]] = ()
    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    heading_deg: float = 0.0
    visits: list[str] = field(default_factory=list)
    sayings: list[str] = field(default_factory=list)
    photos: list[Photo] = field(default_factory=list)
    waited_s: float = 0.0
    moves: int = 0
    skills: list[str] = field(default_factory=list)
    nearest_cm: dict[str, float] = field(default_factory=dict)

    def do(self, invocation: Invocation) -> Plain:
        args = invocation.args
        self.skills.append(invocation.skill)
        match invocation.skill:
            case skill if skill in MOVES_DEG:
                self._move(MOVES_DEG[skill], args[0])
            case "move_up" | "move_down" as skill:
                self._lift(_simulated_world_number(args[0]) * (1.0 if skill == "move_up" else -1.0))
            case "turn_cw" | "turn_ccw" as skill:
                self._turn(_simulated_world_number(args[0]) * (1.0 if skill == "turn_cw" else -1.0))
            case "delay":
                self.waited_s += _simulated_world_number(args[0])
            case "approach":
                self._move(0.0, 100)
            case "log":
                self.sayings.append(str(args[0]))
            case "take_picture":
                names = frozenset(thing.name for thing in self.things if self._sees(thing))
                self.photos.append(Photo((self.x, self.y, self.z), self.heading_deg, names))
            case "goto":
                self._goto(self._in_view(args[0]))
            case "orienting":
                self.heading_deg = self._bearing(self._in_view(args[0]))
            case "re_plan":
                return ""
            case _:
                return self._answer(invocation)
        return None

    def _answer(self, invocation: Invocation) -> Plain:
        """The value of a skill that returns one."""
        skill, text = invocation.skill, plain_thing_name(invocation.args[0])
        if skill == "is_visible":
            return any(thing.name == text and self._sees(thing) for thing in self.things)
        if skill == "scan":
            return self._search(thing for thing in self.things if thing.name == text) is not None
        if skill == "scan_abstract":
            words = text.split()
            thing = self._search(thing for thing in self.things if _fits_simulated_world(thing.fits, words))
            return thing.name if thing else False
        if skill == "probe":
            question = set(text.replace("?", " ").replace(",", " ").split())
            return next((answer for keys, answer in self.facts if set(keys) <= question), "unknown")
        target = self._in_view(text)
        sideways = (self._bearing(target) - self.heading_deg + 180.0) % 360.0 - 180.0
        values = {
            "object_x": 0.5 + sideways / (2 * HALF_VIEW_DEG),
            "object_y": 0.5,
            "object_width": APPARENT_SIZE,
            "object_height": APPARENT_SIZE,
            "object_distance": self._distance(target),
        }
        if skill not in values:
            raise SkillFailed("this drone cannot do that", where=invocation.text)
        return values[skill]

    def _move(self, aside_deg: float, distance: Plain) -> None:
        angle = math.radians(self.heading_deg + aside_deg)
        self.x += math.cos(angle) * _simulated_world_number(distance)
        self.y += math.sin(angle) * _simulated_world_number(distance)
        self.moves += 1
        self._update_nearest()

    def _lift(self, distance: float) -> None:
        self.z += distance
        self.moves += 1

    def _turn(self, degrees: float) -> None:
        self.heading_deg = (self.heading_deg + degrees) % 360.0
        self.moves += 1

    def _goto(self, thing: Thing) -> None:
        self.heading_deg = self._bearing(thing)
        self._move(0.0, max(0.0, self._distance(thing) - STAND_OFF_CM))
        self.visits.append(thing.name)

    def _update_nearest(self) -> None:
        for thing in self.things:
            before = self.nearest_cm.get(thing.name, math.inf)
            self.nearest_cm[thing.name] = min(before, self._distance(thing))

    def _search(self, things: Iterable[Thing]) -> Thing | None:
        """The first of these things that a full turn shows. The drone then faces it."""
        for thing in things:
            if self._at_visible_level(thing):
                if not self._sees(thing):
                    self.heading_deg = self._bearing(thing)
                return thing
        return None

    def _in_view(self, name: Plain) -> Thing:
        text = plain_thing_name(name)
        for thing in self.things:
            if thing.name == text and self._sees(thing):
                return thing
        raise SkillFailed(f"{text!r} is not in sight", where="drone")

    def place_of(self, thing: Thing) -> tuple[float, float]:
        """Position of a thing, cm from the start."""
        angle = math.radians(thing.bearing_deg)
        return math.cos(angle) * thing.distance_cm, math.sin(angle) * thing.distance_cm

    def _bearing(self, thing: Thing) -> float:
        px, py = self.place_of(thing)
        return math.degrees(math.atan2(py - self.y, px - self.x)) % 360.0

    def _distance(self, thing: Thing) -> float:
        px, py = self.place_of(thing)
        return math.hypot(px - self.x, py - self.y)

    def _at_visible_level(self, thing: Thing) -> bool:
        return (
            thing.level == "eye"
            or (thing.level == "high" and self.z >= MIN_HEIGHT_FOR_HIGH_CM)
            or (thing.level == "low" and self.z <= MAX_HEIGHT_FOR_LOW_CM)
        )

    def _sees(self, thing: Thing) -> bool:
        aside = (self._bearing(thing) - self.heading_deg + 180.0) % 360.0 - 180.0
        return self._at_visible_level(thing) and abs(aside) <= HALF_VIEW_DEG


@dataclass(slots=True)
class SimulatedArmWorld:
    """An arm at a table. It does the skills of the skill set ``arm``.

    Attributes:
        things: the objects that can be grasped.
        places: further places to put objects.
        on: the place of each object that was put down.
    """

    things: Sequence[str] = ()
    places: Sequence[str] = ()
    on: dict[str, str] = field(default_factory=dict)
    holding: str | None = None
    over: str | None = None
    at_home: bool = False
    closed: bool = False
    sayings: list[str] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    pointings: list[str] = field(default_factory=list)
    moves: int = 0
    skills: list[str] = field(default_factory=list)

    def do(self, invocation: Invocation) -> Plain:
        self.skills.append(invocation.skill)
        name = plain_thing_name(invocation.args[0]) if invocation.args else ""
        if invocation.skill not in ("say", "look"):
            self.moves += 1
            self.at_home = invocation.skill == "home"
        match invocation.skill:
            case "pick":
                self.over = self._present(name)
                self._grasp(name)
            case "take":
                if self.over != name:
                    raise SkillFailed(f"is not over {name!r}", where="arm")
                self._grasp(name)
            case "place" | "drop":
                self.over = self._present(name)
                self._put(name)
            case "move_to":
                self.over = self._present(name)
                if self.holding is None:
                    self.pointings.append(name)
            case "open":
                self.closed = False
                if self.holding is not None:
                    self._put(self.over if self.over != self.holding and self.over else "table")
            case "close":
                self.closed = True
            case "home":
                self.over = None
            case "say":
                self.sayings.append(str(invocation.args[0]))
            case "look":
                self.looked.append(name)
                return ", ".join(self.things)
            case _:
                raise SkillFailed("this arm cannot do that", where=invocation.text)
        return None

    def _present(self, name: str) -> str:
        if name not in self.things and name not in self.places:
            raise SkillFailed(f"there is no {name!r}", where="arm")
        return name

    def _grasp(self, name: str) -> None:
        if self.holding is not None:
            raise SkillFailed(f"already holds {self.holding!r}", where="arm")
        if name not in self.things:
            raise SkillFailed(f"{name!r} cannot be grasped", where="arm")
        if name in self.on.values():
            raise SkillFailed(f"something lies on {name!r}", where="arm")
        self.on.pop(name, None)
        self.holding = name

    def _put(self, place: str) -> None:
        if self.holding is None:
            raise SkillFailed("holds nothing", where="arm")
        if place == self.holding:
            raise SkillFailed(f"cannot put {place!r} on itself", where="arm")
        self.on[self.holding] = place
        self.holding = None


def _simulated_world_number(value: Plain) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SkillFailed(f"{value!r} is no number", where="drone")
    return float(value)


def _fits_simulated_world(fits: Iterable[str], words: Sequence[str]) -> bool:
    purpose = {word.strip("?.,!'") for word in words}
    return any(set(fit.split()) <= purpose for fit in fits)
