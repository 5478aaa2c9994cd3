"""Execution reports: what a robot may say, and what is refused with the field named."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.core.errors import InvalidInput
from timely.core.reports import MAX_VALUE_CHARS, REPORT_KINDS, ExecutionReport

seconds = st.none() | st.floats(0.0, 1e6)


@given(
    segment=st.integers(0, 100), kind=st.sampled_from(REPORT_KINDS), elapsed=seconds, remaining=st.floats(0.0, 1e6),
    age=st.floats(0.0, 1e6), value=st.text(max_size=50), reason=st.text(max_size=50),
)  # fmt: skip
def test_plain_data_and_back(
    *, segment: int, kind: Any, elapsed: float | None, remaining: float, age: float, value: str, reason: str
) -> None:
    report = ExecutionReport(
        segment, kind, elapsed, remaining if kind == "progress" else None, age,
        value if kind == "value" else None, reason,
    )  # fmt: skip
    assert ExecutionReport(**report.to_dict()) == report


def test_defaults_stay_off_the_wire() -> None:
    assert ExecutionReport(0, "done").to_dict() == {"segment": 0, "kind": "done"}


@pytest.mark.parametrize(
    ("bad", "where"),
    [
        ({"segment": -1}, "segment"), ({"segment": True}, "segment"), ({"segment": 1.0}, "segment"),
        ({"kind": "finished"}, "kind"), ({"kind": ""}, "kind"),
        ({"elapsed_s": -1.0}, "elapsed_s"), ({"elapsed_s": math.nan}, "elapsed_s"),
        ({"age_s": math.inf}, "age_s"), ({"age_s": -0.1}, "age_s"), ({"remaining_s": -1.0}, "remaining_s"),
        ({"kind": "progress"}, "remaining_s"), ({"kind": "value"}, "value"),
        ({"kind": "value", "value": "x" * (MAX_VALUE_CHARS + 1)}, "value"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_by_name(bad: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ExecutionReport(**{"segment": 0, "kind": "done", **bad})
    assert caught.value.where == where
