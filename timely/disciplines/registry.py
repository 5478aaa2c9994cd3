"""The one list of queue disciplines: a name, where its class is, nothing else."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import cast

from timely.core.errors import UnknownName
from timely.disciplines.base import Discipline, DisciplineInfo
from timely.disciplines.predictors.predictor_file import predictor_kind

DEFAULT = "timely"

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
    return sorted(_REGISTRY)


def load_discipline(name: str) -> type[Discipline]:
    """The class of that name. ``NAME=FILE`` also checks the predictor file, so that a wrong one is an error at start.

    Raises:
        UnknownName: not registered; the message lists those that are.
        InvalidInput: the discipline takes no predictor file, or this is not one.
    """
    plain, file = _split(name)
    try:
        module, _, attribute = (_ABLATION.get(plain) or _REGISTRY[plain]).partition(":")
    except KeyError:
        raise UnknownName("discipline", plain, _REGISTRY, where="discipline") from None
    discipline = cast(type[Discipline], getattr(import_module(module), attribute))
    if file is not None:
        discipline.with_predictor(file)
    return discipline


def create_discipline(name: str, files: Sequence[Path] = ()) -> Discipline:
    """A fresh discipline of that name; ``NAME=FILE`` gives it a predictor from a file.

    Args:
        files: predictor files of any kind: without a ``FILE`` of its own it takes the one that is for it, if any.

    Raises:
        UnknownName: not registered.
        InvalidInput: the discipline takes no predictor file, or this is not one.
    """
    plain, file = _split(name)
    discipline = load_discipline(plain)
    if file is None and discipline.predictor_kind:
        file = next((path for path in files if predictor_kind(path) == discipline.predictor_kind), None)
    return discipline() if file is None else discipline.with_predictor(file)


def _split(name: str) -> tuple[str, Path | None]:
    plain, equals, file = name.partition("=")
    return plain, Path(file) if equals else None


def discipline_ablation_names() -> list[str]:
    """Names of the parts of our disciplines that benchmarks compare."""
    return list(_ABLATION)


def discipline_infos() -> list[DisciplineInfo]:
    return [load_discipline(name).info for name in sorted(_REGISTRY, key=lambda n: (n != DEFAULT, n))]
