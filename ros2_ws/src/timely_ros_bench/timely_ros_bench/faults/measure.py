"""The whole of ``timely bench faults``: a fleet is started, broken again and again, and judged."""

import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from timely.core.checkpoint import load_core_checkpoint, save_core_checkpoint
from timely.core.progress import Say
from timely_ros_bench.faults.campaign import FaultCampaign
from timely_ros_bench.faults.fleet_processes import FaultFleet
from timely_ros_bench.faults.judge import VIOLATIONS
from timely_ros_bench.faults.observer import FaultObserver
from timely_ros_bench.faults.rounds import FLEET, fault_schedule, faulty_robot_names
from timely_ros_bench.faults.tally import FaultTally


@contextmanager
def running_fault_fleet(
    robots: Sequence[str], seed: int, domain: int
) -> Iterator[tuple[FaultFleet, FaultObserver]]:
    """Everything running; nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="timely-faults.") as folder:
        world = FaultFleet(robots, Path(folder), domain, seed)
        observer: FaultObserver | None = None
        try:
            world.start()
            os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
            observer = FaultObserver(robots, domain)
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
    share: tuple[int, int] = (0, 1),
    domain_id: int | None = None,
    checkpoint: Path | None = None,
    say: Say = lambda line: None,
) -> FaultTally:
    """Play so many rounds; each has one fault or a pair.

    Args:
        share: (first, fleets): plays rounds first, first + fleets, first + 2 fleets ... of the count.
        checkpoint: a file of the rounds so far. A run that finds it goes on after them.

    Raises:
        EngineFailed: a part does not come back. Unsupported: no vendor's library or no C compiler.
        InvalidInput: the checkpoint is of another run.
    """
    robots = faulty_robot_names(fleet)
    domain = domain_id if domain_id is not None else int(os.environ.get("ROS_DOMAIN_ID", "0")) or 101
    run = {"robots": robots, "seed": seed, "share": list(share), "violations": list(VIOLATIONS)}
    tally = FaultTally(**(load_core_checkpoint(checkpoint, run) or {}))
    schedule = fault_schedule(count, seed, robots)
    numbers = range(share[0], count, share[1])[tally.rounds :]
    if numbers:
        with running_fault_fleet(robots, seed + numbers[0], domain) as (world, observer):
            campaign, restarts = FaultCampaign(world, observer, tally), tally.restarts
            for number in numbers:
                before_s, earlier_cases, fault = time.monotonic(), len(tally.cases), schedule[number]
                end = campaign.play(number, fault, random.Random(f"{seed} {number}"))
                tally.restarts = restarts + world.restarts
                save_core_checkpoint(checkpoint, run, asdict(tally))
                say(
                    f"{number + 1:4d}/{count} {' and '.join(fault.kinds)} of {fault.robot}, "
                    f"{time.monotonic() - before_s:.1f} s: {end or 'lost'}; {tally.failed_rounds} failed so far"
                )
                for case in tally.cases[earlier_cases:]:
                    say(f"     {case}")
    return tally
