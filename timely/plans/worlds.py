"""Simulated worlds for plans: a room with a drone, a table with an arm; they keep what happened, to be judged.

Plain geometry, no physics and no time: enough to tell a plan that does the task from one that does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from timely.plans.language.interpreter import Invocation, Plain, SkillFailed

Level = Literal["eye", "high", "low"]

HALF_VIEW_DEG = 45.0
RISE_CM, SINK_CM = 20.0, -20.0
"""So far up (down) it sees what stands on (lies under) the furniture."""
STAND_OFF_CM = 60.0
SIZE = 0.2


@dataclass(frozen=True, slots=True)
class Thing:
    """Something in a drone's room.

    Attributes:
        bearing_deg: from the start of the drone, to the right positive. distance_cm: from there.
        level: ``high`` is seen from above only, ``low`` from below only.
        fits: what it is good for, lower case: ``scan_abstract`` finds it by these words.
    """

    name: str
    bearing_deg: float = 0.0
    distance_cm: float = 250.0
    level: Level = "eye"
    fits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Photo:
    """Where a picture was taken and what is on it."""

    position: tuple[float, float, float]
    heading_deg: float
    seen: frozenset[str]


@dataclass(slots=True)
class DroneScene:
    """A drone in a room; does the skills of the skill set ``drone``.

    Attributes:
        things: what is in the room.
        facts: answers of ``probe``: the first whose words are all in the question.
        x, y, z: cm from the start; x forward, y right. heading_deg: clockwise.
        done: the skills carried out, in order. nearest_cm: how near it came to each thing.
    """

    things: Sequence[Thing] = ()
    facts: Sequence[tuple[tuple[str, ...], str]] = ()
    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    heading_deg: float = 0.0
    visited: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    photos: list[Photo] = field(default_factory=list)
    waited_s: float = 0.0
    moves: int = 0
    done: list[str] = field(default_factory=list)
    nearest_cm: dict[str, float] = field(default_factory=dict)

    def do(self, invocation: Invocation) -> Plain:
        """See ``World``."""
        args = invocation.args
        self.done.append(invocation.skill)
        match invocation.skill:
            case "move_forward":
                self._move(0.0, args[0])
            case "move_backward":
                self._move(180.0, args[0])
            case "move_left":
                self._move(-90.0, args[0])
            case "move_right":
                self._move(90.0, args[0])
            case "move_up":
                self._lift(_number(args[0]))
            case "move_down":
                self._lift(-_number(args[0]))
            case "turn_cw":
                self._turn(_number(args[0]))
            case "turn_ccw":
                self._turn(-_number(args[0]))
            case "delay":
                self.waited_s += _number(args[0])
            case "approach":
                self._move(0.0, 100)
            case "log":
                self.said.append(str(args[0]))
            case "take_picture":
                seen = frozenset(thing.name for thing in self.things if self._sees(thing))
                self.photos.append(Photo((self.x, self.y, self.z), self.heading_deg, seen))
            case "goto":
                self._goto(self._needed(args[0]))
            case "orienting":
                self.heading_deg = self._bearing(self._needed(args[0]))
            case "re_plan":
                return ""
            case _:
                return self._asked(invocation)
        return None

    def _asked(self, invocation: Invocation) -> Plain:
        """Skills that give a value."""
        skill, text = invocation.skill, _name(invocation.args[0])
        if skill == "is_visible":
            return any(thing.name == text and self._sees(thing) for thing in self.things)
        if skill == "scan":
            return self._found(thing for thing in self.things if thing.name == text) is not None
        if skill == "scan_abstract":
            wanted = text.split()
            found = self._found(thing for thing in self.things if _fits(thing.fits, wanted))
            return found.name if found else False
        if skill == "probe":
            words = set(text.replace("?", " ").replace(",", " ").split())
            return next((answer for keys, answer in self.facts if set(keys) <= words), "unknown")
        thing = self._needed(text)
        sideways = (self._bearing(thing) - self.heading_deg + 180.0) % 360.0 - 180.0
        values = {
            "object_x": 0.5 + sideways / (4 * HALF_VIEW_DEG),
            "object_y": 0.5,
            "object_width": SIZE,
            "object_height": SIZE,
            "object_distance": self._distance(thing),
        }
        if skill not in values:
            raise SkillFailed("this drone cannot do that", where=invocation.text)
        return values[skill]

    def _move(self, aside_deg: float, distance: Plain) -> None:
        angle = math.radians(self.heading_deg + aside_deg)
        self.x += math.cos(angle) * _number(distance)
        self.y += math.sin(angle) * _number(distance)
        self.moves += 1
        self._note()

    def _lift(self, distance: float) -> None:
        self.z += distance
        self.moves += 1

    def _turn(self, degrees: float) -> None:
        self.heading_deg = (self.heading_deg + degrees) % 360.0
        self.moves += 1

    def _goto(self, thing: Thing) -> None:
        self.heading_deg = self._bearing(thing)
        self._move(0.0, max(0.0, self._distance(thing) - STAND_OFF_CM))
        self.visited.append(thing.name)

    def _note(self) -> None:
        for thing in self.things:
            before = self.nearest_cm.get(thing.name, math.inf)
            self.nearest_cm[thing.name] = min(before, self._distance(thing))

    def _found(self, things: Iterable[Thing]) -> Thing | None:
        """The first that turning shows; it is then ahead."""
        for thing in things:
            if self._shows(thing):
                if not self._sees(thing):
                    self.heading_deg = self._bearing(thing)
                return thing
        return None

    def _needed(self, name: Plain) -> Thing:
        wanted = _name(name)
        for thing in self.things:
            if thing.name == wanted and self._sees(thing):
                return thing
        raise SkillFailed(f"{wanted!r} is not in sight", where="drone")

    def place_of(self, thing: Thing) -> tuple[float, float]:
        """Where it is, cm from the start."""
        angle = math.radians(thing.bearing_deg)
        return math.cos(angle) * thing.distance_cm, math.sin(angle) * thing.distance_cm

    def _bearing(self, thing: Thing) -> float:
        px, py = self.place_of(thing)
        return math.degrees(math.atan2(py - self.y, px - self.x)) % 360.0

    def _distance(self, thing: Thing) -> float:
        px, py = self.place_of(thing)
        return math.hypot(px - self.x, py - self.y)

    def _shows(self, thing: Thing) -> bool:
        """Nothing but the heading is in the way."""
        return (
            thing.level == "eye"
            or (thing.level == "high" and self.z >= RISE_CM)
            or (thing.level == "low" and self.z <= SINK_CM)
        )

    def _sees(self, thing: Thing) -> bool:
        aside = (self._bearing(thing) - self.heading_deg + 180.0) % 360.0 - 180.0
        return self._shows(thing) and abs(aside) <= HALF_VIEW_DEG


@dataclass(slots=True)
class ArmScene:
    """An arm at a table; does the skills of the skill set ``arm``.

    Attributes:
        things: what can be grasped. places: where else something can be put.
        on: what each thing that was put down lies on.
    """

    things: Sequence[str] = ()
    places: Sequence[str] = ()
    on: dict[str, str] = field(default_factory=dict)
    holding: str | None = None
    over: str | None = None
    at_home: bool = False
    closed: bool = False
    said: list[str] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    moves: int = 0
    done: list[str] = field(default_factory=list)

    def do(self, invocation: Invocation) -> Plain:
        """See ``World``."""
        self.done.append(invocation.skill)
        name = _name(invocation.args[0]) if invocation.args else ""
        if invocation.skill not in ("say", "look"):
            self.moves += 1
            self.at_home = invocation.skill == "home"
        match invocation.skill:
            case "pick":
                self.over = self._known(name)
                self._grasp(name)
            case "take":
                if self.over != name:
                    raise SkillFailed(f"is not over {name!r}", where="arm")
                self._grasp(name)
            case "place" | "drop":
                self.over = self._known(name)
                self._put(name)
            case "move_to":
                self.over = self._known(name)
                if self.holding is None:
                    self.shown.append(name)
            case "open":
                self.closed = False
                if self.holding is not None:
                    self._put(self.over if self.over != self.holding and self.over else "table")
            case "close":
                self.closed = True
            case "home":
                self.over = None
            case "say":
                self.said.append(str(invocation.args[0]))
            case "look":
                self.looked.append(name)
                return ", ".join(self.things)
            case _:
                raise SkillFailed("this arm cannot do that", where=invocation.text)
        return None

    def _known(self, name: str) -> str:
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


def _name(value: Plain) -> str:
    """A name without the position that TypeFly may write behind it (``chair[0.6]``)."""
    return str(value).partition("[")[0].strip().lower()


def _number(value: Plain) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SkillFailed(f"{value!r} is no number", where="drone")
    return float(value)


def _fits(fits: Iterable[str], words: Sequence[str]) -> bool:
    wanted = {word.strip("?.,!'") for word in words}
    return any(set(fit.split()) <= wanted for fit in fits)
