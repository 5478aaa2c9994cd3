"""Fixtures of the client's tests: a real server on loopback, in real time that is a thousand times too fast."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fleet import catalogue

from timely.engines.scripted import ScriptedEngine
from timely.engines.scripts import Script, ScriptedSegment
from timely.server.app import create_app
from timely.server.server_thread import ServerThread
from timely.server.settings import ServerSettings

QUICK: dict[str, Script] = {
    "short": [ScriptedSegment("mu(50);", 0.002, 2), ScriptedSegment("tc(90);", 0.002, 2)],
    "long": [ScriptedSegment(f"tc({10 * n});", 0.002, 2) for n in range(1, 13)],
    "ask": [ScriptedSegment("lk('cat');", 0.002, 2, blocking=True), ScriptedSegment("mu(50);", 0.002, 2)],
    "endless": [ScriptedSegment("mu(50);", 3600.0, 2), ScriptedSegment("tc(90);", 0.002, 2)],
    "unsafe": [ScriptedSegment("mu(50);", 0.002, 2), ScriptedSegment("mu(250);", 0.002, 2)],
}


@pytest.fixture
def quick() -> Iterator[ServerThread]:
    """A server whose plans take milliseconds."""
    engine = ScriptedEngine(QUICK, token_s=0.0005, sequence_s=0.0, prefill_token_s=0.0)
    settings = ServerSettings(admission_wait_s=0.001, keepalive_s=0.05)
    with ServerThread(create_app(engine, settings, None, catalogue())) as server:
        yield server
