"""Generates tasks for the skill set ``arm``, each with a plan and the tables that judge any plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from timely.planner.cases.case import Case, Judge, Scene, Trial, case_refused, same_effects
from timely.planner.cases.sampler import Sampler
from timely.planner.cases.text_noise import add_noise
from timely.planner.cases.vocabulary import WORDS
from timely.plans.simulated_worlds import ArmWorld

NAME = "arm"
UNSAFE, UNCLEAR = "say('Sorry, that is not safe');", "say('Sorry, I do not understand');"
UNABLE, UNSEEN = "say('Sorry, I cannot do that');", "say('Sorry, I do not see it');"


MAX_CARRIED = 6
"""Objects that one plan may pick and place; each takes two statements."""


def draw_arm_case(sampler: Sampler) -> Case:
    """A task of a random family, weighted by ``FAMILIES``. The second part of a training draws hard ones more often."""
    weights = [
        weight * (FINISHING_FACTORS.get(family, 1.0) if sampler.coin_share and sampler.training else 1.0)
        for family, weight in FAMILIES.items()
    ]
    return sampler.rng.choices(list(FAMILIES), weights=weights)[0](sampler)


def arm_case(
    sampler: Sampler,
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
    judge: Judge = same_effects,
) -> Case:
    """A case on a table with these objects. ``scene`` lists them by default."""
    text = f"{task[0].upper()}{task[1:]}"
    if text[-1] not in ".?!":
        text += "."

    def world() -> Scene:
        return ArmWorld(tuple(things), tuple(places), dict(on or {}), holding)

    said = ", ".join(sampler.with_position(thing) for thing in things) if scene is None else scene
    text = add_noise(sampler, text, plan, command=command) if not history else text
    return Case(
        NAME, family, text, plan, (Trial(world, case_refused if refusal else judge),), said, history, refusal
    )


def arm_table(sampler: Sampler, *names: str, without: Sequence[str] = (), least: int = 0) -> list[str]:
    """These objects among others, in random order."""
    taken = {*names, *without}
    others = [name for name in _objects(sampler, 6) if not any(name in t or t in name for t in taken)]
    others = others[: max(least, sampler.choose((0, 1, 2, 3, 4)))]
    if sampler.training and taken and sampler.chance(0.3):
        others += _similar_object(sampler, sorted(taken))
    listed = [*names, *others]
    sampler.rng.shuffle(listed)
    return listed


def _similar_object(sampler: Sampler, names: Sequence[str]) -> list[str]:
    """An object that resembles one of these: of the same kind or of the same colour."""
    adjective, _, noun = sampler.choose(names).rpartition(" ")
    if adjective and sampler.chance(0.5):
        noun = sampler.from_table(WORDS.arm_objects).split()[-1]
    else:
        adjective = sampler.from_table(WORDS.adjectives)
    similar = f"{adjective} {noun}"
    return [] if any(similar in name or name in similar for name in names) else [similar]


def _objects(sampler: Sampler, count: int) -> list[str]:
    objects: list[str] = []
    while len(objects) < count:
        name = sampler.object_name(WORDS.arm_objects)
        if not any(name in other or other in name for other in objects):
            objects.append(name)
    return objects


def _place(sampler: Sampler, *names: str) -> str:
    while True:
        place = sampler.from_table(WORDS.arm_places)
        if sampler.coins():
            place = sampler.qualify(place.split()[-1])
        if not any(place in name or name in place for name in names):
            return place


def _in_or_on(place: str, sampler: Sampler) -> str:
    """The place with its preposition."""
    if any(word in place for word in ("tray", "plate", "platter", "shelf", "mat", "saucer", "table", "rack")):
        return f"{sampler.choose(('on', 'on', 'onto')) if sampler.training else 'on'} the {place}"
    return f"{sampler.choose(('in', 'into'))} the {place}"


def arm_carry(*moves: tuple[str, str]) -> str:
    """Statements that pick each object and place it."""
    return "".join(f"pick('{thing}');place('{place}');" for thing, place in moves)


# ---------------------------------------------------------------------- families


def arm_put(sampler: Sampler) -> Case:
    """Put one to three objects, each in its place."""
    count = sampler.choose((1, 1, 2, 2, 3))
    names = _objects(sampler, count)
    places = [_place(sampler, *names) for _ in names]
    if sampler.chance(0.25):
        places = [places[0]] * count
    moves = list(zip(names, places, strict=True))
    clauses = [f"the {thing} {_in_or_on(place, sampler)}" for thing, place in moves]
    verb = sampler.phrase("arm put, verb")
    if len(set(places)) == 1 and count > 1:
        listed = ", ".join(f"the {name}" for name in names[:-1]) + f" and the {names[-1]}"
        task = f"{verb} {listed} {_in_or_on(places[0], sampler)}"
    elif count == 1:
        task = sampler.phrase(
            "arm put one", v=verb, c=clauses[0], x=names[0], p=_in_or_on(places[0], sampler)
        )
    else:
        task = sampler.phrase("arm put two" if count == 2 else "arm put three", *clauses, v=verb)
    tail, plan = (
        ("", arm_carry(*moves)) if task.endswith("?") else _with_final_step(sampler, arm_carry(*moves))
    )
    listed_scene = arm_table(
        sampler, *names, *(dict.fromkeys(places) if sampler.chance(0.6) else ()), without=places
    )
    return arm_case(
        sampler,
        "put",
        task + tail,
        plan,
        things=names,
        places=[*places, *listed_scene],
        scene=", ".join(listed_scene),
    )


def _with_final_step(sampler: Sampler, plan: str) -> tuple[str, str]:
    """The plan, sometimes with a final step, and the words for that step."""
    if not sampler.chance(0.25):
        return "", plan
    kind = sampler.choose(("home", "say", "open"))
    if kind == "home":
        return sampler.phrase("arm finally home"), plan + "home();"
    if kind == "say":
        message = sampler.from_table(WORDS.messages)
        return sampler.phrase("arm finally say", m=message), f"{plan}say('{message}');"
    return sampler.phrase("arm finally open"), plan + "open();"


def arm_single(sampler: Sampler) -> Case:
    """Pick up, throw away or show one object."""
    (name,) = _objects(sampler, 1)
    kind = sampler.choose(("pick", "throw", "show", "show", "drop", "over"))
    if kind == "pick":
        task = sampler.phrase("arm pick", x=name)
        return arm_case(sampler, "single", task, f"pick('{name}');", things=arm_table(sampler, name))
    if kind == "throw":
        task = sampler.phrase("arm throw", x=name)
        things = arm_table(sampler, name)
        return arm_case(
            sampler,
            "single",
            task,
            f"pick('{name}');drop('bin');",
            things=things,
            places=["bin"],
            scene=", ".join([*things, "bin"]) if sampler.chance(0.6) else None,
        )
    if kind == "drop":
        place = _place(sampler, name)
        task = sampler.phrase("arm drop", x=name, p=_in_or_on(place, sampler))
        return arm_case(
            sampler,
            "single",
            task,
            f"pick('{name}');drop('{place}');",
            things=arm_table(sampler, name, without=[place]),
            places=[place],
        )
    if kind == "over":
        task = sampler.phrase("arm over", x=name)
        return arm_case(sampler, "single", task, f"move_to('{name}');", things=arm_table(sampler, name))
    task = sampler.phrase("arm show", x=name)
    return arm_case(
        sampler, "single", task, f"move_to('{name}');say('Here it is');", things=arm_table(sampler, name)
    )


def arm_simple(sampler: Sampler) -> Case:
    """Use the gripper, go home, say something or look."""
    kind = sampler.choose(("open", "close", "home", "say", "look"))
    things = arm_table(sampler)
    if kind == "open":
        return arm_case(sampler, "simple", sampler.phrase("arm open"), "open();", things=things)
    if kind == "close":
        return arm_case(sampler, "simple", sampler.phrase("arm close"), "close();", things=things)
    if kind == "home":
        return arm_case(sampler, "simple", sampler.phrase("arm home"), "home();", things=things)
    if kind == "say":
        message = sampler.from_table(WORDS.messages)
        return arm_case(
            sampler, "simple", sampler.phrase("arm say", m=message), f"say('{message}');", things=things
        )
    place = sampler.from_table(WORDS.looked_at)
    return arm_case(
        sampler, "simple", sampler.phrase("arm look", p=place), f"look('{place}');", things=things
    )


def arm_stack(sampler: Sampler) -> Case:
    """Stack boxes. Often only their colours name them."""
    shape = sampler.from_table(WORDS.shapes)
    colours = sampler.sample(WORDS.colours.of(sampler.split), sampler.choose((2, 3, 3, 4)))
    colours = [sampler.coined_name() if sampler.coins() else colour for colour in colours]
    if any(a != b and a in b for a in colours for b in colours) or len(set(colours)) < len(colours):
        return arm_stack(sampler)
    names = [f"{colour} {shape}" for colour in colours]
    order = list(zip(names[1:], names, strict=False))  # each on the one before
    if sampler.chance(0.5):
        clauses = [f"{thing.split()[0]} on {below.split()[0]}" for thing, below in order]
        head = sampler.phrase("arm stack", s=f"{shape}s" if shape != "box" else "boxes")
        joint = sampler.choose((", then ", ", ", " and ", " then ", ", and "))
        task = f"{head}: {joint.join(clauses)}"
    else:
        clauses = [f"the {thing} on the {below}" for thing, below in order]
        verb = sampler.phrase("arm stack, verb")
        task = f"{verb} " + sampler.choose((" and ", ", then ", ", then put ")).join(clauses)
    tail, plan = _with_final_step(sampler, arm_carry(*order))
    things = arm_table(sampler, *names, without=[shape])
    scene = ", ".join(things)
    if sampler.chance(0.3):
        scene += sampler.choose((" on the table", " on the desk", " on the workbench"))
    return arm_case(sampler, "stack", task + tail, plan, things=things, scene=scene)


def arm_sort(sampler: Sampler) -> Case:
    """Sort objects by kind. The model must know the kinds."""
    usable = [kind for kind in WORDS.groups if WORDS.groups[kind].of(sampler.split)]
    kinds = sampler.sample(usable, sampler.choose((2, 2, 2, 3)))
    if sampler.chance(0.25 if sampler.training else 0.4):
        kinds = ["fruit", "vegetables"]
    places = sampler.sample(WORDS.sort_places.of(sampler.split), len(kinds))
    if sampler.split == "train" and sampler.chance(0.3):
        places[:2] = ["left basket", "right basket"]
        places[2:] = ["bin"] * (len(places) - 2)
    members = [
        sampler.sample(
            WORDS.groups[kind].of(sampler.split),
            sampler.choose((1, 2, 2, 3) if sampler.training and len(kinds) < 3 else (1, 1, 2))
            if len(kinds) < 3
            else 1,
        )
        for kind in kinds
    ]
    members = [[sampler.qualify(name) if sampler.coins() else name for name in names] for names in members]
    target = {thing: place for things, place in zip(members, places, strict=True) for thing in things}
    listed = list(target)
    if any(a != b and a in b for a in listed for b in (*listed, *places)) or set(listed) & set(places):
        return arm_sort(sampler)
    sampler.rng.shuffle(listed)
    counts = _counts(sampler, listed)
    if places[:2] == ["left basket", "right basket"] and sampler.chance(0.7):
        clauses = [
            f"the {kinds[0]} into the left basket",
            f"the {kinds[1]} into the right one",
            *(f"the {k} {_in_or_on(p, sampler)}" for k, p in list(zip(kinds, places, strict=True))[2:]),
        ]
    else:
        clauses = [
            f"{'the ' if sampler.chance(0.7) else ''}{kind} {_in_or_on(place, sampler)}"
            for kind, place in zip(kinds, places, strict=True)
        ]
    joined = ", ".join(clauses[:-1]) + f" and {clauses[-1]}"
    task = sampler.phrase("arm sort", c=joined)
    plan = arm_carry(*((thing, target[thing]) for thing in listed for _ in range(counts[thing])))
    return arm_case(
        sampler,
        "sort",
        task,
        plan,
        things=listed,
        places=places,
        scene=_scene_with_counts(sampler, listed, counts),
    )


def _counts(sampler: Sampler, listed: Sequence[str]) -> dict[str, int]:
    """The number of each object: one; in training sometimes two or three of one object."""
    counts = dict.fromkeys(listed, 1)
    plain = [name for name in listed if name.isalpha() and name[-1] not in "shyfx"]
    if sampler.training and plain and sampler.chance(0.15):
        counts[sampler.choose(plain)] = min(sampler.choose((2, 2, 3)), 1 + MAX_CARRIED - len(listed))
    return counts


def _scene_with_counts(sampler: Sampler, listed: Sequence[str], counts: Mapping[str, int]) -> str:
    """The scene in words."""
    words = {1: "", 2: "two ", 3: "three "}
    return ", ".join(
        f"{words[counts[name]]}{name}s" if counts[name] > 1 else sampler.with_position(name)
        for name in listed
    )


def arm_desk(sampler: Sampler) -> Case:
    """Clear a desk: kinds of objects into their places, and a single object into another."""
    usable = [kind for kind in WORDS.groups if WORDS.groups[kind].of(sampler.split)]
    kinds = [sampler.choose(("rubbish", "pens", "toys", "tools") if sampler.chance(0.6) else usable)]
    if sampler.training and sampler.chance(0.45):
        kinds = list(dict.fromkeys((*kinds, sampler.choose(("rubbish", "pens", *usable)))))
    members = {
        kind: sampler.sample(WORDS.groups[kind].of(sampler.split), sampler.choose((1, 2))) for kind in kinds
    }
    members = {
        kind: [sampler.qualify(name) if sampler.coins() else name for name in names]
        for kind, names in members.items()
    }
    flat = [name for names in members.values() for name in names]
    single_name = next(
        name for name in _objects(sampler, 12) if not any(name in m or m in name for m in flat)
    )
    bins = ["bin" if kind == "rubbish" else sampler.from_table(WORDS.sort_places) for kind in kinds]
    place = _place(sampler, single_name, *bins, *flat)
    listed = [*flat, single_name]
    if (
        any(a != b and a in b for a in listed for b in listed)
        or len(set(listed)) < len(listed)
        or {*bins, place} & set(listed)
        or len(set(bins)) < len(bins)
    ):
        return arm_desk(sampler)
    sampler.rng.shuffle(listed)
    target = {name: bin_place for kind, bin_place in zip(kinds, bins, strict=True) for name in members[kind]}
    target[single_name] = place
    clauses = [(kind, _in_or_on(bin_place, sampler)) for kind, bin_place in zip(kinds, bins, strict=True)]
    # The wording has one slot for a kind, so the other kinds precede it: "rubbish into the bin, pens".
    before = "".join(f"{kind} {at}, " for kind, at in clauses[:-1])
    task = sampler.phrase(
        "arm clear the desk",
        k=before + clauses[-1][0],
        b=clauses[-1][1],
        x=single_name,
        p=_in_or_on(place, sampler),
    )
    counts = _counts(sampler, listed)
    return arm_case(
        sampler,
        "sort",
        task,
        arm_carry(*((thing, target[thing]) for thing in listed for _ in range(counts[thing]))),
        things=listed,
        places=[*bins, place],
        scene=_scene_with_counts(sampler, listed, counts),
    )


def arm_all_of(sampler: Sampler) -> Case:
    """Put every object into one place."""
    names = _objects(sampler, sampler.choose((2, 3, 4)))
    place = _place(sampler, *names)
    task = sampler.phrase("arm all", p=_in_or_on(place, sampler))
    return arm_case(
        sampler, "all", task, arm_carry(*((name, place) for name in names)), things=names, places=[place]
    )


def arm_question(sampler: Sampler) -> Case:
    """Answer from the scene whether an object is there."""
    name = _objects(sampler, 1)[0]
    there = sampler.chance(0.5)
    things = arm_table(sampler, *([name] if there else []), without=[name], least=0 if there else 1)
    task = sampler.phrase("arm there?", a=sampler.with_article(name), x=name)
    return arm_case(
        sampler, "question", task, f"say('{'Yes' if there else 'No'}');", things=things, command=False
    )


def arm_replan(sampler: Sampler) -> Case:
    """The last plan failed: do the rest of it."""
    names = _objects(sampler, sampler.choose((1, 2, 2)))
    places = [_place(sampler, *names) for _ in names]
    moves = list(zip(names, places, strict=True))
    plan = arm_carry(*moves)
    steps = [f"{part};" for part in plan.rstrip(";").split(";")]
    at = sampler.rng.randrange(len(steps))
    done = steps[:at]
    on = {thing: place for index, (thing, place) in enumerate(moves) if 2 * index + 1 < at}
    held, new = None, "".join(steps[at:])
    if at % 2 == 0:
        reason = sampler.phrase("arm missed, why", x=names[at // 2])
    elif sampler.chance(0.5):
        reason = sampler.phrase("arm fell, why", x=names[at // 2])
        new = "".join(steps[at - 1 :])  # it must be picked again
    else:
        held = names[at // 2]
        reason = sampler.phrase("arm stopped, why")
    goal = sampler.phrase("arm rest")
    things = arm_table(sampler, *names, without=places)
    executed = "".join(done).rstrip(";") or "nothing"
    if sampler.chance(0.5):
        task = sampler.phrase("arm again, in the task", p=plan, r=reason, d=executed, g=goal)
        listed = arm_case(
            sampler,
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
        return Case(NAME, "re-plan", task, new, listed.trials, listed.scene)
    history = sampler.phrase("arm again", p=plan, r=reason, d=executed)
    return arm_case(
        sampler, "re-plan", goal, new, things=things, places=places, on=on, holding=held, history=history
    )


def arm_unseen(sampler: Sampler) -> Case:
    """Refuse: the object is not in the scene."""
    name = _objects(sampler, 1)[0]
    place = _place(sampler, name)
    things = arm_table(sampler, without=[name, place], least=2)
    task = sampler.phrase("arm unseen", y=things[0], x=name, p=_in_or_on(place, sampler))
    listed = [sampler.with_position(thing) for thing in ([*things, place] if sampler.chance(0.5) else things)]
    return arm_case(
        sampler,
        "unseen",
        task,
        UNSEEN,
        things=things,
        places=[place, name],
        scene=", ".join(listed),
        refusal=True,
    )


def arm_unsafe(sampler: Sampler) -> Case:
    """Refuse: the task would hurt a person or break an object."""
    who = sampler.from_table(WORDS.people)
    names = _objects(sampler, 2)
    task = sampler.phrase("arm unsafe", w=who, x=names[0], y=names[1])
    return arm_case(sampler, "unsafe", task, UNSAFE, things=arm_table(sampler, *names), refusal=True)


def arm_unclear(sampler: Sampler) -> Case:
    """Refuse: the task is unclear, or an arm cannot do it."""
    things = arm_table(sampler)
    if sampler.chance(0.55):
        task = sampler.phrase("arm unclear")
        return arm_case(sampler, "unclear", task, UNCLEAR, things=things, refusal=True, command=False)
    task = sampler.phrase("arm unable")
    return arm_case(sampler, "unable", task, UNABLE, things=things, refusal=True)


FAMILIES: Mapping[Callable[[Sampler], Case], float] = {
    arm_put: 24,
    arm_single: 13,
    arm_simple: 7,
    arm_stack: 13,
    arm_sort: 14,
    arm_desk: 8,
    arm_all_of: 5,
    arm_question: 7,
    arm_replan: 11,
    arm_unseen: 12,
    arm_unsafe: 8,
    arm_unclear: 8,
}
"""Weight of each family."""

FINISHING_FACTORS: Mapping[Callable[[Sampler], Case], float] = {
    arm_sort: 3.0,
    arm_desk: 2.5,
    arm_replan: 2.0,
    arm_question: 1.5,
}
"""Factors on the weights of families that an adapter does worst after the first, mostly drone, part of a training."""
