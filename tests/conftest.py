"""What all tests share: how hypothesis looks for counterexamples, and what must not run side by side."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import settings

# Whether an example takes 0.1 or 0.3 s says how busy the machine is. Timings belong into benchmarks.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

HERE = Path(__file__).parent
TOGETHER = {
    "ros": "robots",
    "emulators": "robots",  # the Tello's client has fixed ports, whose owner is one process
    "engines/vllm": "vllm",  # engines that many files share
}
"""Folders whose tests one worker runs, one after the other; elsewhere that is so for each file."""

PATIENT_NICE = 10


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say to ``pytest -n 2 --dist loadgroup`` what belongs together."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Beside another worker, robots come first: they keep real time, all others only take it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        with contextlib.suppress(PermissionError):  # only root gets back to the front
            os.setpriority(os.PRIO_PROCESS, 0, 0 if _group(item) == "robots" else PATIENT_NICE)


def _group(item: pytest.Item) -> str:
    path = item.path.relative_to(HERE)
    return TOGETHER.get(path.parent.as_posix(), path.as_posix())
