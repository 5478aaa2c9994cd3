"""The one list of queue disciplines: a name, where its class is, nothing else.

An installed package adds others by entry points of the group ``timely.disciplines``: ``NAME = "module:Class"``.
"""

import logging
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import cast

from timely.core.errors import InvalidInput, TimelyError, UnknownName
from timely.disciplines.base import Discipline, DisciplineInfo
from timely.disciplines.predictors.predictor_file import predictor_kind

DEFAULT = "timely"
PLUGIN_GROUP = "timely.disciplines"

log = logging.getLogger(__name__)

_REGISTRY: dict[str, str] = {
    "timely": "timely.disciplines.timely.discipline:Timely",
    "weighted-tardiness": "timely.disciplines.tardiness.discipline:WeightedTardiness",
    "pud": "timely.disciplines.timelyllm.pud:Pud",
    "edf": "timely.disciplines.basic:Edf",
    "fcfs": "timely.disciplines.basic:Fcfs",
    "priority": "timely.disciplines.basic:Priority",
    "semantic": "timely.disciplines.semantic.discipline:Semantic",
    "semantic-mixed": "timely.disciplines.semantic.discipline:SemanticMixed",
    "sjf": "timely.disciplines.semantic.baselines:Sjf",
    "hpjf": "timely.disciplines.semantic.baselines:Hpjf",
    "laps-sd": "timely.disciplines.laps_sd.discipline:LapsSd",
    "laps-sd-prior": "timely.disciplines.laps_sd.discipline:LapsSdPrior",
    "las": "timely.disciplines.laps_sd.baselines:Las",
    "lp-sjf": "timely.disciplines.laps_sd.baselines:LpSjf",
    "justitia": "timely.disciplines.justitia.discipline:Justitia",
    "justitia-c": "timely.disciplines.justitia.discipline:JustitiaC",
    "parrot": "timely.disciplines.justitia.baselines:Parrot",
    "srjf": "timely.disciplines.justitia.baselines:Srjf",
    "vllm-sjf": "timely.disciplines.justitia.baselines:VllmSjf",
    "vtc": "timely.disciplines.justitia.vtc:Vtc",
    "sagesched": "timely.disciplines.sagesched.discipline:SageSched",
    "sagesched-mean": "timely.disciplines.sagesched.discipline:SageSchedMean",
    "gittins-static": "timely.disciplines.sagesched.discipline:GittinsStatic",
    "sagesched-smooth": "timely.disciplines.sagesched.discipline:SageSchedSmooth",
    "fastserve": "timely.disciplines.sagesched.fastserve:FastServe",
    "ssjf": "timely.disciplines.sagesched.baselines:Ssjf",
    "ltr": "timely.disciplines.sagesched.baselines:Ltr",
    "trail": "timely.disciplines.sagesched.baselines:Trail",
    "vllm-priority": "timely.disciplines.basic:VllmPriority",
    "qoserve": "timely.disciplines.rivals.qoserve:QoServe",
    "jitserve": "timely.disciplines.rivals.jitserve:JitServe",
    "slos-serve": "timely.disciplines.rivals.slos_serve:SlosServe",
    "inferential": "timely.disciplines.rivals.inferential:Inferential",
}

_ABLATION: dict[str, str] = {
    "weighted-tardiness-index": "timely.disciplines.tardiness.ablations:Index",
    "weighted-tardiness-index-protect": "timely.disciplines.tardiness.ablations:Protecting",
    "weighted-tardiness-index-ride": "timely.disciplines.tardiness.ablations:Riding",
    "weighted-tardiness-no-protect": "timely.disciplines.tardiness.ablations:WithoutProtection",
    "weighted-tardiness-no-chunks": "timely.disciplines.tardiness.ablations:WithoutChunks",
    "weighted-tardiness-no-early": "timely.disciplines.tardiness.ablations:WithoutHurry",
    "weighted-tardiness-no-ride": "timely.disciplines.tardiness.ablations:WithoutRiding",
    "timely-mean": "timely.disciplines.timely.ablations:WithoutDistributions",
    "timely-no-drafts": "timely.disciplines.timely.ablations:WithoutDrafts",
    "timely-no-apps": "timely.disciplines.timely.ablations:WithoutApplications",
    "timely-no-levels": "timely.disciplines.timely.ablations:WithoutLevels",
    "timely-no-residence": "timely.disciplines.timely.ablations:WithoutResidence",
    "timely-no-price": "timely.disciplines.timely.ablations:WithoutPrice",
    "timely-slots": "timely.disciplines.timely.ablations:SlotsOnly",
    "timely-cache": "timely.disciplines.timely.ablations:CacheOnly",
}
"""Parts of `timely` and of `weighted-tardiness`, for benchmarks: they can be loaded by name and are not listed."""


def discipline_names() -> list[str]:
    """The disciplines of this package and those of plugins."""
    return sorted([*_REGISTRY, *_discipline_plugins()])


def load_discipline(name: str) -> type[Discipline]:
    """The class of that name. ``NAME=FILE`` also checks the predictor file, so that a wrong one is an error at start.

    Raises:
        UnknownName: not registered; the message lists those that are.
        InvalidInput: the discipline takes no predictor file, or this is not one; or a plugin has no such discipline.
    """
    plain, file = _split_discipline_name(name)
    path = _REGISTRY.get(plain) or _ABLATION.get(plain)
    if path is not None:
        module, _, attribute = path.partition(":")
        discipline = cast(type[Discipline], getattr(import_module(module), attribute))
    else:
        discipline = _load_discipline_plugin(plain)
    if file is not None:
        discipline.with_predictor(file)
    return discipline


def create_discipline(name: str, files: Sequence[Path] = ()) -> Discipline:
    """A fresh discipline of that name; ``NAME=FILE`` gives it a predictor from a file.

    Args:
        files: predictor files of any kind: without a ``FILE`` of its own it takes the one that is for it, if any.

    Raises:
        UnknownName: not registered.
        InvalidInput: the discipline takes no predictor file, or this is not one; or a plugin cannot be made.
    """
    plain, file = _split_discipline_name(name)
    discipline = load_discipline(plain)
    if file is None and discipline.predictor_kind:
        file = next((path for path in files if predictor_kind(path) == discipline.predictor_kind), None)
    try:
        return discipline() if file is None else discipline.with_predictor(file)
    except TimelyError:
        raise
    except Exception as error:
        if (entry := _discipline_plugins().get(plain)) is None:
            raise
        raise InvalidInput(
            f"cannot make {entry.value!r}: {error}", where=_discipline_plugin_origin(entry)
        ) from error


@cache
def _discipline_plugins() -> dict[str, EntryPoint]:
    """The disciplines of other installed packages, read once in a process: 280 packages take 30 ms.

    Raises:
        InvalidInput: two disciplines have one name.
    """
    plugins: dict[str, EntryPoint] = {}
    for entry in entry_points(group=PLUGIN_GROUP):
        if entry.name in _REGISTRY or entry.name in _ABLATION or entry.name in plugins:
            raise InvalidInput(
                "there is another discipline of that name", where=_discipline_plugin_origin(entry)
            )
        plugins[entry.name] = entry
    return plugins


def _load_discipline_plugin(name: str) -> type[Discipline]:
    entry = _discipline_plugins().get(name)
    if entry is None:
        raise UnknownName("discipline", name, discipline_names(), where="discipline")
    try:
        discipline = entry.load()
    except Exception as error:
        raise InvalidInput(
            f"cannot load {entry.value!r}: {error}", where=_discipline_plugin_origin(entry)
        ) from error
    if not (isinstance(discipline, type) and issubclass(discipline, Discipline)):
        raise InvalidInput(f"{entry.value!r} is no Discipline", where=_discipline_plugin_origin(entry))
    if getattr(discipline, "info", None) is None or discipline.info.name != name:
        raise InvalidInput(
            f"{entry.value!r} needs a DisciplineInfo with the same name",
            where=_discipline_plugin_origin(entry),
        )
    return discipline


def _discipline_plugin_origin(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist is not None else "a plugin"
    return f"discipline {entry.name!r} of {package}"


def _split_discipline_name(name: str) -> tuple[str, Path | None]:
    plain, equals, file = name.partition("=")
    return plain, Path(file) if equals else None


def discipline_ablation_names() -> list[str]:
    """Names of the parts of our disciplines that benchmarks compare."""
    return list(_ABLATION)


def discipline_infos() -> list[DisciplineInfo]:
    """Of all disciplines, the default first. A plugin that cannot be loaded is left out, with a warning."""
    infos = []
    for name in sorted(discipline_names(), key=lambda n: (n != DEFAULT, n)):
        try:
            infos.append(load_discipline(name).info)
        except InvalidInput as error:
            if name in _REGISTRY:
                raise
            log.warning("%s", error)
    return infos
