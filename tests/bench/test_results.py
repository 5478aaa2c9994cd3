"""The page of results: what it says follows from the files, and a wrong file is named."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from timely.bench import result_plots
from timely.bench.results import bench_pareto_front
from timely.cli.main import run_timely_command

SPIKES = ("spikes up to 100, level 0, s a token", "the same, all levels")
CROSS = {
    "command": "timely bench cross --seeds 1",
    "seeds": 1,
    "rows": {"timely": {SPIKES[0]: 2.0, SPIKES[1]: 1.0}, "fcfs": {SPIKES[0]: 1.0, SPIKES[1]: 3.0}},
    "better": dict.fromkeys(SPIKES, "lower"),
    "headline": [SPIKES[0]],
}
LIVE = {
    "command": "timely bench live --budget 0",
    "mean_error": 0.03,
    "worst_error": 0.1,
    "same_winner": 0.99,
    "workloads": {
        "wid1": {"timely": {"measured": {"response p50": 1.0}, "predicted": {"response p50": 1.1}}}
    },
}


def capacity() -> Iterator[dict[str, Any]]:
    """Two calls, of different systems."""
    rows = {
        system: {
            "load_99": load,
            "all_90": 8 / load,
            "interval_99": [0.5 * load, 1.5 * load],
            "load_90": 2 * load,
            "curve": [(0.5, 1.0), (load, 0.99), (8.0, 0.2)],
        }
        for system, load in (("timely", 4.0), ("edf", 2.0), ("vllm", 1.0))
    }
    for names in (["timely", "vllm"], ["edf"]):
        yield {
            "command": f"timely bench capacity --systems {','.join(names)} --json 'a b.json'",
            "profile": "any",
            "seeds": 1,
            "workloads": {"wid1": {name: rows[name] for name in names}},
        }


def run(folder: Path, **files: Any) -> int:
    words = ["bench", "results", "--page", str(folder / "results.md")]
    for name, value in {"capacity": [*capacity()], "cross": [CROSS], "live": [LIVE], **files}.items():
        for number, result in enumerate(value):
            path = folder / f"{name}{number}.json"
            path.write_text(json.dumps(result))
            words += [f"--{name}", str(path)]
    return run_timely_command(words)


@pytest.mark.process
def test_the_page_and_its_five_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert run(tmp_path) == 0
    text = (tmp_path / "results.md").read_text()
    assert "| `wid1` | 100 (50 to 150) | `edf` | 50 (25 to 75) | 2.00 | 0.25 (`vllm`) |" in text
    call = ".venv/bin/timely bench capacity --systems {} --json 'a b.json'\n"
    assert f"```bash\n{call.format('timely,vllm')}{call.format('edf')}```" in text
    assert "`timely` is worst on spikes up to 100, with 0.50 of the best." in text
    assert "Within 5% on all of them: `fcfs`." in text
    assert "Mean error of response times 3.0%, worst 10.0%." in text
    assert "the line joins `fcfs`, `timely`; `timely` is on it." in text
    pictures = sorted(path.name for path in (tmp_path / "images").iterdir())
    assert len(pictures) == 5
    assert all(f"(images/{name})" in text for name in pictures)


@pytest.mark.process
def test_a_file_of_another_benchmark_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert run(tmp_path, cross=[{"seeds": 1}]) == 2
    assert "is no result of `timely bench cross --json`" in capsys.readouterr().err


def test_the_front_is_what_no_other_beats_on_both() -> None:
    points = {"a": (1.0, 3.0), "b": (2.0, 2.0), "c": (2.5, 2.0), "d": (4.0, 1.0), "e": (5.0, 5.0)}
    assert bench_pareto_front(points) == ["a", "b", "d"]


def test_the_names_on_the_front_overlap_neither_each_other_nor_a_point(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    # Values of the cross table; the names of `timely` and `sagesched` stood on each other, and on points.
    points = {
        **{"timely": (55.3, 25.0), "sagesched": (60.3, 24.0), "laps-sd": (134.3, 0.65), "las": (489.9, 0.66)},
        **{
            "gittins-static": (60.5, 31.9),
            "trail": (76.6, 38.3),
            "fcfs": (98.3, 78.6),
            "semantic": (1498.0, 1486.0),
        },
    }
    figure = drawn(
        result_plots.plot_frontiers,
        tmp_path / "front.png",
        [("a", "b", points)],
        [bench_pareto_front(points)],
        "timely",
    )
    (panel,) = figure.axes
    boxes = [text.get_window_extent() for text in panel.texts]
    assert len(boxes) == 3
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    places = panel.transData.transform(list(points.values()))
    assert not any(box.contains(*place) for box in boxes for place in places)


def test_the_numbers_of_the_heat_map_stand_out_from_their_cells(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shares = [place / 50 for place in range(51)]
    figure = drawn(
        result_plots.plot_heat_map, tmp_path / "map.png", "", [""] * len(shares), {"timely": shares}, "timely"
    )
    (panel,) = figure.axes
    (image,) = panel.images
    for share, text in zip(shares, panel.texts, strict=True):
        lighter, darker = sorted((luminance(image.to_rgba(share)), luminance(text.get_color())), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, share


def drawn(plot: Callable[..., None], *arguments: Any) -> Any:
    """The figure that ``plot`` saves."""
    from matplotlib.figure import Figure

    figures: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
        plot(*arguments)
    figures[0].draw_without_rendering()
    return figures[0]


def luminance(colour: Any) -> float:
    """The relative luminance of WCAG 2."""
    from matplotlib.colors import to_rgb

    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in to_rgb(colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
