"""Fixtures of the bridge's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bridge_doubles import FakeServer
from fleet_world import SCRIPTS, World, a_fleet, fleet_world


@pytest.fixture
def server() -> FakeServer:
    return FakeServer(SCRIPTS, ahead=0)


@pytest.fixture
def world(domain_id: int, server: FakeServer) -> Iterator[World]:
    with fleet_world(domain_id, a_fleet(driver_silence_s=2.5), server) as here:
        yield here
