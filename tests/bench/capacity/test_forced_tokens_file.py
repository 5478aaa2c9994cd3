"""The shipped table of forced tokens is what grammar, names and the packaged tokenizer give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "measure_forced_tokens.py"


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_the_table_is_up_to_date() -> None:
    subprocess.run([sys.executable, SCRIPT, "--check"], check=True, timeout=280)
