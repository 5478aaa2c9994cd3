"""Precedence over other processes: threads, and the session that Linux divides the processor by."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from timely.core import priority


@pytest.mark.parametrize(("leads", "session"), [(True, "-10"), (False, "0")])
def test_threads_of_ordinary_priority_are_raised_and_the_session_with_them(
    leads: bool, session: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    raised: list[tuple[int, int]] = []
    autogroup = tmp_path / "autogroup"
    autogroup.write_text("0")
    monkeypatch.setattr(priority, "AUTOGROUP", autogroup)
    monkeypatch.setattr(os, "listdir", lambda folder: ["1", "2", "3"])
    monkeypatch.setattr(os, "getpriority", lambda which, thread: 3 if thread == 2 else 0)
    monkeypatch.setattr(os, "getsid", lambda pid: os.getpid() if leads else 1)

    def set_priority(which: int, thread: int, niceness: int) -> None:
        if thread == 3:
            raise PermissionError
        raised.append((thread, niceness))

    monkeypatch.setattr(os, "setpriority", set_priority)
    assert priority.raise_core_priority(-10) == 1
    assert raised == [(1, -10)]
    assert autogroup.read_text() == session


def test_threads_that_may_not_run_first_or_have_a_policy_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed: list[int] = []

    def set_scheduler(thread: int, policy: int, param: object) -> None:
        if thread == 3:
            raise PermissionError
        changed.append(thread)

    monkeypatch.setattr(os, "sched_setscheduler", set_scheduler)
    policies = {1: os.SCHED_OTHER, 2: os.SCHED_FIFO, 3: os.SCHED_OTHER}
    monkeypatch.setattr(os, "sched_getscheduler", policies.__getitem__)
    assert priority.raise_core_realtime([1, 2, 3]) == 1
    assert changed == [1]


@pytest.mark.parametrize(
    ("own_priority", "python", "used_s", "demoted"),
    [
        (1, {1, 2}, {1: (1.0, 0.0), 2: (0.7, 0.0)}, [1]),
        (1, {1, 2}, {1: (0.7, 0.0), 2: (0.8, 0.0)}, []),
        (1, set(), {1: (1.0, 0.0), 2: (0.9, 0.5)}, []),
        (1, {1}, {1: (1.7, 0.0), 2: (1.8, 0.0)}, [1, 2]),
        (1, {1}, {1: (0.5, 1.3), 2: (0.2, 1.7)}, [1]),
        (20, {1}, {1: (2.0, 0.0), 2: (2.0, 0.0)}, []),
    ],
)
def test_the_busiest_of_raised_threads_that_keep_a_processor_becomes_ordinary(
    own_priority: int,
    python: set[int],
    used_s: dict[int, tuple[float, float]],
    demoted: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each thread: seconds of two in which it computed, and in which it waited for a processor."""
    changed: list[tuple[int, int]] = []
    clock_s = 100.0
    times_s = {1: (5.0, 1.0), 2: (7.0, 2.0), 3: (9.0, 3.0)}

    def schedstat(path: str) -> Any:
        computed_s, waited_s = times_s[int(path.split("/")[-2])]
        return SimpleNamespace(read_text=lambda: f"{1e9 * computed_s:.0f} {1e9 * waited_s:.0f} 17\n")

    monkeypatch.setattr(priority, "Path", schedstat)
    monkeypatch.setattr(os, "listdir", lambda folder: map(str, times_s))
    monkeypatch.setattr(
        os, "sched_getscheduler", lambda thread: os.SCHED_OTHER if thread == 3 else os.SCHED_RR
    )
    monkeypatch.setattr(os, "sched_getparam", lambda thread: os.sched_param(own_priority))
    monkeypatch.setattr(
        os, "sched_setscheduler", lambda thread, policy, param: changed.append((thread, policy))
    )
    monkeypatch.setattr(
        priority,
        "threading",
        SimpleNamespace(enumerate=lambda: [SimpleNamespace(native_id=n) for n in python]),
    )
    monkeypatch.setattr(time, "monotonic", lambda: clock_s)
    watch = priority.CoreRealtimeWatch()
    assert watch.check() == []
    clock_s += 2.0
    for thread, (computed_s, waited_s) in {**used_s, 3: (2.0, 0.0)}.items():
        times_s[thread] = times_s[thread][0] + computed_s, times_s[thread][1] + waited_s
    assert watch.check() == demoted
    assert changed == [(thread, os.SCHED_OTHER) for thread in demoted]


def test_a_thread_that_cannot_become_ordinary_is_not_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: int, policy: int, param: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(priority, "_realtime_times_s", iter([{1: (0.0, 0.0)}, {1: (100.0, 0.0)}]).__next__)
    watch = priority.CoreRealtimeWatch()
    assert (watch.check(), watch.check()) == ([], [])
