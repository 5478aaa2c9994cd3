"""Short time slices, as the kernel itself tells of them."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

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
