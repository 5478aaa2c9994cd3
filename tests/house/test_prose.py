"""The prose check sees what it should: in Markdown, docstrings, comments, error messages and help texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from project_scripts import load_script

LONG = " ".join(["word"] * 26)


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        ("page.md", "The robot moves. The arm waits.", "2 sentences in one line"),
        ("page.md", f"The {LONG}.", "27 words"),
        ("module.py", f'"""{LONG}."""', "26 words"),
        ("module.py", "# Nobody waits.", "subject without a name"),
        ("module.py", "# The turnstile opens.", "private word"),
        ("module.py", f'raise ValueError(f"{LONG} {{number}}")', "27 words"),
        ("module.py", f'Option(help="{LONG}")', "26 words"),
        ("module.py", "found = 1", "says nothing"),
    ],
)
def test_each_kind_of_text_is_read(name: str, text: str, finding: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text)
    (line,) = load_script("check_prose").check(file)
    assert line.startswith(f"{file}:1: ")
    assert finding in line
