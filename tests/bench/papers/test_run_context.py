"""An evaluation measures each argument once, seed by seed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from timely.bench.checkpoints import BenchCheckpoints
from timely.bench.papers import plots
from timely.bench.papers.laps_sd.sensitivity import SETTINGS
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.seed_statistics import Measured

pytestmark = pytest.mark.paper


def test_a_figure_is_measured_seed_by_seed_and_once(tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []

    def piece(name: str, seed: int) -> float:
        calls.append((name, seed))
        return seed + len(name) / 10.0

    evaluation = PaperEvaluation([1, 2], tmp_path, checkpoints=BenchCheckpoints(tmp_path / "p.jsonl"))
    assert evaluation.all("x", piece, [("a",), ("bb",)]) == [[1.1, 2.1], [1.2, 2.2]]
    assert calls == [("a", 1), ("bb", 1), ("a", 2), ("bb", 2)]
    assert evaluation.each("x", piece, "bb") == [1.2, 2.2]
    assert evaluation.once("x", piece, "a", 2) == 2.1
    assert len(calls) == 4
    assert PaperEvaluation([1], tmp_path).checkpoints is not PaperEvaluation([1], tmp_path).checkpoints


def test_a_system_without_a_value_in_the_first_group_is_in_the_legend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="needs the extra 'report'")
    legends: list[list[str]] = []

    def note(self: Any, *_: object, **__: object) -> None:
        legends.append([text.get_text() for text in self.axes[0].get_legend().get_texts()])

    monkeypatch.setattr(figure.Figure, "savefig", note)
    values: dict[str, list[Measured | None]] = {"a": [1.0, 2.0], "b": [None, 2.0], "c": [None, None]}
    plots.paper_bars(tmp_path / "x.png", "title", ["one", "two"], values, "s")
    assert legends == [["a", "b"]]


def test_labels_of_groups_do_not_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="needs the extra 'report'")
    gaps: list[float] = []

    def note(self: Any, *_: object, **__: object) -> None:
        self.draw_without_rendering()
        boxes = [label.get_window_extent() for label in self.axes[0].get_xticklabels()]
        gaps.extend(right.x0 - left.x1 for left, right in pairwise(boxes))

    monkeypatch.setattr(figure.Figure, "savefig", note)
    groups = list(SETTINGS)
    plots.paper_bars(tmp_path / "x.png", "title", groups, dict.fromkeys("abcd", [1.0] * len(groups)), "s")
    assert len(gaps) == len(groups) - 1
    assert min(gaps) > 0.0
