"""Generates tasks for the skill set ``drone``, each with a plan and the rooms that judge any plan."""

import re
from collections.abc import Callable
from functools import partial

from timely.planner.cases import drone_steps
from timely.planner.cases.case import (
    CaseTrial,
    Judge,
    PlannerCase,
    case_refused,
    same_case_effects,
    same_case_words,
)
from timely.planner.cases.draft import CaseFamily, Draft, draw_case
from timely.planner.cases.drone_replans import draft_case_evasion, draft_case_replan
from timely.planner.cases.drone_rooms import (
    draw_drone_case_object,
    drone_case_phrase,
    drone_case_scene,
    drone_case_trials,
)
from timely.planner.cases.drone_steps import CaseStep, case_find_plan, case_thing_somewhere
from timely.planner.cases.sampler import CaseSampler
from timely.planner.cases.vocabulary import WORDS
from timely.plans.simulated_worlds import Thing

NAME = "drone"
YES_NO = "{l('Yes');->True}l('No');"
UNSAFE = "l('Sorry, that is not safe');"
UNCLEAR = "l('Sorry, I do not understand');"
UNABLE = "l('Sorry, I cannot do that');"
MAX_QUESTION_WORDS = 6
"""Words that the grammar allows in a text."""


def draw_drone_case(sampler: CaseSampler) -> PlannerCase:
    """A task of a random family, weighted by ``FAMILIES``. Training draws hard ones more often."""
    return draw_case(sampler, NAME, FAMILIES, harder=sampler.training)


def _two_case_names(sampler: CaseSampler) -> tuple[str, str]:
    first = second = draw_drone_case_object(sampler)
    while first in second or second in first:
        second = draw_drone_case_object(sampler)
    return first, second


def _case_trials_at_three_places(thing: Thing, judge: Judge = same_case_effects) -> tuple[CaseTrial, ...]:
    """Three rooms: the thing straight ahead, at its own place, and absent."""
    return drone_case_trials((Thing(thing.name, 0.0, thing.distance_cm),), (thing,), (), judge=judge)


def _draft_case_one_step(sampler: CaseSampler, make: Callable[[CaseSampler], CaseStep]) -> Draft:
    step = make(sampler)
    trials = drone_case_trials(step.things, *([()] if step.conditional else []))
    names = tuple(thing.name for thing in step.things)
    return Draft(step.words, step.plan, trials, drone_case_scene(sampler, sampler.chance(0.5), without=names))


def draft_case_find(sampler: CaseSampler) -> Draft:
    """Find an object and go there. Often it is out of view."""
    name = draw_drone_case_object(sampler)
    task = drone_case_phrase(sampler, "find", name)
    often = 0.45 if sampler.training else 0.3
    scene = drone_case_scene(sampler, not sampler.chance(0.3), name, often=often, without=(name,))
    return Draft(
        task, case_find_plan(name), _case_trials_at_three_places(case_thing_somewhere(sampler, name)), scene
    )


def draft_case_go_to(sampler: CaseSampler) -> Draft:
    """Go to an object: at once if it is in the scene, otherwise look for it first."""
    name = draw_drone_case_object(sampler)
    in_scene = sampler.chance(0.6)
    task = sampler.phrase("go to", x=name)
    if in_scene:
        trials = drone_case_trials((Thing(name, 15.0, 300.0),))
        return Draft(task, f"g('{name}');", trials, drone_case_scene(sampler, True, name))
    scene = drone_case_scene(sampler, sampler.chance(0.6), without=(name,))
    return Draft(
        task, case_find_plan(name), _case_trials_at_three_places(case_thing_somewhere(sampler, name)), scene
    )


def draft_case_face(sampler: CaseSampler) -> Draft:
    """Turn to an object in view, or come closer to it."""
    name = draw_drone_case_object(sampler)
    trials = drone_case_trials((Thing(name, sampler.choose((-30.0, 20.0, 35.0)), 300.0),))
    wording, approach = ("face", "") if sampler.chance(0.6) else ("closer", "a();")
    task = sampler.phrase(wording, x=name)
    return Draft(task, f"o('{name}');{approach}", trials, drone_case_scene(sampler, True, name))


def draft_case_question(sampler: CaseSampler) -> Draft:
    """Answer whether an object is in the room, or in view."""
    name = draw_drone_case_object(sampler)
    if sampler.chance(0.5):
        task = drone_case_phrase(sampler, "in the room?", name)
        scene = drone_case_scene(sampler, sampler.chance(0.6), without=(name,))
        trials = _case_trials_at_three_places(case_thing_somewhere(sampler, name), same_case_words)
        return Draft(task, f"?s('{name}')==True{YES_NO}", trials, scene, command=False)
    task = drone_case_phrase(sampler, "in view?", name)
    scene = drone_case_scene(sampler, not sampler.chance(0.4), name, often=0.5, without=(name,))
    trials = drone_case_trials((Thing(name),), (), judge=same_case_words)
    return Draft(task, f"?iv('{name}')==True{YES_NO}", trials, scene, command=False)


def draft_case_two_things(sampler: CaseSampler) -> Draft:
    """Answer whether both objects, or either, are in view."""
    first, second = _two_case_names(sampler)
    wording, operator = ("both?", "&") if sampler.chance(0.5) else ("either?", "|")
    articles = {"a": sampler.with_article(first), "b": sampler.with_article(second)}
    task = sampler.phrase(wording, x=first, y=second, **articles)
    one, other = Thing(first, -10.0), Thing(second, 10.0)
    trials = drone_case_trials((one, other), (one,), (other,), (), judge=same_case_words)
    names = (first, second)
    scene = drone_case_scene(sampler, not sampler.chance(0.4), *names, often=0.5, without=names)
    plan = f"?iv('{first}'){operator}iv('{second}'){YES_NO}"
    return Draft(task, plan, trials, scene, command=False)


def _draft_case_beside_furniture(
    sampler: CaseSampler, task: str, plan: str, thing: Thing, furniture: str, *, command: bool
) -> Draft:
    """A draft that looks for a thing on or under furniture; a plan that answers is judged by its answer."""
    judge = same_case_words if plan.endswith(YES_NO) else same_case_effects
    scene = drone_case_scene(sampler, not sampler.chance(0.4), furniture, without=(thing.name,))
    return Draft(task, plan, drone_case_trials((thing,), (), judge=judge), scene, command=command)


def draft_case_above(sampler: CaseSampler) -> Draft:
    """Look on top of furniture: go up first."""
    name, surface = draw_drone_case_object(sampler), sampler.from_table(WORDS.surfaces)
    article = sampler.with_article(name)
    wording, statement = sampler.choose(
        (
            ("above, photo", f"?iv('{name}')==True{{tp()}}"),
            ("above?", f"?iv('{name}')==True{YES_NO}"),
            ("above?", f"?iv('{name}')==True{YES_NO}"),
            ("above, go", case_find_plan(name)),
            ("above, check", f"?iv('{name}')==True{{tp()}}"),
        )
    )
    task = sampler.phrase(wording, x=name, a=article, f=surface)
    command = wording in ("above, photo", "above, go")
    thing = Thing(name, 10.0, 200.0, "high")
    return _draft_case_beside_furniture(sampler, task, f"mu(40);{statement}", thing, surface, command=command)


def draft_case_below(sampler: CaseSampler) -> Draft:
    """Look under furniture: go down first."""
    name, cover = draw_drone_case_object(sampler), sampler.from_table(WORDS.unders)
    low = Thing(name, sampler.choose((-10.0, 0.0, 15.0)), 200.0, "low")
    article = sampler.with_article(name)
    go = sampler.chance(0.65)
    task = sampler.phrase("below" if go else "below?", x=name, a=article, f=cover)
    statement = case_find_plan(name) if go else f"?iv('{name}')==True{YES_NO}"
    return _draft_case_beside_furniture(sampler, task, f"md(40);{statement}", low, cover, command=False)


def draft_case_tool(sampler: CaseSampler) -> Draft:
    """Find an object for a purpose. Only the camera can tell which object fits."""
    purpose, name = sampler.from_table(WORDS.needs)
    task = sampler.phrase("tool", p=purpose)
    thing = Thing(name, sampler.choose((-60.0, 0.0, 90.0, 170.0)), 250.0, "eye", (purpose,))
    scene = drone_case_scene(sampler, sampler.chance(0.6), without=(name,))
    return Draft(task, f"_1=sa('{purpose}');?_1!=False{{g(_1)}}", drone_case_trials((thing,), ()), scene)


def draft_case_loops(sampler: CaseSampler) -> Draft:
    """Repeat steps, fly far in parts, or fly a shape."""
    times = sampler.choose((2, 3, 4, 5) if sampler.split == "train" else (3, 4, 6))
    count = sampler.choose((str(times), drone_steps.NUMBERS[times]))
    kind = sampler.choose(("photos", "far", "square", "repeat", "turns"))
    if kind == "photos":
        gap = sampler.choose((1, 2, 3, 5))
        task, plan = sampler.phrase("photos", n=count, g=gap), f"{times}{{tp();d({gap})}}"
    elif kind == "far":
        total, pieces = sampler.choose(((600, 2), (800, 2), (1000, 2), (1200, 3), (1500, 3), (2000, 4)))
        way = sampler.choose(("forward", "back", "left", "right"))
        task = sampler.phrase("far", w=way, m=total // 100)
        plan = f"{pieces}{{{drone_steps.MOVES[way]}({total // pieces})}}"
    elif kind == "square":
        size = sampler.choose((50, 100, 150, 200))
        words = f"{size} cm" if size == 50 else f"{size / 100:g} metre{'s' if size > 100 else ''}"
        task, plan = sampler.phrase("square", w=words), f"4{{mf({size});tc(90)}}"
    elif kind == "repeat":
        size = sampler.choose((30, 50, 80, 100))
        task, plan = sampler.phrase("bob", n=count, s=size), f"{times}{{mu({size});md({size})}}"
    else:
        pictures = sampler.choose((4, 6, 8, 3))
        task = sampler.phrase("directions", n=pictures)
        plan = f"{pictures}{{tp();tc({360 // pictures})}}"
    return Draft(task, plan, drone_case_trials(()), drone_case_scene(sampler, sampler.chance(0.4)))


def draft_case_several(sampler: CaseSampler) -> Draft:
    step_count = sampler.choose((2, 3, 3) if sampler.training else (2, 2, 3, 3))
    steps: list[CaseStep] = []
    while len(steps) < step_count:
        step = drone_steps.any_drone_case_step(sampler)
        names = {other.kind.split()[-1] for other in steps if other.things}
        if steps and (step.kind == steps[-1].kind or step.kind.split()[-1] in names):
            continue
        if step.conditional and sum(other.conditional for other in steps) >= (2 if step_count == 2 else 1):
            continue
        steps.append(step)
    parts = [step.words for step in steps]
    wording = sampler.phrase("two steps" if step_count == 2 else "three steps", *parts)
    task = re.sub(r"(?<=\. )[a-z]", lambda match: match.group().upper(), wording)
    if sampler.chance(0.25):
        task = ". ".join(f"{words[0].upper()}{words[1:]}" for words in parts)
    things = tuple(thing for step in steps for thing in step.things)
    trials = drone_case_trials(things, *([()] if things else []))
    scene = drone_case_scene(sampler, sampler.chance(0.4), without=tuple(thing.name for thing in things))
    return Draft(task, "".join(step.plan for step in steps), trials, scene)


def draft_case_when(sampler: CaseSampler) -> Draft:
    """Do a step on a condition."""
    name = draw_drone_case_object(sampler)
    near = (Thing(name, 0.0, 60.0),)
    kind = sampler.choose(("seen", "seen", "else", "near"))
    if kind == "near":
        cm = sampler.choose((100, 150, 200) if sampler.split == "train" else (120, 150))
        words = sampler.choose((f"{cm} cm", f"{cm / 100:g} m", f"{cm / 100:g} metres"))
        task = sampler.phrase("near", x=name, d=words)
        trials = drone_case_trials(near, (Thing(name, 0.0, 300.0),))
        scene = drone_case_scene(sampler, True, name)
        return Draft(task, f"?od('{name}')<{cm}{{mb(50)}}", trials, scene, command=False)
    say, turn, move = drone_steps.say_case_step, drone_steps.turn_case_step, drone_steps.move_case_step
    then = sampler.choose((drone_steps.photo_case_step, say, turn, move, drone_steps.wait_case_step))(sampler)
    if kind == "seen":
        task = drone_case_phrase(sampler, "if", name, s=then.words)
        plan = f"?iv('{name}')==True{{{then.plan.rstrip(';')}}}"
    else:
        other = sampler.choose((say, turn, move))(sampler)
        task = drone_case_phrase(sampler, "if else", name, s=then.words, o=other.words)
        plan = f"?iv('{name}')==True{{{then.plan}->True}}{other.plan}"
    scene = drone_case_scene(sampler, sampler.chance(0.4), name, often=0.3, without=(name,))
    return Draft(task, plan, drone_case_trials(near, ()), scene, command=False)


def draft_case_probe(sampler: CaseSampler) -> Draft:
    """Ask the camera a question about an object in view."""
    pattern, answer = sampler.from_table(WORDS.questions)
    text = ""
    while not text or len(text.split()) > MAX_QUESTION_WORDS:
        name = draw_drone_case_object(sampler)
        text = pattern.format(x=name)
    words = tuple(text.lower().replace("?", "").split())
    task = f"{text[0].upper()}{text[1:]}?"
    if sampler.chance(0.3):
        task = sampler.phrase("probe", q=text)
    trials = drone_case_trials((Thing(name),), judge=same_case_words, facts=((words[-3:], answer),))
    scene = drone_case_scene(sampler, sampler.chance(0.7), name)
    return Draft(task, f"_1=p('{text}');l(_1);", trials, scene, command=False)


def draft_case_unsafe(sampler: CaseSampler) -> Draft:
    """Refuse: the task would hurt a person or break an object."""
    who = sampler.from_table(sampler.choose((WORDS.people, WORDS.people, WORDS.animals)))
    thing = draw_drone_case_object(sampler)
    wording = "unsafe, someone" if sampler.chance(0.7) else "unsafe, something"
    task = sampler.phrase(wording, w=who, x=thing)
    scene = drone_case_scene(sampler, sampler.chance(0.5), who, often=0.5)
    trials = drone_case_trials((Thing(who), Thing(thing, 30.0)), judge=case_refused)
    return Draft(task, UNSAFE, trials, scene, refusal=True)


def draft_case_unclear(sampler: CaseSampler) -> Draft:
    """Refuse: the task is unclear, or a drone cannot do it."""
    unclear = sampler.chance(0.55)
    task = (
        sampler.phrase("unclear") if unclear else sampler.phrase("unable", x=draw_drone_case_object(sampler))
    )
    plan, family = (UNCLEAR, "") if unclear else (UNABLE, "unable")
    trials = drone_case_trials((), judge=case_refused)
    scene = drone_case_scene(sampler, sampler.chance(0.5))
    return Draft(task, plan, trials, scene, command=not unclear, refusal=True, family=family)


FAMILIES = (
    CaseFamily("find", draft_case_find, 10),
    CaseFamily("go to", draft_case_go_to, 8),
    CaseFamily("face", draft_case_face, 4),
    CaseFamily("question", draft_case_question, 9),
    CaseFamily("two things", draft_case_two_things, 6, 1.3),
    CaseFamily("above", draft_case_above, 7),
    CaseFamily("below", draft_case_below, 6),
    CaseFamily("tool", draft_case_tool, 6),
    CaseFamily("move", partial(_draft_case_one_step, make=drone_steps.move_case_step), 9, 1.4),
    CaseFamily("turn", partial(_draft_case_one_step, make=drone_steps.turn_case_step), 6, 1.6),
    CaseFamily("photo", partial(_draft_case_one_step, make=drone_steps.find_photo_case_step), 5, 1.6),
    CaseFamily("wait", partial(_draft_case_one_step, make=drone_steps.wait_case_step), 2),
    CaseFamily("say", partial(_draft_case_one_step, make=drone_steps.say_case_step), 2),
    CaseFamily("loops", draft_case_loops, 4, 2.0),
    CaseFamily("several", draft_case_several, 22, 1.5),
    CaseFamily("when", draft_case_when, 6, 1.4),
    CaseFamily("probe", draft_case_probe, 5),
    CaseFamily("evade", draft_case_evasion, 10),
    CaseFamily("re-plan", draft_case_replan, 18),
    CaseFamily("unsafe", draft_case_unsafe, 13),
    CaseFamily("unclear", draft_case_unclear, 13),
)
"""The factors are on families that an adapter trained without them got wrong most."""
