"""What all tests share: how hypothesis looks for counterexamples, and which of them one worker runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# Whether an example takes 0.1 or 0.3 s says how busy the machine is. Timings belong into benchmarks.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

# There are workers enough for all processors: a second thread of torch would spin on that of another worker.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SERVED = ("live_engine", "offered_disciplines", "stock_server", "vllm_model")
TOGETHER = {
    "tests/ros": "ros",
    **{f"tests/engines/vllm/test_{name}.py": "served engine" for name in SERVED},
    "tests/cli/test_terminal.py": "served engine",
    "tests/engines/vllm": "engine",
}
"""Paths that one worker runs with all below them: they share addresses of emulated drones, or an engine and its memory.

The robots keep real time, and leave a processor free most of it. So they come first, beside the engine that runs in the
worker itself and the engines with processes of their own: three workers for two processors.
"""

FIRST = (
    "ros",
    "engine",
    "served engine",
    "tests/planner/test_planner_paper.py",
    "tests/bench/live/test_live_comparison.py",
    "tests/server/test_live_page.py",
    "tests/planner/training/test_planner_training.py",
    "tests/house/test_docs.py",
)
"""The longest scopes, in the order of their start. The others take seconds, so no worker idles at the end."""


def scope_of(nodeid: str) -> str:
    """What one worker runs together: such a path, or else a file."""
    path = PurePosixPath(nodeid.partition("::")[0])
    places = (place.as_posix() for place in (path, *path.parents))
    return next((TOGETHER[place] for place in places if place in TOGETHER), path.as_posix())


class ByPath(LoadScopeScheduling):
    """A worker gets whole scopes."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest scopes begin first, and the others fill the rest of the run."""
    place = {scope: number for number, scope in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(scope_of(item.nodeid), len(place)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByPath | None:
    """For ``pytest -n 3 --dist loadscope``."""
    return ByPath(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Workers that run no robots leave the processors to the one that does."""
    if "PYTEST_XDIST_WORKER" in os.environ and scope_of(item.nodeid) != "ros" and os.nice(0) == 0:
        os.nice(5)


@pytest.fixture
def caplog(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.LogCaptureFixture]:
    """pytest's own, whatever libraries that earlier tests loaded have done to our loggers."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] in ("timely", "lrtrace") and isinstance(logger, logging.Logger):
            for attribute, value in (("disabled", False), ("propagate", True), ("level", logging.NOTSET)):
                monkeypatch.setattr(logger, attribute, value)
            logger.manager._clear_cache()  # type: ignore[attr-defined]
    with caplog.at_level(logging.INFO):
        yield caplog
