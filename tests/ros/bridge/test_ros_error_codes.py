"""Every error has a ROS 2 code, every code one meaning, and its range names the part that reported it."""

from __future__ import annotations

import itertools

import pytest
from timely_bridge.error_codes import (
    CODES,
    NAMES,
    RANGES,
    bridge_error_code,
    bridge_error_name,
    bridge_error_owner,
)
from timely_interfaces.msg import ErrorCode

from timely.core import errors
from timely.core.errors import EngineFailed, Overloaded, TimelyError, UnknownName
from timely.server.problems import PROBLEMS


def subclasses(kind: type[TimelyError]) -> list[type[TimelyError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in subclasses(child))]


@pytest.mark.parametrize(
    "kind", [kind for kind in subclasses(TimelyError) if kind.__module__ == errors.__name__]
)
def test_every_error_of_the_tree_has_a_code(kind: type[TimelyError]) -> None:
    assert kind.code in CODES


@pytest.mark.parametrize("code", PROBLEMS)
def test_every_problem_of_the_server_has_a_code(code: str) -> None:
    assert code in CODES


def test_codes_are_unique_and_in_a_range() -> None:
    assert len(NAMES) == len(set(NAMES.values())) > 30
    for code, name in NAMES.items():
        assert (bridge_error_owner(code) == "") == (name == "NONE"), name
    spans = sorted((span.start, span.stop) for span in RANGES.values())
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


def test_owner_and_name() -> None:
    assert bridge_error_owner(ErrorCode.OUT_OF_LIMITS) == "driver"
    assert bridge_error_owner(ErrorCode.PREEMPTED) == "bridge"
    assert bridge_error_owner(ErrorCode.OVERLOADED) == "server"
    assert bridge_error_name(ErrorCode.TOO_LARGE) == "TOO_LARGE"
    assert bridge_error_name(4711) == "4711"


def test_an_unreachable_server_is_told_from_a_broken_engine() -> None:
    url = "http://127.0.0.1:9"
    assert (
        bridge_error_code(EngineFailed("cannot connect", where=url), server_url=url)
        == ErrorCode.SERVER_UNREACHABLE
    )
    assert (
        bridge_error_code(EngineFailed("out of memory", where="engine"), server_url=url)
        == ErrorCode.ENGINE_FAILED
    )


def test_more_special_errors_keep_their_own_code() -> None:
    assert bridge_error_code(UnknownName("skill set", "x", [])) == ErrorCode.UNKNOWN_NAME
    assert bridge_error_code(Overloaded("later")) == ErrorCode.OVERLOADED


def test_a_code_nobody_knows_is_a_server_error() -> None:
    error = TimelyError("?")
    error.code = "from_the_future"
    assert bridge_error_code(error) == ErrorCode.SERVER_ERROR
