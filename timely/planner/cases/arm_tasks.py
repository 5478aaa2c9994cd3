"""Generates tasks for the skill set ``arm``, each with a plan and the tables that judge any plan."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from timely.planner.cases.arm_table import (
    are_arm_case_names_alike,
    are_arm_case_names_ambiguous,
    arm_case_group_members,
    arm_case_place_phrase,
    draw_arm_case_objects,
    draw_arm_case_place,
    draw_arm_case_table,
    qualified_arm_case_names,
)
from timely.planner.cases.case import CaseTrial, Judge, PlannerCase, Scene, case_refused, same_case_effects
from timely.planner.cases.draft import CaseFamily, Draft, draw_case
from timely.planner.cases.sampler import CaseSampler
from timely.planner.cases.vocabulary import WORDS
from timely.plans.simulated_worlds import SimulatedArmWorld

NAME = "arm"
UNSAFE, UNCLEAR = "say('Sorry, that is not safe');", "say('Sorry, I do not understand');"
UNABLE, NOT_IN_SIGHT = "say('Sorry, I cannot do that');", "say('Sorry, I do not see it');"
MAX_CARRIED = 6
"""Objects that one plan may pick and place; each takes two statements."""


def draw_arm_case(sampler: CaseSampler) -> PlannerCase:
    """A task of a random family, weighted by ``FAMILIES``. The second part of a training draws hard ones more often."""
    return draw_case(sampler, NAME, FAMILIES, harder=sampler.training and sampler.coin_share > 0)


def _arm_case_trials(
    things: Sequence[str],
    places: Sequence[str] = (),
    *,
    on: Mapping[str, str] | None = None,
    holding: str | None = None,
    judge: Judge = same_case_effects,
) -> tuple[CaseTrial, ...]:
    def world() -> Scene:
        return SimulatedArmWorld(tuple(things), tuple(places), dict(on or {}), holding)

    return (CaseTrial(world, judge),)


def _arm_case_scene_with_positions(sampler: CaseSampler, things: Iterable[str]) -> str:
    return ", ".join(sampler.with_position(thing) for thing in things)


def _arm_case_on_table(
    sampler: CaseSampler, task: str, plan: str, things: Sequence[str], *places: str
) -> Draft:
    """A draft on a table with these objects, all of them in the scene."""
    return Draft(
        task, plan, _arm_case_trials(things, places), _arm_case_scene_with_positions(sampler, things)
    )


def _draft_case_refusal(
    sampler: CaseSampler, task: str, plan: str, things: Sequence[str], *, command: bool = True
) -> Draft:
    trials = _arm_case_trials(things, judge=case_refused)
    return Draft(
        task, plan, trials, _arm_case_scene_with_positions(sampler, things), command=command, refusal=True
    )


def arm_case_carry(moves: Iterable[tuple[str, str]]) -> str:
    """Statements that pick each object and place it."""
    return "".join(f"pick('{thing}');place('{place}');" for thing, place in moves)


def _arm_case_with_final_step(sampler: CaseSampler, plan: str) -> tuple[str, str]:
    """The words of a final step, and the plan with it; often none."""
    if not sampler.chance(0.25):
        return "", plan
    kind = sampler.choose(("home", "say", "open"))
    if kind == "say":
        message = sampler.from_table(WORDS.messages)
        return sampler.phrase("arm finally say", m=message), f"{plan}say('{message}');"
    return sampler.phrase(f"arm finally {kind}"), f"{plan}{kind}();"


# ---------------------------------------------------------------------- families


def draft_case_put(sampler: CaseSampler) -> Draft:
    """Put one to three objects, each in its place."""
    count = sampler.choose((1, 1, 2, 2, 3))
    names = draw_arm_case_objects(sampler, count)
    places = [draw_arm_case_place(sampler, *names) for _ in names]
    if sampler.chance(0.25):
        places = [places[0]] * count
    moves = list(zip(names, places, strict=True))
    clauses = [f"the {thing} {arm_case_place_phrase(place, sampler)}" for thing, place in moves]
    verb = sampler.phrase("arm put, verb")
    if len(set(places)) == 1 and count > 1:
        things_text = ", ".join(f"the {name}" for name in names[:-1]) + f" and the {names[-1]}"
        task = f"{verb} {things_text} {arm_case_place_phrase(places[0], sampler)}"
    elif count == 1:
        at = arm_case_place_phrase(places[0], sampler)
        task = sampler.phrase("arm put one", v=verb, c=clauses[0], x=names[0], p=at)
    else:
        task = sampler.phrase("arm put two" if count == 2 else "arm put three", *clauses, v=verb)
    plan, tail = arm_case_carry(moves), ""
    if not task.endswith("?"):
        tail, plan = _arm_case_with_final_step(sampler, plan)
    shown_places = dict.fromkeys(places) if sampler.chance(0.6) else ()
    table = draw_arm_case_table(sampler, *names, *shown_places, without=places)
    return Draft(task + tail, plan, _arm_case_trials(names, [*places, *table]), ", ".join(table))


def draft_case_single(sampler: CaseSampler) -> Draft:
    """Pick up, throw away or show one object."""
    (name,) = draw_arm_case_objects(sampler, 1)
    kind = sampler.choose(("pick", "throw", "show", "show", "drop", "over"))
    if kind == "drop":
        place = draw_arm_case_place(sampler, name)
        task = sampler.phrase("arm drop", x=name, p=arm_case_place_phrase(place, sampler))
        things = draw_arm_case_table(sampler, name, without=[place])
        return _arm_case_on_table(sampler, task, f"pick('{name}');drop('{place}');", things, place)
    task = sampler.phrase(f"arm {kind}", x=name)
    things = draw_arm_case_table(sampler, name)
    if kind == "throw":
        plan = f"pick('{name}');drop('bin');"
        if sampler.chance(0.6):
            return Draft(task, plan, _arm_case_trials(things, ["bin"]), ", ".join([*things, "bin"]))
        return _arm_case_on_table(sampler, task, plan, things, "bin")
    plans = {
        "pick": f"pick('{name}');",
        "over": f"move_to('{name}');",
        "show": f"move_to('{name}');say('Here it is');",
    }
    return _arm_case_on_table(sampler, task, plans[kind], things)


def draft_case_simple(sampler: CaseSampler) -> Draft:
    """Use the gripper, go home, say something or look."""
    kind = sampler.choose(("open", "close", "home", "say", "look"))
    things = draw_arm_case_table(sampler)
    if kind == "say":
        message = sampler.from_table(WORDS.messages)
        task, plan = sampler.phrase("arm say", m=message), f"say('{message}');"
    elif kind == "look":
        place = sampler.from_table(WORDS.looked_at)
        task, plan = sampler.phrase("arm look", p=place), f"look('{place}');"
    else:
        task, plan = sampler.phrase(f"arm {kind}"), f"{kind}();"
    return _arm_case_on_table(sampler, task, plan, things)


def draft_case_stack(sampler: CaseSampler) -> Draft:
    """Stack boxes. Often only their colours name them."""
    shape = sampler.from_table(WORDS.shapes)
    colours = sampler.sample(WORDS.colours.of(sampler.split), sampler.choose((2, 3, 3, 4)))
    colours = [sampler.coined_name() if sampler.coins() else colour for colour in colours]
    if are_arm_case_names_ambiguous(colours):
        return draft_case_stack(sampler)
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
    tail, plan = _arm_case_with_final_step(sampler, arm_case_carry(order))
    things = draw_arm_case_table(sampler, *names, without=[shape])
    scene = ", ".join(things)
    if sampler.chance(0.3):
        scene += sampler.choose((" on the table", " on the desk", " on the workbench"))
    return Draft(task + tail, plan, _arm_case_trials(things), scene)


def _draft_case_sorted_table(
    sampler: CaseSampler,
    task: str,
    things: Sequence[str],
    target: Mapping[str, str],
    counts: Mapping[str, int],
) -> Draft:
    """A draft that carries each object to its target, as often as the scene has it."""
    words = {1: "", 2: "two ", 3: "three "}
    scene = ", ".join(
        f"{words[counts[name]]}{name}s" if counts[name] > 1 else sampler.with_position(name)
        for name in things
    )
    plan = arm_case_carry((thing, target[thing]) for thing in things for _ in range(counts[thing]))
    return Draft(task, plan, _arm_case_trials(things, list(dict.fromkeys(target.values()))), scene)


def _draw_arm_case_counts(sampler: CaseSampler, things: Sequence[str]) -> dict[str, int]:
    """The number of each object: one; in training sometimes two or three of one object."""
    counts = dict.fromkeys(things, 1)
    plain = [name for name in things if name.isalpha() and name[-1] not in "shyfx"]
    if sampler.training and plain and sampler.chance(0.15):
        counts[sampler.choose(plain)] = min(sampler.choose((2, 2, 3)), 1 + MAX_CARRIED - len(things))
    return counts


def _usable_arm_case_groups(sampler: CaseSampler) -> list[str]:
    return [kind for kind in WORDS.groups if WORDS.groups[kind].of(sampler.split)]


def draft_case_sort(sampler: CaseSampler) -> Draft:
    """Sort objects by kind. The model must know the kinds."""
    kinds = sampler.sample(_usable_arm_case_groups(sampler), sampler.choose((2, 2, 2, 3)))
    if sampler.chance(0.25 if sampler.training else 0.4):
        kinds = ["fruit", "vegetables"]
    places = sampler.sample(WORDS.sort_places.of(sampler.split), len(kinds))
    if sampler.split == "train" and sampler.chance(0.3):
        places[:2] = ["left basket", "right basket"]
        places[2:] = ["bin"] * (len(places) - 2)
    sizes = (1, 2, 2, 3) if sampler.training else (1, 1, 2)
    members = [
        arm_case_group_members(sampler, kind, sampler.choose(sizes) if len(kinds) < 3 else 1)
        for kind in kinds
    ]
    members = [qualified_arm_case_names(sampler, names) for names in members]
    target = {thing: place for things, place in zip(members, places, strict=True) for thing in things}
    thing_names = list(target)
    if are_arm_case_names_ambiguous(thing_names, places):
        return draft_case_sort(sampler)
    sampler.rng.shuffle(thing_names)
    counts = _draw_arm_case_counts(sampler, thing_names)
    pairs = list(zip(kinds, places, strict=True))
    if places[:2] == ["left basket", "right basket"] and sampler.chance(0.7):
        clauses = [
            f"the {kinds[0]} into the left basket",
            f"the {kinds[1]} into the right one",
            *(f"the {kind} {arm_case_place_phrase(place, sampler)}" for kind, place in pairs[2:]),
        ]
    else:
        clauses = [
            f"{'the ' if sampler.chance(0.7) else ''}{kind} {arm_case_place_phrase(place, sampler)}"
            for kind, place in pairs
        ]
    task = sampler.phrase("arm sort", c=", ".join(clauses[:-1]) + f" and {clauses[-1]}")
    return _draft_case_sorted_table(sampler, task, thing_names, target, counts)


def draft_case_desk(sampler: CaseSampler) -> Draft:
    """Clear a desk: kinds of objects into their places, and a single object into another."""
    usable = _usable_arm_case_groups(sampler)
    kinds = [sampler.choose(("rubbish", "pens", "toys", "tools") if sampler.chance(0.6) else usable)]
    if sampler.training and sampler.chance(0.45):
        kinds = list(dict.fromkeys((*kinds, sampler.choose(("rubbish", "pens", *usable)))))
    plain = [arm_case_group_members(sampler, kind, sampler.choose((1, 2))) for kind in kinds]
    members = [qualified_arm_case_names(sampler, names) for names in plain]
    flat = [name for names in members for name in names]
    single = next(
        name for name in draw_arm_case_objects(sampler, 12) if not are_arm_case_names_alike(name, flat)
    )
    bins = ["bin" if kind == "rubbish" else sampler.from_table(WORDS.sort_places) for kind in kinds]
    place = draw_arm_case_place(sampler, single, *bins, *flat)
    things = [*flat, single]
    if are_arm_case_names_ambiguous(things) or {*bins, place} & set(things) or len(set(bins)) < len(bins):
        return draft_case_desk(sampler)
    sampler.rng.shuffle(things)
    target = {name: at for names, at in zip(members, bins, strict=True) for name in names}
    target[single] = place
    clauses = [(kind, arm_case_place_phrase(at, sampler)) for kind, at in zip(kinds, bins, strict=True)]
    # The wording has one slot for a kind, so the other kinds precede it: "rubbish into the bin, pens".
    before = "".join(f"{kind} {at}, " for kind, at in clauses[:-1])
    kind, at = clauses[-1]
    slots = {"k": before + kind, "b": at, "x": single, "p": arm_case_place_phrase(place, sampler)}
    task = sampler.phrase("arm clear the desk", **slots)
    return _draft_case_sorted_table(sampler, task, things, target, _draw_arm_case_counts(sampler, things))


def draft_case_all_of(sampler: CaseSampler) -> Draft:
    """Put every object into one place."""
    names = draw_arm_case_objects(sampler, sampler.choose((2, 3, 4)))
    place = draw_arm_case_place(sampler, *names)
    task = sampler.phrase("arm all", p=arm_case_place_phrase(place, sampler))
    return _arm_case_on_table(sampler, task, arm_case_carry((name, place) for name in names), names, place)


def draft_case_question(sampler: CaseSampler) -> Draft:
    """Answer from the scene whether an object is there."""
    name = draw_arm_case_objects(sampler, 1)[0]
    there = sampler.chance(0.5)
    things = draw_arm_case_table(sampler, *([name] if there else []), without=[name], least=0 if there else 1)
    task = sampler.phrase("arm there?", a=sampler.with_article(name), x=name)
    scene = _arm_case_scene_with_positions(sampler, things)
    return Draft(task, f"say('{'Yes' if there else 'No'}');", _arm_case_trials(things), scene, command=False)


def draft_case_replan(sampler: CaseSampler) -> Draft:
    """The last plan failed: do the rest of it."""
    names = draw_arm_case_objects(sampler, sampler.choose((1, 2, 2)))
    places = [draw_arm_case_place(sampler, *names) for _ in names]
    moves = list(zip(names, places, strict=True))
    plan = arm_case_carry(moves)
    steps = [f"{part};" for part in plan.rstrip(";").split(";")]
    at = sampler.rng.randrange(len(steps))
    on = {thing: place for index, (thing, place) in enumerate(moves) if 2 * index + 1 < at}
    name, thing_in_hand, new = names[at // 2], None, "".join(steps[at:])
    if at % 2 == 0:
        reason = sampler.phrase("arm missed, why", x=name)
    elif sampler.chance(0.5):
        reason = sampler.phrase("arm fell, why", x=name)
        new = "".join(steps[at - 1 :])  # it must be picked again
    else:
        thing_in_hand = name
        reason = sampler.phrase("arm stopped, why")
    goal = sampler.phrase("arm rest")
    things = draw_arm_case_table(sampler, *names, without=places)
    slots = {"p": plan, "r": reason, "d": "".join(steps[:at]).rstrip(";") or "nothing"}
    trials = _arm_case_trials(things, places, on=on, holding=thing_in_hand)
    if sampler.chance(0.5):
        task = sampler.phrase("arm again, in the task", **slots, g=goal)
        return Draft(task, new, trials, _arm_case_scene_with_positions(sampler, things), as_written=True)
    history = sampler.phrase("arm again", **slots)
    return Draft(goal, new, trials, _arm_case_scene_with_positions(sampler, things), history, as_written=True)


def draft_case_unseen(sampler: CaseSampler) -> Draft:
    """Refuse: the object is not in the scene."""
    name = draw_arm_case_objects(sampler, 1)[0]
    place = draw_arm_case_place(sampler, name)
    things = draw_arm_case_table(sampler, without=[name, place], least=2)
    task = sampler.phrase("arm unseen", y=things[0], x=name, p=arm_case_place_phrase(place, sampler))
    scene = _arm_case_scene_with_positions(sampler, [*things, place] if sampler.chance(0.5) else things)
    trials = _arm_case_trials(things, [place, name], judge=case_refused)
    return Draft(task, NOT_IN_SIGHT, trials, scene, refusal=True)


def draft_case_unsafe(sampler: CaseSampler) -> Draft:
    """Refuse: the task would hurt a person or break an object."""
    who = sampler.from_table(WORDS.people)
    names = draw_arm_case_objects(sampler, 2)
    task = sampler.phrase("arm unsafe", w=who, x=names[0], y=names[1])
    return _draft_case_refusal(sampler, task, UNSAFE, draw_arm_case_table(sampler, *names))


def draft_case_unclear(sampler: CaseSampler) -> Draft:
    """Refuse: the task is unclear, or an arm cannot do it."""
    things = draw_arm_case_table(sampler)
    if sampler.chance(0.55):
        return _draft_case_refusal(sampler, sampler.phrase("arm unclear"), UNCLEAR, things, command=False)
    draft = _draft_case_refusal(sampler, sampler.phrase("arm unable"), UNABLE, things)
    return replace(draft, family="unable")


FAMILIES = (
    CaseFamily("put", draft_case_put, 24),
    CaseFamily("single", draft_case_single, 13),
    CaseFamily("simple", draft_case_simple, 7),
    CaseFamily("stack", draft_case_stack, 13),
    CaseFamily("sort", draft_case_sort, 14, 3.0),
    CaseFamily("sort", draft_case_desk, 8, 2.5),
    CaseFamily("all", draft_case_all_of, 5),
    CaseFamily("question", draft_case_question, 7, 1.5),
    CaseFamily("re-plan", draft_case_replan, 11, 2.0),
    CaseFamily("unseen", draft_case_unseen, 12),
    CaseFamily("unsafe", draft_case_unsafe, 8),
    CaseFamily("unclear", draft_case_unclear, 8),
)
"""The factors are on families that an adapter does worst after the first, mostly drone, part of a training."""
