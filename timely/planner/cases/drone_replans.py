"""Drafts drone tasks around a danger, and the next plan after one that failed."""

import math
from functools import partial

from timely.planner.cases import drone_steps
from timely.planner.cases.case import CaseTrial, Scene
from timely.planner.cases.draft import Draft
from timely.planner.cases.drone_rooms import (
    draw_drone_case_object,
    drone_case_phrase,
    drone_case_scene,
    drone_case_trials,
)
from timely.planner.cases.drone_steps import case_find_plan
from timely.planner.cases.sampler import CaseSampler
from timely.planner.cases.vocabulary import WORDS
from timely.plans.simulated_worlds import SimulatedDroneWorld, Thing

CLOSE_CM = 150.0
CLEARED_CM = 10.0
ESCAPES = (
    *[("", "", 0.0)] * 3,
    ("from the left", "mr(100);", -90.0),
    ("from the right", "ml(100);", 90.0),
    ("from behind", "mf(100);", 180.0),
)
"""Direction of a threat, the plan that avoids it, and its bearing. Without a direction it comes from ahead."""


def drone_case_escaped(reference: Scene, world: Scene) -> str:
    """The drone ends farther from the threat and never came nearer to it."""
    if not isinstance(world, SimulatedDroneWorld):
        return "no drone"
    threat = world.things[0]
    start = threat.distance_cm
    nearest = world.nearest_cm.get(threat.name, start)
    end = math.dist((*world.place_of(threat), 0.0), (world.x, world.y, world.z))
    if world.visits:
        return f"went to {world.visits}"
    if nearest < start - CLEARED_CM:
        return f"came nearer: {nearest:.0f} cm"
    return "" if end >= start + CLEARED_CM else f"only {end:.0f} cm away, {start:.0f} cm before"


def drone_case_went_around(name: str, reference: Scene, world: Scene) -> str:
    """The drone reaches the thing, and goes aside before it goes ahead."""
    if not isinstance(world, SimulatedDroneWorld) or world.visits != [name]:
        return f"did not reach {name}"
    aside = next(
        (i for i, skill in enumerate(world.skills) if skill in ("move_left", "move_right", "move_up")), 99
    )
    ahead = next((i for i, skill in enumerate(world.skills) if skill in ("move_forward", "goto")), 99)
    return "" if aside < ahead else "goes straight on"


def _draw_case_threat(sampler: CaseSampler) -> tuple[str, str, str]:
    """What approaches, the plan if it approaches from ahead, and a more general name for it."""
    kind = sampler.choose(("people", "animals", "movers"))
    if kind == "people":
        return sampler.from_table(WORDS.people), "mb(100);d(3);", "person"
    if kind == "animals":
        return sampler.from_table(WORDS.animals), "mu(100);", "animal"
    mover = sampler.from_table(WORDS.movers)
    return mover, "mr(80);mu(50);", mover


def draft_case_evasion(sampler: CaseSampler) -> Draft:
    """Avoid something that approaches."""
    name, plan, _ = _draw_case_threat(sampler)
    way, aside, bearing_deg = sampler.choose(ESCAPES)
    task = drone_case_phrase(sampler, "comes from" if way else "comes", name, w=way)
    trials = drone_case_trials((Thing(name, bearing_deg, CLOSE_CM),), judge=drone_case_escaped)
    return Draft(
        task, aside or plan, trials, drone_case_scene(sampler, sampler.chance(0.5), name), command=False
    )


def draft_case_replan(sampler: CaseSampler) -> Draft:
    """The last plan failed: make the next one from what was done."""
    second = (drone_steps.turn_case_step, drone_steps.photo_case_step, drone_steps.wait_case_step)
    before = [drone_steps.move_case_step(sampler), sampler.choose(second)(sampler)]
    kind = sampler.choose(("rest",) * 2 + ("danger",) * 5 + ("blocked",) * 2 + ("lost",))
    if kind == "rest":
        return _draft_case_rest(sampler, before)
    if kind == "danger":
        return _draft_case_danger(sampler, "".join(step.plan for step in before))
    name = draw_drone_case_object(sampler)
    if kind == "blocked":
        obstacles = WORDS.common.obstacles if sampler.training else WORDS.common.obstacles[:3]
        reason = sampler.phrase("blocked, why", a=sampler.with_article(sampler.choose(obstacles)))
        goal = sampler.phrase("blocked", x=name)
        forward = f"mf({sampler.choose((200, 300, 400))});"
        executed_text = sampler.choose(("nothing", forward + " in part"))
        trials = drone_case_trials((Thing(name, 0.0, 400.0),), judge=partial(drone_case_went_around, name))
        new = f"ml(60);mf(100);mr(60);g('{name}');"
        return _draft_case_with_history(
            sampler, f"{forward}g('{name}');", reason, executed_text, goal, new, trials, name
        )
    reason = sampler.phrase("lost, why", x=name)
    goal = sampler.phrase("lost")
    trials = drone_case_trials((Thing(name, 90.0, 250.0, "high"),))
    return _draft_case_with_history(
        sampler, case_find_plan(name), reason, f"s('{name}')", goal, f"mu(50);{case_find_plan(name)}", trials
    )


def _draft_case_rest(sampler: CaseSampler, before: list[drone_steps.CaseStep]) -> Draft:
    extra = drone_steps.move_case_step(sampler)
    more = [extra] if extra.kind != before[0].kind and sampler.chance(0.6) else []
    parts = [step.plan for step in (*before, *more)]
    cut = sampler.rng.randrange(1, len(parts))
    reason = sampler.phrase("rest, why")
    goal = sampler.phrase("rest")
    executed_text, rest = "".join(parts[:cut]), "".join(parts[cut:])
    return _draft_case_with_history(
        sampler, "".join(parts), reason, executed_text, goal, rest, drone_case_trials(())
    )


def _draft_case_danger(sampler: CaseSampler, failed_plan: str) -> Draft:
    name, plan, kind = _draw_case_threat(sampler)
    plan = "mu(100);mb(100);" if plan == "mu(100);" else plan
    slots = {"a": sampler.with_article(name), "x": name, "k": kind}
    if sampler.training and sampler.chance(0.6):
        failed_plan = "".join(_random_case_statement(sampler) for _ in range(sampler.choose((1, 2, 2, 3))))
    first = failed_plan.partition(";")[0] + ";"
    reason = sampler.phrase("danger, why", **slots)
    goal = sampler.phrase("danger", **slots)
    executed_text = sampler.choose(("nothing", first, f"{first} in part"))
    trials = drone_case_trials((Thing(name, 0.0, CLOSE_CM),), judge=drone_case_escaped)
    return _draft_case_with_history(sampler, failed_plan, reason, executed_text, goal, plan, trials, name)


def _random_case_statement(sampler: CaseSampler) -> str:
    name = draw_drone_case_object(sampler)
    moves = (drone_steps.move_case_step(sampler).plan, drone_steps.turn_case_step(sampler).plan)
    return sampler.choose((*moves, f"s('{name}');", f"g('{name}');", "tp();", "d(5);"))


def _draft_case_with_history(
    sampler: CaseSampler,
    plan: str,
    reason: str,
    executed_text: str,
    goal: str,
    new: str,
    trials: tuple[CaseTrial, ...],
    *names: str,
) -> Draft:
    """A draft with the history in the task, as in the paper, or in its own field."""
    scene = drone_case_scene(sampler, sampler.chance(0.5), *names)
    if sampler.chance(0.5):
        task = sampler.phrase("again, in the task", p=plan, r=reason, d=executed_text.rstrip(";"), g=goal)
        return Draft(task, new, trials, scene, as_written=True)
    history = sampler.phrase("again", p=plan, r=reason, d=executed_text)
    return Draft(goal, new, trials, scene, history, as_written=True)
