"""Needs of disciplines: what is missing is an error at start and at admission, with what to do about it."""

from __future__ import annotations

import pytest

from timely.core.errors import InvalidInput, Unsupported
from timely.disciplines import registry
from timely.disciplines.requirements import (
    SPECULATION,
    check_discipline_urgency,
    check_queue_discipline_needs,
)


def test_without_speculation_a_discipline_that_needs_it_is_refused() -> None:
    info = registry.load_discipline("laps-sd").info
    with pytest.raises(Unsupported, match=r"'laps-sd' needs speculation: start the engine with"):
        check_queue_discipline_needs(info, [])
    check_queue_discipline_needs(info, [SPECULATION])


@pytest.mark.parametrize("name", [name for name in registry.discipline_names() if name != "laps-sd"])
def test_all_others_work_anywhere(name: str) -> None:
    check_queue_discipline_needs(registry.load_discipline(name).info, [])


@pytest.mark.parametrize("urgency", [None, 0, 1, 2, 3, 4])
def test_levels_that_exist(urgency: int | None) -> None:
    check_discipline_urgency(urgency)


@pytest.mark.parametrize("urgency", [-1, 5, 1.0, False, "0"])
def test_levels_that_do_not(urgency: object) -> None:
    with pytest.raises(InvalidInput, match="urgency must be 0"):
        check_discipline_urgency(urgency)
