"""Clocks: one that moves only when told, one that is the machine's."""

from __future__ import annotations

import pytest

from timely.core.clock import SystemClock, VirtualClock


def test_a_virtual_clock_moves_only_when_told() -> None:
    clock = VirtualClock(2.0)
    assert clock.now() == clock.now() == 2.0
    assert clock.advance(0.5) == clock.now() == 2.5
    assert clock.advance(0.0) == 2.5
    assert clock.advance_to(4.0) == clock.now() == 4.0


def test_a_virtual_clock_never_goes_back() -> None:
    clock = VirtualClock(3.0)
    assert clock.advance_to(1.0) == 3.0
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-0.1)
    assert clock.now() == 3.0


def test_the_system_clock_does_not_go_back() -> None:
    clock = SystemClock()
    readings = [clock.now() for _ in range(100)]
    assert readings == sorted(readings)
