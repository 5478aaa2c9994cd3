"""What disciplines need from the engine and from requests, and the errors that say so at start and at admission."""

from collections.abc import Collection

from timely.core.errors import InvalidInput, Unsupported
from timely.core.job import JobSpec
from timely.disciplines.base import DisciplineInfo

LEVELS = 5
"""Urgency levels 0 (most) to 4, as the Emergency Severity Index has five."""

SPECULATION = "speculation"
"""Draft tokens and their acceptance, seen by the scheduler."""

URGENCY, EXPECTED_TOKENS = "urgency", "expected_tokens"
"""Fields of a request that a discipline may need and a server can fill in from the text, if it has a predictor."""

_REMEDIES = {
    SPECULATION: (
        "start the engine with speculative decoding (vLLM: --speculative-config), or in the simulator replay a trace"
        " whose jobs give their acceptance with --draft-tokens"
    ),
}
"""Needs without which a discipline is pointless. Any other that a discipline names has a fallback."""


def discipline_lacks(info: DisciplineInfo, available: Collection[str]) -> list[str]:
    """What a discipline is pointless without and this engine cannot give."""
    return [need for need in info.needs if need in _REMEDIES and need not in available]


def check_queue_discipline_needs(info: DisciplineInfo, available: Collection[str]) -> None:
    """Called at start and when the discipline is switched.

    Args:
        available: what this engine can give, such as ``speculation``.

    Raises:
        Unsupported: the discipline is pointless without something that is not there; says what to do about it.
    """
    for need in discipline_lacks(info, available):
        raise Unsupported(f"{info.name!r} needs {need}: {_REMEDIES[need]}", where="discipline")


def discipline_reads(info: DisciplineInfo) -> frozenset[str]:
    """Fields that can be predicted at admission and that the discipline's needs name."""
    return frozenset(
        field for field in (URGENCY, EXPECTED_TOKENS) if any(field in need for need in info.needs)
    )


def check_discipline_urgency(urgency: object) -> None:
    """Raise InvalidInput unless the urgency is a whole number from 0 (most) to 4, or None."""
    if urgency is None:
        return
    if isinstance(urgency, bool) or not isinstance(urgency, int) or not 0 <= urgency < LEVELS:
        raise InvalidInput(f"urgency must be 0 (most) to {LEVELS - 1}, got {urgency!r}", where="urgency")


def check_discipline_acceptance(spec: JobSpec) -> None:
    """Raise InvalidInput unless the draft acceptance rate lies within 0..1, or is None."""
    rate = spec.acceptance
    if rate is not None and not 0.0 <= rate <= 1.0:
        raise InvalidInput(f"acceptance must lie within 0..1, got {rate!r}", where="acceptance")
