"""An evaluation measures each argument once, seed by seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely.bench.checkpoints import Checkpoints
from timely.bench.papers.run_context import Evaluation

pytestmark = pytest.mark.paper


def test_a_figure_is_measured_seed_by_seed_and_once(tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []

    def piece(name: str, seed: int) -> float:
        calls.append((name, seed))
        return seed + len(name) / 10.0

    evaluation = Evaluation([1, 2], tmp_path, checkpoints=Checkpoints(tmp_path / "p.jsonl"))
    assert evaluation.all("x", piece, [("a",), ("bb",)]) == [[1.1, 2.1], [1.2, 2.2]]
    assert calls == [("a", 1), ("bb", 1), ("a", 2), ("bb", 2)]
    assert evaluation.each("x", piece, "bb") == [1.2, 2.2]
    assert evaluation.once("x", piece, "a", 2) == 2.1
    assert len(calls) == 4
    assert Evaluation([1], tmp_path).checkpoints is not Evaluation([1], tmp_path).checkpoints
