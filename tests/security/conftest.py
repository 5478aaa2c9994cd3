"""Servers with and without principals, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fleet import Fleet, fleet
from guarded import Guarded, write_principals
from manual_clock import ManualClock

from timely.principals import PrincipalRegistry


@contextmanager
def guarded_fleet(folder: Path) -> Iterator[Guarded]:
    path = folder / "principals.yaml"
    write_principals(path)
    clock = ManualClock(100.0)
    registry = PrincipalRegistry(path, None, clock)
    with fleet(clock=clock, registry=registry, audit_log=folder / "audit.jsonl") as running:
        yield Guarded(running, path)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    """A server with one principal for each role, and two with the role robot."""
    with guarded_fleet(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def common_guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The same for all tests of a file that leave nothing behind on it."""
    with guarded_fleet(tmp_path_factory.mktemp("guarded")) as running:
        yield running


@pytest.fixture
def served() -> Iterator[Fleet]:
    """A server on loopback without principals."""
    with fleet() as running:
        yield running


@pytest.fixture(scope="module")
def common() -> Iterator[Fleet]:
    """The same for all tests of a file that leave nothing behind on it."""
    with fleet() as running:
        yield running
