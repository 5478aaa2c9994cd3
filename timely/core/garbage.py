"""Garbage collection of a process that serves plans, whose pauses delay every plan."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

BUSY_FACTOR = 50
"""By how much rarer than Python such a process makes full collections while answers are in generation."""

_python_thresholds: list[int] = []
"""Python's own threshold of full collections, while ``short_gc_pauses`` has raised it."""


@contextmanager
def short_gc_pauses() -> Iterator[None]:
    """Keep full garbage collections short and rare; enter it when the engine has started.

    A full collection searches all objects, and nothing else runs in the process meanwhile. Of the 100,000 objects of a
    server that has kept tasks for late readers it takes 80 to 130 ms. Of the 700,000 of a process that has imported
    vLLM it takes half a second. So objects that exist already are skipped, and further full collections are rare; a
    server leaves them to ``collect_idle_garbage``.
    """
    before = gc.get_threshold()
    gc.freeze()  # without a collection before, which would delay the start
    gc.set_threshold(*before[:2], BUSY_FACTOR * before[2])
    _python_thresholds.append(before[2])
    try:
        yield
    finally:
        _python_thresholds.pop()
        gc.set_threshold(*before)
        gc.unfreeze()


def collect_idle_garbage() -> None:
    """Make a full collection that is due by Python's own rule; for a moment in which no answer is in generation.

    Outside ``short_gc_pauses`` Python makes them itself.
    """
    if _python_thresholds and gc.get_count()[2] > _python_thresholds[-1] > 0:
        gc.collect()
