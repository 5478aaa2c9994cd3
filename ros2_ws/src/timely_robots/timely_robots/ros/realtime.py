"""Takes the long pauses out of a process that serves robots: those of Python's threads, its collector, the kernel."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

from timely_robots.ros.rclpy_utils import cheap_goal_names
from timely_robots.ros.timeslice import short_slices

SWITCH_INTERVAL_S = 0.0005
"""How long one Python thread may keep another waiting: the executor, the loop and the motions share one interpreter,
and the default of 5 ms would be most of a segment's latency."""


@contextlib.contextmanager
def steady_process() -> Iterator[None]:
    """Keep this process steady while it lasts; enter it when everything is set up.

    Threads take turns more often, and the garbage collector no longer looks at what is there already: a full collection
    over the imports and nodes of 30 robots holds everything up for 50 ms and more. The short time slices stay.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    cheap_goal_names()
    short_slices()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)
