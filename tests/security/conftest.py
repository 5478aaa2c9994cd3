"""Servers with and without principals, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet, fleet
from guarded import Guarded, write_principals
from manual_clock import ManualClock

from timely.server.access.principals import PrincipalRegistry


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    """A server with one principal for each role, and two with the role robot."""
    path = tmp_path / "principals.yaml"
    write_principals(path)
    clock = ManualClock(100.0)
    registry = PrincipalRegistry(path, None, clock)
    with fleet(clock=clock, registry=registry, audit_log=tmp_path / "audit.jsonl") as running:
        yield Guarded(running, path)


@pytest.fixture
def served() -> Iterator[Fleet]:
    """A server on loopback without principals."""
    with fleet() as running:
        yield running
