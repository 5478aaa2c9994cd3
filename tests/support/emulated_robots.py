"""Emulated robots for tests of the drivers, with the vendors' real client libraries on the driver's side."""

from __future__ import annotations

import atexit
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from machine_locks import try_lock

from timely.emulators.indy7 import Indy7Emulator
from timely.emulators.tello import TelloEmulator
from timely.emulators.tello_motions import TelloPhysics

BRISK = TelloPhysics(takeoff_s=0.8, landing_m_per_s=8.0, reaction_s=0.05, settle_s=0.15, acceleration=8.0)
"""A drone that is quick and else as usual."""
NETWORKS = range(201, 255)
"""Third numbers of loopback addresses that neither benchmarks nor examples use."""


def need(*packages: str) -> None:
    """Skip the test where a vendor's library is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(
                f"{package} is missing: uv pip install --no-deps -r requirements/robots-beside-vllm.txt"
            )


@cache
def _network() -> int:
    """The third number of this process's addresses; a lock keeps it until the process ends."""
    for number in NETWORKS:
        if (lock := try_lock(f"addresses-{number}")) is not None:
            atexit.register(lock.close)  # an open file would be a warning
            return number
    pytest.fail("other test runs hold all addresses of robots")


def own_host(number: int) -> str:
    """A loopback address that no other test run of this machine uses, since the vendors' ports are fixed."""
    return f"127.0.{_network()}.{number}"


@contextmanager
def emulated_tello(host: str, **options: Any) -> Iterator[TelloEmulator]:
    """A drone at ``host``, port 18889."""
    need("djitellopy")
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
