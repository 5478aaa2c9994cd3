"""Every error lrtrace raises on purpose, as one tree; the command line turns each into one line and exit 2.

LRTraceError
 +- BadInput         a file, line or argument that cannot be used: says what and where
     +- UnknownName  a profile, skill, workload, format ... that does not exist: lists the known ones
     +- TooFewSamples  a fit that would mean nothing
"""

from __future__ import annotations

from collections.abc import Iterable


class LRTraceError(Exception):
    """Base of all. ``code`` is stable and machine-readable; ``where`` names the file, line or field."""

    code = "lrtrace_error"

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.where))


def _rebuild(kind: type[LRTraceError], message: str, where: str) -> LRTraceError:
    error = kind.__new__(kind)
    LRTraceError.__init__(error, message, where=where)
    return error


class BadInput(LRTraceError):
    """Unusable input."""

    code = "invalid_input"


class UnknownName(BadInput):
    """A name that does not exist; the message lists the known ones."""

    code = "unknown_name"

    def __init__(self, kind: str, name: object, known: Iterable[str], *, where: str = "") -> None:
        listed = ", ".join(sorted(known)) or "none"
        super().__init__(f"unknown {kind} {name!r}; known: {listed}", where=where)


class TooFewSamples(BadInput):
    """Not enough recorded runs for the model asked for."""

    code = "too_few_samples"
