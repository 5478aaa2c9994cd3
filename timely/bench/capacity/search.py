"""The highest load at which enough tasks are in time, found by bisection on a geometric grid of loads."""

import math
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from timely.bench.capacity.measure import Point, measure_capacity_point
from timely.bench.checkpoints import BenchCheckpoints

K = TypeVar("K", bound=Hashable)
P = TypeVar("P")
R = TypeVar("R")

TARGETS = (0.90, 0.99)
"""Shares in time that a load must keep."""

CLASSES = ("urgent", "all")
"""Shares of a point that are searched; a workload without urgent tasks has the second alone."""

HALVINGS, DOUBLINGS = 4, 7
"""Of the published load: the lowest and the highest load that are tried."""


@dataclass(frozen=True, slots=True)
class CapacityLoadGrid:
    """Loads ``2 ** (place / steps)``; ``steps`` of them double the load."""

    steps: int

    def load(self, place: int) -> float:
        return round(math.pow(2.0, place / self.steps), 6)

    def place(self, load: float) -> int:
        """The highest place that is tried with at most that load; the lowest place for load 0."""
        if load <= 0.0:
            return self.lowest
        return max(self.lowest, min(self.highest, math.floor(self.steps * math.log2(load) + 1e-9)))

    @property
    def lowest(self) -> int:
        return -HALVINGS * self.steps

    @property
    def highest(self) -> int:
        return DOUBLINGS * self.steps


FINE, COARSE = CapacityLoadGrid(8), CapacityLoadGrid(3)
"""Loads 9% apart, and 26% apart for a quick look; between two of them the share is interpolated."""

TOKEN_BUDGETS = (256, 512, 2048)
"""Most tokens of a step: each system gets the one with which it bears the highest load on the workload."""

TUNING_SEEDS = (1001, 1002, 1003, 1004)
"""Seeds by which the token budget is chosen; the measurement has other seeds."""

Key = tuple[str, float]
"""A class and a target."""

RANKING: Sequence[Key] = (("urgent", 0.99), ("urgent", 0.90), ("all", 0.99), ("all", 0.90))
"""The reported loads by which token budgets are compared; a later one decides among those equal in all before."""

Variant = tuple[int, int, int]
"""A token budget, a seed and a place of the grid."""


@dataclass(frozen=True, slots=True)
class CapacitySystemLoads:
    """What the searches of one system have found.

    Attributes:
        loads: by class and target, one a seed.
        points: by seed, in order, the points that were measured, by their place.
    """

    loads: Mapping[Key, Sequence[float]]
    points: Sequence[Mapping[int, Point]]


def search_loads(grid: CapacityLoadGrid) -> Generator[int, Point, tuple[dict[Key, float], dict[int, Point]]]:
    """Ask for points by their place and return the load of each class and target, and the points.

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
    return loads, points


def search_crossing(
    grid: CapacityLoadGrid, target: float, lowest: int, highest: int, first: int, stride: int
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


def search_budget(grid: CapacityLoadGrid, seeds: Sequence[int]) -> Generator[Variant, Point, int]:
    """Ask for points and return the token budget that bears the highest load, a mean over the seeds.

    Of budgets equal in all of ``RANKING`` the largest is returned.
    """
    budgets = list(TOKEN_BUDGETS)
    for key in RANKING:
        best: dict[int, float] = dict.fromkeys(seeds, 0.0)
        equals: list[int] = []
        for budget in budgets:
            firsts = {seed: grid.place(best[seed]) if equals else 0 for seed in seeds}
            loads = yield from _search_seeds(grid, key, budget, firsts, math.fsum(best.values()))
            if loads is None:
                continue
            if math.fsum(loads.values()) > math.fsum(best.values()):
                best, equals = loads, []
            equals.append(budget)
        budgets = equals
        if len(budgets) == 1:
            break
    return max(budgets)


def _search_seeds(
    grid: CapacityLoadGrid, key: Key, budget: int, firsts: Mapping[int, int], least: float
) -> Generator[Variant, Point, dict[int, float] | None]:
    """Ask for points and return the load by seed; None as soon as their sum must be below ``least``.

    Args:
        firsts: by seed, the place at which its search begins.
    """
    kind, target = key
    searches = {
        seed: search_crossing(grid, target, grid.lowest, grid.highest, first, grid.steps)
        for seed, first in firsts.items()
    }
    places = {seed: next(search) for seed, search in searches.items()}
    most = dict.fromkeys(searches, grid.load(grid.highest))
    while places:
        for seed, place in list(places.items()):
            point = yield budget, seed, place
            share = point["all"] if point[kind] is None else point[kind]
            if share < target:
                most[seed] = min(most[seed], grid.load(place))
            try:
                places[seed] = searches[seed].send(share)
            except StopIteration as end:
                most[seed] = end.value
                del places[seed]
            if math.fsum(most.values()) < least:
                return None
    return most


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
    checkpoints: BenchCheckpoints
    quick: bool = False
    data: str = ""

    @property
    def grid(self) -> CapacityLoadGrid:
        return COARSE if self.quick else FINE

    def tune(self) -> dict[str, int]:
        """Choose the token budget of each system by the loads that are reported, with seeds of their own.

        Raises:
            BenchOutOfTime: the budget of the checkpoints is used up.
        """
        searches = {system: search_budget(self.grid, TUNING_SEEDS) for system in self.systems}
        return self._drive(searches, lambda system, variant: (system, *variant))

    def search(self, budgets: Mapping[str, int]) -> dict[str, CapacitySystemLoads]:
        """Search for the loads of each system.

        Args:
            budgets: the token budget of each system.

        Raises:
            BenchOutOfTime: the budget of the checkpoints is used up.
        """
        results = self._drive(
            {(system, seed): search_loads(self.grid) for seed in self.seeds for system in self.systems},
            lambda key, place: (key[0], budgets[key[0]], key[1], place),
        )
        keys = results[self.systems[0], self.seeds[0]][0]
        return {
            system: CapacitySystemLoads(
                {key: [results[system, seed][0][key] for seed in self.seeds] for key in keys},
                [results[system, seed][1] for seed in self.seeds],
            )
            for system in self.systems
        }

    def _drive(
        self,
        searches: Mapping[K, Generator[P, Point, R]],
        variant: Callable[[K, P], tuple[str, int, int, int]],
    ) -> dict[K, R]:
        """Measure what the searches ask for, all of them in step, and return their results."""
        places = {key: next(search) for key, search in searches.items()}
        results: dict[K, R] = {}
        while places:
            points = self.points([variant(key, place) for key, place in places.items()])
            for key, point in zip(list(places), points, strict=True):
                try:
                    places[key] = searches[key].send(point)
                except StopIteration as end:
                    results[key] = end.value
                    del places[key]
        return results

    def points(self, variants: Sequence[tuple[str, int, int, int]]) -> list[Point]:
        """Points by system, token budget, seed and place of the grid."""
        pieces = [
            (
                self.workload, system, budget, seed, self.grid.load(place), self.profile, int(self.quick), self.data,
            )
            for system, budget, seed, place in variants
        ]  # fmt: skip
        return self.checkpoints.map("capacity", measure_capacity_point, pieces)
