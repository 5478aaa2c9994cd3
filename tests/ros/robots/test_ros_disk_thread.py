"""What waits for a disk waits alone."""

from __future__ import annotations

import threading

import pytest
from timely_robots.disk_thread import DriverDiskThread

from timely.core.errors import InvalidInput

WAIT_S = 20.0


def test_calls_are_made_in_order_and_their_results_come_back() -> None:
    disk, calls = DriverDiskThread("disk"), list[int]()
    futures = [disk.submit(calls.append, number) for number in range(20)]
    assert disk.submit(len, calls).result(WAIT_S) == 20
    assert calls == list(range(20))
    assert all(future.done() for future in futures)
    assert disk.close(WAIT_S)
    assert DriverDiskThread("never used").close(WAIT_S)


def test_an_error_is_its_callers_and_the_next_call_is_made() -> None:
    disk = DriverDiskThread("disk")

    def refuse() -> None:
        raise InvalidInput("No space left on device")

    refusal = disk.submit(refuse)
    assert disk.submit(int).result(WAIT_S) == 0
    with pytest.raises(InvalidInput, match="No space"):
        refusal.result(WAIT_S)
    assert disk.close(WAIT_S)


def test_a_call_whose_caller_waits_no_longer_is_made() -> None:
    disk, back, calls = DriverDiskThread("disk"), threading.Event(), list[str]()
    hanging = disk.submit(back.wait, WAIT_S)
    disk.submit(calls.append, "kept").cancel()
    assert not disk.close(0.01)
    back.set()
    assert hanging.result(WAIT_S)
    assert disk.close(WAIT_S)
    assert calls == ["kept"]


def test_a_disk_that_is_late_holds_a_caller_up_once() -> None:
    disk, back = DriverDiskThread("disk"), threading.Event()
    assert disk.wait(WAIT_S)
    hanging = disk.submit(back.wait, WAIT_S)
    assert not disk.wait(0.01)
    assert not disk.wait(WAIT_S), "it has waited before"
    back.set()
    assert hanging.result(WAIT_S)
    assert disk.submit(int).result(WAIT_S) == 0
    assert disk.wait(WAIT_S)
    assert disk.close(WAIT_S)


def test_a_process_that_gets_no_more_threads_writes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    disk = DriverDiskThread("disk")
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        assert disk.submit(int, "7").result(0.0) == 7
    assert disk.submit(int, "8").result(WAIT_S) == 8
    assert disk.close(WAIT_S)
