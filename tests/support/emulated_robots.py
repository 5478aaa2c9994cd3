"""Emulated robots for tests of the drivers, with the vendors' real client libraries on the driver's side."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from timely.emulators.indy7 import Indy7Emulator
from timely.emulators.tello import TelloEmulator
from timely.emulators.tello_body import TelloPhysics

BRISK = TelloPhysics(takeoff_s=0.6, landing_m_per_s=4.0, reaction_s=0.05, settle_s=0.1, acceleration=6.0)
"""A drone for the impatient; everything else is as ever."""


def need(package: str) -> None:
    """Skip the test where the vendor's library is not installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(
            f"{package} is not installed here: uv pip install --no-deps -r requirements/robots-beside-vllm.txt"
        )


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
