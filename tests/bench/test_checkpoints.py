"""A long evaluation stops and goes on: nothing is done twice, nothing that was cut off is believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely.bench.checkpoints import OutOfTime, Pieces
from timely.core.errors import InvalidInput


class Counting:
    """A piece that knows how often it was computed."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def __call__(self, name: str, seed: int) -> list[float]:
        self.calls.append((name, seed))
        return [seed / 2.0, 1.0]


ASKED = [("a", 1), ("b", 1), ("a", 2)]


def test_a_second_run_reads_what_the_first_computed(tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    path = tmp_path / "folder" / "pieces.jsonl"
    results = Pieces(path).map("fig", first, ASKED)
    assert results == [[0.5, 1.0], [0.5, 1.0], [1.0, 1.0]]
    again = Pieces(path)
    assert again.map("fig", second, [*ASKED, ("c", 3)]) == [*results, [1.5, 1.0]]
    assert first.calls == ASKED
    assert second.calls == [("c", 3)]


def test_experiments_do_not_share_pieces(tmp_path: Path) -> None:
    count = Counting()
    pieces = Pieces(tmp_path / "p.jsonl")
    pieces.map("one", count, ASKED)
    pieces.map("two", count, ASKED)
    assert len(count.calls) == 6
    assert len(pieces) == 6


def test_out_of_time_keeps_what_is_done(tmp_path: Path) -> None:
    ticks = iter(range(100))
    count = Counting()
    path = tmp_path / "p.jsonl"
    with pytest.raises(OutOfTime) as told:
        Pieces(path, budget_s=3.0, seconds=lambda: float(next(ticks))).map("fig", count, ASKED)
    assert (told.value.done, told.value.left) == (2, 1)
    Pieces(path).map("fig", count, ASKED)
    assert count.calls == ASKED


def square(number: int) -> int:
    return number * number


def test_pieces_side_by_side_are_the_same_pieces(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    asked = [(n,) for n in range(7)]
    assert Pieces(path, jobs=3).map("square", square, asked) == [n * n for n in range(7)]
    assert Pieces(path, budget_s=0.0, jobs=3).map("square", square, asked)[-1] == 36, "all are kept"
    with pytest.raises(OutOfTime) as told:
        Pieces(path, budget_s=0.0, jobs=3).map("square", square, [(n,) for n in range(20)])
    assert (told.value.done, told.value.left) == (7, 13)


def test_a_line_cut_off_is_done_again(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    Pieces(path).map("fig", Counting(), ASKED)
    whole = path.read_text()
    path.write_text(whole[:-10])
    count = Counting()
    assert Pieces(path).map("fig", count, ASKED)[2] == [1.0, 1.0]
    assert count.calls == [("a", 2)]
    assert path.read_text() == whole


@pytest.mark.parametrize("content", ["", "[]\n", '{"timely_pieces": "0.0.0"}\n', "\x00\x01"])
def test_a_file_that_is_none_is_told_and_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=r"p\.jsonl"):
        Pieces(path)
    assert path.read_text() == content


def test_not_a_number_is_no_result() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Pieces().map("fig", lambda seed: float("nan"), [(1,)])
