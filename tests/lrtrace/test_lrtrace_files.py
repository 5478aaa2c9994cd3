"""What lrtrace writes appears whole or not at all, and numbers from JSON are numbers."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from lrtrace.errors import BadInput
from lrtrace.jsonl import is_finite_jsonl_number, write_jsonl
from lrtrace.record.samples import read_recorded_samples


def test_a_device_is_written_and_stays_one(tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to(os.devnull)
    write_jsonl(link, [{"a": 1}])
    assert link.is_symlink()
    assert list(tmp_path.iterdir()) == [link]


def test_a_line_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text("old")
    with pytest.raises(ValueError, match="JSON"):
        write_jsonl(file, [{"a": 1}, {"a": math.nan}])
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("value", [True, None, "1", [1], math.nan, math.inf, 10**400, -(10**400)])
def test_no_number(value: object) -> None:
    assert not is_finite_jsonl_number(value)


@pytest.mark.parametrize("zeros", [13, 400])
def test_an_argument_too_large_for_a_fit_is_named(tmp_path: Path, zeros: int) -> None:
    file = tmp_path / "x.samples.jsonl"
    file.write_text('{"robot": "a", "skill": "b", "args": {"c": 1' + zeros * "0" + '}, "elapsed_s": 1.0}\n')
    with pytest.raises(BadInput, match=r"x\.samples\.jsonl:1: args\.c: must be a number or text"):
        list(read_recorded_samples(file))
