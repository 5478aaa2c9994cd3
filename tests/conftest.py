"""What all tests share: how hypothesis looks for counterexamples, and which of them one worker runs."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# Whether an example takes 0.1 or 0.3 s says how busy the machine is. Timings belong into benchmarks.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

TOGETHER = {"tests/engines/vllm": "vllm", "tests/ros": "ros"}
"""Folders that one worker runs with all below them: they share engines, or UDP ports of djitellopy."""


class ByFolder(LoadScopeScheduling):
    """A worker gets whole files, or all files of such a folder."""

    def _split_scope(self, nodeid: str) -> str:
        path = PurePosixPath(nodeid.partition("::")[0])
        folders = (folder.as_posix() for folder in path.parents)
        return next((TOGETHER[folder] for folder in folders if folder in TOGETHER), path.as_posix())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The robots' tests keep real time, so they begin first and the others fill the rest of the run."""
    items.sort(key=lambda item: "/tests/ros/" not in item.path.as_posix())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFolder | None:
    """For ``pytest -n 2 --dist loadscope``."""
    return ByFolder(config, log) if config.getvalue("dist") == "loadscope" else None
