"""Fixtures of the server's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fleet import Fleet, fleet


@pytest.fixture
def served() -> Iterator[Fleet]:
    """A server on loopback; time stands still."""
    with fleet() as running:
        yield running
