"""How many robots several simulated engines carry under each rule that chooses the engine of a task."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from timely.bench.capacity.measure import capacity_point
from timely.bench.capacity.search import CapacityLoadGrid, search_crossing
from timely.bench.capacity.workloads import capacity_tasks, find_capacity_workload
from timely.bench.checkpoints import BenchCheckpoints
from timely.bench.papers.seed_statistics import paper_range
from timely.core.progress import Say
from timely.engines.replay_types import ReplayOptions
from timely.engines.sim.fleet import SimFleet
from timely.engines.step_time.profile import StepTimeCurve, StepTimeProfile, load_step_profile
from timely.routing.routers import ROUTERS, create_router

OURS = "least-loss"

FLEETS = ("equal", "unequal")
"""Engines of one speed, or every second one half as fast."""

SLOWNESS = 2.0
"""Step times of a slow engine, as a multiple of the others'."""

UTILITY_SHARE = 0.9
"""Share of the maximum utility that the robots must keep."""

TOKEN_BUDGET = 512
"""Most tokens of a step: the best for ``timely`` on WID 2 (docs/capacity.md)."""

GRID = CapacityLoadGrid(8)
"""Loads 9% apart; between two of them the load is interpolated."""

FIRST_PLACE, MOST_PLACES = 30, 40
"""Place on the grid where the search begins with one engine (load 13), and how far it goes to both sides."""

STRIDE = 4

Result = dict[str, Any]


def measure_routing(
    workload: str,
    counts: Sequence[int],
    seeds: Sequence[int],
    profile: str,
    checkpoints: BenchCheckpoints,
    say: Say,
) -> Result:
    """Compare the rules on each number of engines.

    ``engines`` has the gain by number of engines: robots under ``least-loss`` over those under the best other rule. It
    is the smaller one of equal and unequal engines. ``fleets`` has the robots of each rule, with 95% intervals.

    Raises:
        BenchOutOfTime: the budget of the checkpoints is used up.
    """
    robots = find_capacity_workload(workload).robots
    fleets: dict[str, dict[str, Result]] = {fleet: {} for fleet in FLEETS}
    for count in counts:
        for fleet in FLEETS:
            arguments = [
                (workload, profile, fleet, count, router, seed) for router in ROUTERS for seed in seeds
            ]
            loads = checkpoints.map("routing", measure_routing_load, arguments)
            rules: Result = {}
            for place, router in enumerate(ROUTERS):
                mean, low, high = paper_range(loads[place * len(seeds) :][: len(seeds)])
                rules[router] = [round(robots * value, 1) for value in (mean, low, high)]
            rival = max((name for name in rules if name != OURS), key=lambda name: float(rules[name][0]))
            gain = round(rules[OURS][0] / rules[rival][0], 4)
            fleets[fleet][str(count)] = {"robots": rules, "rival": rival, "gain": gain}
            say(f"{count} {fleet} engines: {gain:.2f} times the robots of {rival}")
    gains = {
        str(count): min(float(fleets[fleet][str(count)]["gain"]) for fleet in FLEETS) for count in counts
    }
    return {"engines": gains, "fleets": fleets}


def measure_routing_load(
    workload: str, profile: str, fleet: str, count: int, router: str, seed: int
) -> float:
    """The highest load at which the robots keep ``UTILITY_SHARE``, by bisection; 0 if the lowest is too much."""
    profiles = bench_fleet_profiles(load_step_profile(profile), count, unequal=fleet == "unequal")

    def share(place: int) -> float:
        tasks = capacity_tasks(workload, GRID.load(place), seed, quick=True)
        options = ReplayOptions(
            discipline="timely", journal=False, warm_prefixes=True, seed=seed, token_budget=TOKEN_BUDGET
        )
        run = SimFleet(options, profiles, create_router(router)).run(tasks)
        return float(capacity_point(run.records, run.end_s)["utility_all"])

    return highest_load(share, FIRST_PLACE + round(GRID.steps * math.log2(count)))


def highest_load(share: Callable[[int], float], first_place: int) -> float:
    """The load at which ``share`` falls below the target, interpolated; ``share`` is of a place on the grid."""
    lowest, highest = first_place - MOST_PLACES + 1, first_place + MOST_PLACES - 1
    search = search_crossing(GRID, UTILITY_SHARE, lowest, highest, first_place, STRIDE)
    place = next(search)
    while True:
        try:
            place = search.send(share(place))
        except StopIteration as end:
            return float(end.value)


def bench_fleet_profiles(profile: StepTimeProfile, count: int, *, unequal: bool) -> list[StepTimeProfile]:
    """The profiles of a fleet; of unequal engines every second one takes ``SLOWNESS`` times as long a step."""
    slow = slower_bench_profile(profile, SLOWNESS)
    return [slow if unequal and place % 2 else profile for place in range(count)]


def slower_bench_profile(profile: StepTimeProfile, factor: float) -> StepTimeProfile:
    """The profile of a machine whose steps take ``factor`` times as long."""
    terms = {
        name: StepTimeCurve(at=value.at, s=tuple(factor * point for point in value.s))
        if isinstance(value, StepTimeCurve)
        else None
        if value is None
        else factor * value
        for name, value in profile.step_s
    }
    return profile.model_copy(
        update={"name": f"{profile.name}/{factor:g}", "step_s": profile.step_s.model_copy(update=terms)}
    )
