"""The highest load at which enough tasks are in time, found by bisection on a geometric grid of loads."""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from timely.bench.capacity.measure import Point, measure_capacity_point
from timely.bench.checkpoints import Checkpoints

TARGETS = (0.90, 0.99)
"""Shares in time that a load must keep."""

CLASSES = ("urgent", "all")
"""Shares of a point that are searched; a workload without urgent tasks has the second alone."""

HALVINGS, DOUBLINGS = 4, 6
"""Of the published load: the lowest and the highest load that are tried."""


@dataclass(frozen=True, slots=True)
class LoadGrid:
    """Loads ``2 ** (place / steps)``; ``steps`` of them double the load."""

    steps: int

    def load(self, place: int) -> float:
        """The load at a place."""
        return round(math.pow(2.0, place / self.steps), 6)

    @property
    def lowest(self) -> int:
        """Place of the lowest load that is tried."""
        return -HALVINGS * self.steps

    @property
    def highest(self) -> int:
        """Place of the highest load that is tried."""
        return DOUBLINGS * self.steps


FINE, COARSE = LoadGrid(8), LoadGrid(3)
"""Loads 9% apart, and 26% apart for a quick look; between two of them the share is interpolated."""

TOKEN_BUDGETS = (256, 512, 2048)
"""Most tokens of a step: each system gets the one with which it has most tasks in time on the workload."""

TUNING_LOADS = (4.0, 8.0, 16.0, 32.0)
TUNING_SEEDS = (1001, 1002)
"""Loads and seeds by which the token budget is chosen; the measurement has other seeds.

A system's budget is the best at the first of these loads that is too much for 99% in time. At lower loads budgets are
equal.
"""

Key = tuple[str, float]
"""A class and a target."""


@dataclass(frozen=True, slots=True)
class SystemLoads:
    """What the searches of one system have found.

    Attributes:
        loads: by class and target, one a seed.
        points: by seed, in order, the points that were measured, by their place.
    """

    loads: Mapping[Key, Sequence[float]]
    points: Sequence[Mapping[int, Point]]


def search_loads(grid: LoadGrid) -> Generator[int, Point, dict[Key, float]]:
    """Ask for points by their place and return the load of each class and target.

    The load is 0 if even the lowest one is too much, and the highest if that is not.
    """
    points: dict[int, Point] = {}
    loads: dict[Key, float] = {}
    points[0] = yield 0
    for kind in CLASSES:
        if points[0][kind] is None:
            continue
        for target in TARGETS:
            search = search_crossing(grid, target, grid.lowest, grid.highest, 0, grid.steps)
            place = next(search)
            while (kind, target) not in loads:
                if place not in points:
                    points[place] = yield place
                try:
                    place = search.send(points[place][kind])
                except StopIteration as end:
                    loads[kind, target] = end.value
    return loads


def search_crossing(
    grid: LoadGrid, target: float, lowest: int, highest: int, first: int, stride: int
) -> Generator[int, float, float]:
    """Ask for the share at a place and return the load at which it falls below the target, interpolated.

    From the first place it goes by strides until the crossing is between two places, then it halves what is between.
    The load is 0 if even the lowest one is too much, and the highest if that is not.
    """
    shares: dict[int, float] = {}
    good, bad, place = lowest - 1, highest + 1, first
    while bad - good > 1:
        shares[place] = yield place
        if shares[place] >= target:
            good = place
        else:
            bad = place
        if bad > highest:
            place = min(good + stride, highest)
        elif good < lowest:
            place = max(bad - stride, lowest)
        else:
            place = (good + bad) // 2
    if good < lowest:
        return 0.0
    if bad > highest:
        return grid.load(highest)
    part = (shares[good] - target) / (shares[good] - shares[bad])
    return grid.load(good) + part * (grid.load(bad) - grid.load(good))


@dataclass(frozen=True, slots=True)
class CapacityRun:
    """A search for each system and seed on one workload.

    Attributes:
        quick: a coarse grid and shorter points.
        data: folder of real traces, or empty.
    """

    workload: str
    systems: Sequence[str]
    seeds: Sequence[int]
    profile: str
    checkpoints: Checkpoints
    quick: bool = False
    data: str = ""

    @property
    def grid(self) -> LoadGrid:
        return COARSE if self.quick else FINE

    def tune(self) -> dict[str, int]:
        """Choose the token budget of each system, with loads and seeds of their own.

        Raises:
            OutOfTime: the budget of the checkpoints is used up.
        """
        budgets: dict[str, int] = {}
        for load in TUNING_LOADS:
            systems = [system for system in self.systems if system not in budgets]
            variants = [(system, budget) for system in systems for budget in TOKEN_BUDGETS]
            points = iter(
                self._measure([(*variant, seed, load) for variant in variants for seed in TUNING_SEEDS])
            )
            best: dict[str, tuple[float, float, int]] = {}
            for system, budget in variants:
                own = [next(points) for _ in TUNING_SEEDS]
                urgent, every = (_share(own, kind) for kind in CLASSES)
                best[system] = max(best.get(system, (-1.0, -1.0, 0)), (urgent, every, budget))
            for system, (urgent, _, budget) in best.items():
                if urgent < TARGETS[-1] or load == TUNING_LOADS[-1]:
                    budgets[system] = budget
        return budgets

    def search(self, budgets: Mapping[str, int]) -> dict[str, SystemLoads]:
        """Search for the loads of each system.

        Args:
            budgets: the token budget of each system.

        Raises:
            OutOfTime: the budget of the checkpoints is used up.
        """
        searches = {(system, seed): search_loads(self.grid) for seed in self.seeds for system in self.systems}
        places = {key: next(search) for key, search in searches.items()}
        loads: dict[tuple[str, int], dict[Key, float]] = {}
        points_by_place: dict[tuple[str, int], dict[int, Point]] = {key: {} for key in searches}
        while places:
            points = self.points([(*key, place) for key, place in places.items()], budgets)
            for key, point in zip(list(places), points, strict=True):
                points_by_place[key][places[key]] = point
                try:
                    places[key] = searches[key].send(point)
                except StopIteration as end:
                    loads[key] = end.value
                    del places[key]
        keys = loads[self.systems[0], self.seeds[0]]
        return {
            system: SystemLoads(
                {key: [loads[system, seed][key] for seed in self.seeds] for key in keys},
                [points_by_place[system, seed] for seed in self.seeds],
            )
            for system in self.systems
        }

    def points(self, places: Sequence[tuple[str, int, int]], budgets: Mapping[str, int]) -> list[Point]:
        """The points of some systems, seeds and places of the grid."""
        return self._measure(
            [(system, budgets[system], seed, self.grid.load(place)) for system, seed, place in places]
        )

    def _measure(self, arguments: Sequence[tuple[str, int, int, float]]) -> list[Point]:
        """Points by system, token budget, seed and load."""
        pieces = [
            (self.workload, *argument, self.profile, int(self.quick), self.data) for argument in arguments
        ]
        return self.checkpoints.map("capacity", measure_capacity_point, pieces)


def _share(points: Sequence[Point], kind: str) -> float:
    """The mean share in time of a class; of all tasks where the workload has none of it."""
    shares = (point["all"] if point[kind] is None else point[kind] for point in points)
    return float(sum(shares)) / len(points)
