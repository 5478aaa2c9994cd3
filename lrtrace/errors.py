"""The errors of lrtrace as one tree. The command line prints each as one line and exits with code 2.

::

    LRTraceError
     +- BadInput           an unusable file, line or argument; says what and where
         +- UnknownName    a profile, skill, workload or format that does not exist; lists the existing ones
         +- TooFewSamples  too few runs for a fit
"""

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
        return (_rebuild_lrtrace_error, (type(self), self.message, self.where))


def _rebuild_lrtrace_error(kind: type[LRTraceError], message: str, where: str) -> LRTraceError:
    error = kind.__new__(kind)
    LRTraceError.__init__(error, message, where=where)
    return error


class BadInput(LRTraceError):
    """Unusable input."""

    code = "invalid_input"


class UnknownName(BadInput):
    """A name that does not exist. The message lists the existing names."""

    code = "unknown_name"

    def __init__(self, kind: str, name: object, names: Iterable[str], *, where: str = "") -> None:
        names_text = ", ".join(sorted(names)) or "none"
        super().__init__(f"unknown {kind} {name!r}; known: {names_text}", where=where)


class TooFewSamples(BadInput):
    """Too few recorded runs for the model."""

    code = "too_few_samples"
