"""Short time slices, as the kernel itself tells of them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from timely_robots.ros import realtime

KERNEL = tuple(int(part) for part in platform.release().split(".")[:2] if part.isdigit())
GRANTS = platform.system() == "Linux" and KERNEL >= (6, 12)

PROGRAM = """
import os, threading
from pathlib import Path
from timely_robots.ros.realtime import shorten_ros_time_slices

def slices():
    return [Path(f"/proc/self/task/{thread}/sched").read_text() for thread in sorted(os.listdir("/proc/self/task"))]

os.nice(3)
end = threading.Event()
threading.Thread(target=end.wait).start()
print(shorten_ros_time_slices())
threading.Thread(target=end.wait).start()
for text in slices():
    print([line.split()[-1] for line in text.splitlines() if line.startswith("se.slice")])
print(os.getpriority(os.PRIO_PROCESS, 0))
end.set()
"""


@pytest.mark.skipif(not GRANTS, reason="Linux grants slices from 6.12 on")
@pytest.mark.ros
def test_all_threads_get_short_slices_those_to_come_too_and_keep_their_priority() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True
    )
    shortened, *slices, nice = done.stdout.split("\n")[:-1]
    assert int(shortened) >= 2
    assert len(slices) > 2
    assert set(slices) in ({"['100000']"}, {"[]"})  # a kernel without its debug files shows nothing
    assert int(nice) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3)


def test_threads_of_the_middleware_and_of_stops_come_before_all_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number, name in ((11, "python"), (12, "dds.udp.7400")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "comm").write_text(f"{name}\n")
    raised: list[int] = []
    monkeypatch.setattr(realtime, "Path", lambda _: tmp_path)
    monkeypatch.setattr(realtime, "raise_core_realtime", raised.extend)
    end = threading.Event()
    threads = [
        realtime.mark_ros_stop_thread(threading.Thread(target=end.wait, daemon=True)) for _ in range(2)
    ]
    threads[0].start()
    realtime.raise_ros_stop_threads()
    monkeypatch.setattr(realtime._active, "is_set", lambda: True)
    late = threading.Thread(target=end.wait, daemon=True)
    late.start()
    realtime.mark_ros_stop_thread(late)
    end.set()
    assert {12, threads[0].native_id, late.native_id} <= set(raised)
    assert 11 not in raised


BUSY_PROGRAM = """
import os, threading, time
from timely_robots.ros import realtime
from timely_robots.ros.realtime import mark_ros_stop_thread, realtime_ros_process

realtime.REALTIME_WATCH_S = 0.2  # a longer one would hold up the tests beside this one

end = threading.Event()

def stop_without_pause():
    while os.sched_getscheduler(0) == os.SCHED_OTHER:
        pass
    print("raised", flush=True)
    while os.sched_getscheduler(0) != os.SCHED_OTHER and not end.is_set():
        pass
    print("ordinary" if not end.is_set() else "still before all others", flush=True)

quiet = threading.Thread(target=end.wait, name="quiet")
busy = threading.Thread(target=stop_without_pause, name="busy")
for thread in (quiet, busy):
    thread.start()
    mark_ros_stop_thread(thread)
with realtime_ros_process():
    busy.join(20.0)
    print(os.sched_getscheduler(quiet.native_id) == os.SCHED_RR, flush=True)
    end.set()
"""


def _may_have_realtime_threads() -> bool:
    program = "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=False)
    return done.returncode == 0


@pytest.mark.ros
def test_a_stop_that_computes_without_a_pause_does_not_keep_the_processor() -> None:
    if not _may_have_realtime_threads():
        pytest.skip("real-time threads take a privilege")
    done = subprocess.run(
        [sys.executable, "-c", BUSY_PROGRAM], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.split("\n")[:-1] == ["raised", "ordinary", "True"]
    assert "thread busy keeps a processor" in done.stderr


def test_a_demoted_thread_comes_first_again_and_a_failed_check_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[list[int] | OSError] = [[7], OSError("no file descriptors"), [], [], [], []]
    raised: list[int] = []
    watch = SimpleNamespace(check=lambda: _answer(answers.pop(0)))
    monkeypatch.setattr(realtime, "CoreRealtimeWatch", lambda: watch)
    monkeypatch.setattr(realtime, "DEMOTED_CHECKS", 3)
    monkeypatch.setattr(realtime, "raise_ros_stop_threads", lambda: raised.append(len(answers)))
    end: Any = SimpleNamespace(wait=lambda timeout_s: not answers)
    realtime._watch_ros_realtime(end)
    assert raised == [2]


def _answer(answer: list[int] | OSError) -> list[int]:
    if isinstance(answer, OSError):
        raise answer
    return answer
