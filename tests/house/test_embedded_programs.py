"""Programs inside strings and documents: every name they import from this project exists."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPORT = re.compile(r"^\s*from (timely[\w.]*|lrtrace[\w.]*) import \(?([\w, ]+)", re.MULTILINE)


def texts_in(path: Path) -> list[str]:
    """The string constants of a Python file, or a whole document."""
    text = path.read_text()
    if path.suffix == ".md":
        return [text]
    constants = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return [value for value in constants if isinstance(value, str)]


def exists(module: str, name: str) -> bool:
    """Whether ``name`` is an attribute or a submodule of ``module``."""
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None


@pytest.mark.process
def test_programs_in_strings_and_documents_import_what_exists() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    imports = {
        (file, module, name.strip().split(" as ")[0])
        for file in listed.split()
        for text in texts_in(ROOT / file)
        for module, names in IMPORT.findall(text)
        for name in names.split(",")
        if name.strip()
    }
    assert imports
    assert not sorted(entry for entry in imports if not exists(*entry[1:]))
