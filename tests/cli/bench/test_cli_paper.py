"""``timely bench paper``: the rows of its table."""

from __future__ import annotations

from timely.cli.bench.paper import claim_row


def test_a_claim_s_interval_stands_beside_its_mean() -> None:
    row = {"what": "x", "paper": 2.0, "ours": 1.0, "unit": "s", "holds": False, "note": ""}
    assert claim_row(row)[2] == "1"
    cells = claim_row(row | {"ci95": [0.51234567, 1.5]})
    assert cells == ("x", "2", "1 (0.5123 to 1.5)", "s", "0.50", "**no**", "")
