"""Rooms, scenes and names that drone tasks are made of."""

from functools import partial

from timely.planner.cases.case import CaseTrial, Judge, same_case_effects
from timely.planner.cases.sampler import CaseSampler
from timely.planner.cases.vocabulary import WORDS
from timely.plans.simulated_worlds import SimulatedDroneWorld, Thing


def draw_drone_case_object(sampler: CaseSampler) -> str:
    return sampler.object_name(WORDS.drone_objects)


def drone_case_phrase(sampler: CaseSampler, kind: str, name: str, **slots: object) -> str:
    """A wording about one object, whose slots are ``x`` and, with an article, ``a``."""
    return sampler.phrase(kind, x=name, a=sampler.with_article(name), **slots)


def drone_case_trials(
    *rooms: tuple[Thing, ...],
    judge: Judge = same_case_effects,
    facts: tuple[tuple[tuple[str, ...], str], ...] = (),
) -> tuple[CaseTrial, ...]:
    """A trial in a room with each of these groups of things."""
    return tuple(CaseTrial(partial(SimulatedDroneWorld, things, facts), judge) for things in rooms)


def drone_case_scene(
    sampler: CaseSampler, with_scene: bool, *names: str, often: float = 1.0, without: tuple[str, ...] = ()
) -> str:
    """A scene in words, or "" if none is shown: these things, usually among others.

    Args:
        often: chance that each of the names is in it.
        without: names that no other thing may resemble.
    """
    if not with_scene:
        return ""
    entries = [name for name in names if often >= 1.0 or sampler.chance(often)]
    others = [draw_drone_case_object(sampler) for _ in range(sampler.choose((0, 1, 2, 3, 4)))]
    if sampler.chance(0.5):
        others += sampler.sample(WORDS.common.furniture, sampler.choose((1, 2)))
    scene_names = {*entries, *without}
    entries += [n for n in dict.fromkeys(others) if not any(n in t or t in n for t in scene_names)]
    entries = [sampler.with_position(name) for name in entries]
    sampler.rng.shuffle(entries)
    return ", ".join(entries)
