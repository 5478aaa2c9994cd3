"""``timely bench paper``: the rows of its table."""

from __future__ import annotations

from timely.cli.bench.paper import HEADINGS, claim_row


def test_a_claim_s_interval_stands_beside_its_mean() -> None:
    row = {"what": "x", "paper": 2.0, "ours": 1.0, "unit": "s", "verdict": None, "interval": None, "note": ""}
    assert claim_row(row) == ("x", "2", "1", "s", "", "")
    cells = claim_row(row | {"interval": [0.51234567, 1.5], "verdict": "holds"})
    assert cells == ("x", "2", "1 (0.5123 to 1.5)", "s", "holds", "")
    assert len(cells) == len(HEADINGS)
