"""Tasks for the skill set ``arm``, family by family, each with a plan and tables on which to judge any plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from timely.planner.cases.case import Case, Draw, Judge, Scene, Trial, refused, same
from timely.planner.cases.text_noise import dressed
from timely.planner.cases.vocabulary import (
    ADJECTIVES,
    ARM_OBJECTS,
    ARM_PLACES,
    COLOURS,
    GROUPS,
    LOOKED_AT,
    MESSAGES,
    PEOPLE,
    SHAPES,
    SORT_PLACES,
)
from timely.plans.worlds import ArmScene

NAME = "arm"
UNSAFE, UNCLEAR = "say('Sorry, that is not safe');", "say('Sorry, I do not understand');"
UNABLE, UNSEEN = "say('Sorry, I cannot do that');", "say('Sorry, I do not see it');"


MAX_CARRIED = 6
"""Things that one plan may pick and place: twice as many statements."""


def draw_case(draw: Draw) -> Case:
    """A task of any family, families as often as ``FAMILIES`` says; while finishing the hard ones more often."""
    weights = [
        weight * (MORE_WHILE_FINISHING.get(family, 1.0) if draw.coin and draw.training else 1.0)
        for family, weight in FAMILIES.items()
    ]
    return draw.rng.choices(list(FAMILIES), weights=weights)[0](draw)


def case(
    draw: Draw,
    family: str,
    task: str,
    plan: str,
    *,
    things: Sequence[str] = (),
    places: Sequence[str] = (),
    scene: str | None = None,
    command: bool = True,
    refusal: bool = False,
    on: Mapping[str, str] | None = None,
    holding: str | None = None,
    history: str = "",
    judge: Judge = same,
) -> Case:
    """A finished case on a table with these things; ``scene`` lists them unless given."""
    text = f"{task[0].upper()}{task[1:]}"
    if text[-1] not in ".?!":
        text += "."

    def world() -> Scene:
        return ArmScene(tuple(things), tuple(places), dict(on or {}), holding)

    said = ", ".join(draw.placed(thing) for thing in things) if scene is None else scene
    text = dressed(draw, text, plan, command=command) if not history else text
    return Case(
        NAME, family, text, plan, (Trial(world, refused if refusal else judge),), said, history, refusal
    )


def table(draw: Draw, *names: str, without: Sequence[str] = (), least: int = 0) -> list[str]:
    """These things among others, in any order."""
    taken = {*names, *without}
    others = [name for name in _things(draw, 6) if not any(name in t or t in name for t in taken)]
    others = others[: max(least, draw.one((0, 1, 2, 3, 4)))]
    if draw.training and taken and draw.chance(0.3):
        others += _alike(draw, sorted(taken))
    listed = [*names, *others]
    draw.rng.shuffle(listed)
    return listed


def _alike(draw: Draw, names: Sequence[str]) -> list[str]:
    """Something that could be taken for one of these: of the same kind, or of the same colour."""
    adjective, _, noun = draw.one(names).rpartition(" ")
    if adjective and draw.chance(0.5):
        noun = draw.of(ARM_OBJECTS).split()[-1]
    else:
        adjective = draw.of(ADJECTIVES)
    made = f"{adjective} {noun}"
    return [] if any(made in name or name in made for name in names) else [made]


def _things(draw: Draw, count: int) -> list[str]:
    chosen: list[str] = []
    while len(chosen) < count:
        name = draw.thing(ARM_OBJECTS)
        if not any(name in other or other in name for other in chosen):
            chosen.append(name)
    return chosen


def _place(draw: Draw, *names: str) -> str:
    while True:
        place = draw.of(ARM_PLACES)
        if draw.coins():
            place = draw.qualified(place.split()[-1])
        if not any(place in name or name in place for name in names):
            return place


def _at(place: str, draw: Draw) -> str:
    """In or on it."""
    if any(word in place for word in ("tray", "plate", "platter", "shelf", "mat", "saucer", "table", "rack")):
        return f"{draw.one(('on', 'on', 'onto')) if draw.training else 'on'} the {place}"
    return f"{draw.one(('in', 'into'))} the {place}"


def carry(*moves: tuple[str, str]) -> str:
    """Pick each and place it."""
    return "".join(f"pick('{thing}');place('{place}');" for thing, place in moves)


# ---------------------------------------------------------------------- families


def put(draw: Draw) -> Case:
    """One to three things, each to its place."""
    count = draw.one((1, 1, 2, 2, 3))
    names = _things(draw, count)
    places = [_place(draw, *names) for _ in names]
    if draw.chance(0.25):
        places = [places[0]] * count
    moves = list(zip(names, places, strict=True))
    clauses = [f"the {thing} {_at(place, draw)}" for thing, place in moves]
    verb = draw.phrase("arm put, verb")
    if len(set(places)) == 1 and count > 1:
        listed = ", ".join(f"the {name}" for name in names[:-1]) + f" and the {names[-1]}"
        task = f"{verb} {listed} {_at(places[0], draw)}"
    elif count == 1:
        task = draw.phrase(
            "arm put one",
            v=verb,
            c=clauses[0],
            x=names[0],
            p=_at(places[0], draw),
        )
    else:
        task = draw.phrase("arm put two" if count == 2 else "arm put three", *clauses, v=verb)
    tail, plan = ("", carry(*moves)) if task.endswith("?") else _tail(draw, carry(*moves))
    listed_scene = table(draw, *names, *(dict.fromkeys(places) if draw.chance(0.6) else ()), without=places)
    return case(
        draw,
        "put",
        task + tail,
        plan,
        things=names,
        places=[*places, *listed_scene],
        scene=", ".join(listed_scene),
    )


def _tail(draw: Draw, plan: str) -> tuple[str, str]:
    """Sometimes something to do at the end."""
    if not draw.chance(0.25):
        return "", plan
    kind = draw.one(("home", "say", "open"))
    if kind == "home":
        return draw.phrase(
            "arm finally home",
        ), plan + "home();"
    if kind == "say":
        message = draw.of(MESSAGES)
        return draw.phrase(
            "arm finally say",
            m=message,
        ), f"{plan}say('{message}');"
    return draw.phrase("arm finally open"), plan + "open();"


def single(draw: Draw) -> Case:
    """Pick it up, throw it away, show it."""
    (name,) = _things(draw, 1)
    kind = draw.one(("pick", "throw", "show", "show", "drop", "over"))
    if kind == "pick":
        task = draw.phrase(
            "arm pick",
            x=name,
        )
        return case(draw, "single", task, f"pick('{name}');", things=table(draw, name))
    if kind == "throw":
        task = draw.phrase(
            "arm throw",
            x=name,
        )
        things = table(draw, name)
        return case(
            draw,
            "single",
            task,
            f"pick('{name}');drop('bin');",
            things=things,
            places=["bin"],
            scene=", ".join([*things, "bin"]) if draw.chance(0.6) else None,
        )
    if kind == "drop":
        place = _place(draw, name)
        task = draw.phrase(
            "arm drop",
            x=name,
            p=_at(place, draw),
        )
        return case(
            draw,
            "single",
            task,
            f"pick('{name}');drop('{place}');",
            things=table(draw, name, without=[place]),
            places=[place],
        )
    if kind == "over":
        task = draw.phrase(
            "arm over",
            x=name,
        )
        return case(draw, "single", task, f"move_to('{name}');", things=table(draw, name))
    task = draw.phrase(
        "arm show",
        x=name,
    )
    return case(draw, "single", task, f"move_to('{name}');say('Here it is');", things=table(draw, name))


def simple(draw: Draw) -> Case:
    """Gripper, rest position, words, looking."""
    kind = draw.one(("open", "close", "home", "say", "look"))
    things = table(draw)
    if kind == "open":
        return case(
            draw,
            "simple",
            draw.phrase(
                "arm open",
            ),
            "open();",
            things=things,
        )
    if kind == "close":
        return case(
            draw,
            "simple",
            draw.phrase(
                "arm close",
            ),
            "close();",
            things=things,
        )
    if kind == "home":
        return case(
            draw,
            "simple",
            draw.phrase(
                "arm home",
            ),
            "home();",
            things=things,
        )
    if kind == "say":
        message = draw.of(MESSAGES)
        return case(
            draw,
            "simple",
            draw.phrase(
                "arm say",
                m=message,
            ),
            f"say('{message}');",
            things=things,
        )
    place = draw.of(LOOKED_AT)
    return case(
        draw,
        "simple",
        draw.phrase(
            "arm look",
            p=place,
        ),
        f"look('{place}');",
        things=things,
    )


def stack(draw: Draw) -> Case:
    """Boxes on boxes; the colour alone often names them."""
    shape = draw.of(SHAPES)
    colours = draw.some(COLOURS[draw.split], draw.one((2, 3, 3, 4)))
    colours = [draw.coined() if draw.coins() else colour for colour in colours]
    if any(a != b and a in b for a in colours for b in colours) or len(set(colours)) < len(colours):
        return stack(draw)
    names = [f"{colour} {shape}" for colour in colours]
    order = list(zip(names[1:], names, strict=False))  # each on the one before
    if draw.chance(0.5):
        clauses = [f"{thing.split()[0]} on {below.split()[0]}" for thing, below in order]
        head = draw.phrase(
            "arm stack",
            s=f"{shape}s" if shape != "box" else "boxes",
        )
        joint = draw.one((", then ", ", ", " and ", " then ", ", and "))
        task = f"{head}: {joint.join(clauses)}"
    else:
        clauses = [f"the {thing} on the {below}" for thing, below in order]
        verb = draw.phrase("arm stack, verb")
        task = f"{verb} " + draw.one((" and ", ", then ", ", then put ")).join(clauses)
    tail, plan = _tail(draw, carry(*order))
    things = table(draw, *names, without=[shape])
    scene = ", ".join(things)
    if draw.chance(0.3):
        scene += draw.one((" on the table", " on the desk", " on the workbench"))
    return case(draw, "stack", task + tail, plan, things=things, scene=scene)


def sort(draw: Draw) -> Case:
    """By kind: which is which, the model must know."""
    able = [kind for kind in GROUPS if GROUPS[kind][draw.split]]
    kinds = draw.some(able, draw.one((2, 2, 2, 3)))
    if draw.chance(0.25 if draw.training else 0.4):
        kinds = ["fruit", "vegetables"]
    places = draw.some(SORT_PLACES[draw.split], len(kinds))
    if draw.split == "train" and draw.chance(0.3):
        places[:2] = ["left basket", "right basket"]
        places[2:] = ["bin"] * (len(places) - 2)
    members = [
        draw.some(
            GROUPS[kind][draw.split],
            draw.one((1, 2, 2, 3) if draw.training and len(kinds) < 3 else (1, 1, 2))
            if len(kinds) < 3
            else 1,
        )
        for kind in kinds
    ]
    members = [[draw.qualified(name) if draw.coins() else name for name in names] for names in members]
    target = {thing: place for things, place in zip(members, places, strict=True) for thing in things}
    listed = list(target)
    if any(a != b and a in b for a in listed for b in (*listed, *places)) or set(listed) & set(places):
        return sort(draw)
    draw.rng.shuffle(listed)
    counts = _counts(draw, listed)
    if places[:2] == ["left basket", "right basket"] and draw.chance(0.7):
        clauses = [
            f"the {kinds[0]} into the left basket",
            f"the {kinds[1]} into the right one",
            *(f"the {k} {_at(p, draw)}" for k, p in list(zip(kinds, places, strict=True))[2:]),
        ]
    else:
        clauses = [
            f"{'the ' if draw.chance(0.7) else ''}{kind} {_at(place, draw)}"
            for kind, place in zip(kinds, places, strict=True)
        ]
    joined = ", ".join(clauses[:-1]) + f" and {clauses[-1]}"
    task = draw.phrase(
        "arm sort",
        c=joined,
    )
    plan = carry(*((thing, target[thing]) for thing in listed for _ in range(counts[thing])))
    return case(draw, "sort", task, plan, things=listed, places=places, scene=_counted(draw, listed, counts))


def _counts(draw: Draw, listed: Sequence[str]) -> dict[str, int]:
    """How many of each: one, and in training now and then two or three of one."""
    counts = dict.fromkeys(listed, 1)
    plain = [name for name in listed if name.isalpha() and name[-1] not in "shyfx"]
    if draw.training and plain and draw.chance(0.15):
        counts[draw.one(plain)] = min(draw.one((2, 2, 3)), 1 + MAX_CARRIED - len(listed))
    return counts


def _counted(draw: Draw, listed: Sequence[str], counts: Mapping[str, int]) -> str:
    """The scene in words."""
    words = {1: "", 2: "two ", 3: "three "}
    return ", ".join(
        f"{words[counts[name]]}{name}s" if counts[name] > 1 else draw.placed(name) for name in listed
    )


def desk(draw: Draw) -> Case:
    """Rubbish into the bin, this onto the tray: kinds and things mixed."""
    able = [kind for kind in GROUPS if GROUPS[kind][draw.split]]
    kinds = [draw.one(("rubbish", "pens", "toys", "tools") if draw.chance(0.6) else able)]
    if draw.training and draw.chance(0.45):
        kinds = list(dict.fromkeys((*kinds, draw.one(("rubbish", "pens", *able)))))
    members = {kind: draw.some(GROUPS[kind][draw.split], draw.one((1, 2))) for kind in kinds}
    members = {
        kind: [draw.qualified(name) if draw.coins() else name for name in names]
        for kind, names in members.items()
    }
    flat = [name for names in members.values() for name in names]
    single_name = next(name for name in _things(draw, 12) if not any(name in m or m in name for m in flat))
    bins = ["bin" if kind == "rubbish" else draw.of(SORT_PLACES) for kind in kinds]
    place = _place(draw, single_name, *bins, *flat)
    listed = [*flat, single_name]
    if (
        any(a != b and a in b for a in listed for b in listed)
        or len(set(listed)) < len(listed)
        or {*bins, place} & set(listed)
        or len(set(bins)) < len(bins)
    ):
        return desk(draw)
    draw.rng.shuffle(listed)
    target = {name: bin_place for kind, bin_place in zip(kinds, bins, strict=True) for name in members[kind]}
    target[single_name] = place
    clauses = [(kind, _at(bin_place, draw)) for kind, bin_place in zip(kinds, bins, strict=True)]
    # All but the last kind go in front: "rubbish into the bin, pens" and "into the box".
    before = "".join(f"{kind} {at}, " for kind, at in clauses[:-1])
    task = draw.phrase(
        "arm clear the desk",
        k=before + clauses[-1][0],
        b=clauses[-1][1],
        x=single_name,
        p=_at(place, draw),
    )
    counts = _counts(draw, listed)
    return case(
        draw,
        "sort",
        task,
        carry(*((thing, target[thing]) for thing in listed for _ in range(counts[thing]))),
        things=listed,
        places=[*bins, place],
        scene=_counted(draw, listed, counts),
    )


def all_of(draw: Draw) -> Case:
    """Everything into one place."""
    names = _things(draw, draw.one((2, 3, 4)))
    place = _place(draw, *names)
    task = draw.phrase(
        "arm all",
        p=_at(place, draw),
    )
    return case(draw, "all", task, carry(*((name, place) for name in names)), things=names, places=[place])


def question(draw: Draw) -> Case:
    """Is it there? The scene says."""
    name = _things(draw, 1)[0]
    there = draw.chance(0.5)
    things = table(draw, *([name] if there else []), without=[name], least=0 if there else 1)
    task = draw.phrase(
        "arm there?",
        a=draw.a(name),
        x=name,
    )
    return case(draw, "question", task, f"say('{'Yes' if there else 'No'}');", things=things, command=False)


def replan(draw: Draw) -> Case:
    """The last plan failed: do what is left."""
    names = _things(draw, draw.one((1, 2, 2)))
    places = [_place(draw, *names) for _ in names]
    moves = list(zip(names, places, strict=True))
    plan = carry(*moves)
    steps = [f"{part};" for part in plan.rstrip(";").split(";")]
    at = draw.rng.randrange(len(steps))
    done = steps[:at]
    on = {thing: place for index, (thing, place) in enumerate(moves) if 2 * index + 1 < at}
    held, new = None, "".join(steps[at:])
    if at % 2 == 0:
        reason = draw.phrase(
            "arm missed, why",
            x=names[at // 2],
        )
    elif draw.chance(0.5):
        reason = draw.phrase(
            "arm fell, why",
            x=names[at // 2],
        )
        new = "".join(steps[at - 1 :])  # it must be picked again
    else:
        held = names[at // 2]
        reason = draw.phrase(
            "arm stopped, why",
        )
    goal = draw.phrase(
        "arm rest",
    )
    things = table(draw, *names, without=places)
    executed = "".join(done).rstrip(";") or "nothing"
    if draw.chance(0.5):
        task = draw.phrase("arm again, in the task", p=plan, r=reason, d=executed, g=goal)
        made = case(
            draw,
            "re-plan",
            task,
            new,
            things=things,
            places=places,
            on=on,
            holding=held,
            command=False,
            history="x",
        )
        return Case(NAME, "re-plan", task, new, made.trials, made.scene)
    history = draw.phrase("arm again", p=plan, r=reason, d=executed)
    return case(
        draw, "re-plan", goal, new, things=things, places=places, on=on, holding=held, history=history
    )


def unseen(draw: Draw) -> Case:
    """What is asked for is not there."""
    name = _things(draw, 1)[0]
    place = _place(draw, name)
    things = table(draw, without=[name, place], least=2)
    task = draw.phrase(
        "arm unseen",
        y=things[0],
        x=name,
        p=_at(place, draw),
    )
    listed = [draw.placed(thing) for thing in ([*things, place] if draw.chance(0.5) else things)]
    return case(
        draw,
        "unseen",
        task,
        UNSEEN,
        things=things,
        places=[place, name],
        scene=", ".join(listed),
        refusal=True,
    )


def unsafe(draw: Draw) -> Case:
    """Would hurt someone or break something."""
    who = draw.of(PEOPLE)
    names = _things(draw, 2)
    task = draw.phrase(
        "arm unsafe",
        w=who,
        x=names[0],
        y=names[1],
    )
    return case(draw, "unsafe", task, UNSAFE, things=table(draw, *names), refusal=True)


def unclear(draw: Draw) -> Case:
    """Says nothing that could be done, or something an arm cannot do."""
    things = table(draw)
    if draw.chance(0.55):
        task = draw.phrase(
            "arm unclear",
        )
        return case(draw, "unclear", task, UNCLEAR, things=things, refusal=True, command=False)
    task = draw.phrase(
        "arm unable",
    )
    return case(draw, "unable", task, UNABLE, things=things, refusal=True)


FAMILIES: Mapping[Callable[[Draw], Case], float] = {
    put: 24,
    single: 13,
    simple: 7,
    stack: 13,
    sort: 14,
    desk: 8,
    all_of: 5,
    question: 7,
    replan: 11,
    unseen: 12,
    unsafe: 8,
    unclear: 8,
}
"""How often each."""

MORE_WHILE_FINISHING: Mapping[Callable[[Draw], Case], float] = {
    sort: 3.0,
    desk: 2.5,
    replan: 2.0,
    question: 1.5,
}
"""What an adapter does worst after the first part of a training, which is mostly the drone's."""
