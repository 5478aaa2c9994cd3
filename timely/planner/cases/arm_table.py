"""Objects, places and tables that arm tasks are made of."""

from collections.abc import Iterable, Sequence

from timely.planner.cases.sampler import CaseSampler
from timely.planner.cases.vocabulary import WORDS

FLAT = ("tray", "plate", "platter", "shelf", "mat", "saucer", "table", "rack")
"""Places on which objects lie."""


def are_arm_case_names_alike(name: str, others: Iterable[str]) -> bool:
    return any(name in other or other in name for other in others)


def are_arm_case_names_ambiguous(names: Sequence[str], others: Sequence[str] = ()) -> bool:
    """A name comes twice, is one of ``others``, or is part of another one."""
    all_names = (*names, *others)
    return (
        len(set(names)) < len(names)
        or any(a != b and a in b for a in names for b in all_names)
        or bool(set(names) & set(others))
    )


def draw_arm_case_table(
    sampler: CaseSampler, *names: str, without: Sequence[str] = (), least: int = 0
) -> list[str]:
    """These objects among others, in random order."""
    other_names = {*names, *without}
    others = [
        name for name in draw_arm_case_objects(sampler, 6) if not are_arm_case_names_alike(name, other_names)
    ]
    others = others[: max(least, sampler.choose((0, 1, 2, 3, 4)))]
    if sampler.training and other_names and sampler.chance(0.3):
        others += _draw_similar_arm_object(sampler, sorted(other_names))
    table = [*names, *others]
    sampler.rng.shuffle(table)
    return table


def _draw_similar_arm_object(sampler: CaseSampler, names: Sequence[str]) -> list[str]:
    """An object that resembles one of these: of the same kind or of the same colour."""
    adjective, _, noun = sampler.choose(names).rpartition(" ")
    if adjective and sampler.chance(0.5):
        noun = sampler.from_table(WORDS.arm_objects).split()[-1]
    else:
        adjective = sampler.from_table(WORDS.adjectives)
    similar = f"{adjective} {noun}"
    return [] if are_arm_case_names_alike(similar, names) else [similar]


def draw_arm_case_objects(sampler: CaseSampler, count: int) -> list[str]:
    """So many objects, none of which resembles another."""
    objects: list[str] = []
    while len(objects) < count:
        name = sampler.object_name(WORDS.arm_objects)
        if not are_arm_case_names_alike(name, objects):
            objects.append(name)
    return objects


def arm_case_group_members(sampler: CaseSampler, kind: str, count: int) -> list[str]:
    return sampler.sample(WORDS.groups[kind].of(sampler.split), count)


def qualified_arm_case_names(sampler: CaseSampler, names: Iterable[str]) -> list[str]:
    """The names, some of them with a qualifier where names are coined."""
    return [sampler.qualify(name) if sampler.coins() else name for name in names]


def draw_arm_case_place(sampler: CaseSampler, *names: str) -> str:
    """A place that resembles none of these names."""
    while True:
        place = sampler.from_table(WORDS.arm_places)
        if sampler.coins():
            place = sampler.qualify(place.split()[-1])
        if not are_arm_case_names_alike(place, names):
            return place


def arm_case_place_phrase(place: str, sampler: CaseSampler) -> str:
    if any(word in place for word in FLAT):
        return f"{sampler.choose(('on', 'on', 'onto')) if sampler.training else 'on'} the {place}"
    return f"{sampler.choose(('in', 'into'))} the {place}"
