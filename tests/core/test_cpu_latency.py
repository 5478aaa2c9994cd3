"""Processors that are kept from deep sleep, on a file that stands for Linux's."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from timely.core import cpu_latency
from timely.core.cpu_latency import (
    NO_LIMIT_US,
    WakeLatencyRequest,
    processors_awake,
    wake_latency_for_measurement,
)


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "cpu_dma_latency"
    path.touch()
    return path


def test_it_holds_its_request_while_there_is_work(device: Path) -> None:
    awake = WakeLatencyRequest(20, device)
    assert (awake.is_active, device.read_bytes()) == (False, b"")
    awake.want(True)
    awake.want(True)
    assert (awake.is_active, device.read_bytes()) == (True, struct.pack("=i", 20))
    awake.want(False)
    awake.want(False)
    assert not awake.is_active


def test_it_asks_for_nothing_unless_told_to(device: Path) -> None:
    awake = WakeLatencyRequest(NO_LIMIT_US, device)
    awake.want(True)
    assert not awake.is_active
    assert not awake.problem
    assert device.read_bytes() == b""


def test_where_it_may_not_it_says_why_and_goes_on(tmp_path: Path) -> None:
    awake = WakeLatencyRequest(0, tmp_path / "none")
    assert "none" in awake.problem
    awake.want(True)
    assert not awake.is_active
    folder = WakeLatencyRequest(0, tmp_path)  # it may be written, but not as a file
    folder.want(True)
    assert not folder.is_active
    assert "directory" in folder.problem


def test_a_measurement_keeps_them_awake_where_it_may(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_latency, "DEVICE", device)
    assert wake_latency_for_measurement(default_system=False)[0] == 0
    assert wake_latency_for_measurement(default_system=True)[0] == NO_LIMIT_US
    with processors_awake(wake_latency_for_measurement(default_system=False)[0]):
        assert struct.unpack("=i", device.read_bytes()) == (0,)
    device.unlink()
    latency_us, said = wake_latency_for_measurement(default_system=False)
    assert latency_us == NO_LIMIT_US
    assert str(device) in said
