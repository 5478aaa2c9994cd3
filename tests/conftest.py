"""What all tests share: how hypothesis looks for counterexamples, and what must not run side by side."""

from __future__ import annotations

import contextlib
import os
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# Whether an example takes 0.1 or 0.3 s says how busy the machine is. Timings belong into benchmarks.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

TOGETHER = {
    "tests/ros": "robots",
    "tests/emulators": "robots",  # the Tello's client has fixed ports, whose owner is one process
    "tests/engines/vllm": "vllm",  # engines that many files share
}
"""Folders whose tests one worker runs, one after the other; elsewhere that is so for each file."""

PATIENT_NICE = 10


class ByFolder(LoadScopeScheduling):
    """A worker gets a whole file at a time, or all files of the folders above."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFolder | None:
    """For ``pytest -n 2 --dist loadscope``."""
    return ByFolder(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Beside another worker, robots come first: they keep real time, all others only take it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        with contextlib.suppress(PermissionError):  # only root gets back to the front
            os.setpriority(os.PRIO_PROCESS, 0, 0 if _group(item.nodeid) == "robots" else PATIENT_NICE)


def _group(nodeid: str) -> str:
    path = PurePosixPath(nodeid.partition("::")[0])
    return TOGETHER.get(path.parent.as_posix(), path.as_posix())
