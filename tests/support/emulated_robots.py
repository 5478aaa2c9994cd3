"""Emulated robots for tests of the drivers, with the vendors' real client libraries on the driver's side."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest
from machine_locks import try_lock

from timely.emulators.indy7 import Indy7Emulator
from timely.emulators.tello import TelloEmulator
from timely.emulators.tello_motions import TelloPhysics

BRISK = TelloPhysics(takeoff_s=0.8, landing_m_per_s=8.0, reaction_s=0.05, settle_s=0.15, acceleration=8.0)
"""A drone that is quick and else as usual."""
PORTS_WAIT_S = 100.0
_holders = 0
_locks: list[IO[bytes]] = []


def need(package: str) -> None:
    """Skip the test where the vendor's library is not installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(
            f"{package} is not installed here: uv pip install --no-deps -r requirements/robots-beside-vllm.txt"
        )


@contextmanager
def tello_ports() -> Iterator[None]:
    """Emulated drones at their usual addresses: for one test at a time, of all test runs. May be nested."""
    global _holders  # noqa: PLW0603 - the addresses are the machine's
    need("djitellopy")
    if not _holders:
        deadline_s = time.monotonic() + PORTS_WAIT_S
        while (lock := try_lock("tello-ports")) is None:
            assert time.monotonic() < deadline_s, "another test run holds the addresses of the drones"
            time.sleep(0.05)
        _locks.append(lock)
    _holders += 1
    try:
        yield
    finally:
        _holders -= 1
        if not _holders:
            _locks.pop().close()


@contextmanager
def emulated_tello(host: str, **options: Any) -> Iterator[TelloEmulator]:
    """A drone at ``host``, port 18889."""
    with tello_ports():
        drone = TelloEmulator(host, **{"physics": BRISK, **options}).start()
        try:
            yield drone
        finally:
            drone.close()


@contextmanager
def emulated_indy7(host: str, **options: Any) -> Iterator[Indy7Emulator]:
    """An arm at ``host``."""
    need("neuromeka")
    arm = Indy7Emulator(host, **options).start()
    try:
        yield arm
    finally:
        arm.close()
