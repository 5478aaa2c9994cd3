"""What a robot holds, among the words of its state: said once, heard as it was said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timely_robots.hand import MAX_CHARS, held, tell

COMPLAINTS = (
    "",
    "too slow a machine: 1.0 s behind",
    "holds: segment 3 has not come for 1.2 s",
    "does not answer; x",
)


@pytest.mark.parametrize("detail", COMPLAINTS)
def test_it_is_heard_whatever_else_is_said(detail: str) -> None:
    assert held(detail) == held(tell(detail, "")) == ""
    assert tell(detail, "") == detail
    said = tell(detail, "red box")
    assert held(said) == "red box"
    # What the driver puts before it when a segment is late.
    assert held(f"holds: segment 1 has not come for 2.0 s; {said}") == "red box"


@given(st.text())
def test_any_name_comes_back_as_words(name: str) -> None:
    heard = held(tell("on the ground", name))
    assert heard == " ".join(name.replace(";", ",").split())[:MAX_CHARS]
