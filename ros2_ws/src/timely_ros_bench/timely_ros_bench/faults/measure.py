"""The whole of ``timely bench faults``: a fleet is started, broken again and again, and judged."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from timely_ros_bench.faults.campaign import Campaign
from timely_ros_bench.faults.fleet_processes import World
from timely_ros_bench.faults.judge import VIOLATIONS
from timely_ros_bench.faults.observer import Observer
from timely_ros_bench.faults.rounds import FLEET, fault_schedule, faulty_robot_names

Say = Callable[[str], None]


def _silent(line: str) -> None:
    """Print nothing."""


@contextmanager
def running_fault_fleet(robots: Sequence[str], seed: int, domain: int) -> Iterator[tuple[World, Observer]]:
    """Everything running; nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="timely-faults.") as folder:
        world = World(robots, Path(folder), domain, seed)
        observer: Observer | None = None
        try:
            world.start()
            os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
            observer = Observer(robots, domain)
            yield world, observer
        finally:
            if observer is not None:
                observer.close()
            world.close()


def measure_faults(
    count: int,
    seed: int = 0,
    *,
    fleet: Sequence[str] = FLEET,
    domain_id: int | None = None,
    say: Say = _silent,
) -> dict[str, Any]:
    """Run so many rounds.

    Returns:
        ``faults``, ``violations`` (by kind), ``lost_tasks``; and ``tasks``, ``outcomes``, ``held``, ``restarts``, and
        ``cases``, a line for each violation.

    Raises:
        EngineFailed: a part does not come back. Unsupported: no vendor's library or no C compiler.
    """
    robots = faulty_robot_names(fleet)
    domain = domain_id if domain_id is not None else int(os.environ.get("ROS_DOMAIN_ID", "0")) or 101
    with running_fault_fleet(robots, seed, domain) as (world, observer):
        campaign = Campaign(world, observer, random.Random(seed + 1))
        for number, fault in enumerate(fault_schedule(count, seed, robots)):
            before_s, seen = time.monotonic(), len(campaign.violations.cases)
            struck = campaign.play(number, fault)
            say(
                f"{number + 1:4d}/{count} {fault.kind:14s} {fault.robot:6s} {time.monotonic() - before_s:5.1f} s: "
                f"{struck or 'lost'}; {campaign.violations.total} violations, {campaign.lost} lost so far"
            )
            for case in campaign.violations.cases[seen:]:
                say(f"     {case}")
        return {
            "faults": count,
            "violations": {kind: campaign.violations.counts[kind] for kind in VIOLATIONS},
            "lost_tasks": campaign.lost,
            "tasks": campaign.tasks,
            "outcomes": dict(sorted(campaign.outcomes.items())),
            "held": campaign.held,
            "restarts": world.restarts,
            "cases": campaign.violations.cases,
        }
