"""What the demonstration tells at its end: a table per class, and which class this machine is too slow for."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.demo.view import demo_out_of_reach, demo_summary, render_demo


def task(utility: TimeUtility, response_s: float | None, outcome: str = "complete") -> dict[str, Any]:
    return {
        "tuf": {"ert_s": utility.ert_s, "alpha": utility.alpha, "beta": utility.beta},
        "response_time_s": response_s,
        "waiting_time_s": response_s,
        "utility": None if response_s is None else utility.value(response_s),
        "outcome": outcome,
    }


def table(tasks: list[dict[str, Any]]) -> list[list[str]]:
    console = Console(width=200, color_system=None)
    with console.capture() as caught:
        console.print(demo_summary(tasks))
    return [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in caught.get().splitlines()
        if line.startswith("│")
    ]


def test_the_table_has_a_row_for_each_class() -> None:
    tasks = [
        task(URGENT, 0.1),
        task(URGENT, 0.35),
        task(URGENT, None, "cancelled"),
        task(NORMAL, 0.5),
        task(NORMAL, 1.25),
    ]
    assert table(tasks) == [
        # Median of 0.1 and 0.35, the upper one; of 2 and 0.9995 in the mean.
        ["urgent", "3", "67%", "0.35 s", "0.35 s", "1.50", "75%"],
        ["normal", "2", "100%", "1.25 s", "1.25 s", "0.75", "75%"],
    ]
    assert table([task(NORMAL, None, "cancelled")])[0][:4] == ["normal", "1", "0%", ""]
    assert table([]) == []


def test_a_class_that_this_machine_cannot_serve_in_time_is_named() -> None:
    slow = [task(URGENT, 0.46), task(URGENT, 0.31), task(URGENT, None), task(NORMAL, 0.5)]
    (line,) = demo_out_of_reach(slow)
    assert line.startswith(
        "No urgent task had its first segment in time: wanted within 0.20 s, the quickest took 0.31 s."
    )
    assert demo_out_of_reach([*slow, task(URGENT, 0.2)]) == []
    assert demo_out_of_reach([task(URGENT, None)]) == demo_out_of_reach([]) == []


@pytest.mark.parametrize("width", [80, 100, 140])
def test_every_width_shows_who_does_what_and_how_it_ended(width: int) -> None:
    words = "Clean the desk: rubbish into the bin, pens into the box, the cup onto the tray."
    line = {"agent": "drone1", "class": "urgent", "task": words}
    live = {
        "executing": {"text": "g('cat')", "execution_s": 2.0, "elapsed_s": 1.0},
        **{"dry": False, "generation": "parked", "state": "generating", "slack_s": 1.25, "segments": 12},
    }
    end = {
        **{"outcome": "cancelled", "response_time_s": 12.43, "waiting_time_s": 13.5, "segments": 8},
        **{"utility": -12.41, "utility_max": 2.0},
    }
    engine = {
        **{"discipline": "timely", "step_s": 0.03, "decide_s": 1e-4, "kv_usage": 0.08},
        **{"running": 1, "parked": 2, "waiting": 0, "recomputed_tokens": 0},
    }
    status = {"engine": engine, "robots": [{**line, **live}], "recent": [{**line, **end}]}
    console = Console(width=width, color_system=None)
    with console.capture() as caught:
        console.print(render_demo(status, ["arm1", "drone1"], 12.0, 60.0, width))
    lines = caught.get().splitlines()
    assert all(len(shown) <= width for shown in lines)
    rows = [shown for shown in lines if "drone1" in shown]
    expected = [["g('cat')", "parked", "+1.25 s", "12"], ["cancelled", "12.43 s", "-12.41 of 2"]]
    for row, parts in zip(rows, expected, strict=True):
        assert all(part in row for part in ("urgent", "Clean", *parts)), row
    assert "recomputed 0" in caught.get()
    assert "12 s of 60" in lines[0]
