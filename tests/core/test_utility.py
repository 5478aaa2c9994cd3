"""Time-utility functions against Eq. 1 of TimelyLLM and against nonsense."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.core.errors import InvalidInput
from timely.core.utility import NORMAL, URGENT, TimeUtility, time_utilities_at

functions = st.builds(
    TimeUtility,
    ert_s=st.floats(0.0, 100.0),
    alpha=st.floats(-100.0, 0.0),
    beta=st.floats(1e-3, 100.0),
)


def test_the_papers_defaults() -> None:
    assert [NORMAL.value(t) for t in (0.0, 1.0, 1.25, 1.5, 2.0)] == [1.0, 1.0, 0.5, 0.0, -1.0]
    assert URGENT.value(0.2) == 2.0
    assert URGENT.cutoff_s == pytest.approx(0.2 + 2.0 / 6.67)
    assert URGENT.urgent
    assert not NORMAL.urgent


@given(functions, st.floats(0.0, 200.0), st.floats(0.0, 200.0))
def test_full_worth_until_the_deadline_then_never_more(tuf: TimeUtility, one: float, other: float) -> None:
    early, late = sorted((one, other))
    assert tuf.value(late) <= tuf.value(early) <= tuf.beta
    assert tuf.value(tuf.ert_s) == tuf.beta


@given(functions)
def test_the_cutoff_is_where_it_is_worth_nothing(tuf: TimeUtility) -> None:
    if tuf.cutoff_s < 1e6:
        assert tuf.value(tuf.cutoff_s) == pytest.approx(0.0, abs=1e-6 * tuf.beta + 1e-9)
    else:
        assert tuf.value(1e6) > 0.0


@given(st.floats(0.0, 50.0), st.floats(0.01, 50.0), st.floats(0.01, 50.0))
def test_a_cutoff_stands_for_a_slope(ert: float, after: float, beta: float) -> None:
    tuf = TimeUtility.from_cutoff(ert, ert + after, beta)
    assert tuf.cutoff_s == pytest.approx(ert + after)


@given(st.lists(st.tuples(functions, st.floats(0.0, 100.0)), max_size=20))
def test_many_at_once_equal_one_by_one(pairs: list[tuple[TimeUtility, float]]) -> None:
    ert_s, alpha, beta = (
        np.array([getattr(tuf, name) for tuf, _ in pairs], float) for name in ("ert_s", "alpha", "beta")
    )
    result = time_utilities_at(ert_s, alpha, beta, np.array([latency for _, latency in pairs], float))
    np.testing.assert_array_equal(result, [tuf.value(latency) for tuf, latency in pairs])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ert_s", -0.1), ("ert_s", math.nan), ("ert_s", math.inf), ("ert_s", "1"), ("ert_s", True),
        ("alpha", 0.1), ("alpha", -math.inf), ("alpha", None),
        ("beta", 0.0), ("beta", -1.0), ("beta", math.nan),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=field) as caught:
        TimeUtility(**{field: value})
    assert caught.value.where == f"tuf.{field}"


@pytest.mark.parametrize("cutoff", [1.0, 0.5, math.nan, math.inf])
def test_a_cutoff_before_the_deadline_is_refused(cutoff: float) -> None:
    with pytest.raises(InvalidInput, match=r"tuf\.cutoff_s"):
        TimeUtility.from_cutoff(1.0, cutoff, 1.0)


def test_a_cutoff_right_after_the_expected_time_has_a_finite_slope() -> None:
    tuf = TimeUtility.from_cutoff(0.0, 5e-324, 1.0)
    assert math.isfinite(tuf.alpha)
    assert tuf.cutoff_s == pytest.approx(0.0)
