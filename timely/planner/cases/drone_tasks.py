"""Generates tasks for the skill set ``drone``, each with a plan and the worlds that judge any plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from timely.planner.cases import drone_steps
from timely.planner.cases.case import Case, Judge, Scene, Trial, case_refused, same_answer, same_effects
from timely.planner.cases.drone_steps import Step, thing_somewhere
from timely.planner.cases.sampler import Sampler
from timely.planner.cases.text_noise import add_noise
from timely.planner.cases.vocabulary import WORDS
from timely.plans.simulated_worlds import DroneWorld, Level, Thing

NAME = "drone"
YES_NO = "{l('Yes');->True}l('No');"
UNSAFE, UNCLEAR, UNABLE = (
    "l('Sorry, that is not safe');",
    "l('Sorry, I do not understand');",
    "l('Sorry, I cannot do that');",
)
CLOSE_CM = 150.0
CLEARED_CM = 10.0
MAX_QUESTION_WORDS = 6
"""Words that the grammar allows in a text."""


def draw_drone_case(sampler: Sampler) -> Case:
    """A task of a random family, weighted by ``FAMILIES``. Training draws hard ones more often."""
    weights = [
        weight * (TRAINING_FACTORS.get(family, 1.0) if sampler.training else 1.0)
        for family, weight in FAMILIES.items()
    ]
    return sampler.rng.choices(list(FAMILIES), weights=weights)[0](sampler)


def drone_room(*things: Thing, facts: tuple[tuple[tuple[str, ...], str], ...] = ()) -> Callable[[], Scene]:
    """Makes a new room with these things for every plan."""
    return partial(DroneWorld, things, facts)


def drone_scene_text(sampler: Sampler, *names: str, without: tuple[str, ...] = ()) -> str:
    """A scene in words: these things, usually among others."""
    others = [_object_name(sampler) for _ in range(sampler.choose((0, 1, 2, 3, 4)))]
    if sampler.chance(0.5):
        others += sampler.sample(WORDS.common.furniture, sampler.choose((1, 2)))
    taken = {*names, *without}
    others = [
        name
        for name in dict.fromkeys(others)
        if name not in taken and not any(name in t or t in name for t in taken)
    ]
    listed = [sampler.with_position(name) for name in (*names, *others)]
    sampler.rng.shuffle(listed)
    return ", ".join(listed)


def drone_case(
    sampler: Sampler,
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
    """A case whose task gets its capital letter, its full stop and text noise."""
    text = f"{task[0].upper()}{task[1:]}"
    if text[-1] not in ".?!":
        text += "."
    return Case(
        NAME, family, add_noise(sampler, text, plan, command=command), plan, trials, scene, history, refusal
    )


def _object_name(sampler: Sampler) -> str:
    return sampler.object_name(WORDS.drone_objects)


def _sentences(text: str) -> str:
    """The text with a capital letter at each sentence."""
    return re.sub(r"(?<=\. )[a-z]", lambda match: match.group().upper(), text)


def _two_names(sampler: Sampler) -> tuple[str, str]:
    first = second = _object_name(sampler)
    while first in second or second in first:
        second = _object_name(sampler)
    return first, second


def _ahead_there_absent(thing: Thing, judge: Judge = same_effects, level: Level = "eye") -> tuple[Trial, ...]:
    """Three rooms: the thing straight ahead, at its own place, and absent."""
    ahead = Thing(thing.name, 0.0, thing.distance_cm, level)
    return (Trial(drone_room(ahead), judge), Trial(drone_room(thing), judge), Trial(drone_room(), judge))


# ---------------------------------------------------------------------- families


def _single(sampler: Sampler, make: Callable[[Sampler], Step], family: str) -> Case:
    step = make(sampler)
    trials = (
        Trial(drone_room(*step.things), same_effects),
        *((Trial(drone_room(), same_effects),) if step.conditional else ()),
    )
    names = [thing.name for thing in step.things]
    scene = drone_scene_text(sampler, without=tuple(names)) if sampler.chance(0.5) else ""
    return drone_case(sampler, family, step.words, step.plan, trials, scene=scene)


def drone_find(sampler: Sampler) -> Case:
    """Find an object and go there. Often it is out of view."""
    name = _object_name(sampler)
    task = sampler.phrase("find", x=name, a=sampler.with_article(name))
    often = 0.45 if sampler.training else 0.3
    scene = (
        ""
        if sampler.chance(0.3)
        else drone_scene_text(sampler, *([name] if sampler.chance(often) else []), without=(name,))
    )
    return drone_case(
        sampler,
        "find",
        task,
        f"?s('{name}')==True{{g('{name}')}}",
        _ahead_there_absent(thing_somewhere(sampler, name)),
        scene=scene,
    )


def drone_go_to(sampler: Sampler) -> Case:
    """Go to an object: at once if it is in the scene, otherwise look for it first."""
    name = _object_name(sampler)
    here = sampler.chance(0.6)
    task = sampler.phrase("go to", x=name)
    if here:
        trials: tuple[Trial, ...] = (Trial(drone_room(Thing(name, 15.0, 300.0)), same_effects),)
        return drone_case(
            sampler, "go to", task, f"g('{name}');", trials, scene=drone_scene_text(sampler, name)
        )
    scene = drone_scene_text(sampler, without=(name,)) if sampler.chance(0.6) else ""
    return drone_case(
        sampler,
        "go to",
        task,
        f"?s('{name}')==True{{g('{name}')}}",
        _ahead_there_absent(thing_somewhere(sampler, name)),
        scene=scene,
    )


def drone_face(sampler: Sampler) -> Case:
    """Turn to an object in view, or come closer to it."""
    name = _object_name(sampler)
    trials = (Trial(drone_room(Thing(name, sampler.choose((-30.0, 20.0, 35.0)), 300.0)), same_effects),)
    if sampler.chance(0.6):
        task = sampler.phrase("face", x=name)
        return drone_case(
            sampler, "face", task, f"o('{name}');", trials, scene=drone_scene_text(sampler, name)
        )
    task = sampler.phrase("closer", x=name)
    return drone_case(
        sampler, "face", task, f"o('{name}');a();", trials, scene=drone_scene_text(sampler, name)
    )


def drone_question(sampler: Sampler) -> Case:
    """Answer whether an object is in the room, or in view."""
    name = _object_name(sampler)
    if sampler.chance(0.5):
        task = sampler.phrase("in the room?", x=name, a=sampler.with_article(name))
        scene = drone_scene_text(sampler, without=(name,)) if sampler.chance(0.6) else ""
        return drone_case(
            sampler,
            "question",
            task,
            f"?s('{name}')==True{YES_NO}",
            _ahead_there_absent(thing_somewhere(sampler, name), same_answer),
            scene=scene,
            command=False,
        )
    task = sampler.phrase("in view?", x=name, a=sampler.with_article(name))
    scene = (
        ""
        if sampler.chance(0.4)
        else drone_scene_text(sampler, *([name] if sampler.chance(0.5) else []), without=(name,))
    )
    trials = (Trial(drone_room(Thing(name)), same_answer), Trial(drone_room(), same_answer))
    return drone_case(
        sampler, "question", task, f"?iv('{name}')==True{YES_NO}", trials, scene=scene, command=False
    )


def drone_two_things(sampler: Sampler) -> Case:
    """Answer whether both objects, or either, are in view."""
    first, second = _two_names(sampler)
    both = sampler.chance(0.5)
    if both:
        task = sampler.phrase(
            "both?", a=sampler.with_article(first), b=sampler.with_article(second), x=first, y=second
        )
    else:
        task = sampler.phrase(
            "either?", a=sampler.with_article(first), b=sampler.with_article(second), x=first, y=second
        )
    plan = f"?iv('{first}'){'&' if both else '|'}iv('{second}'){YES_NO}"
    one, other = Thing(first, -10.0), Thing(second, 10.0)
    trials = tuple(Trial(drone_room(*things), same_answer) for things in ((one, other), (one,), (other,), ()))
    scene = (
        ""
        if sampler.chance(0.4)
        else drone_scene_text(
            sampler, *(n for n in (first, second) if sampler.chance(0.5)), without=(first, second)
        )
    )
    return drone_case(sampler, "two things", task, plan, trials, scene=scene, command=False)


def drone_above(sampler: Sampler) -> Case:
    """Look on top of furniture: go up first."""
    name, surface = _object_name(sampler), sampler.from_table(WORDS.surfaces)
    high = Thing(name, 10.0, 200.0, "high")
    trials = (Trial(drone_room(high), same_effects), Trial(drone_room(), same_effects))
    slots = {"x": name, "a": sampler.with_article(name), "f": surface}
    kind = sampler.choose(("photo", "ask", "ask", "go", "check"))
    if kind == "photo":
        task = sampler.phrase("above, photo", **slots)
        plan = f"mu(40);?iv('{name}')==True{{tp()}}"
    elif kind == "check":
        task = sampler.phrase("above, check", **slots)
        plan = f"mu(40);?iv('{name}')==True{{tp()}}"
    elif kind == "ask":
        task = sampler.phrase("above?", **slots)
        plan = f"mu(40);?iv('{name}')==True{YES_NO}"
        trials = (Trial(drone_room(high), same_answer), Trial(drone_room(), same_answer))
    else:
        task = sampler.phrase("above, go", **slots)
        plan = f"mu(40);?s('{name}')==True{{g('{name}')}}"
    scene = "" if sampler.chance(0.4) else drone_scene_text(sampler, surface, without=(name,))
    return drone_case(sampler, "above", task, plan, trials, scene=scene, command=kind not in ("ask", "check"))


def drone_below(sampler: Sampler) -> Case:
    """Look under furniture: go down first."""
    name, cover = _object_name(sampler), sampler.from_table(WORDS.unders)
    low = Thing(name, sampler.choose((-10.0, 0.0, 15.0)), 200.0, "low")
    trials = (Trial(drone_room(low), same_effects), Trial(drone_room(), same_effects))
    slots = {"x": name, "a": sampler.with_article(name), "f": cover}
    if sampler.chance(0.65):
        task = sampler.phrase("below", **slots)
        plan = f"md(40);?s('{name}')==True{{g('{name}')}}"
    else:
        task = sampler.phrase("below?", **slots)
        plan = f"md(40);?iv('{name}')==True{YES_NO}"
        trials = (Trial(drone_room(low), same_answer), Trial(drone_room(), same_answer))
    scene = "" if sampler.chance(0.4) else drone_scene_text(sampler, cover, without=(name,))
    return drone_case(sampler, "below", task, plan, trials, scene=scene, command=False)


def drone_tool(sampler: Sampler) -> Case:
    """Find an object for a purpose. Only the camera can tell which object fits."""
    purpose, name = sampler.from_table(WORDS.needs)
    task = sampler.phrase("tool", p=purpose)
    thing = Thing(name, sampler.choose((-60.0, 0.0, 90.0, 170.0)), 250.0, "eye", (purpose,))
    plan = f"_1=sa('{purpose}');?_1!=False{{g(_1)}}"
    scene = drone_scene_text(sampler, without=(name,)) if sampler.chance(0.6) else ""
    return drone_case(
        sampler,
        "tool",
        task,
        plan,
        (Trial(drone_room(thing), same_effects), Trial(drone_room(), same_effects)),
        scene=scene,
    )


def drone_loops(sampler: Sampler) -> Case:
    """Repeat steps, fly far in parts, or fly a shape."""
    times = sampler.choose((2, 3, 4, 5) if sampler.split == "train" else (3, 4, 6))
    count = sampler.choose((str(times), drone_steps.NUMBERS[times]))
    kind = sampler.choose(("photos", "far", "square", "repeat", "turns"))
    if kind == "photos":
        gap = sampler.choose((1, 2, 3, 5))
        task = sampler.phrase("photos", n=count, g=gap)
        plan = f"{times}{{tp();d({gap})}}"
    elif kind == "far":
        total, pieces = sampler.choose(((600, 2), (800, 2), (1000, 2), (1200, 3), (1500, 3), (2000, 4)))
        way = sampler.choose(("forward", "back", "left", "right"))
        task = sampler.phrase("far", w=way, m=total // 100)
        plan = f"{pieces}{{{drone_steps.MOVES[way]}({total // pieces})}}"
    elif kind == "square":
        size = sampler.choose((50, 100, 150, 200))
        words = f"{size} cm" if size == 50 else f"{size / 100:g} metre{'s' if size > 100 else ''}"
        task = sampler.phrase("square", w=words)
        plan = f"4{{mf({size});tc(90)}}"
    elif kind == "repeat":
        size = sampler.choose((30, 50, 80, 100))
        task = sampler.phrase("bob", n=count, s=size)
        plan = f"{times}{{mu({size});md({size})}}"
    else:
        pictures = sampler.choose((4, 6, 8, 3))
        task = sampler.phrase("directions", n=pictures)
        plan = f"{pictures}{{tp();tc({360 // pictures})}}"
    return drone_case(
        sampler,
        "loops",
        task,
        plan,
        (Trial(drone_room(), same_effects),),
        scene=drone_scene_text(sampler) if sampler.chance(0.4) else "",
    )


def drone_several(sampler: Sampler) -> Case:
    """Do two or three steps in order."""
    step_count = sampler.choose((2, 3, 3) if sampler.training else (2, 2, 3, 3))
    steps: list[Step] = []
    while len(steps) < step_count:
        step = drone_steps.any_drone_step(sampler)
        if steps and (
            step.kind == steps[-1].kind
            or any(step.kind.split()[-1] == other.kind.split()[-1] for other in steps if other.things)
        ):
            continue
        if step.conditional and sum(other.conditional for other in steps) >= (2 if step_count == 2 else 1):
            continue
        steps.append(step)
    parts = [step.words for step in steps]
    task = _sentences(sampler.phrase("two steps" if step_count == 2 else "three steps", *parts))
    if sampler.chance(0.25):
        task = ". ".join(f"{step.words[0].upper()}{step.words[1:]}" for step in steps)
    things = tuple(thing for step in steps for thing in step.things)
    trials = [Trial(drone_room(*things), same_effects)]
    if things:
        trials.append(Trial(drone_room(), same_effects))
    names = tuple(thing.name for thing in things)
    scene = drone_scene_text(sampler, without=names) if sampler.chance(0.4) else ""
    return drone_case(
        sampler, "several", task, "".join(step.plan for step in steps), tuple(trials), scene=scene
    )


def drone_when(sampler: Sampler) -> Case:
    """Do a step on a condition."""
    name = _object_name(sampler)
    near, away = Thing(name, 0.0, 60.0), Thing(name, 0.0, 300.0)
    kind = sampler.choose(("seen", "seen", "else", "near"))
    if kind == "near":
        cm = sampler.choose((100, 150, 200) if sampler.split == "train" else (120, 150))
        words = sampler.choose((f"{cm} cm", f"{cm / 100:g} m", f"{cm / 100:g} metres"))
        task = sampler.phrase("near", x=name, d=words)
        trials = (Trial(drone_room(near), same_effects), Trial(drone_room(away), same_effects))
        return drone_case(
            sampler,
            "when",
            task,
            f"?od('{name}')<{cm}{{mb(50)}}",
            trials,
            scene=drone_scene_text(sampler, name),
            command=False,
        )
    do = sampler.choose(
        (
            drone_steps.photo_step,
            drone_steps.say_step,
            drone_steps.turn_step,
            drone_steps.move_step,
            drone_steps.wait_step,
        )
    )(sampler)
    trials = (Trial(drone_room(near), same_effects), Trial(drone_room(), same_effects))
    statement = do.plan.rstrip(";")
    if kind == "seen":
        task = sampler.phrase("if", x=name, a=sampler.with_article(name), s=do.words)
        plan = f"?iv('{name}')==True{{{statement}}}"
    else:
        other = sampler.choose((drone_steps.say_step, drone_steps.turn_step, drone_steps.move_step))(sampler)
        task = sampler.phrase("if else", x=name, a=sampler.with_article(name), s=do.words, o=other.words)
        plan = f"?iv('{name}')==True{{{do.plan}->True}}{other.plan}"
    scene = (
        drone_scene_text(sampler, *([name] if sampler.chance(0.3) else []), without=(name,))
        if sampler.chance(0.4)
        else ""
    )
    return drone_case(sampler, "when", task, plan, trials, scene=scene, command=False)


def drone_probe(sampler: Sampler) -> Case:
    """Ask the camera a question about an object in view."""
    pattern, answer = sampler.from_table(WORDS.questions)
    text = ""
    while not text or len(text.split()) > MAX_QUESTION_WORDS:
        name = _object_name(sampler)
        text = pattern.format(x=name)
    words = tuple(text.lower().replace("?", "").split())
    plan = f"_1=p('{text}');l(_1);"
    task = f"{text[0].upper()}{text[1:]}?"
    if sampler.chance(0.3):
        task = sampler.phrase("probe", q=text)
    trials = (Trial(drone_room(Thing(name), facts=((words[-3:], answer),)), same_answer),)
    return drone_case(
        sampler,
        "probe",
        task,
        plan,
        trials,
        scene=drone_scene_text(sampler, name) if sampler.chance(0.7) else "",
        command=False,
    )


# ---------------------------------------------------------------------- threats and re-plans


def drone_escaped(reference: Scene, world: Scene) -> str:
    """The drone ends farther from the threat and never came nearer to it."""
    if not isinstance(world, DroneWorld):
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


ESCAPES = {
    "": ("", 0.0),
    "from the left": ("mr(100);", -90.0),
    "from the right": ("ml(100);", 90.0),
    "from behind": ("mf(100);", 180.0),
}


def _threat(sampler: Sampler) -> tuple[str, str]:
    """What approaches, and the plan if it approaches from ahead."""
    kind = sampler.choose(("people", "animals", "movers"))
    if kind == "people":
        return sampler.from_table(WORDS.people), "mb(100);d(3);"
    return (
        (sampler.from_table(WORDS.animals), "mu(100);")
        if kind == "animals"
        else (sampler.from_table(WORDS.movers), "mr(80);mu(50);")
    )


def _kind(name: str, plan: str) -> str:
    """A more general name for the threat."""
    if plan.startswith("mb(100);d"):
        return "person"
    return "animal" if plan.startswith("mu(100)") else name


def drone_evade(sampler: Sampler) -> Case:
    """Avoid something that approaches."""
    name, plan = _threat(sampler)
    way, (aside, bearing) = sampler.choose([("", ESCAPES[""])] * 3 + list(ESCAPES.items())[1:])
    if way:
        plan = aside
        task = sampler.phrase("comes from", a=sampler.with_article(name), x=name, w=way)
    else:
        task = sampler.phrase("comes", a=sampler.with_article(name), x=name)
    trials = (Trial(drone_room(Thing(name, bearing, CLOSE_CM)), drone_escaped),)
    return drone_case(
        sampler,
        "evade",
        task,
        plan,
        trials,
        scene=drone_scene_text(sampler, name) if sampler.chance(0.5) else "",
        command=False,
    )


def drone_replan(sampler: Sampler) -> Case:
    """The last plan failed: make the next one from what was done."""
    before = [
        drone_steps.move_step(sampler),
        sampler.choose((drone_steps.turn_step, drone_steps.photo_step, drone_steps.wait_step))(sampler),
    ]
    failed_plan = "".join(step.plan for step in before)
    kind = sampler.choose(
        ("rest", "rest", "danger", "danger", "danger", "danger", "danger", "blocked", "blocked", "lost")
    )
    if kind == "rest":
        extra = drone_steps.move_step(sampler)
        steps = [*before, *([extra] if extra.kind != before[0].kind and sampler.chance(0.6) else [])]
        parts = [step.plan for step in steps]
        cut = sampler.rng.randrange(1, len(parts))
        reason = sampler.phrase("rest, why")
        goal = sampler.phrase("rest")
        return _replan_case(
            sampler,
            "".join(parts),
            reason,
            "".join(parts[:cut]),
            goal,
            "".join(parts[cut:]),
            (Trial(drone_room(), same_effects),),
        )
    if kind == "danger":
        name, plan = _threat(sampler)
        plan = "mu(100);mb(100);" if plan == "mu(100);" else plan
        slots = {"a": sampler.with_article(name), "x": name, "k": _kind(name, plan)}
        if sampler.training and sampler.chance(0.6):
            failed_plan = "".join(_random_statement(sampler) for _ in range(sampler.choose((1, 2, 2, 3))))
        first = failed_plan.partition(";")[0] + ";"
        reason = sampler.phrase("danger, why", **slots)
        goal = sampler.phrase("danger", **slots)
        done = sampler.choose(("nothing", first, f"{first} in part"))
        return _replan_case(
            sampler,
            failed_plan,
            reason,
            done,
            goal,
            plan,
            (Trial(drone_room(Thing(name, 0.0, CLOSE_CM)), drone_escaped),),
            name,
        )
    if kind == "blocked":
        name = _object_name(sampler)
        reason = sampler.phrase(
            "blocked, why",
            a=sampler.with_article(
                sampler.choose(WORDS.common.obstacles if sampler.training else WORDS.common.obstacles[:3])
            ),
        )
        goal = sampler.phrase("blocked", x=name)
        trials = (Trial(drone_room(Thing(name, 0.0, 400.0)), partial(_went_around, name)),)
        forward = f"mf({sampler.choose((200, 300, 400))});"
        done = sampler.choose(("nothing", forward + " in part"))
        return _replan_case(
            sampler,
            f"{forward}g('{name}');",
            reason,
            done,
            goal,
            f"ml(60);mf(100);mr(60);g('{name}');",
            trials,
            name,
        )
    name = _object_name(sampler)
    reason = sampler.phrase("lost, why", x=name)
    goal = sampler.phrase("lost")
    trials = (Trial(drone_room(Thing(name, 90.0, 250.0, "high")), same_effects),)
    return _replan_case(
        sampler,
        f"?s('{name}')==True{{g('{name}')}}",
        reason,
        f"s('{name}')",
        goal,
        f"mu(50);?s('{name}')==True{{g('{name}')}}",
        trials,
    )


def _random_statement(sampler: Sampler) -> str:
    """A random statement."""
    name = _object_name(sampler)
    statements = (
        drone_steps.move_step(sampler).plan,
        drone_steps.turn_step(sampler).plan,
        f"s('{name}');",
        f"g('{name}');",
        "tp();",
        "d(5);",
    )
    return sampler.choose(statements)


def _went_around(name: str, reference: Scene, world: Scene) -> str:
    if not isinstance(world, DroneWorld) or world.visited != [name]:
        return f"did not reach {name}"
    aside = next(
        (i for i, skill in enumerate(world.done) if skill in ("move_left", "move_right", "move_up")), 99
    )
    ahead = next((i for i, skill in enumerate(world.done) if skill in ("move_forward", "goto")), 99)
    return "" if aside < ahead else "goes straight on"


def _replan_case(
    sampler: Sampler,
    plan: str,
    reason: str,
    done: str,
    goal: str,
    new: str,
    trials: tuple[Trial, ...],
    *names: str,
) -> Case:
    """A case with the history in the task, as in the paper, or in its own field."""
    scene = drone_scene_text(sampler, *names) if sampler.chance(0.5) else ""
    if sampler.chance(0.5):
        task = sampler.phrase("again, in the task", p=plan, r=reason, d=done.rstrip(";"), g=goal)
        return Case(NAME, "re-plan", task, new, trials, scene)
    history = sampler.phrase("again", p=plan, r=reason, d=done)
    return Case(NAME, "re-plan", goal, new, trials, scene, history)


# ---------------------------------------------------------------------- refusals


def drone_unsafe(sampler: Sampler) -> Case:
    """Refuse: the task would hurt a person or break an object."""
    who = sampler.from_table(sampler.choose((WORDS.people, WORDS.people, WORDS.animals)))
    thing = _object_name(sampler)
    someone = sampler.chance(0.7)
    task = sampler.phrase("unsafe, someone" if someone else "unsafe, something", w=who, x=thing)
    scene = drone_scene_text(sampler, *([who] if sampler.chance(0.5) else [])) if sampler.chance(0.5) else ""
    return drone_case(
        sampler,
        "unsafe",
        task,
        UNSAFE,
        (Trial(drone_room(Thing(who), Thing(thing, 30.0)), case_refused),),
        scene=scene,
        refusal=True,
    )


def drone_unclear(sampler: Sampler) -> Case:
    """Refuse: the task is unclear, or a drone cannot do it."""
    if sampler.chance(0.55):
        task = sampler.phrase("unclear")
        return drone_case(
            sampler,
            "unclear",
            task,
            UNCLEAR,
            (Trial(drone_room(), case_refused),),
            scene=drone_scene_text(sampler) if sampler.chance(0.5) else "",
            refusal=True,
            command=False,
        )
    task = sampler.phrase("unable", x=_object_name(sampler))
    return drone_case(
        sampler,
        "unable",
        task,
        UNABLE,
        (Trial(drone_room(), case_refused),),
        scene=drone_scene_text(sampler) if sampler.chance(0.5) else "",
        refusal=True,
    )


MOVE = partial(_single, make=drone_steps.move_step, family="move")
TURN = partial(_single, make=drone_steps.turn_step, family="turn")
PHOTO = partial(_single, make=drone_steps.find_photo_step, family="photo")

FAMILIES: Mapping[Callable[[Sampler], Case], float] = {
    drone_find: 10,
    drone_go_to: 8,
    drone_face: 4,
    drone_question: 9,
    drone_two_things: 6,
    drone_above: 7,
    drone_below: 6,
    drone_tool: 6,
    MOVE: 9,
    TURN: 6,
    PHOTO: 5,
    partial(_single, make=drone_steps.wait_step, family="wait"): 2,
    partial(_single, make=drone_steps.say_step, family="say"): 2,
    drone_loops: 4,
    drone_several: 22,
    drone_when: 6,
    drone_probe: 5,
    drone_evade: 10,
    drone_replan: 18,
    drone_unsafe: 13,
    drone_unclear: 13,
}
"""Weight of each family."""

TRAINING_FACTORS: Mapping[Callable[[Sampler], Case], float] = {
    drone_several: 1.5,
    drone_loops: 2.0,
    MOVE: 1.4,
    TURN: 1.6,
    PHOTO: 1.6,
    drone_when: 1.4,
    drone_two_things: 1.3,
}
"""Factors on the weights of families that an adapter trained without them got wrong most."""
