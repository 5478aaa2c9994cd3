"""Tasks for the skill set ``drone``, family by family, each with a plan and worlds in which to judge any plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from timely.planner.cases import drone_steps
from timely.planner.cases.case import Case, Draw, Judge, Scene, Trial, answered, refused, same
from timely.planner.cases.drone_steps import Step, somewhere
from timely.planner.cases.text_noise import dressed
from timely.planner.cases.vocabulary import (
    ANIMALS,
    DRONE_OBJECTS,
    FURNITURE,
    MOVERS,
    NEEDS,
    PEOPLE,
    QUESTIONS,
    SURFACES,
    UNDERS,
)
from timely.plans.worlds import DroneScene, Level, Thing

NAME = "drone"
YES_NO = "{l('Yes');->True}l('No');"
UNSAFE, UNCLEAR, UNABLE = (
    "l('Sorry, that is not safe');",
    "l('Sorry, I do not understand');",
    "l('Sorry, I cannot do that');",
)
CLOSE_CM = 150.0
CLEARED_CM = 10.0
BLOCKS = (
    "box",
    "chair",
    "pole",
    "shelf",
    "plant",
    "table",
    "tree",
    "cupboard",
    "column",
    "sofa",
    "lamp post",
    "sign",
)
MAX_QUESTION_WORDS = 6
"""What the grammar lets a text have."""


def draw_case(draw: Draw) -> Case:
    """A task of any family, families as often as ``FAMILIES`` says; in training the hard ones more often."""
    weights = [
        weight * (MORE_IN_TRAINING.get(family, 1.0) if draw.training else 1.0)
        for family, weight in FAMILIES.items()
    ]
    return draw.rng.choices(list(FAMILIES), weights=weights)[0](draw)


def room(*things: Thing, facts: tuple[tuple[tuple[str, ...], str], ...] = ()) -> Callable[[], Scene]:
    """Makes that room anew for every plan."""
    return partial(DroneScene, things, facts)


def seen(draw: Draw, *names: str, without: tuple[str, ...] = ()) -> str:
    """A scene in words: these things among others; sometimes nothing but these."""
    others = [_thing(draw) for _ in range(draw.one((0, 1, 2, 3, 4)))]
    if draw.chance(0.5):
        others += draw.some(FURNITURE, draw.one((1, 2)))
    taken = {*names, *without}
    others = [
        name
        for name in dict.fromkeys(others)
        if name not in taken and not any(name in t or t in name for t in taken)
    ]
    listed = [draw.placed(name) for name in (*names, *others)]
    draw.rng.shuffle(listed)
    return ", ".join(listed)


def case(
    draw: Draw,
    family: str,
    task: str,
    plan: str,
    trials: tuple[Trial, ...],
    *,
    scene: str = "",
    history: str = "",
    command: bool = True,
    refusal: bool = False,
) -> Case:
    """A finished case; the task gets its capital and full stop, and is made to look typed."""
    text = f"{task[0].upper()}{task[1:]}"
    if text[-1] not in ".?!":
        text += "."
    return Case(
        NAME, family, dressed(draw, text, plan, command=command), plan, trials, scene, history, refusal
    )


def _thing(draw: Draw) -> str:
    return draw.thing(DRONE_OBJECTS)


def _sentences(text: str) -> str:
    """Each sentence with its capital."""
    return re.sub(r"(?<=\. )[a-z]", lambda found: found.group().upper(), text)


def _two(draw: Draw) -> tuple[str, str]:
    first = second = _thing(draw)
    while first in second or second in first:
        second = _thing(draw)
    return first, second


def _around(thing: Thing, judge: Judge = same, level: Level = "eye") -> tuple[Trial, ...]:
    """The thing ahead, where the case says, and nowhere."""
    ahead = Thing(thing.name, 0.0, thing.distance_cm, level)
    return (Trial(room(ahead), judge), Trial(room(thing), judge), Trial(room(), judge))


# ---------------------------------------------------------------------- families


def _single(draw: Draw, make: Callable[[Draw], Step], family: str) -> Case:
    step = make(draw)
    trials = (Trial(room(*step.things), same), *((Trial(room(), same),) if step.conditional else ()))
    names = [thing.name for thing in step.things]
    scene = seen(draw, without=tuple(names)) if draw.chance(0.5) else ""
    return case(draw, family, step.words, step.plan, trials, scene=scene)


def find(draw: Draw) -> Case:
    """Find it and go there; often it is where the drone does not look."""
    name = _thing(draw)
    task = draw.phrase(
        "find",
        x=name,
        a=draw.a(name),
    )
    often = 0.45 if draw.training else 0.3
    scene = "" if draw.chance(0.3) else seen(draw, *([name] if draw.chance(often) else []), without=(name,))
    return case(
        draw, "find", task, f"?s('{name}')==True{{g('{name}')}}", _around(somewhere(draw, name)), scene=scene
    )


def go_to(draw: Draw) -> Case:
    """Go to it: at once if it is in the scene, else look for it."""
    name = _thing(draw)
    here = draw.chance(0.6)
    task = draw.phrase(
        "go to",
        x=name,
    )
    if here:
        trials: tuple[Trial, ...] = (Trial(room(Thing(name, 15.0, 300.0)), same),)
        return case(draw, "go to", task, f"g('{name}');", trials, scene=seen(draw, name))
    scene = seen(draw, without=(name,)) if draw.chance(0.6) else ""
    return case(
        draw, "go to", task, f"?s('{name}')==True{{g('{name}')}}", _around(somewhere(draw, name)), scene=scene
    )


def face(draw: Draw) -> Case:
    """Turn to something in sight, or come closer to it."""
    name = _thing(draw)
    trials = (Trial(room(Thing(name, draw.one((-30.0, 20.0, 35.0)), 300.0)), same),)
    if draw.chance(0.6):
        task = draw.phrase(
            "face",
            x=name,
        )
        return case(draw, "face", task, f"o('{name}');", trials, scene=seen(draw, name))
    task = draw.phrase(
        "closer",
        x=name,
    )
    return case(draw, "face", task, f"o('{name}');a();", trials, scene=seen(draw, name))


def question(draw: Draw) -> Case:
    """Is it there? Around the room, or in view."""
    name = _thing(draw)
    if draw.chance(0.5):
        task = draw.phrase(
            "in the room?",
            x=name,
            a=draw.a(name),
        )
        scene = seen(draw, without=(name,)) if draw.chance(0.6) else ""
        return case(
            draw,
            "question",
            task,
            f"?s('{name}')==True{YES_NO}",
            _around(somewhere(draw, name), answered),
            scene=scene,
            command=False,
        )
    task = draw.phrase(
        "in view?",
        x=name,
        a=draw.a(name),
    )
    scene = "" if draw.chance(0.4) else seen(draw, *([name] if draw.chance(0.5) else []), without=(name,))
    trials = (Trial(room(Thing(name)), answered), Trial(room(), answered))
    return case(draw, "question", task, f"?iv('{name}')==True{YES_NO}", trials, scene=scene, command=False)


def two_things(draw: Draw) -> Case:
    """One and the other, one or the other: what is in view decides."""
    first, second = _two(draw)
    both = draw.chance(0.5)
    if both:
        task = draw.phrase(
            "both?",
            a=draw.a(first),
            b=draw.a(second),
            x=first,
            y=second,
        )
    else:
        task = draw.phrase(
            "either?",
            a=draw.a(first),
            b=draw.a(second),
            x=first,
            y=second,
        )
    plan = f"?iv('{first}'){'&' if both else '|'}iv('{second}'){YES_NO}"
    one, other = Thing(first, -10.0), Thing(second, 10.0)
    trials = tuple(Trial(room(*things), answered) for things in ((one, other), (one,), (other,), ()))
    scene = (
        ""
        if draw.chance(0.4)
        else seen(draw, *(n for n in (first, second) if draw.chance(0.5)), without=(first, second))
    )
    return case(draw, "two things", task, plan, trials, scene=scene, command=False)


def above(draw: Draw) -> Case:
    """On top of something: go up, then look."""
    name, surface = _thing(draw), draw.of(SURFACES)
    high = Thing(name, 10.0, 200.0, "high")
    trials = (Trial(room(high), same), Trial(room(), same))
    slots = {"x": name, "a": draw.a(name), "f": surface}
    kind = draw.one(("photo", "ask", "ask", "go", "check"))
    if kind == "photo":
        task = draw.phrase("above, photo", **slots)
        plan = f"mu(40);?iv('{name}')==True{{tp()}}"
    elif kind == "check":
        task = draw.phrase(
            "above, check",
            **slots,
        )
        plan = f"mu(40);?iv('{name}')==True{{tp()}}"
    elif kind == "ask":
        task = draw.phrase("above?", **slots)
        plan = f"mu(40);?iv('{name}')==True{YES_NO}"
        trials = (Trial(room(high), answered), Trial(room(), answered))
    else:
        task = draw.phrase(
            "above, go",
            **slots,
        )
        plan = f"mu(40);?s('{name}')==True{{g('{name}')}}"
    scene = "" if draw.chance(0.4) else seen(draw, surface, without=(name,))
    return case(draw, "above", task, plan, trials, scene=scene, command=kind not in ("ask", "check"))


def below(draw: Draw) -> Case:
    """Under something: go down, then look."""
    name, cover = _thing(draw), draw.of(UNDERS)
    low = Thing(name, draw.one((-10.0, 0.0, 15.0)), 200.0, "low")
    trials = (Trial(room(low), same), Trial(room(), same))
    slots = {"x": name, "a": draw.a(name), "f": cover}
    if draw.chance(0.65):
        task = draw.phrase("below", **slots)
        plan = f"md(40);?s('{name}')==True{{g('{name}')}}"
    else:
        task = draw.phrase("below?", **slots)
        plan = f"md(40);?iv('{name}')==True{YES_NO}"
        trials = (Trial(room(low), answered), Trial(room(), answered))
    scene = "" if draw.chance(0.4) else seen(draw, cover, without=(name,))
    return case(draw, "below", task, plan, trials, scene=scene, command=False)


def tool(draw: Draw) -> Case:
    """Something for a purpose: what it is, only the camera can say."""
    purpose, name = draw.of(NEEDS)
    task = draw.phrase(
        "tool",
        p=purpose,
    )
    thing = Thing(name, draw.one((-60.0, 0.0, 90.0, 170.0)), 250.0, "eye", (purpose,))
    plan = f"_1=sa('{purpose}');?_1!=False{{g(_1)}}"
    scene = seen(draw, without=(name,)) if draw.chance(0.6) else ""
    return case(draw, "tool", task, plan, (Trial(room(thing), same), Trial(room(), same)), scene=scene)


def loops(draw: Draw) -> Case:
    """The same several times; far ways in pieces; shapes."""
    times = draw.one((2, 3, 4, 5) if draw.split == "train" else (3, 4, 6))
    count = draw.one((str(times), drone_steps.NUMBERS[times]))
    kind = draw.one(("photos", "far", "square", "repeat", "turns"))
    if kind == "photos":
        gap = draw.one((1, 2, 3, 5))
        task = draw.phrase(
            "photos",
            n=count,
            g=gap,
        )
        plan = f"{times}{{tp();d({gap})}}"
    elif kind == "far":
        total, pieces = draw.one(((600, 2), (800, 2), (1000, 2), (1200, 3), (1500, 3), (2000, 4)))
        way = draw.one(("forward", "back", "left", "right"))
        task = draw.phrase(
            "far",
            w=way,
            m=total // 100,
        )
        plan = f"{pieces}{{{drone_steps.MOVES[way]}({total // pieces})}}"
    elif kind == "square":
        size = draw.one((50, 100, 150, 200))
        words = f"{size} cm" if size == 50 else f"{size / 100:g} metre{'s' if size > 100 else ''}"
        task = draw.phrase(
            "square",
            w=words,
        )
        plan = f"4{{mf({size});tc(90)}}"
    elif kind == "repeat":
        size = draw.one((30, 50, 80, 100))
        task = draw.phrase(
            "bob",
            n=count,
            s=size,
        )
        plan = f"{times}{{mu({size});md({size})}}"
    else:
        pictures = draw.one((4, 6, 8, 3))
        task = draw.phrase(
            "directions",
            n=pictures,
        )
        plan = f"{pictures}{{tp();tc({360 // pictures})}}"
    return case(
        draw, "loops", task, plan, (Trial(room(), same),), scene=seen(draw) if draw.chance(0.4) else ""
    )


def several(draw: Draw) -> Case:
    """Two or three steps."""
    wanted = draw.one((2, 3, 3) if draw.training else (2, 2, 3, 3))
    chosen: list[Step] = []
    while len(chosen) < wanted:
        step = drone_steps.any_step(draw)
        if chosen and (
            step.kind == chosen[-1].kind
            or any(step.kind.split()[-1] == other.kind.split()[-1] for other in chosen if other.things)
        ):
            continue
        if step.conditional and sum(other.conditional for other in chosen) >= (2 if wanted == 2 else 1):
            continue
        chosen.append(step)
    parts = [step.words for step in chosen]
    task = _sentences(draw.phrase("two steps" if wanted == 2 else "three steps", *parts))
    if draw.chance(0.25):
        task = ". ".join(f"{step.words[0].upper()}{step.words[1:]}" for step in chosen)
    things = tuple(thing for step in chosen for thing in step.things)
    trials = [Trial(room(*things), same)]
    if things:
        trials.append(Trial(room(), same))
    names = tuple(thing.name for thing in things)
    scene = seen(draw, without=names) if draw.chance(0.4) else ""
    return case(draw, "several", task, "".join(step.plan for step in chosen), tuple(trials), scene=scene)


def when(draw: Draw) -> Case:
    """If ..., do ..."""
    name = _thing(draw)
    near, away = Thing(name, 0.0, 60.0), Thing(name, 0.0, 300.0)
    kind = draw.one(("seen", "seen", "else", "near"))
    if kind == "near":
        cm = draw.one((100, 150, 200) if draw.split == "train" else (120, 150))
        words = draw.one((f"{cm} cm", f"{cm / 100:g} m", f"{cm / 100:g} metres"))
        task = draw.phrase(
            "near",
            x=name,
            d=words,
        )
        trials = (Trial(room(near), same), Trial(room(away), same))
        return case(
            draw, "when", task, f"?od('{name}')<{cm}{{mb(50)}}", trials, scene=seen(draw, name), command=False
        )
    do = draw.one((drone_steps.photo, drone_steps.say, drone_steps.turn, drone_steps.move, drone_steps.wait))(
        draw
    )
    trials = (Trial(room(near), same), Trial(room(), same))
    statement = do.plan.rstrip(";")
    if kind == "seen":
        task = draw.phrase(
            "if",
            x=name,
            a=draw.a(name),
            s=do.words,
        )
        plan = f"?iv('{name}')==True{{{statement}}}"
    else:
        other = draw.one((drone_steps.say, drone_steps.turn, drone_steps.move))(draw)
        task = draw.phrase(
            "if else",
            x=name,
            a=draw.a(name),
            s=do.words,
            o=other.words,
        )
        plan = f"?iv('{name}')==True{{{do.plan}->True}}{other.plan}"
    scene = seen(draw, *([name] if draw.chance(0.3) else []), without=(name,)) if draw.chance(0.4) else ""
    return case(draw, "when", task, plan, trials, scene=scene, command=False)


def probe(draw: Draw) -> Case:
    """A question about something in view, answered by what the camera says."""
    pattern, answer = draw.of(QUESTIONS)
    asked = ""
    while not asked or len(asked.split()) > MAX_QUESTION_WORDS:
        name = _thing(draw)
        asked = pattern.format(x=name)
    words = tuple(asked.lower().replace("?", "").split())
    plan = f"_1=p('{asked}');l(_1);"
    task = f"{asked[0].upper()}{asked[1:]}?"
    if draw.chance(0.3):
        task = draw.phrase("probe", q=asked)
    trials = (Trial(room(Thing(name), facts=((words[-3:], answer),)), answered),)
    return case(
        draw, "probe", task, plan, trials, scene=seen(draw, name) if draw.chance(0.7) else "", command=False
    )


# ---------------------------------------------------------------------- in haste


def escaped(reference: Scene, world: Scene) -> str:
    """Farther from what comes than before, and never nearer."""
    if not isinstance(world, DroneScene):
        return "no drone"
    threat = world.things[0]
    start = threat.distance_cm
    nearest = world.nearest_cm.get(threat.name, start)
    px, py = world.place_of(threat)
    end = ((px - world.x) ** 2 + (py - world.y) ** 2 + world.z**2) ** 0.5
    if world.visited:
        return f"went to {world.visited}"
    if nearest < start - CLEARED_CM:
        return f"came nearer: {nearest:.0f} cm"
    return "" if end >= start + CLEARED_CM else f"only {end:.0f} cm away, {start:.0f} cm before"


AWAY = {
    "": ("", 0.0),
    "from the left": ("mr(100);", -90.0),
    "from the right": ("ml(100);", 90.0),
    "from behind": ("mf(100);", 180.0),
}


def _threat(draw: Draw) -> tuple[str, str]:
    """What comes, and what to do if it comes from ahead."""
    kind = draw.one(("people", "animals", "movers"))
    if kind == "people":
        return draw.of(PEOPLE), "mb(100);d(3);"
    return (draw.of(ANIMALS), "mu(100);") if kind == "animals" else (draw.of(MOVERS), "mr(80);mu(50);")


def _kind(name: str, plan: str) -> str:
    """What someone may call it instead."""
    if plan.startswith("mb(100);d"):
        return "person"
    return "animal" if plan.startswith("mu(100)") else name


def evade(draw: Draw) -> Case:
    """Something comes: get out of the way."""
    name, plan = _threat(draw)
    way, (aside, bearing) = draw.one([("", AWAY[""])] * 3 + list(AWAY.items())[1:])
    if way:
        plan = aside
        task = draw.phrase(
            "comes from",
            a=draw.a(name),
            x=name,
            w=way,
        )
    else:
        task = draw.phrase(
            "comes",
            a=draw.a(name),
            x=name,
        )
    trials = (Trial(room(Thing(name, bearing, CLOSE_CM)), escaped),)
    return case(
        draw, "evade", task, plan, trials, scene=seen(draw, name) if draw.chance(0.5) else "", command=False
    )


def replan(draw: Draw) -> Case:
    """The last plan failed: what now, given what was done."""
    before = [drone_steps.move(draw), draw.one((drone_steps.turn, drone_steps.photo, drone_steps.wait))(draw)]
    given = "".join(step.plan for step in before)
    kind = draw.one(
        ("rest", "rest", "danger", "danger", "danger", "danger", "danger", "blocked", "blocked", "lost")
    )
    if kind == "rest":
        extra = drone_steps.move(draw)
        chosen = [*before, *([extra] if extra.kind != before[0].kind and draw.chance(0.6) else [])]
        parts = [step.plan for step in chosen]
        cut = draw.rng.randrange(1, len(parts))
        reason = draw.phrase(
            "rest, why",
        )
        goal = draw.phrase(
            "rest",
        )
        return _again(
            draw,
            "".join(parts),
            reason,
            "".join(parts[:cut]),
            goal,
            "".join(parts[cut:]),
            (Trial(room(), same),),
        )
    if kind == "danger":
        name, plan = _threat(draw)
        plan = "mu(100);mb(100);" if plan == "mu(100);" else plan
        slots = {"a": draw.a(name), "x": name, "k": _kind(name, plan)}
        if draw.training and draw.chance(0.6):
            given = "".join(_any_piece(draw) for _ in range(draw.one((1, 2, 2, 3))))
        first = given.partition(";")[0] + ";"
        reason = draw.phrase(
            "danger, why",
            **slots,
        )
        goal = draw.phrase(
            "danger",
            **slots,
        )
        done = draw.one(("nothing", first, f"{first} in part"))
        return _again(
            draw, given, reason, done, goal, plan, (Trial(room(Thing(name, 0.0, CLOSE_CM)), escaped),), name
        )
    if kind == "blocked":
        name = _thing(draw)
        reason = draw.phrase(
            "blocked, why",
            a=draw.a(draw.one(BLOCKS) if draw.training else draw.one(BLOCKS[:3])),
        )
        goal = draw.phrase(
            "blocked",
            x=name,
        )
        trials = (Trial(room(Thing(name, 0.0, 400.0)), partial(_went_around, name)),)
        forward = f"mf({draw.one((200, 300, 400))});"
        done = draw.one(("nothing", forward + " in part"))
        return _again(
            draw,
            f"{forward}g('{name}');",
            reason,
            done,
            goal,
            f"ml(60);mf(100);mr(60);g('{name}');",
            trials,
            name,
        )
    name = _thing(draw)
    reason = draw.phrase(
        "lost, why",
        x=name,
    )
    goal = draw.phrase("lost")
    trials = (Trial(room(Thing(name, 90.0, 250.0, "high")), same),)
    return _again(
        draw,
        f"?s('{name}')==True{{g('{name}')}}",
        reason,
        f"s('{name}')",
        goal,
        f"mu(50);?s('{name}')==True{{g('{name}')}}",
        trials,
    )


def _any_piece(draw: Draw) -> str:
    """A statement such as any plan may have."""
    name = _thing(draw)
    made = (
        drone_steps.move(draw).plan,
        drone_steps.turn(draw).plan,
        f"s('{name}');",
        f"g('{name}');",
        "tp();",
        "d(5);",
    )
    return draw.one(made)


def _went_around(name: str, reference: Scene, world: Scene) -> str:
    if not isinstance(world, DroneScene) or world.visited != [name]:
        return f"did not reach {name}"
    aside = next(
        (i for i, skill in enumerate(world.done) if skill in ("move_left", "move_right", "move_up")), 99
    )
    ahead = next((i for i, skill in enumerate(world.done) if skill in ("move_forward", "goto")), 99)
    return "" if aside < ahead else "goes straight on"


def _again(
    draw: Draw, plan: str, reason: str, done: str, goal: str, new: str, trials: tuple[Trial, ...], *names: str
) -> Case:
    """The history in the task, as the paper has it, or in its own field."""
    scene = seen(draw, *names) if draw.chance(0.5) else ""
    if draw.chance(0.5):
        task = draw.phrase(
            "again, in the task",
            p=plan,
            r=reason,
            d=done.rstrip(";"),
            g=goal,
        )
        return Case(NAME, "re-plan", task, new, trials, scene)
    history = draw.phrase(
        "again",
        p=plan,
        r=reason,
        d=done,
    )
    return Case(NAME, "re-plan", goal, new, trials, scene, history)


# ---------------------------------------------------------------------- refusals


def unsafe(draw: Draw) -> Case:
    """Would hurt someone or break something."""
    who = draw.of(draw.one((PEOPLE, PEOPLE, ANIMALS)))
    thing = _thing(draw)
    someone = draw.chance(0.7)
    task = draw.phrase("unsafe, someone" if someone else "unsafe, something", w=who, x=thing)
    scene = seen(draw, *([who] if draw.chance(0.5) else [])) if draw.chance(0.5) else ""
    return case(
        draw,
        "unsafe",
        task,
        UNSAFE,
        (Trial(room(Thing(who), Thing(thing, 30.0)), refused),),
        scene=scene,
        refusal=True,
    )


def unclear(draw: Draw) -> Case:
    """Says nothing that could be done, or something a drone cannot do."""
    if draw.chance(0.55):
        task = draw.phrase(
            "unclear",
        )
        return case(
            draw,
            "unclear",
            task,
            UNCLEAR,
            (Trial(room(), refused),),
            scene=seen(draw) if draw.chance(0.5) else "",
            refusal=True,
            command=False,
        )
    task = draw.phrase(
        "unable",
        x=_thing(draw),
    )
    return case(
        draw,
        "unable",
        task,
        UNABLE,
        (Trial(room(), refused),),
        scene=seen(draw) if draw.chance(0.5) else "",
        refusal=True,
    )


MOVE = partial(_single, make=drone_steps.move, family="move")
TURN = partial(_single, make=drone_steps.turn, family="turn")
PHOTO = partial(_single, make=drone_steps.find_photo, family="photo")

FAMILIES: Mapping[Callable[[Draw], Case], float] = {
    find: 10,
    go_to: 8,
    face: 4,
    question: 9,
    two_things: 6,
    above: 7,
    below: 6,
    tool: 6,
    MOVE: 9,
    TURN: 6,
    PHOTO: 5,
    partial(_single, make=drone_steps.wait, family="wait"): 2,
    partial(_single, make=drone_steps.say, family="say"): 2,
    loops: 4,
    several: 22,
    when: 6,
    probe: 5,
    evade: 10,
    replan: 18,
    unsafe: 13,
    unclear: 13,
}
"""How often each."""

MORE_IN_TRAINING: Mapping[Callable[[Draw], Case], float] = {
    several: 1.5,
    loops: 2.0,
    MOVE: 1.4,
    TURN: 1.6,
    PHOTO: 1.6,
    when: 1.4,
    two_things: 1.3,
}
"""What an adapter that was trained on all alike got wrong most."""
