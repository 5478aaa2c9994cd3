"""The tree of errors: stable codes, one line that says what and where, and the way through a pipe."""

from __future__ import annotations

import pickle

import pytest

from timely.core import errors


def tree(kind: type[errors.TimelyError]) -> list[type[errors.TimelyError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]


KINDS = [
    kind
    for kind in tree(errors.TimelyError)
    if kind.__module__ == errors.__name__ and kind is not errors.UnknownName
]


def test_codes_are_unique() -> None:
    kinds: list[type[errors.TimelyError]] = [*KINDS, errors.UnknownName]
    codes = [kind.code for kind in kinds if "code" in vars(kind)]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_the_way_between_processes(kind: type[errors.TimelyError]) -> None:
    error = kind("went wrong", where="field.name")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is kind
    assert (str(copy), copy.message, copy.where) == (str(error), "went wrong", "field.name")
    assert str(error) == "field.name: went wrong"
    assert str(kind("went wrong")) == "went wrong"


def test_an_unknown_name_lists_the_known_ones() -> None:
    error = errors.UnknownName("robot", "r2d2", ["tello", "indy7"], where="robot")
    assert str(error) == "robot: unknown robot 'r2d2'; known: indy7, tello"
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is errors.UnknownName
    assert str(copy) == str(error)
    assert "none" in str(errors.UnknownName("robot", "x", []))
