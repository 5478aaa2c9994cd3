"""Every claim of SECURITY.md and docs/safety.md names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("SECURITY.md", "docs/safety.md")
CLAIMS = ("| guarantee |", "| claim |")
TESTS = {
    name: path.relative_to(ROOT).as_posix()
    for path in sorted((ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


def claims(page: str) -> list[tuple[str, str]]:
    """Claim and tests of each row of the tables of claims."""
    rows: list[tuple[str, str]] = []
    inside = False
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        inside = line.startswith(CLAIMS) or (inside and line.startswith("|"))
        if inside and not line.startswith((*CLAIMS, "|---")):
            claim, _, tests = line.strip("| ").partition(" | ")
            rows.append((claim, tests))
    return rows


@pytest.mark.parametrize("page", PAGES)
def test_every_claim_names_tests_that_exist(page: str) -> None:
    rows = claims(page)
    assert len(rows) > 20
    for claim, tests in rows:
        names = re.findall(r"`(test_\w+)`", tests)
        assert names, f"no test for: {claim}"
        assert [name for name in names if name not in TESTS] == [], claim


@pytest.mark.parametrize("page", PAGES)
def test_every_test_is_where_the_page_says(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, file in re.findall(r"`(test_\w+)` in `([\w/]+\.py)`", text):
        assert TESTS[name].endswith(file), name
    for path in re.findall(r"`(tests/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
