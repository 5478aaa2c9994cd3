"""The shipped table of forced tokens is what grammar, names and the packaged tokenizer give."""

from __future__ import annotations

import sys

import pytest
from project_scripts import load_script


@pytest.mark.engine
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # libraries of the model warn about themselves
def test_the_table_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["measure_forced_tokens.py", "--check"])
    assert load_script("measure_forced_tokens").main() == 0
