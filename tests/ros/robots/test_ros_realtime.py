"""Short time slices, as the kernel itself tells of them."""

from __future__ import annotations

import platform
import subprocess
import sys

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
    assert int(nice) == 3


def test_threads_of_ordinary_priority_are_raised_and_a_chosen_one_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[int] = []
    monkeypatch.setattr(realtime.os, "listdir", lambda folder: ["1", "2", "3"])
    monkeypatch.setattr(realtime.os, "getpriority", lambda which, thread: 3 if thread == 2 else 0)

    def set_priority(which: int, thread: int, niceness: int) -> None:
        if thread == 3:
            raise PermissionError
        raised.append(thread)

    monkeypatch.setattr(realtime.os, "setpriority", set_priority)
    assert realtime.raise_ros_priority() == 1
    assert raised == [1]
